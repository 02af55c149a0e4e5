"""TensorFlow Lite Micro's custom operator CIRCULAR_BUFFER, as operators on a variable.

A streaming network keeps what its last inputs became: each run moves the slots on by one, drops the
oldest, and has the newest as the last. Where the network is to go on in every Nth run only
(``cycles_max``), TFLite Micro ends the others there, which is no function of inputs and states.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from crtexport.importers.tflite.operators import SourceOperator
from crtexport.importers.tflite.ops_detection import Options
from crtexport.ir.graph import Node, Tensor, Variable
from crtexport.ir.ops import AssignVariable, Concatenation, ReadVariable, Slice
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.support.errors import CrtExportError

NAME = "CIRCULAR_BUFFER"

_EVERY_RUN = (5, 13, 25)
"""Slots with which a buffer that doesn't say how often goes on in every run: TFLite Micro's rule
for the networks that are older than the option."""


def nodes(source: SourceOperator, define: Callable[[Tensor], int]) -> list[Node]:
    """Returns the operator as nodes, and makes its result no variable; ``define`` makes a tensor
    and returns its number."""
    given, type_ = source.type(0), source.result()
    slots = _slots(given, type_)
    _refuse_pauses(source, slots)
    (output,), first = source.outputs, source.inputs[0]
    name = source.tensors.tensor(output).name
    zero = type_.quant.zero_point[0] if type_.quant is not None else 0
    start = Variable(ConstantRef.of(np.full(type_.shape, zero, np.int8)) if zero else None)
    kept = define(Tensor(f"{name}/kept", type_, variable=start))
    before = define(Tensor(f"{name}/before", type_))
    rest_shape = (type_.shape[0], slots - 1, *type_.shape[2:])
    rest = define(Tensor(f"{name}/rest", replace(type_, shape=rest_shape)))
    axes = len(type_.shape)
    later = Slice((0, 1, *(0,) * (axes - 2)), rest_shape, (1,) * axes, rest_shape)
    return [
        Node(ReadVariable(), (kept,), (before,), f"{name}/before"),
        Node(later, (before,), (rest,), f"{name}/rest"),
        Node(Concatenation(1), (rest, first), (output,), name),
        Node(AssignVariable(), (kept, output), (), f"{name}/kept"),
    ]


def _slots(given: TensorType, result: TensorType) -> int:
    fits = len(given.shape) == len(result.shape) == 4 and given.shape[1] == 1 and (
        (given.shape[0], *given.shape[2:]) == (result.shape[0], *result.shape[2:])
    )
    if not fits or result.shape[1] < 1 or not given.dtype is result.dtype is DType.INT8:
        raise CrtExportError(f"{result} has no slots of int8 for {given}")
    return result.shape[1]


def _refuse_pauses(source: SourceOperator, slots: int) -> None:
    cycles = Options(source).integer("cycles_max", 0) if source.table.custom_options else 0
    if cycles <= 0:
        cycles = 1 if slots in _EVERY_RUN else 2
    if cycles != 1:
        raise CrtExportError(
            f"the network goes on from here in one of {cycles} runs only",
            hint="make two networks of it, and run the second one as often as it should be",
        )
