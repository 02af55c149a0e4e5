"""Fixed-point scaling as Kernel IR: the run-time half of :mod:`crtexport.support.fixedpoint`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.ops import Activation
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    gt,
    i32,
    load,
    mul,
    select,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics import requantize_float
from crtexport.lowering.numerics.requantize_float import MANTISSA_BITS, SATURATED
from crtexport.lowering.registry import Lowering
from crtexport.support.fixedpoint import Rounding, quantize_multiplier, reduced_multiplier

WIDE_LIMIT = 1 << 47
"""No 64-bit accumulator may reach further: times 15 bits it must stay an i64."""

_WIDE_BITS = 15

MOST_SHIFT = 30
"""The largest shift to the left. TFLite leaves larger ones undefined: any accumulator but 0 would
leave the i32 that it is shifted in."""


def rounding_doubling_high_mul(
    b: KernelBuilder, a: Expr, multiplier: Expr, name: str = "high"
) -> Expr:
    """i32: (a * multiplier + 2**30) >> 31; the operands must not both be -2**31."""
    product = mul(cast(a, Scalar.I64), cast(multiplier, Scalar.I64))
    nudged = add(product, const(1 << 30, Scalar.I64))
    return b.let(name, cast(shr(nudged, const(31, Scalar.I64)), Scalar.I32))


def rounding_divide_by_pot(b: KernelBuilder, value: Expr, exponent: Expr) -> Expr:
    """Returns i32: value / 2**exponent to nearest, halves away from zero; exponent 0 to 31."""
    value = b.let("value", value)
    mask = b.let("mask", sub_one_shifted(exponent))
    remainder = and_(value, mask)
    threshold = sub(shr(mask, i32(1)), shr(value, i32(31)))
    return add(shr(value, exponent), select(gt(remainder, threshold), i32(1), i32(0)))


def sub_one_shifted(exponent: Expr) -> Expr:
    """(1 << exponent) - 1 without overflow for exponents 0 to 31."""
    if isinstance(exponent, type(i32(0))):
        return i32((1 << int(exponent.value)) - 1)
    return cast(
        sub(shl(const(1, Scalar.I64), cast(exponent, Scalar.I64)), const(1, Scalar.I64)), Scalar.I32
    )


class Multiplier(Struct, frozen=True):
    """Fixed-point multipliers: one pair, or arrays of one pair per output channel.

    ``shift`` follows TFLite: positive is left. Raises OverflowError for one above MOST_SHIFT.
    """

    mantissas: tuple[int, ...]
    shifts: tuple[int, ...]

    def __post_init__(self) -> None:
        if max(self.shifts, default=0) > MOST_SHIFT:
            raise OverflowError("no accumulator can be shifted as far")

    @staticmethod
    def of(reals: list[float]) -> Multiplier:
        pairs = [quantize_multiplier(r) for r in reals]
        if len(set(pairs)) == 1:
            pairs = pairs[:1]
        return Multiplier(tuple(m for m, _ in pairs), tuple(s for _, s in pairs))

    @property
    def reals(self) -> npt.NDArray[np.float64]:
        """The numbers that the pairs stand for: exactly."""
        found: npt.NDArray[np.float64] = np.ldexp(
            np.array(self.mantissas, np.float64), np.array(self.shifts) - 31
        )
        return found


class Requantizer:
    """Emits ``MultiplyByQuantizedMultiplier`` for one multiplier or one per channel."""

    def __init__(
        self, lowering: Lowering, multiplier: Multiplier, rounding: Rounding, bound: int
    ) -> None:
        """``bound``: the largest magnitude that the accumulator can have, 2**31 if unknown."""
        self.b = lowering.b
        self.rounding = rounding
        if rounding is Rounding.FLOAT:
            # All that a float32 has; and what is beyond any result serves for what is larger.
            multiplier = Multiplier(
                tuple(m >> 31 - MANTISSA_BITS for m in multiplier.mantissas),
                tuple(min(s, SATURATED + 1) for s in multiplier.shifts),
            )
        self.multiplier = multiplier
        self.bound = min(bound, 1 << 31)
        many = len(multiplier.mantissas) > 1
        self.mantissas: Buffer | None = (
            lowering.derived(
                "multipliers", Scalar.I32, np.array(multiplier.mantissas, np.int32),
                "for each output channel: multiplier (Q31)",
            ) if many else None
        )
        same_shift = len(set(multiplier.shifts)) == 1
        self.shift: int | None = multiplier.shifts[0] if same_shift else None
        # As right shifts where all are, which saves their negation.
        self.rightward = rounding is Rounding.DOUBLE and max(multiplier.shifts, default=0) < 0
        stored = [-s if self.rightward else s for s in multiplier.shifts]
        self.shifts: Buffer | None = (
            None if same_shift
            else lowering.derived(
                "shifts", Scalar.I8, np.array(stored, np.int8),
                f"for each output channel: {'right' if self.rightward else 'left'} shift",
            )
        )

    def __call__(self, acc: Expr, channel: Expr) -> Expr:
        """Returns the scaled i32 value of the i32 accumulator of ``channel`` (index)."""
        mantissa: Expr = (
            load(self.mantissas, channel) if self.mantissas is not None
            else i32(self.multiplier.mantissas[0])
        )
        shift: Expr = (
            cast(load(self.shifts, channel), Scalar.I32) if self.shifts is not None
            else i32(self.shift or 0)
        )
        if self.rounding is Rounding.FLOAT:
            places = sub(i32(MANTISSA_BITS), shift)
            return requantize_float.scaled(self.b, acc, mantissa, places, self.bound)
        if self.rounding is Rounding.SINGLE:
            return self._single(acc, mantissa, shift)
        return self._double(acc, mantissa, shift)

    def _single(self, acc: Expr, mantissa: Expr, shift: Expr) -> Expr:
        total = self.b.let("total_shift", sub(const(31, Scalar.I64), cast(shift, Scalar.I64)))
        half = shl(const(1, Scalar.I64), sub(total, const(1, Scalar.I64)))
        product = self.b.let(
            "product", mul(cast(acc, Scalar.I64), cast(mantissa, Scalar.I64))
        )
        sign = shr(product, const(63, Scalar.I64))
        nudged = add(product, half, sign)
        return self.b.let("scaled", cast(shr(nudged, total), Scalar.I32))

    def _double(self, acc: Expr, mantissa: Expr, shift: Expr) -> Expr:
        shifts = self.multiplier.shifts
        zero = i32(0)
        if max(shifts) > 0:
            left = shift if min(shifts) >= 0 else select(gt(shift, zero), shift, zero)
            acc = self.b.let("shifted", shl(acc, left))
            high = rounding_doubling_high_mul(self.b, acc, mantissa)
        elif self.bound < 1 << 30:
            high = self._doubled_high_mul(acc, mantissa)
        else:
            high = rounding_doubling_high_mul(self.b, acc, mantissa)
        if min(shifts) >= 0:
            return high
        right: Expr = i32(-self.shift) if self.shift is not None else (
            shift if self.rightward else sub(zero, shift)
        )
        if max(shifts) >= 0:
            right = self.b.let("right", select(gt(zero, shift), right, zero))
            return rounding_divide_by_pot(self.b, high, right)
        if not self._nudge_fits():
            return rounding_divide_by_pot(self.b, high, self.b.let("right", right))
        # With every exponent at least 1 a nudge and one shift do the same as the remainder test.
        right = self.b.let("right", right)
        half = shl(i32(1), sub(right, i32(1))) if self.shift is None else i32(
            1 << (-(self.shift or 0) - 1)
        )
        return shr(add(high, half, shr(high, i32(31))), right)

    def _doubled_high_mul(self, acc: Expr, mantissa: Expr) -> Expr:
        """Returns the rounding doubling high multiply of an accumulator that can be doubled: the
        upper word of a product, which processors have an instruction for."""
        doubled = cast(shl(acc, i32(1)), Scalar.I64)
        product = mul(doubled, cast(mantissa, Scalar.I64))
        nudged = add(product, const(1 << 31, Scalar.I64))
        return self.b.let("high", cast(shr(nudged, const(32, Scalar.I64)), Scalar.I32))

    def _nudge_fits(self) -> bool:
        return all(
            (self.bound * m >> 31) + 1 + (1 << (-s - 1)) < 1 << 31
            for m, s in zip(self.multiplier.mantissas, self.multiplier.shifts, strict=True)
        )


class WideRequantizer:
    """Emits ``MultiplyByQuantizedMultiplier`` of 64-bit accumulators: 15 bits of the multiplier,
    one rounding, halves up."""

    def __init__(self, lowering: Lowering, multiplier: Multiplier, bound: int) -> None:
        """``bound``: the largest magnitude that the accumulator can have."""
        if bound >= WIDE_LIMIT:
            raise lowering.context.refuse(
                f"sums may reach {bound}; 64-bit accumulators are scaled up to {WIDE_LIMIT}"
            )
        if max(multiplier.shifts) >= _WIDE_BITS:
            raise lowering.context.refuse("the scales make the output overflow for any input")
        self.b = lowering.b
        self.multiplier = multiplier
        reduced = [reduced_multiplier(m) for m in multiplier.mantissas]
        self._reduced = reduced[0]
        self._table: Buffer | None = (
            lowering.derived(
                "multipliers", Scalar.I16, np.array(reduced, np.int16),
                "for each output channel: multiplier (Q15)",
            ) if len(reduced) > 1 else None
        )
        self._shifts: Buffer | None = (
            lowering.derived(
                "shifts", Scalar.I8, np.array(multiplier.shifts, np.int8),
                "for each output channel: left shift",
            ) if len(set(multiplier.shifts)) > 1 else None
        )

    def __call__(self, acc: Expr, channel: Expr) -> Expr:
        """Returns the scaled i32 value of the i32 or i64 accumulator of ``channel`` (index)."""
        factor: Expr = (
            cast(load(self._table, channel), Scalar.I64) if self._table is not None
            else const(self._reduced, Scalar.I64)
        )
        product = mul(cast(acc, Scalar.I64), factor)
        if self._shifts is None:
            total = _WIDE_BITS - self.multiplier.shifts[0]
            nudged = add(product, const(1 << (total - 1), Scalar.I64))
            return self.b.let("scaled", cast(shr(nudged, const(total, Scalar.I64)), Scalar.I32))
        shift = cast(load(self._shifts, channel), Scalar.I64)
        count = self.b.let("total_shift", sub(const(_WIDE_BITS, Scalar.I64), shift))
        half = shl(const(1, Scalar.I64), sub(count, const(1, Scalar.I64)))
        return self.b.let("scaled", cast(shr(add(product, half), count), Scalar.I32))


def float_range(activation: Activation) -> tuple[float, float]:
    """Clamp bounds of a fused activation on floats."""
    infinity = float("inf")
    match activation:
        case Activation.RELU:
            return 0.0, infinity
        case Activation.RELU6:
            return 0.0, 6.0
        case Activation.RELU_N1_TO_1:
            return -1.0, 1.0
        case Activation.NONE:
            return -infinity, infinity


def quantized_result(
    value: Expr, zero_point: int, bounds: tuple[int, int], dtype: Scalar
) -> Expr:
    """Returns ``value`` (i32) plus the output's zero point, clamped and narrowed."""
    return cast(clamp(add(value, i32(zero_point)), *bounds), dtype)
