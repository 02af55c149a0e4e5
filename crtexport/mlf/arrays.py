"""Arrays for a package's inputs and outputs: matches them by name, checks them, and reads and
writes .npz files.

The name of an array is its tensor's name in the model or its field in the C interface.
"""

from __future__ import annotations

import functools
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.mlf.reader import PackageTensor, module_of
from crtexport.support.errors import CrtExportError
from crtexport.support.files import open_regular
from crtexport.support.outputs.single import replacing

Array = npt.NDArray[np.generic]

_ZIP32_LIMIT = 1 << 30


def key_of(tensor: PackageTensor) -> str:
    """Returns the name of the tensor in results: its field in the C interface, else its name."""
    return tensor.field or tensor.name


class InputSamples(Struct, frozen=True):
    """Inputs for one or more runs: ``rows[sample]`` maps the name of each input (:func:`key_of`) to
    its array. ``stacked``: the given arrays had an axis of samples, which may have size one."""

    rows: tuple[dict[str, Array], ...]
    stacked: bool = False


def bind_inputs(
    tensors: Sequence[PackageTensor], arrays: Mapping[str, Array], what: str = "input"
) -> InputSamples:
    """Returns ``arrays`` in the order of the inputs ``tensors``, contiguous and little-endian;
    errors call the tensors ``what``.

    Each array has the shape of its input; or all of them have one axis more in front, the samples.
    Raises CrtExportError for missing arrays, arrays of unknown names, and arrays of another shape
    or dtype: nothing is converted silently.
    """
    found = _matched(tensors, arrays, what)
    checked = [_checked(tensor, array, what) for tensor, array in zip(tensors, found, strict=True)]
    counts = {tensor.name: count for tensor, (_, count) in zip(tensors, checked, strict=True)}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name}: {count or 'no axis'}" for name, count in counts.items())
        raise CrtExportError(f"the {what}s have different numbers of samples ({told})")
    stacked = any(counts.values())
    rows = max(len(array) for array, _ in checked) if stacked else 1
    return InputSamples(
        tuple(
            {
                key_of(tensor): array[row] if stacked else array
                for tensor, (array, _) in zip(tensors, checked, strict=True)
            }
            for row in range(rows)
        ),
        stacked,
    )


def _matched(
    tensors: Sequence[PackageTensor], arrays: Mapping[str, Array], what: str
) -> list[Array]:
    matched: list[Array] = []
    used: set[str] = set()
    names = [tensor.name for tensor in tensors]
    for tensor in tensors:
        keys = [key_of(tensor)]
        if names.count(tensor.name) == 1:
            keys.append(tensor.name)
        found = [key for key in dict.fromkeys(keys) if key in arrays]
        if not found:
            raise CrtExportError(
                f"there is no array for this {what}", location=tensor.name,
                hint=_wanted(tensors, what),
            )
        if len(found) > 1:
            raise CrtExportError(
                f"there are two arrays for this {what}: {found[0]!r} and {found[1]!r}",
                location=tensor.name, hint=_wanted(tensors, what),
            )
        used.add(found[0])
        matched.append(np.asarray(arrays[found[0]]))
    extra = sorted(set(arrays) - used)
    if extra:
        raise CrtExportError(
            f"no {what} is called {', '.join(map(repr, extra))}", hint=_wanted(tensors, what)
        )
    return matched


def _wanted(tensors: Iterable[PackageTensor], what: str) -> str:
    listed = ", ".join(f"{key_of(tensor)} {_described(tensor)}" for tensor in tensors)
    return f"the {what}s are: {listed or 'none'}"


def _described(tensor: PackageTensor) -> str:
    shape = f"[{'x'.join(map(str, tensor.shape))}]" if tensor.shape is not None else ""
    return f"{tensor.dtype}{shape}"


def _checked(
    tensor: PackageTensor, array: Array, what: str
) -> tuple[Array, int | None]:
    """Returns the array, contiguous and little-endian, and its number of samples (None without an
    axis of samples)."""
    if array.dtype.newbyteorder("=") != np.dtype(tensor.dtype):
        raise CrtExportError(
            f"the array is {array.dtype}, the {what} is {tensor.dtype}", location=tensor.name,
            hint="quantize or convert it first; `crtexport inspect` shows scale and zero point",
        )
    if tensor.shape is None:
        if array.nbytes != tensor.nbytes:
            raise CrtExportError(
                f"the array has {array.nbytes} bytes, the {what} has {tensor.nbytes}",
                location=tensor.name,
            )
        count = None
    elif array.shape == tensor.shape:
        count = None
    elif array.shape[1:] == tensor.shape and array.ndim == len(tensor.shape) + 1 and len(array):
        count = len(array)
    else:
        raise CrtExportError(
            f"the array has shape {array.shape}, the {what} has {tensor.shape}",
            location=tensor.name, hint="several samples have one axis more, in front",
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C"), count


def samples_for(
    tensors: Sequence[PackageTensor], arrays: Mapping[str, Array] | None
) -> InputSamples:
    """Returns the samples that :func:`bind_inputs` makes of ``arrays``; without arrays, the sample
    of :func:`pattern_inputs`."""
    return pattern_inputs(tensors) if arrays is None else bind_inputs(tensors, arrays)


def samples_of_package(
    models: Mapping[str, Sequence[PackageTensor]], arrays: Mapping[str, Array] | None
) -> dict[str, InputSamples]:
    """Returns :func:`samples_of_models`; where there is one model, names of arrays are those of its
    inputs alone."""
    if len(models) == 1:
        return {name: samples_for(tensors, arrays) for name, tensors in models.items()}
    return samples_of_models(models, arrays)


def samples_of_models(
    models: Mapping[str, Sequence[PackageTensor]], arrays: Mapping[str, Array] | None
) -> dict[str, InputSamples]:
    """Returns :func:`samples_for` the inputs of several models, with as many samples for each.
    Names of arrays are ``MODEL/INPUT``.

    Raises CrtExportError for an array of no model and for different numbers of samples too.
    """
    sorted_out: dict[str, dict[str, Array]] = {name: {} for name in models}
    for key, array in (arrays or {}).items():
        model, tensor = _whose(key, models)
        if tensor in sorted_out[model]:
            raise CrtExportError("there are two arrays for this input", location=(model, tensor))
        sorted_out[model][tensor] = array
    found: dict[str, InputSamples] = {}
    for name, tensors in models.items():
        try:
            found[name] = samples_for(tensors, None if arrays is None else sorted_out[name])
        except CrtExportError as error:
            raise error.within(name) from error
    counts = {name: len(s.rows) for name, s in found.items() if models[name]}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise CrtExportError(f"the models have different numbers of samples ({told})")
    rows = max(counts.values(), default=1)
    return {
        name: s if models[name] else InputSamples(s.rows * rows, rows > 1)
        for name, s in found.items()
    }


def _whose(key: str, models: Collection[str]) -> tuple[str, str]:
    """Returns model and input of ``MODEL/INPUT``; names of either may contain slashes."""
    for slash in re.finditer("/", key):
        model = module_of(key[: slash.start()], models)
        if model is not None:
            return model, key[slash.end() :]
    raise CrtExportError(
        f"no model has an input {key!r}",
        hint=f"write MODEL/INPUT; the models are {', '.join(models)}",
    )


def pattern_inputs(tensors: Sequence[PackageTensor]) -> InputSamples:
    """Returns one sample of a fixed pattern: p(i) = (37 i + 11) mod 256 - 128.

    Element i of the flattened tensor is p(i) in signed types, p(i) + 128 in unsigned ones,
    p(i) / 128 in floats, and p(i) >= 0 in bool.
    """
    return InputSamples(({key_of(tensor): _pattern(tensor) for tensor in tensors},))


def _pattern(tensor: PackageTensor) -> Array:
    dtype = np.dtype(tensor.dtype).newbyteorder("<")
    count = tensor.nbytes // dtype.itemsize
    values = (np.arange(count, dtype=np.int64) * 37 + 11) % 256 - 128
    if dtype.kind == "u":
        values = values + 128
    elif dtype.kind == "b":
        values = (values >= 0).astype(np.int64)
    result = (values / 128).astype(dtype) if dtype.kind == "f" else values.astype(dtype)
    return result.reshape(tensor.shape if tensor.shape is not None else (count,))


_write_array: Callable[[IO[bytes], Array], None] = functools.partial(
    np.lib.format.write_array, allow_pickle=False
)


def load_npz(path: Path) -> dict[str, Array]:
    """Returns all arrays of the NumPy archive ``path``. Raises CrtExportError for anything else."""
    try:
        with open_regular(path) as stream:
            loaded = np.load(stream, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise CrtExportError(
                    "this holds one array without a name", location=str(path),
                    hint="write it with numpy.savez(path, NAME=array)",
                )
            with loaded:
                return {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise CrtExportError(
            f"this is no archive of arrays that can be read ({error})", location=str(path),
            hint="write one with numpy.savez(path, NAME=array)",
        ) from error
    except OSError as error:
        raise CrtExportError(
            f"the arrays can't be read ({error.strerror or error})", location=str(path)
        ) from error


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes ``arrays`` to ``path``, the same bytes for the same arrays; a failure leaves no
    partial file."""
    try:
        # numpy.savez has parameters of its own, whose names a tensor may not have.
        with replacing(path) as stream, zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                entry = zipfile.ZipInfo(f"{name}.npy")
                # Only where needed: the bytes of small members then depend on Python's version.
                large = array.nbytes > _ZIP32_LIMIT
                with archive.open(entry, "w", force_zip64=large) as member:
                    _write_array(member, np.asarray(array))
    except OSError as error:
        raise CrtExportError(
            f"the arrays can't be written ({error.strerror or error})", location=str(path)
        ) from error
