"""Arrays for a package's inputs and outputs: matches them by name, and checks them.

The name of an array is its tensor's name in the model or its field in the C interface.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.mlf.npz import Described, StoredArrays
from crtexport.mlf.reader import PackageTensor, module_of
from crtexport.support.errors import CrtExportError

Array = npt.NDArray[np.generic]

_MOST_SAMPLES = 1 << 30
"""Bytes of the samples of a file that are read."""


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
    or dtype: nothing is converted silently, and nothing is read from a file before all is right.
    """
    names = _matched(tensors, arrays, what)
    described = [described_in(arrays, name) for name in names]
    counts = [
        _samples_in(tensor, one, what, arrays, name)
        for tensor, one, name in zip(tensors, described, names, strict=True)
    ]
    if len(set(counts)) > 1:
        told = ", ".join(
            f"{tensor.name}: {count or 'no axis'}"
            for tensor, count in zip(tensors, counts, strict=True)
        )
        raise CrtExportError(f"the {what}s have different numbers of samples ({told})")
    stacked, rows = any(counts), max((count or 1 for count in counts), default=1)
    if stacked and isinstance(arrays, StoredArrays):
        _check_memory(arrays, sum(one.nbytes for one in described))
    found = {
        key_of(tensor): np.asarray(
            arrays[name], dtype=one.dtype.newbyteorder("<"), order="C"
        )
        for tensor, one, name in zip(tensors, described, names, strict=True)
    }
    return InputSamples(
        tuple(
            {key: array[row] if stacked else array for key, array in found.items()}
            for row in range(rows)
        ),
        stacked,
    )


def described_in(arrays: Mapping[str, Array], name: str) -> Described:
    """Returns type and shape of an array, which isn't read from a file for that."""
    if isinstance(arrays, StoredArrays):
        return arrays.described(name)
    array = np.asarray(arrays[name])
    return Described(array.dtype, array.shape)


def _check_memory(arrays: StoredArrays, nbytes: int) -> None:
    if nbytes > _MOST_SAMPLES:
        raise CrtExportError(
            f"the samples take {nbytes:,} bytes, more than the {_MOST_SAMPLES:,} that are read at"
            " once", location=str(arrays.path), hint="put them into several files",
        )


def _matched(
    tensors: Sequence[PackageTensor], arrays: Mapping[str, Array], what: str
) -> list[str]:
    """Returns the names of the arrays for the tensors."""
    matched: list[str] = []
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
        matched.append(found[0])
    extra = sorted(set(arrays) - set(matched))
    if extra:
        raise CrtExportError(
            f"no {what} is called {', '.join(map(repr, extra))}", hint=_wanted(tensors, what)
        )
    return matched


def _wanted(tensors: Iterable[PackageTensor], what: str) -> str:
    listed = ", ".join(f"{key_of(tensor)} {_type_of(tensor)}" for tensor in tensors)
    return f"the {what}s are: {listed or 'none'}"


def _type_of(tensor: PackageTensor) -> str:
    shape = f"[{'x'.join(map(str, tensor.shape))}]" if tensor.shape is not None else ""
    return f"{tensor.dtype}{shape}"


def _samples_in(
    tensor: PackageTensor, array: Described, what: str, arrays: Mapping[str, Array], name: str
) -> int | None:
    """Returns the number of samples that an array has, None without an axis of samples."""
    location = (
        (str(arrays.path), arrays.member(name)) if isinstance(arrays, StoredArrays)
        else (tensor.name,)
    )
    if array.dtype.newbyteorder("=") != np.dtype(tensor.dtype):
        raise CrtExportError(
            f"the array is {array.dtype}, the {what} is {tensor.dtype}", location=location,
            hint="quantize or convert it first; `crtexport inspect` shows scale and zero point",
        )
    if tensor.shape is None:
        if array.nbytes != tensor.nbytes:
            raise CrtExportError(
                f"the array has {array.nbytes} bytes, the {what} has {tensor.nbytes}",
                location=location,
            )
        return None
    if array.shape == tensor.shape:
        return None
    if array.shape[1:] == tensor.shape and array.shape and array.shape[0]:
        return array.shape[0]
    raise CrtExportError(
        f"the array has shape {array.shape}, the {what} has {tensor.shape}", location=location,
        hint="several samples have one axis more, in front",
    )


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
    keys: dict[str, dict[str, str]] = {name: {} for name in models}
    for key in arrays or ():
        model, tensor = _whose(key, models)
        if tensor in keys[model]:
            raise CrtExportError("there are two arrays for this input", location=(model, tensor))
        keys[model][tensor] = key
    found: dict[str, InputSamples] = {}
    for name, tensors in models.items():
        try:
            found[name] = samples_for(
                tensors, None if arrays is None else _renamed(arrays, keys[name])
            )
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


def _renamed(arrays: Mapping[str, Array], names: Mapping[str, str]) -> Mapping[str, Array]:
    """Returns arrays under the names that ``names`` maps to theirs."""
    if isinstance(arrays, StoredArrays):
        return arrays.renamed(names)
    return {name: arrays[own] for name, own in names.items()}


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
