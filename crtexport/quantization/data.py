"""Calibration data: from an .npz, a folder of .npy, or a function of the user's."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crtexport.mlf.arrays import Array, bind_inputs, described_in, key_of
from crtexport.mlf.npz import StoredArrays, load_npz
from crtexport.mlf.reader import PackageTensor
from crtexport.support.errors import CrtExportError
from crtexport.support.files import open_regular

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

Batch = Mapping[str, Array]


def files_of(source: str) -> tuple[Path, ...]:
    """Returns the files that :func:`read_samples` would read, none for a function.

    Raises CrtExportError where ``source`` is neither a file, a folder nor ``module:name``.
    """
    path = Path(source)
    if path.is_dir():
        return tuple(sorted(path.rglob("*.npy")))
    if not path.exists() and _FUNCTION.fullmatch(source):
        return ()
    if not path.is_file():
        raise CrtExportError(
            "there is no such file or folder", location=source,
            hint="--data takes an .npz, a folder of .npy, or a Python function as module:name",
        )
    return (path,)


def read_samples(
    source: str, inputs: Sequence[PackageTensor], most: int
) -> dict[str, Array]:
    """Returns the samples for ``inputs`` by their names, each with the samples' axis in front:
    ``most`` at most, of files evenly spaced, of a function the first ones.

    An .npz has one array for each input, named like it. A folder has one .npy for each sample of
    the network's one input, in the order of their names, or a folder of these for each input by its
    name. A function, called without arguments, yields batches: dicts of arrays by input, or arrays
    for the one input. The samples' axis is one more in front of the input's own; where the first
    dimension of an input is 1, it may be that, and one sample have neither. Raises
    CrtExportError for missing and unknown inputs, arrays of other shapes and types, numbers that
    aren't finite, and where there is no sample.
    """
    path = Path(source)
    if path.is_dir():
        batches: Iterator[Batch] = _from_folder(path, inputs)
    elif path.is_file():
        batches = iter((load_npz(path),))
    else:
        batches = _from_function(source, inputs)
    of_function = not (path.is_dir() or path.is_file())
    rows: list[Mapping[str, Array]] = []
    try:
        for batch in batches:
            rows += _rows(batch, inputs, most)
            if of_function and len(rows) >= most:
                del rows[most:]
                break
        if not rows:
            raise CrtExportError("there is no sample", hint="calibration needs some hundred")
        chosen = _evenly(len(rows), most)
        found = {
            tensor.name: np.stack([rows[i][key_of(tensor)] for i in chosen])
            for tensor in inputs
        }
        for name, array in found.items():
            _check_finite(name, array)
    except CrtExportError as error:
        raise error.within(source) from error.__cause__
    return found


def _evenly(count: int, most: int) -> list[int]:
    """Returns the numbers of at most ``most`` of ``count`` samples, evenly spaced."""
    numbers: list[int] = np.linspace(0, count - 1, min(most, count)).astype(int).tolist()
    return numbers


def _rows(batch: Batch, inputs: Sequence[PackageTensor], most: int) -> tuple[Batch, ...]:
    """Returns the samples of a batch; of a file, ``most`` at most, the only ones that are read."""
    missing = [tensor.name for tensor in inputs if not {tensor.name, key_of(tensor)} & set(batch)]
    for name in missing:
        near = difflib.get_close_matches(name, batch, n=1) or list(batch)[:1]
        raise CrtExportError(
            "there is no array for this input", location=name,
            hint=f"the data has {', '.join(batch) or 'nothing'}"
            + (f"; is {near[0]!r} meant? arrays go by the names of inputs" if near else ""),
        )
    keys = [tensor.name if tensor.name in batch else key_of(tensor) for tensor in inputs]
    if not isinstance(batch, StoredArrays):  # functions may yield lists
        batch = {**batch, **{key: np.asarray(batch[key]) for key in keys}}
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor, key in zip(inputs, keys, strict=True):
        given = described_in(batch, key).shape
        if given and not given[0]:
            return ()
        shapes[key] = _with_samples(tensor.shape or (), given)
    if isinstance(batch, StoredArrays):
        counts = {shape[0] if shape else 0 for shape in shapes.values()}
        fitting = len(counts) == 1 and all(
            shape[1:] == tensor.shape
            for tensor, shape in zip(inputs, shapes.values(), strict=True)
        )
        chosen = _evenly(max(counts), most) if fitting else None
        return bind_inputs(inputs, batch.reshaped(shapes, chosen)).rows
    arrays = {key: batch[key].reshape(shape) for key, shape in shapes.items()}
    return bind_inputs(inputs, {**batch, **arrays}).rows


def _with_samples(shape: tuple[int, ...], given: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of an array with the samples' axis in front, for an input of ``shape``;
    ``given`` itself where it is another input's."""
    if given == shape:
        return 1, *given
    if shape[:1] == (1,) and given == shape[1:]:
        return 1, 1, *given
    if shape[:1] == (1,) and given[1:] == shape[1:] and len(given) == len(shape):
        return given[0], 1, *given[1:]
    return given


def _from_folder(folder: Path, inputs: Sequence[PackageTensor]) -> Iterator[Batch]:
    """Yields the samples that lie in a folder."""
    several = len(inputs) > 1
    files = {
        tensor.name: sorted((folder / tensor.name if several else folder).glob("*.npy"))
        for tensor in inputs
    }
    if len(set(map(len, files.values()))) > 1 or (several and not all(files.values())):
        told = ", ".join(f"{name}: {len(paths)}" for name, paths in files.items())
        raise CrtExportError(
            f"the inputs have different numbers of samples ({told})",
            hint="the network has several inputs: each has a folder of its name with as many .npy",
        )
    for paths in zip(*files.values(), strict=True):
        yield {name: _load(path) for name, path in zip(files, paths, strict=True)}


def _load(path: Path) -> Array:
    try:
        with open_regular(path) as stream:
            array: Array = np.load(stream, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CrtExportError(
            f"this is no array that can be read ({error})", location=path.name
        ) from error
    return array


def _from_function(source: str, inputs: Sequence[PackageTensor]) -> Iterator[Batch]:
    """Yields the batches of the user's function, as dicts. The current folder is searched first for
    its module."""
    module, _, name = source.partition(":")
    sys.path.insert(0, "")
    try:
        for batch in getattr(importlib.import_module(module), name)():
            yield batch if isinstance(batch, Mapping) else _named(batch, inputs)
    except CrtExportError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise CrtExportError(f"the function failed ({type(error).__name__}: {error})") from error
    finally:
        sys.path.remove("")


def _named(batch: Any, inputs: Sequence[PackageTensor]) -> Batch:
    if len(inputs) != 1:
        raise CrtExportError(
            f"the function yields arrays, but the network has {len(inputs)} inputs",
            hint="yield dicts: " + ", ".join(tensor.name for tensor in inputs),
        )
    return {inputs[0].name: np.asarray(batch)}


def _check_finite(name: str, array: Array) -> None:
    if array.dtype.kind != "f":
        return
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        at = wrong[0].tolist()
        raise CrtExportError(
            f"sample {at[0]} has {array[tuple(at)]} at {at[1:]}", location=name,
            hint="ranges are taken from the data, so that all of it must be finite",
        )
