"""Logistic and tanh of 16-bit fixed point numbers, as gemmlowp's ``fixedpoint.h`` computes them.

Numbers are i32 that hold int16 values; ``integer_bits`` n means that 1.0 is 2**(15 - n).
"""

from __future__ import annotations

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    clamp,
    eq,
    i32,
    lt,
    min_,
    mul,
    select,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Expr
from crtexport.lowering.numerics.requantize import rounding_divide_by_pot
from crtexport.support.fixedpoint import rounding_divide_by_pot as divided

_ONE = 32767
_EXP_AT_MINUS_EIGHTH, _THIRD = divided(1895147668, 16), divided(715827883, 16)
_BARREL = (
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535),
    (3, 720401), (4, 242),
)
_48_17, _NEG_32_17 = divided(1515870810, 16), divided(-1010580540, 16)
_ONE_Q2 = 1 << 13


def product(b: KernelBuilder, x: Expr, y: Expr) -> Expr:
    """gemmlowp ``SaturatingRoundingDoublingHighMul`` of operands that aren't both -2**15."""
    return b.let("product", shr(add(mul(x, y), i32(1 << 14)), i32(15)))


def _scaled(b: KernelBuilder, x: Expr, exponent: int) -> Expr:
    """x * 2**exponent, saturated."""
    return b.let("scaled", clamp(shl(x, i32(exponent)), -32768, 32767))


def exp_of_negative(b: KernelBuilder, a: Expr, integer_bits: int) -> Expr:
    """exp(a) for a ≤ 0, with no integer bits."""
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = b.let("rest", sub(and_(a, i32(quarter - 1)), i32(quarter)))
    x = b.let("x", add(shl(rest, i32(integer_bits)), i32(1 << 12)))
    x2 = product(b, x, x)
    x3, x4 = product(b, x2, x), product(b, x2, x2)
    inner = add(product(b, add(rounding_divide_by_pot(b, x4, i32(2)), x3), i32(_THIRD)), x2)
    series = add(x, rounding_divide_by_pot(b, inner, i32(1)))
    term = i32(_EXP_AT_MINUS_EIGHTH)
    result = b.let("series", min_(add(term, product(b, term, series)), i32(_ONE)))
    remainder = b.let("remainder", sub(rest, a))
    for exponent, multiplier in _BARREL:
        if integer_bits > exponent:
            bit = and_(remainder, i32(1 << (fraction + exponent)))
            less = product(b, result, i32(divided(multiplier, 16)))
            result = b.let("power", select(eq(bit, i32(0)), result, less))
    if integer_bits > 5:
        result = select(lt(a, i32(divided(-(1 << (36 - integer_bits)), 16))), i32(0), result)
    return b.let("exp", select(eq(a, i32(0)), i32(_ONE), result))


def _reciprocal(b: KernelBuilder, x: Expr) -> Expr:
    """2 / (1 + x) for x in [0, 1], with 2 integer bits: Newton's method, three steps."""
    half = b.let("half", shr(add(x, i32(_ONE + 1)), i32(1)))
    y = b.let("guess", add(i32(_48_17), product(b, half, i32(_NEG_32_17))))
    for _ in range(3):
        error = b.let("error", sub(i32(_ONE_Q2), product(b, half, y)))
        y = b.let("better", add(y, _scaled(b, product(b, y, error), 2)))
    return y


def logistic(b: KernelBuilder, a: Expr, integer_bits: int = 3) -> Expr:
    """1 / (1 + exp(-a)), with no integer bits."""
    grown = exp_of_negative(b, b.let("negative", min_(a, sub(i32(0), a))), integer_bits)
    positive = _scaled(b, _reciprocal(b, grown), 1)
    result = select(lt(i32(0), a), positive, sub(i32(_ONE), positive))
    return b.let("gate", select(eq(a, i32(0)), i32(1 << 14), result))


def tanh(b: KernelBuilder, a: Expr, integer_bits: int) -> Expr:
    """Hyperbolic tangent, with no integer bits; ``integer_bits`` is at most 6."""
    negative = b.let("negative", min_(a, sub(i32(0), a)))
    grown = exp_of_negative(b, negative, integer_bits + 1)
    above = _scaled(b, sub(_reciprocal(b, grown), i32(_ONE_Q2)), 2)
    result = select(lt(a, i32(0)), sub(i32(0), above), above)
    return b.let("tanh", select(eq(a, i32(0)), i32(0), result))
