"""Tensors of an ONNX file as constants: ranges of the file, or of files in its folder, if the
elements are stored there unchanged; else decoded numbers."""

from __future__ import annotations

from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.importers.bit_fields import stored_bytes, unpacked
from crtexport.importers.files import regular_size
from crtexport.importers.onnx.messages import SparseTensor, TensorData
from crtexport.importers.onnx.wire import VARINT, WireField
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.ir.verify import check_type
from crtexport.support.errors import CrtExportError

_DTYPES = {
    1: DType.FLOAT32, 2: DType.UINT8, 3: DType.INT8, 4: DType.UINT16, 5: DType.INT16,
    6: DType.INT32, 7: DType.INT64, 9: DType.BOOL, 10: DType.FLOAT16, 11: DType.FLOAT64,
    12: DType.UINT32, 21: DType.UINT8, 22: DType.INT8, 25: DType.UINT8, 26: DType.INT8,
}
_BITS = {21: 4, 22: 4, 25: 2, 26: 2}
"""The bits of element types of less than a byte, by their codes. In the file, several elements
share a byte; here, each has its own."""
_OTHERS = {
    8: "string", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz",
    23: "float4e2m1", 24: "float8e8m0",
}
_EXTERNAL = 1


def element_type(code: int) -> DType:
    """Returns the element type of a ``TensorProto.DataType``. Raises CrtExportError for one that
    crtexport hasn't."""
    found = _DTYPES.get(code)
    if found is None:
        raise CrtExportError(
            f"the element type {_OTHERS.get(code, f'number {code}')} is not supported"
        )
    return found


def bits_of(code: int) -> int | None:
    """Returns the bits of an element type of less than a byte; None for others."""
    return _BITS.get(code)


def tensor_constant(
    data: TensorData, path: Path, *, allow_outside: bool
) -> tuple[TensorType, ConstantRef]:
    """Returns the type and the elements of a tensor of the file ``path``.

    Raises CrtExportError where the elements are missing or too few, of an element type that
    crtexport hasn't, or in a file outside of the model's folder (unless ``allow_outside``).
    """
    type_ = TensorType(element_type(data.element), data.dims)
    check_type(type_)
    bits = _BITS.get(data.element)
    stored = type_.nbytes if bits is None else stored_bytes(type_.elements, bits)
    if data.location == _EXTERNAL:
        constant = _external(data, path, stored, allow_outside=allow_outside)
    elif data.raw is not None:
        constant = ConstantRef(nbytes=len(data.raw), path=path, offset=data.raw.start)
    else:
        constant = _typed(data, type_, path, packed=bits is not None)
    if constant.nbytes != stored:
        raise CrtExportError(f"{type_} takes {stored} bytes, the file has {constant.nbytes}")
    if bits is not None:
        signed = type_.dtype is DType.INT8
        constant = unpacked(constant, type_.elements, bits, signed=signed)
    return type_, constant


def _external(
    data: TensorData, path: Path, nbytes: int, *, allow_outside: bool
) -> ConstantRef:
    """Returns the elements in another file, whose path is relative to the model's folder."""
    entries = {entry.key: entry.value for entry in data.external}
    location = entries.get("location", "")
    if not location:
        raise CrtExportError("its external data has no location")
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(nbytes)))
    except ValueError:
        raise CrtExportError("offset and length of its external data must be numbers") from None
    folder = path.parent.resolve()
    there = (folder / PurePosixPath(location.replace("\\", "/"))).resolve()
    if not allow_outside and not there.is_relative_to(folder):
        raise CrtExportError(
            f"its external data {location!r} is outside of the model's folder",
            hint="--allow-outside reads it, if you trust the model",
        )
    size = regular_size(there)
    if offset < 0 or length < 0 or offset + length > size:
        raise CrtExportError(
            f"its {length} bytes at {offset} reach past the end of {location!r} ({size} bytes)"
        )
    return ConstantRef(nbytes=length, path=there, offset=offset)


def _typed(data: TensorData, type_: TensorType, path: Path, *, packed: bool) -> ConstantRef:
    """Returns the elements of a tensor that stores them in a typed field."""
    match type_.dtype:
        case DType.FLOAT32:
            return _fixed(data.float_data, 4, path)
        case DType.FLOAT64:
            return _fixed(data.double_data, 8, path)
        case DType.INT64:
            fields = data.int64_data
        case DType.UINT32:
            fields = data.uint64_data
        case _:
            fields = data.int32_data
    numbers = [field.integers() for field in fields]
    values = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
    if packed:
        return ConstantRef.of(values.astype(np.uint8))
    if type_.dtype is DType.FLOAT16:
        return ConstantRef.of(values.astype(np.uint16))
    if type_.dtype.is_integer and len(values):
        low, high = type_.dtype.limits
        if values.min() < low or values.max() > high:
            raise CrtExportError(f"a number doesn't fit into {type_.dtype.value}")
    return ConstantRef.of(values.astype(type_.dtype.numpy))


def _fixed(fields: tuple[WireField, ...], itemsize: int, path: Path) -> ConstantRef:
    """Returns numbers of ``itemsize`` bytes, as a range of the file if they are contiguous."""
    spans = [field.fixed(itemsize) for field in fields if field.kind != VARINT]
    if len(spans) == 1:
        return ConstantRef(nbytes=len(spans[0]), path=path, offset=spans[0].start)
    data = b"".join(span.content() for span in spans)
    return ConstantRef(nbytes=len(data), data=data)


def sparse_array(
    sparse: SparseTensor, values: npt.NDArray[Any], indices: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Returns a sparse tensor with all its zeros; ``indices`` count elements, or have a row of
    coordinates for each value. Raises CrtExportError for indices that are outside of it."""
    count = prod(sparse.dims)
    result = np.zeros(count, values.dtype)
    if indices.ndim == 2:
        places = np.zeros(len(indices), np.int64)
        if indices.shape[1] != len(sparse.dims):
            raise CrtExportError(f"indices of {indices.shape[1]} axes for {len(sparse.dims)}")
        for axis, size in enumerate(sparse.dims):
            if len(indices) and not 0 <= indices[:, axis].min() <= indices[:, axis].max() < size:
                raise CrtExportError(f"an index outside of {list(sparse.dims)}")
            places = places * size + indices[:, axis]
    else:
        places = indices.reshape(-1)
    if len(places) != values.size or (
        len(places) and not 0 <= places.min() <= places.max() < count
    ):
        raise CrtExportError(f"indices don't fit {list(sparse.dims)}")
    result[places] = values.reshape(-1)
    return result.reshape(sparse.dims)
