"""Runs Kernel IR on NumPy arrays: the meaning of the language, executable.

A kernel is translated to one Python function, which runs on lists of the arrays' elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.kir.intervals import contains, type_range
from crtexport.kir.language import Buffer, Kernel, Scalar, Var
from crtexport.kir.to_python import InterpreterError, Translator

__all__ = ["InterpreterError", "compile_kernel", "run"]

Array = npt.NDArray[Any]

_NUMPY: dict[Scalar, type[np.generic]] = {
    Scalar.I8: np.int8, Scalar.U8: np.uint8, Scalar.I16: np.int16, Scalar.U16: np.uint16,
    Scalar.I32: np.int32, Scalar.U32: np.uint32, Scalar.I64: np.int64, Scalar.F16: np.float16,
    Scalar.F32: np.float32, Scalar.F64: np.float64,
}


def run(
    kernel: Kernel,
    buffers: Mapping[str, Array] | Sequence[Array],
    params: Sequence[int | float] = (),
    *,
    index_bits: int = 32,
    use_intervals: bool = True,
) -> None:
    """Executes ``kernel`` in place on ``buffers``, by name or in order, and ``params`` in order.

    Each array has its buffer's element type, is C-contiguous (any shape) and holds exactly
    ``size`` elements. Two arrays may overlap unless one is written and one is noalias.
    ``use_intervals=False`` keeps even the checks that can't fire. Raises InterpreterError for
    an index out of range, signed overflow, a float out of range of an integer, division by
    zero, a shift by more than the width, a store to a read-only buffer; what the written
    buffers hold after an error is undefined.
    """
    compile_kernel(kernel, index_bits=index_bits, use_intervals=use_intervals)(buffers, params)


def compile_kernel(
    kernel: Kernel, *, index_bits: int = 32, use_intervals: bool = True
) -> Callable[[Mapping[str, Array] | Sequence[Array], Sequence[int | float]], None]:
    """Returns the function behind :func:`run`, for running one kernel many times."""
    with np.errstate(all="ignore"):  # a constant may round to infinity
        function = Translator(kernel, index_bits, use_intervals).translate()

    def runner(
        buffers: Mapping[str, Array] | Sequence[Array], params: Sequence[int | float] = ()
    ) -> None:
        arrays = _arrays(kernel, buffers)
        values = _parameters(kernel, params, index_bits)
        memories = _memories(kernel, arrays)
        with np.errstate(all="ignore"):
            function(*(m.cells for m in memories), *values)
        for buffer, memory in zip(kernel.buffers, memories, strict=True):
            if buffer.writable:
                memory.write_back()

    return runner


# ---- buffers -----------------------------------------------------------------------------------


class Cells:
    """The elements of an array that overlaps another one: each access goes to the array itself."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._convert = array.item if array.dtype.kind in "iu" else array.__getitem__

    def __getitem__(self, index: int) -> Any:
        return self._convert(index)

    def __setitem__(self, index: int, value: Any) -> None:
        self._array[index] = value


class _Memory(Struct, frozen=True):
    """``cells`` is the sequence that a kernel indexes: a list, which is faster, where no arrays
    overlap."""

    array: Array
    cells: list[Any] | Cells

    def write_back(self) -> None:
        if isinstance(self.cells, list):
            self.array[:] = self.cells


def _arrays(kernel: Kernel, buffers: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
    """Returns the flat arrays in the order of the kernel's buffers, after checking them."""
    names = [b.name for b in kernel.buffers]
    if isinstance(buffers, Mapping):
        if set(buffers) != set(names):
            raise InterpreterError(f"{kernel.name} takes buffers {names}, got {sorted(buffers)}")
        given = [buffers[name] for name in names]
    else:
        given = list(buffers)
        if len(given) != len(names):
            raise InterpreterError(f"{kernel.name} takes {len(names)} buffers, got {len(given)}")
    return [_flat(kernel, b, array) for b, array in zip(kernel.buffers, given, strict=True)]


def _flat(kernel: Kernel, buffer: Buffer, array: Array) -> Array:
    where = f"{kernel.name}: buffer {buffer.name}"
    if array.dtype != np.dtype(_NUMPY[buffer.dtype]):
        raise InterpreterError(f"{where} is {buffer.dtype.value}, the array is {array.dtype}")
    if array.size != buffer.size:
        raise InterpreterError(f"{where} has {buffer.size} elements, the array {array.size}")
    if not array.flags.c_contiguous:
        raise InterpreterError(f"{where}: the array is not contiguous")
    if buffer.writable and not array.flags.writeable:
        raise InterpreterError(f"{where} is written, the array is read-only")
    return array.reshape(-1)


def _memories(kernel: Kernel, arrays: list[Array]) -> list[_Memory]:
    """Returns the cells of each array; overlapping arrays see each other's writes."""
    overlapping: set[int] = set()
    for i, j in combinations(range(len(arrays)), 2):
        a, b = kernel.buffers[i], kernel.buffers[j]
        if not (a.writable or b.writable) or not np.may_share_memory(arrays[i], arrays[j]):
            continue
        if not {a.name, b.name} <= {*kernel.overlapping}:
            raise InterpreterError(
                f"{kernel.name}: {a.name} and {b.name} overlap, though one is noalias"
            )
        overlapping |= {i, j}
    return [
        _Memory(array, Cells(array) if i in overlapping else _cells(array))
        for i, array in enumerate(arrays)
    ]


def _cells(array: Array) -> list[Any]:
    values: list[Any] = array.tolist() if array.dtype.kind in "iu" else list(array)
    return values


def _parameters(
    kernel: Kernel, params: Sequence[int | float], index_bits: int
) -> list[Any]:
    if len(params) != len(kernel.params):
        raise InterpreterError(
            f"{kernel.name} takes {len(kernel.params)} parameters, got {len(params)}"
        )
    return [
        _parameter(kernel, var, value, index_bits)
        for var, value in zip(kernel.params, params, strict=True)
    ]


def _parameter(kernel: Kernel, var: Var, value: int | float, index_bits: int) -> Any:
    if var.type.is_float:
        return np.dtype(_NUMPY[var.type]).type(value)
    if not contains(type_range(var.type, index_bits), (int(value), int(value))):
        raise InterpreterError(f"{kernel.name}: {var.name} = {value} is no {var.type.value}")
    return int(value)
