"""Constants of model.json: numbers in the file itself, or bytes in a file beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from crtexport.importers.crtjson.document import FileData
from crtexport.importers.crtjson.safetensors_file import TensorRange, read_entries
from crtexport.importers.files import regular_size
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.ir.verify import MAX_RANK
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import did_you_mean


def inline(data: Any, type_: TensorType) -> ConstantRef:
    """Returns a constant made from numbers, flat in C order or nested like the shape."""
    values = _flatten(data, type_)
    if len(values) != type_.elements:
        raise CrtExportError(f"{type_} has {type_.elements} elements, found {len(values)}")
    if type_.dtype is DType.BOOL:
        good = all(isinstance(value, bool) for value in values)
    elif type_.dtype.is_float:
        good = all(type(value) in (int, float) for value in values)
    else:
        low, high = type_.dtype.limits
        good = all(type(value) is int and low <= value <= high for value in values)
    if not good:
        raise CrtExportError(f"not every element is a {type_.dtype.value}")
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=np.float64 if type_.dtype.is_float else None)
            array = array.astype(type_.dtype.numpy)
    except OverflowError:
        raise CrtExportError(f"an element is out of the range of {type_.dtype.value}") from None
    if type_.dtype.is_float and not np.isfinite(array).all():
        raise CrtExportError(f"an element is out of the range of {type_.dtype.value}")
    return ConstantRef.of(array)


def _flatten(data: Any, type_: TensorType) -> list[Any]:
    if not isinstance(data, list):
        return [data]
    if not any(isinstance(item, list) for item in data):
        return data
    level = [data]
    for size in type_.shape[:MAX_RANK]:
        if not all(isinstance(item, list) and len(item) == size for item in level):
            raise CrtExportError(f"the lists are not nested like the shape {list(type_.shape)}")
        level = [inner for item in level for inner in item]
    return level


def to_inline(constant: ConstantRef, type_: TensorType) -> Any:
    """Returns the numbers from which :func:`inline` restores the constant bit for bit; None if JSON
    can't represent one of them."""
    array = constant.array(type_).reshape(-1)
    values = array.tolist()
    if type_.dtype.is_float:
        if not np.isfinite(array).all():
            return None
        values = [_shortest(value, type_.dtype) for value in values]
    return values if type_.shape else values[0]


def _shortest(value: float, dtype: DType) -> float:
    """Returns the float64 with the fewest digits that equals ``value`` once rounded to ``dtype``.
    """
    kind = np.dtype(dtype.value).type
    short = float(str(kind(value)))
    # Rounding to float64 first only changes the result for rare values halfway between two others.
    same = kind(short) == kind(value) and math.copysign(1, short) == math.copysign(1, value)
    return short if same else value


class Sidecars(Struct):
    """The files that a model.json in ``folder`` refers to."""

    folder: Path
    allow_outside: bool
    _entries: dict[Path, dict[str, TensorRange]] = field(default_factory=dict)

    def constant(self, data: FileData, type_: TensorType) -> ConstantRef:
        """Returns the bytes that ``data`` refers to; checks that they exist and match the size of
        ``type_``."""
        path = self._resolve(data.file)
        try:
            size = regular_size(path)
        except CrtExportError as error:
            raise CrtExportError(f"the file {data.file!r}: {error.problem}") from error
        if data.tensor is not None:
            if data.offset is not None or data.nbytes is not None:
                raise CrtExportError("a constant has either 'tensor' or 'offset' and 'nbytes'")
            return self._tensor(path, data, data.tensor, type_)
        offset = data.offset or 0
        nbytes = type_.nbytes if data.nbytes is None else data.nbytes
        if nbytes != type_.nbytes:
            raise CrtExportError(f"{type_} takes {type_.nbytes} bytes, found nbytes {nbytes}")
        if offset + nbytes > size:
            raise CrtExportError(
                f"bytes {offset} to {offset + nbytes} of {data.file!r}, which has only {size}"
            )
        return ConstantRef(nbytes=nbytes, path=path, offset=offset)

    def _tensor(self, path: Path, data: FileData, name: str, type_: TensorType) -> ConstantRef:
        if path not in self._entries:
            try:
                self._entries[path] = read_entries(path)
            except CrtExportError as error:
                raise error.within(data.file) from error.__cause__
        entries = self._entries[path]
        if name not in entries:
            raise CrtExportError(
                f"{data.file!r} has no tensor {name!r}", hint=did_you_mean(name, entries)
            )
        entry = entries[name]
        if (entry.dtype, entry.shape) != (type_.dtype, type_.shape):
            found = TensorType(entry.dtype, entry.shape) if entry.dtype else "of an unknown type"
            raise CrtExportError(f"{name!r} in {data.file!r} is {found}, expected {type_}")
        return entry.constant

    def file(self, name: str) -> Path:
        """Returns the path of a file that isn't a constant. Raises CrtExportError if it doesn't
        exist."""
        path = self._resolve(name)
        try:
            regular_size(path)
        except CrtExportError as error:
            raise CrtExportError(f"the file {name!r}: {error.problem}") from error
        return path

    def _resolve(self, name: str) -> Path:
        """Returns the path of a file beside the model, with links resolved; it must be inside the
        model's folder unless other folders are allowed."""
        try:
            folder = self.folder.resolve()
            path = (folder / name).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise CrtExportError(f"{name!r} is no usable file name: {error}") from error
        if not self.allow_outside and not path.is_relative_to(folder):
            raise CrtExportError(
                f"the file {name!r} lies outside of the model's folder",
                hint="move it there, or, if you trust the model, use --allow-outside of"
                " `crtexport export` or `crtexport convert`",
            )
        return path
