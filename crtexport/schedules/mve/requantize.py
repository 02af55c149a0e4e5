"""Sums of four output channels at once become results: of int8 with TFLite's two roundings, or as
ONNX Runtime's in float32; both with :mod:`crtexport.lowering.numerics.common_shift` where that
gives the same.

What a vector of channels needs lies side by side: its biases, multipliers and shifts, so that one
pointer finds all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Activation, Conv2D, DepthwiseConv2D, FullyConnected
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import KernelBuilder, add, call, const, i32, load, load_vector, mul
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.common_shift import (
    CommonShift,
    Scaling,
    Shifts,
    common_shift,
)
from crtexport.lowering.numerics.integer_sums import FOLDED_BIAS, IntegerSums
from crtexport.lowering.numerics.requantize import (
    WIDE_LIMIT,
    WideRequantizer,
    quantized_result,
)
from crtexport.lowering.registry import Context, Lowering
from crtexport.schedules.common import requantize_int16
from crtexport.support.fixedpoint import Rounding

LANES = 4
"""Sums in a vector."""
_SHIFTS = Shifts(left=10, least_left=6, most_left=13, right=16, most_right=16, rounded=True)
"""VQRSHRN shifts by at most 16 bits."""
SUFFIXES = {
    Scalar.I8X16: "s8", Scalar.I16X8: "s16", Scalar.I32X4: "s32", Scalar.F32X4: "f32",
}
"""Suffixes of the instructions for a type of vector."""
BYTES = 16
"""int8 values in a vector."""


def vector(name: str, *args: Expr) -> Expr:
    """Returns a call that gives four sums."""
    return call(f"mve_{name}", *args, type_=Scalar.I32X4)


def clamped(b: KernelBuilder, value: Expr, zero: int, bounds: tuple[int, int]) -> Expr:
    """Returns ``value`` plus the zero point, clamped."""
    if zero:
        value = vector("add_s32", value, vector("dup_s32", i32(zero)))
    value = vector("max_s32", value, vector("dup_s32", i32(bounds[0])))
    return b.let("result", vector("min_s32", value, vector("dup_s32", i32(bounds[1]))))


def limited(value: Expr, bounds: tuple[float, float], widest: tuple[float, float]) -> Expr:
    """Returns the lanes of ``value`` within ``bounds``; ``widest`` are those that no lane
    leaves."""
    suffix, lane = SUFFIXES[value.type], Scalar.F32 if value.type.is_float else Scalar.I32
    for name, bound, most in zip(("max", "min"), bounds, widest, strict=True):
        if bound != most:
            limit = call(f"mve_dup_{suffix}", const(bound, lane), type_=value.type)
            value = call(f"mve_{name}_{suffix}", value, limit, type_=value.type)
    return value


class Sums:
    """Facts about an integer layer by which its schedule is chosen.

    ``vector``: of its values. ``steps``: operations with a number for each channel that scale
    sums which TFLite has in 64 bits; without any the multiplier does. ``long``: they have 64 bits
    here, too, and are scaled one by one.
    """

    def __init__(self, context: Context, sums: IntegerSums, activation: Activation) -> None:
        self.vector = Scalar.I16X8 if context.input(0).dtype is DType.INT16 else Scalar.I8X16
        self.steps: list[tuple[str, npt.NDArray[np.int64]]] = []
        self.long, self.bound = False, sums.bound
        self.common: CommonShift | None = None
        self.folded, self.multiplier, self.zero_in = sums.folded, sums.multiplier, sums.zero_point
        out = context.output()
        self.floats = sums.rounding is Rounding.FLOAT
        self.zero = context.quant(out).zero_point[0]
        self.low, self.high = activation_range(activation, out)

    @property
    def channels(self) -> int:
        return len(self.folded)

    @property
    def columns(self) -> int:
        """Returns the numbers of each channel that scaling reads."""
        if self.steps:
            return len(self.steps)
        if self.common is not None:
            return 1 + (len(self.multiplier.mantissas) > 1)
        many, shifts = len(self.multiplier.mantissas) > 1, self.multiplier.shifts
        return 1 + many * (1 + (min(shifts) < 0) + (max(shifts) > 0))

    @property
    def integer_steps(self) -> int:
        """Operations other than products that scale a vector of sums, less those of all layers."""
        if self.steps:
            return sum(name in ("add", "rshl") for name, _ in self.steps)
        away = 2 if self.low < self.zero else 0
        return 1 + away + (max(self.multiplier.shifts) > 0)

    @staticmethod
    def of(context: Context, channel_axis: int, *, fully_connected: bool = False) -> Sums | None:
        """Returns the sums of a layer; None where they aren't of int8 or int16 values times int8
        weights, or are scaled in another way."""
        op, types = context.node.op, (context.input(0).dtype, context.input(1).dtype)
        if not isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected) or types not in (
            (DType.INT8, DType.INT8), (DType.INT16, DType.INT8)
        ):
            return None
        sums = IntegerSums.of(context, channel_axis, fully_connected=fully_connected)
        if sums.weight_zero or sums.rounding is Rounding.SINGLE:
            return None
        if sums.rounding is Rounding.FLOAT:
            scale = math.ldexp(1.0, max(sums.multiplier.shifts))
            if sums.wide or sums.bound >= 1 << 31 or sums.bound * scale >= 1 << 22:
                return None
        found = Sums(context, sums, op.activation)
        if sums.wide:
            return found if found._scale(sums) else None
        if sums.bound >= 1 << 31:
            return None
        if found.vector is Scalar.I8X16:
            scaling = Scaling.of(sums, found.zero, (found.low, found.high))
            found.common = common_shift(scaling, _SHIFTS)
        return found

    def _scale(self, sums: IntegerSums) -> bool:
        """Decides how sums are scaled that TFLite has in 64 bits; whether they can be."""
        if (constants := requantize_int16.constants_of(sums)) is not None:
            names = ["add", "rmulh"]
        elif (constants := requantize_int16.parts_of(sums)) is not None:
            names = ["add", "mulh", "add", "rshl", "add"]
            constants[:, 3] *= -1
        else:
            self.long = True
            return sums.bound < WIDE_LIMIT
        columns = constants.astype(np.int64).T
        self.steps = [
            (name, column) for name, column in zip(names, columns, strict=True)
            if name != "add" or column.any()
        ]
        return True


_MEANINGS = {
    "add": "addend", "rmulh": "multiplier (Q31)", "mulh": "multiplier (Q31)",
    "rshl": "shift, negative to the right",
}
"""Meanings of the table's numbers, by the instruction that takes them."""


class Scaler:
    """Emits the way from vectors of sums to int8 values, in vectors of 32-bit lanes."""

    def __init__(
        self, lowering: Lowering, sums: Sums, order: Sequence[int], plus: int = 0
    ) -> None:
        """``order``: the channel of each lane of all vectors, one after the other; -1 is none.
        ``plus``: what is added to all sums, which wrap."""
        self.b, self.sums = lowering.b, sums
        shifts = sums.multiplier.shifts
        self._left = max(shifts) > 0
        self._some_right = min(shifts) < 0
        self._single = len(sums.multiplier.mantissas) == 1
        parts, meanings = (
            self._own(order, plus) if sums.common is None
            else self._common(sums.common, order, plus)
        )
        table = np.stack(parts, axis=1).astype(np.int32)
        note = f"a column for each output channel, in rows: {', '.join(meanings)}"
        self._stride = table.shape[1] * LANES
        self._table = lowering.derived("scaling", Scalar.I32, table, note)

    def _common(
        self, common: CommonShift, order: Sequence[int], plus: int
    ) -> tuple[list[npt.NDArray[np.int64]], list[str]]:
        """Returns the table's rows for scaling with one shift."""
        addends = common.addends + (self.sums.folded + plus << common.left)
        parts, meanings = [_lanes(_wrapped(addends), order)], ["addend"]
        if not self._single:
            parts.append(_lanes(common.multipliers, order))
            meanings.append("multiplier (Q31)")
        return parts, meanings

    def _own(
        self, order: Sequence[int], plus: int
    ) -> tuple[list[npt.NDArray[np.int64]], list[str]]:
        """Returns the table's rows for scaling with a shift for each channel, or with floats."""
        sums, shifts = self.sums, self.sums.multiplier.shifts
        if sums.steps:
            steps = [_lanes(column, order) for _, column in sums.steps]
            return steps, [_MEANINGS[name] for name, _ in sums.steps]
        parts, meanings = [_lanes(_wrapped(sums.folded + plus), order)], ["bias"]
        if sums.floats:
            scales = _lanes(sums.multiplier.reals, order).astype(np.float32)
            parts.append(scales.view(np.int32).astype(np.int64))
            meanings.append("scale (a float's encoding)")
        elif not self._single:
            parts.append(_lanes(np.array(sums.multiplier.mantissas), order))
            meanings.append("multiplier (Q31)")
            if self._some_right:
                parts.append(_lanes(np.minimum(np.array(shifts), 0), order))
                meanings.append("right shift, negative")
            if self._left:
                parts.append(_lanes(np.maximum(np.array(shifts), 0), order))
                meanings.append("left shift")
        return parts, meanings

    def eight(self, even: Expr, odd: Expr, first: Expr, *, joined: bool = False) -> Expr:
        """Returns the i16x8 of results for the sums of two vectors from ``first`` on, which has the
        even lanes. ``joined``: these have the odd ones in their upper halves, too."""
        with self.b.named("even"):
            results = self.scaled(even, first, odd if joined else None)
        with self.b.named("odd"):
            return self.narrow(results, self.scaled(odd, add(first, const(1))))

    def narrow(self, *scaled: Expr) -> Expr:
        """Returns the results, in a vector, of those of a vector of sums; of two, whose lanes are
        even and odd in turn, in one of twice as many lanes."""
        b, sums, zero = self.b, self.sums, self.sums.zero
        if sums.common is not None:  # which adds it
            right, zero = _everywhere(-sums.common.right), 0
            scaled = tuple(vector("rshl_s32", value, right) for value in scaled)
        if len(scaled) == 1:
            return clamped(b, scaled[0], zero, (sums.low, sums.high))
        value = call("mve_narrow_s32", *scaled, type_=Scalar.I16X8)
        if zero:
            zeros = call("mve_dup_s16", i32(zero), type_=Scalar.I16X8)
            value = call("mve_qadd_s16", value, zeros, type_=Scalar.I16X8)
        return b.let("result", limited(value, (sums.low, sums.high), DType.INT16.limits))

    def scaled(self, acc: Expr, number: Expr, upper: Expr | None = None) -> Expr:
        """Returns the multiples of the sums ``acc`` of vector ``number`` (index), for
        :meth:`narrow`; ``upper``: 65536 times as much is subtracted from them before."""
        b, sums = self.b, self.sums
        start = b.let("scaling_at", mul(number, const(self._stride)))
        column = iter(range(self._stride // LANES))

        def entry(single: int | None) -> Expr:
            if single is not None:
                return _everywhere(single)
            return load_vector(
                self._table, add(start, const(LANES * next(column))), Scalar.I32X4
            )

        if upper is not None:
            acc = b.let("even", vector("sub_s32", acc, vector("raised_s32", upper)))
        if sums.common is not None:
            larger = vector("rshl_s32", acc, _everywhere(sums.common.left))
            value = vector("add_s32", larger, entry(None))
            multiplier = int(sums.common.multipliers[0]) if self._single else None
            return b.let("scaled", vector("qrdmulh_s32", value, entry(multiplier)))
        if sums.steps:
            for name, _ in sums.steps:
                acc = vector(f"{name}_s32", acc, entry(None))
            return b.let("scaled", acc)
        mantissa, shift = sums.multiplier.mantissas[0], sums.multiplier.shifts[0]
        value = vector("add_s32", acc, entry(None))
        if sums.floats:
            scale = call("mve_as_f32", entry(None), type_=Scalar.F32X4)
            real = call("mve_from_s32", value, type_=Scalar.F32X4)
            product = call("mve_mul_f32", real, scale, type_=Scalar.F32X4)
            return b.let("scaled", vector("round_f32", product))
        factor = entry(mantissa if self._single else None)
        right = entry(min(shift, 0) if self._single else None) if self._some_right else None
        if self._left:
            value = vector("rshl_s32", value, entry(max(shift, 0) if self._single else None))
        value = vector("qrdmulh_s32", value, factor)
        if right is not None:
            value = vector("rshl_s32", self._halves_away(b.let("high", value), right), right)
        return b.let("scaled", value)

    def _halves_away(self, value: Expr, right: Expr) -> Expr:
        """Returns what rounds away from zero at halves, when the shift then rounds them up.

        Negative values are made smaller by 1 if they are shifted at all. That needs no care where
        all of them end at the lower bound anyway, as in front of a ReLU.
        """
        sums = self.sums
        if sums.low >= sums.zero:
            return value
        if max(sums.multiplier.shifts) < 0:
            return vector("add_s32", value, vector("sign_s32", value))
        shifted = vector("and_s32", value, self.b.let("right", right))
        return vector("add_s32", value, vector("sign_s32", shifted))


class LongScaler:
    """Emits the way from a sum of 64 bits to its int16 value."""

    def __init__(self, lowering: Lowering, sums: Sums) -> None:
        self.sums, self.b = sums, lowering.b
        self._requantizer = WideRequantizer(lowering, sums.multiplier, sums.bound)
        self._bias = lowering.derived("bias", Scalar.I64, sums.folded, FOLDED_BIAS)

    def __call__(self, acc: Expr, unit: Expr) -> Expr:
        """Returns the result for the sum ``acc`` of the products of a unit (index)."""
        total = self.b.let("sum", add(acc, load(self._bias, unit)))
        value = self._requantizer(total, unit)
        return quantized_result(value, 0, (self.sums.low, self.sums.high), Scalar.I16)


def _everywhere(number: int) -> Expr:
    return vector("dup_s32", i32(number))


def _wrapped(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns values as numbers of 32 bits."""
    return values.astype(np.uint32).astype(np.int32).astype(np.int64)


_Number = TypeVar("_Number", np.int64, np.float64)


def _lanes(values: npt.NDArray[_Number], order: Sequence[int]) -> npt.NDArray[_Number]:
    """Returns (vectors, LANES) of the values of channels; one value serves all."""
    if len(values) == 1:
        values = np.repeat(values, max(order) + 1)
    chosen = np.array(order)
    found: npt.NDArray[_Number] = np.where(chosen < 0, 0, values[np.maximum(chosen, 0)])
    return found.reshape(-1, LANES)
