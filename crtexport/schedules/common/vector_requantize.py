"""Epilogues of vectors of sums: bias, requantization, activation, stores.

TFLite's ``MultiplyByQuantizedMultiplier`` rounds twice: ``high = (sum * m + 2**30) >> 31``, then
high / 2**s to nearest, halves away from zero. The second step is ``(high * 2**(32-s) + 2**31) >>
32``, or a rounding shift. Both round halves up; with 1 subtracted from negative numbers, they round
halves away from zero. Where the result is clamped at the zero point, as after a ReLU, negative
numbers end there however they are rounded.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Activation, Conv2D, DepthwiseConv2D, FullyConnected
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import load_vector
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.integer_sums import FOLDED_BIAS, IntegerSums, weight_scales
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.registry import Context, Lowering
from crtexport.schedules.common.vector_machine import VectorMachine
from crtexport.support.fixedpoint import Rounding


def scales(sums: IntegerSums, machine: VectorMachine) -> bool:
    """Returns whether these vectors can requantize the sums."""
    return (
        sums.rounding is Rounding.DOUBLE and sums.bound < 1 << 31
        and machine.scales(sums.multiplier)
    )


def known(context: Context) -> bool:
    """Returns whether weights and bias are constants."""
    return all(
        context.graph.constant(context.graph.required(context.node, position)) is not None
        for position in (1, 2) if context.has(position)
    )


class VectorEpilogue(Protocol):
    """The epilogue of vectors of sums, whose lanes are output channels."""

    def start(self, channel: Expr) -> Expr:
        """Returns the initial accumulators of ``channel`` and those behind it."""

    def store(self, output: Buffer, index: Expr, total: Expr, channel: Expr, count: int) -> None:
        """Emits the results of the first ``count`` lanes."""


def activation_of(context: Context) -> Activation:
    """Returns the fused activation of a layer with weights."""
    op = context.op(Conv2D, DepthwiseConv2D, FullyConnected)
    return op.activation


_EACH = "for each output channel:"


class ChannelTable:
    """A table with one number for each channel, or one for all."""

    def __init__(
        self, lowering: Lowering, machine: VectorMachine, name: str, dtype: Scalar,
        values: npt.NDArray[np.generic], channels: int, note: str,
    ) -> None:
        """``note``: the comment on the table for readers of generated C."""
        self._machine, self._type = machine, machine.reals if dtype.is_float else machine.ints
        self._same: int | float | None = None
        self._buffer: Buffer | None = None
        if (values == values[0]).all() and not (dtype.is_float and math.isnan(values[0])):
            self._same = values[0].item()
            return
        whole = np.zeros(-(-channels // machine.lanes) * machine.lanes, values.dtype)
        whole[:channels] = values
        self._buffer = lowering.derived(name, dtype, whole, note)

    def at(self, channel: Expr) -> Expr:
        """Returns the numbers of ``channel`` and those behind it, as a vector."""
        if self._buffer is not None:
            return load_vector(self._buffer, channel, self._type)
        if self._type.is_float:
            return self._machine.real_everywhere(float(self._same or 0.0))
        return self._machine.int_everywhere(int(self._same or 0))


class IntegerVectorEpilogue:
    """The epilogue of integer sums for which :func:`scales` holds."""

    def __init__(self, lowering: Lowering, machine: VectorMachine, sums: IntegerSums) -> None:
        self.b, self.machine = lowering.b, machine
        context, self._lowering, self._channels = lowering.context, lowering, len(sums.folded)
        self._bias = self._table("bias", Scalar.I32, sums.folded, FOLDED_BIAS)
        self._tables = self._scaling(sums)
        self._zero = context.quant(context.output()).zero_point[0]
        self._range = activation_range(activation_of(context), context.output())

    def _table(
        self, name: str, dtype: Scalar, values: npt.NDArray[np.generic], note: str
    ) -> ChannelTable:
        stored = np.float32 if dtype.is_float else np.int32
        return ChannelTable(
            self._lowering, self.machine, name, dtype,
            np.broadcast_to(values, self._channels).astype(stored), self._channels, note,
        )

    def _scaling(self, sums: IntegerSums) -> dict[str, ChannelTable]:
        """Defines the constants of the requantization."""
        mantissas = np.array(sums.multiplier.mantissas, np.int64)
        places = self.machine.places(np.array(sums.multiplier.shifts, np.int64))
        return {
            "multipliers": self._table(
                "multipliers", Scalar.I32, mantissas, f"{_EACH} multiplier (Q31)"
            ),
            "places": self._table(
                "places", Scalar.I32, places, f"{_EACH} {self.machine.places_note}"
            ),
        }

    def start(self, channel: Expr) -> Expr:
        return self._bias.at(channel)

    def store(self, output: Buffer, index: Expr, total: Expr, channel: Expr, count: int) -> None:
        b, machine = self.b, self.machine
        low, top = self._range
        mantissas, places = (table.at(channel) for table in self._tables.values())
        value = machine.scaled(total, mantissas, places, signed=low < self._zero)
        value = machine.between(machine.plus(value, self._zero), (low, top))
        b.store_vector(output, index, value, count)


class FloatVectorEpilogue:
    """The epilogue of float sums: bias and activation; sums of products with int8 weights are
    scaled first."""

    def __init__(self, lowering: Lowering, machine: VectorMachine, pixels: int = 1) -> None:
        """``pixels``: how often all channels are repeated in a vector."""
        self.b, self.machine = lowering.b, machine
        context = lowering.context
        channels = context.output().shape[-1]
        bias = (
            context.values(2).astype(np.float32).reshape(-1) if context.has(2)
            else np.zeros(channels, np.float32)
        )
        repeated = np.tile(bias, pixels)
        self._bias = ChannelTable(
            lowering, machine, "bias", Scalar.F32, repeated, len(repeated), f"{_EACH} bias"
        )
        self._scales: ChannelTable | None = None
        if context.input(1).dtype is DType.INT8:
            scales = np.array(weight_scales(context, channels).scale, np.float32)
            self._scales = ChannelTable(
                lowering, machine, "scales", Scalar.F32, np.broadcast_to(scales, channels),
                channels, f"{_EACH} scale of its weights",
            )
        self._range = float_range(activation_of(context))

    def start(self, channel: Expr) -> Expr:
        return self._bias.at(channel) if self._scales is None else self.machine.real_everywhere(0.0)

    def store(self, output: Buffer, index: Expr, total: Expr, channel: Expr, count: int) -> None:
        low, high = self._range
        value = total
        if self._scales is not None:
            value = self.machine.plus_product(
                self._bias.at(channel), total, self._scales.at(channel)
            )
        if math.isfinite(low):
            value = self.machine.of_reals("fmax", value, self.machine.real_everywhere(low))
        if math.isfinite(high):
            value = self.machine.of_reals("fmin", value, self.machine.real_everywhere(high))
        self.b.store_vector(output, index, value, count)
