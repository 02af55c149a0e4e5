"""DIV of 8-bit quantized numbers (TFLite ``div.h``): what depends on one operand is a table.

TFLite leaves undefined what is beyond its shifts and refuses divisors of 0; here a quotient that
is too small is 0, one that is too large saturates, and what is divided by 0 is 0.
"""

from __future__ import annotations

import numpy as np

from crtexport.ir.ops import Activation
from crtexport.kir.builder import add, cast, clamp, const, i32, load, lt, select, shl, sub
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.quantized_arithmetic import Scaled
from crtexport.lowering.numerics.requantize import rounding_divide_by_pot
from crtexport.lowering.numerics.requantize import rounding_doubling_high_mul as high_mul
from crtexport.lowering.registry import Lowering
from crtexport.support.fixedpoint import quantize_multiplier, rounding_doubling_high_mul, saturate

_WIDEST = 255
"""The largest magnitude of an 8-bit number without its zero point."""

_LARGE = 1 << 20
"""Beyond any 8-bit result, whatever its zero point."""


def reciprocal(value: int) -> tuple[int, int]:
    """gemmlowp ``GetReciprocal`` of a positive value: 1 / value in Q0.31 after normalising, and
    the bits that the value has above 1."""
    zeros = 32 - value.bit_length()
    fraction = (value << zeros) - (1 << 31)
    half = (fraction + (1 << 31)) // 2
    x = 1515870810 + rounding_doubling_high_mul(half, -1010580540)
    for _ in range(3):
        rest = (1 << 29) - rounding_doubling_high_mul(half, x)
        step = rounding_doubling_high_mul(x, rest) << 2
        x += saturate(step, 32)
    return saturate(x << 1, 32), 31 - zeros


def sign_bits(value: int) -> int:
    """Returns how many bits of an i32 repeat its sign: how far it can be shifted to the left."""
    return 31 - (value if value >= 0 else ~value).bit_length()


class Quotient(Scaled):
    """DIV of int8 and uint8."""

    def __init__(self, lowering: Lowering, activation: Activation) -> None:
        super().__init__(lowering, activation)
        precision = lowering.context.numerics.precision
        first, second, result = (precision(s) for s in (*self.scales, self.scale_out))
        self.mantissa, self.shift = quantize_multiplier(float(first / (second * result)))
        low, high = self.dtype.limits
        sizes = [abs(x - self.zeros[1]) for x in range(low, high + 1)]
        pairs = [reciprocal(size) if size else (0, 0) for size in sizes]
        self.low = low
        self.inverse = lowering.derived(
            "reciprocals", Scalar.I32, np.array([m for m, _ in pairs], np.int32),
            "for each value of the second input: the mantissa of its reciprocal",
        )
        self.inverse_shifts = lowering.derived(
            "reciprocal_shifts", Scalar.I8, np.array([s for _, s in pairs], np.int8),
            "for each value of the second input: the shift of its reciprocal",
        )
        self.headroom = lowering.derived(
            "headroom", Scalar.I8,
            np.array([sign_bits(v) for v in range(-_WIDEST, _WIDEST + 1)], np.int8),
            f"how far each number from {-_WIDEST} to {_WIDEST} can be shifted left",
        )

    def __call__(self, a: Expr, c: Expr) -> Expr:
        b, zero = self.b, i32(0)
        dividend, divisor = (b.let("centred", v) for v in self.centred((a, c)))
        dividend = b.let(
            "dividend", select(lt(divisor, zero), sub(zero, dividend), dividend)
        )
        column = b.let("column", sub(cast(c, Scalar.INDEX), const(self.low)))
        free = b.let("free", cast(
            load(self.headroom, b.let("row", _row(dividend))), Scalar.I32
        ))
        raised = b.let("raised", shl(dividend, free))
        quotient = high_mul(b, raised, load(self.inverse, column))
        scaled = high_mul(b, quotient, i32(self.mantissa))
        bits = add(cast(load(self.inverse_shifts, column), Scalar.I32), free, i32(-self.shift))
        bits = b.let("bits", bits)
        rounded = b.let("rounded", rounding_divide_by_pot(
            b, scaled, b.let("within", clamp(bits, 0, 31))
        ))
        huge = select(lt(scaled, zero), i32(-_LARGE), select(lt(zero, scaled), i32(_LARGE), zero))
        small = select(lt(i32(31), bits), zero, clamp(rounded, -_LARGE, _LARGE))
        return self.stored(b.let("result", select(lt(bits, zero), huge, small)))


def _row(dividend: Expr) -> Expr:
    """The position of a dividend in the table of headrooms (index)."""
    return cast(add(clamp(dividend, -_WIDEST, _WIDEST), i32(_WIDEST)), Scalar.INDEX)
