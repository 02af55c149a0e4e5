"""TensorFlow Lite Micro's custom operator CIRCULAR_BUFFER, as operators on a variable.

A streaming network keeps what its last inputs became: each run moves the slots on by one, drops the
oldest, and has the newest as the last. Where the network is to go on in every Nth run only
(``cycles_max``), the others end there: what :mod:`.pauses` makes of an If without graphs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from crtexport.importers.tflite.operators import SourceOperator
from crtexport.importers.tflite.ops_detection import Options
from crtexport.ir.graph import Node, Tensor, Variable
from crtexport.ir.ops import AssignVariable, Concatenation, If, ReadVariable, Slice
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.support.errors import CrtExportError

NAME = "CIRCULAR_BUFFER"

_MOST_CYCLES = 1024
"""An upper bound of the runs that a network pauses, by far."""

_EVERY_RUN = (5, 13, 25)
"""Slots with which a buffer that doesn't say how often goes on in every run: TFLite Micro's rule
for the networks that are older than the option."""


def nodes(source: SourceOperator, define: Callable[[Tensor], int]) -> list[Node]:
    """Returns the operator as nodes, and makes its result no variable; ``define`` makes a tensor
    and returns its number."""
    given, type_ = source.type(0), source.result()
    slots = _slots(given, type_)
    cycles = _cycles(source, slots)
    (output,), first = source.outputs, source.inputs[0]
    name = source.tensors.tensor(output).name
    zero = type_.quant.zero_point[0] if type_.quant is not None else 0
    start = np.full(type_.shape, zero, np.int8)
    kept, _, rest, found = _queue(name, type_, 1, start, define)
    found += [
        Node(Concatenation(1), (rest, first), (output,), name),
        Node(AssignVariable(), (kept, output), (), f"{name}/kept"),
    ]
    if cycles == 1:
        return found
    # Truth values in a ring: one of them is true.
    name, truths = f"{name}/goes on", TensorType(DType.BOOL, (cycles,))
    start = np.arange(cycles) == cycles - 1
    kept, before, rest, ring = _queue(name, truths, 0, start, define)
    one = TensorType(DType.BOOL, (1,))
    first, moved = define(Tensor(name, one)), define(Tensor(f"{name}/next", truths))
    return [
        *found, *ring,
        Node(Slice((0,), (1,), (1,), (1,)), (before,), (first,), name),
        Node(Concatenation(0), (rest, first), (moved,), name),
        Node(AssignVariable(), (kept, moved), (), f"{name}/kept"),
        Node(If(), (first,), (), name),
    ]


def _queue(
    name: str, type_: TensorType, axis: int, start: npt.NDArray[np.generic],
    define: Callable[[Tensor], int],
) -> tuple[int, int, int, list[Node]]:
    """Returns a variable, its value, what that has behind the first slot, and the nodes that give
    both. ``start``: its value before the first run."""
    shape = type_.shape
    rest_shape = (*shape[:axis], shape[axis] - 1, *shape[axis + 1 :])
    initial = ConstantRef.of(start) if start.any() else None
    kept = define(Tensor(f"{name}/kept", type_, variable=Variable(initial)))
    before = define(Tensor(f"{name}/before", type_))
    rest = define(Tensor(f"{name}/rest", replace(type_, shape=rest_shape)))
    begin = tuple(int(number == axis) for number in range(len(shape)))
    later = Slice(begin, rest_shape, (1,) * len(shape), rest_shape)
    return kept, before, rest, [
        Node(ReadVariable(), (kept,), (before,), f"{name}/before"),
        Node(later, (before,), (rest,), f"{name}/rest"),
    ]


def _slots(row: TensorType, result: TensorType) -> int:
    fits = len(row.shape) == len(result.shape) == 4 and row.shape[1] == 1 and (
        (row.shape[0], *row.shape[2:]) == (result.shape[0], *result.shape[2:])
    )
    if not fits or result.shape[1] < 1 or not row.dtype is result.dtype is DType.INT8:
        raise CrtExportError(f"{result} has no slots of int8 for {row}")
    return result.shape[1]


def _cycles(source: SourceOperator, slots: int) -> int:
    """In which of how many runs the network goes on, as TFLite Micro sees it."""
    cycles = Options(source).integer("cycles_max", 0) if source.table.custom_options else 0
    if cycles <= 0:
        cycles = 1 if slots in _EVERY_RUN else 2
    if cycles > _MOST_CYCLES:
        raise CrtExportError(
            f"the network goes on from here in one of {cycles} runs only; at most {_MOST_CYCLES}"
            " are supported"
        )
    return cycles
