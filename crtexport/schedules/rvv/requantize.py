"""Epilogues on RISC-V's vectors.

The sums of ONNX Runtime's int8 layers take two VMULH
(:mod:`crtexport.lowering.numerics.result_steps`), or are scaled in floats where a layer has no such
constants. int16 layers have sums of 64 bits in TFLite
(:mod:`crtexport.schedules.common.requantize_int16`): where sums fit 32 bits and multipliers are
small enough, VSMUL rounds as TFLite does. Else VMULH drops 16 bits, the rest of the bias is added
afterwards, and VSSRA rounds.
"""

from __future__ import annotations

import numpy as np

from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.result_steps import TwoProducts
from crtexport.lowering.registry import Context, Lowering
from crtexport.schedules.common import requantize_int16, vector_requantize
from crtexport.schedules.common.vector_machine import Ints
from crtexport.schedules.common.vector_requantize import (
    ChannelTable,
    IntegerVectorEpilogue,
    VectorEpilogue,
    activation_of,
)
from crtexport.schedules.rvv.machine import RvvMachine
from crtexport.support.fixedpoint import Rounding

_SCALED_BELOW = 1 << 22
"""Sums scaled in floats must stay below it."""

Steps = list[tuple[str, Ints]]
"""Operations with a number for each channel."""


def sums_of(
    context: Context, channel_axis: int, *, fully_connected: bool = False, floats: bool
) -> IntegerSums | None:
    """Returns the sums of a layer of int8 or int16 values and int8 weights; None for other layers,
    and where vectors, which may have ``floats``, can't requantize its sums."""
    values, weights = context.input(0).dtype, context.input(1).dtype
    if values not in (DType.INT8, DType.INT16) or weights is not DType.INT8:
        return None
    sums = IntegerSums.of(context, channel_axis, fully_connected=fully_connected)
    if sums.weight_zero:
        return None
    if sums.rounding is Rounding.FLOAT:
        fits = floats and sums.bound * float(sums.multiplier.reals.max()) < _SCALED_BELOW
        return sums if fits or _steps_of_floats(context, sums) is not None else None
    scaled = _steps(sums) is not None if sums.wide else vector_requantize.scales(
        sums, RvvMachine(16)
    )
    return sums if scaled else None


def finish_of(lowering: Lowering, machine: RvvMachine, sums: IntegerSums) -> VectorEpilogue:
    """Returns the epilogue of ``sums``, which :func:`sums_of` returned."""
    floats = sums.rounding is Rounding.FLOAT
    if floats or sums.wide:
        steps = _steps_of_floats(lowering.context, sums) if floats else _steps(sums)
        if steps is None and floats:
            return _RealFinish(lowering, machine, sums)
        if steps is None:
            raise ValueError("these sums are scaled in another way")
        return _StepsFinish(lowering, machine, steps)
    return IntegerVectorEpilogue(lowering, machine, sums)


def _steps(sums: IntegerSums) -> Steps | None:
    """Returns the initial accumulators, then the operations on the sums; None if they are scaled in
    another way."""
    constants = requantize_int16.constants_of(sums)
    if constants is not None and not (constants[:, 1] & 1).any():
        bias, factor = constants.astype(np.int64).T
        return [("start", bias), ("vsmul", factor >> 1)]
    constants = requantize_int16.parts_of(sums)
    if constants is None:
        return None
    names = ("start", "vmulh", "add", "vssra", "add")
    columns = constants.astype(np.int64).T
    return [
        (name, column) for name, column in zip(names, columns, strict=True)
        if name != "add" or column.any()
    ]


def _steps_of_floats(context: Context, sums: IntegerSums) -> Steps | None:
    """As :func:`_steps`, for int8 results of sums that ONNX Runtime scales in floats."""
    limits = activation_range(activation_of(context), context.output())
    found = TwoProducts.of(sums, context.quant(context.output()).zero_point[0], limits)
    if found is None:
        return None
    offset, first, second = found.constants.astype(np.int64).T
    # VSMUL rounds, and doubles products: that second factors are even then is promised.
    last = ("vsmul", second >> 1) if found.rounded else ("vmulh", second)
    places = np.full_like(offset, 1 << found.places)
    return [
        ("start", np.zeros_like(offset)), ("mul", places), ("add", offset), ("vmulh", first), last
    ]


class _RealFinish(IntegerVectorEpilogue):
    """The epilogue of sums that are scaled in floats, where they have no such steps."""

    def _scaling(self, sums: IntegerSums) -> dict[str, ChannelTable]:
        note = "for each output channel: scale"
        return {"scales": self._table("scales", Scalar.F32, sums.multiplier.reals, note)}

    def store(self, output: Buffer, index: Expr, total: Expr, channel: Expr, count: int) -> None:
        machine = self.machine
        value = machine.of_ints("scaled", total, self._tables["scales"].at(channel))
        value = machine.between(machine.plus(value, self._zero), self._range)
        self.b.store_vector(output, index, value, count)


class _StepsFinish:
    """The epilogue by a few operations with a number for each channel."""

    def __init__(self, lowering: Lowering, machine: RvvMachine, steps: Steps) -> None:
        self.b, self.machine = lowering.b, machine
        output = lowering.context.output()
        self._range = activation_range(activation_of(lowering.context), output)
        tables = [
            (name, ChannelTable(
                lowering, machine, "bias" if name == "start" else "scaling", Scalar.I32,
                column.astype(np.int32), len(column),
                "for each output channel: "
                + ("start of its sum" if name == "start" else f"operand of {name}"),
            )) for name, column in steps
        ]
        (_, self._bias), *self._tables = tables

    def start(self, channel: Expr) -> Expr:
        return self._bias.at(channel)

    def store(self, output: Buffer, index: Expr, total: Expr, channel: Expr, count: int) -> None:
        machine = self.machine
        value = total
        for name, table in self._tables:
            value = machine.of_ints(name, value, table.at(channel))
        value = machine.between(value, self._range)
        self.b.store_vector(output, index, value, count)
