"""Functions of float32 whose results are exact or correctly rounded: square root and roundings.

They are what IEEE 754 asks for, bit for bit, on any target, with or without an FPU or a libm.
"""

from __future__ import annotations

import math

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    const,
    div,
    eq,
    f32,
    gt,
    i32,
    lt,
    max_,
    min_,
    mul,
    or_,
    select,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.float_math import bits, from_bits, magnitude_of

_SIGN = -(1 << 31)
_MANTISSA = (1 << 23) - 1
_ALL_WHOLE = 2.0**23  # from here on every float is an integer
_INVERSE_ROOT_GUESS = 0x5F3759DF


def sqrt(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: square root, correctly rounded; NaN of negative numbers.

    An approximate root of the mantissa becomes an integer, which is corrected by what its square
    leaves of the mantissa.
    """
    x = b.let("x", x)
    subnormal = lt(x, f32(2.0**-126))
    raised = b.let("raised", select(subnormal, b.let("scaled", mul(x, f32(2.0**24))), x))
    encoding = b.let("encoding", bits(raised))
    exponent = b.let("exponent", and_(shr(encoding, i32(23)), i32(255)))
    odd = b.let("odd", and_(add(exponent, i32(1)), i32(1)))
    fraction = b.let("fraction", and_(encoding, i32(_MANTISSA)))
    value = b.let("value", from_bits(or_(fraction, shl(add(odd, i32(127)), i32(23)))))
    root, rest = _integer_root(b, value, fraction, odd)
    rounded = add(root, select(gt(rest, root), i32(1), i32(0)))
    # Exponents halve: 2**((exponent - odd - 127) / 2), biased again; the root's own leading bit
    # adds one more.
    halved = shr(add(sub(exponent, odd), i32(125)), i32(1))
    result = b.let("root", from_bits(add(shl(halved, i32(23)), rounded)))
    finite = b.let("finite", select(
        subnormal, b.let("lowered", mul(result, f32(2.0**-12))), result
    ))
    positive = b.let("positive", select(lt(x, f32(math.inf)), finite, x))
    special = b.let("special", select(eq(x, f32(0.0)), x, f32(math.nan)))
    return b.let("sqrt", select(gt(x, f32(0.0)), positive, special))


def _integer_root(
    b: KernelBuilder, value: Expr, fraction: Expr, odd: Expr
) -> tuple[Expr, Expr]:
    """i32: (root, rest) of ``value`` in [1, 4) times 2**46: the whole root in [2**23, 2**24)."""
    half = b.let("half_value", mul(value, f32(0.5)))
    guess = sub(i32(_INVERSE_ROOT_GUESS), shr(b.let("bits", bits(value)), i32(1)))
    inverse = b.let("inverse", from_bits(guess))
    for _ in range(3):
        error = sub(f32(1.5), mul(mul(half, inverse), inverse))
        inverse = b.let("inverse", mul(inverse, error))
    near = b.let("near", cast(mul(mul(value, inverse), f32(2.0**23)), Scalar.I32))
    whole = shl(
        cast(or_(fraction, i32(1 << 23)), Scalar.I64), cast(add(odd, i32(23)), Scalar.I64)
    )
    target = b.let("target", whole)
    off = cast(sub(target, mul(cast(near, Scalar.I64), cast(near, Scalar.I64))), Scalar.I32)
    step = div(b.let("off", off), max_(shl(near, i32(1)), i32(1)))
    root = b.local("whole", add(near, step))
    wide = b.let("wide", cast(root, Scalar.I64))
    rest = b.local("rest", cast(sub(target, mul(wide, wide)), Scalar.I32))
    for _ in range(2):
        with b.if_(lt(rest, i32(0))):
            b.assign(root, sub(root, i32(1)))
            b.assign(rest, add(rest, add(shl(root, i32(1)), i32(1))))
    return root, rest


def _truncated(b: KernelBuilder, x: Expr) -> Expr:
    """f32: toward zero, for magnitudes below 2**23; of others, anything."""
    inside = min_(f32(_ALL_WHOLE), max_(f32(-_ALL_WHOLE), x))  # a number, even of NaN
    return b.let("whole", cast(b.let("integer", cast(inside, Scalar.I32)), Scalar.F32))


def _rounded(b: KernelBuilder, x: Expr, result: Expr) -> Expr:
    """Returns ``result`` with the sign of ``x``, which it may have lost as 0; large ``x`` as it
    is."""
    signed = from_bits(or_(bits(b.let("result", result)), and_(bits(x), i32(_SIGN))))
    fractional = lt(magnitude_of(b, x), f32(_ALL_WHOLE))
    return b.let("rounded", select(fractional, b.let("signed", signed), x))


def floor(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: the largest integer that is not above ``x``."""
    x = b.let("x", x)
    whole = _truncated(b, x)
    return _rounded(b, x, sub(whole, select(gt(whole, x), f32(1.0), f32(0.0))))


def ceil(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: the smallest integer that is not below ``x``."""
    x = b.let("x", x)
    whole = _truncated(b, x)
    return _rounded(b, x, add(whole, select(lt(whole, x), f32(1.0), f32(0.0))))


def round_half_even(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: the nearest integer, of two the even one."""
    magnitude = magnitude_of(b, b.let("x", x))
    whole = _truncated(b, magnitude)
    rest = b.let("rest", sub(magnitude, whole))
    odd = b.let("odd", and_(cast(min_(f32(_ALL_WHOLE), whole), Scalar.I32), i32(1)))
    # With an odd number before it, one half goes up; else only more than one half.
    over = select(gt(odd, i32(0)), b.let("over", add(rest, f32(2.0**-24))), rest)
    up = select(gt(over, f32(0.5)), f32(1.0), f32(0.0))
    return _rounded(b, b.let("x", x), add(whole, up))


def saturating_integer(b: KernelBuilder, x: Expr, low: int, high: int) -> Expr:
    """Returns i32 or i64: ``x`` toward zero, within [low, high], which are those of an integer
    type."""
    type_ = Scalar.I64 if high >= 1 << 31 else Scalar.I32
    digits = 53 if x.type is Scalar.F64 else 24
    exact = high < 1 << digits
    top = float(high) if exact else (high + 1) * (1 - 2.0**-digits)  # the float before high + 1
    inside = b.let("inside", min_(const(top, x.type), max_(const(float(low), x.type), x)))
    whole = b.let("integer", cast(inside, type_))
    if exact:
        return whole
    below = lt(x, const(float(high + 1), x.type))
    return b.let("saturated", select(below, whole, const(high, type_)))
