"""Scaling sums as ONNX Runtime does in float32, computed in integers.

A sum becomes float32, its product with the float32 scale is rounded to float32, and that to an
integer, halves to even. The scale is m / 2**e with an m of 24 bits. Only a product within half a
unit in the last place of a half k + 1/2 is rounded otherwise than exactly: to that half, and from
there to the even neighbour. So the rounded float needn't be made.
"""

from __future__ import annotations

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    gt,
    i32,
    le,
    lt,
    max_,
    min_,
    mul,
    select,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.float_math import round_half_even
from crtexport.lowering.numerics.highest_bit import highest_bit

MANTISSA_BITS = 24
SATURATED = 10
"""Results from 2**SATURATED on are beyond any 8-bit output, whatever its zero point."""
BEYOND = float(1 << SATURATED)
"""The least of these."""


def _long(value: int) -> Expr:
    return const(value, Scalar.I64)


def scaled(b: KernelBuilder, acc: Expr, mantissa: Expr, places: Expr, bound: int) -> Expr:
    """Returns i32: the i32 ``acc`` of at most ``bound`` scaled, exact unless it is beyond
    ±2**SATURATED, where it may be anything as large. The scale is ``mantissa`` (i32, of 24 bits) /
    2**``places``, from 13 to 55 (i32)."""
    wide = b.let("wide", cast(acc, Scalar.I64))
    size = b.let("size", max_(wide, sub(_long(0), wide)))
    if bound > 1 << MANTISSA_BITS:
        size = _to_float(b, size)
    exponent = b.let("places", cast(places, Scalar.I64))
    whole = b.let("product", mul(size, cast(mantissa, Scalar.I64)))
    top = b.let("top", min_(
        shr(whole, sub(exponent, _long(1))), _long((2 << SATURATED + 1) - 1)
    ))
    one = b.let("one", shl(_long(1), exponent))
    half = b.let("half", shr(one, _long(1)))
    # Where the product is p, half a unit in the last place is 2**floor(log2(p)) / 2**24.
    octave = highest_bit(b, cast(top, Scalar.U32))
    unit = b.let("unit", shr(half, cast(sub(i32(MANTISSA_BITS), octave), Scalar.I64)))
    rest = b.let("rest", sub(and_(whole, sub(one, _long(1))), half))
    low = b.let("floor", cast(shr(top, _long(1)), Scalar.I32))
    near = le(max_(rest, sub(_long(0), rest)), unit)
    up = select(near, and_(low, i32(1)), select(gt(rest, _long(0)), i32(1), i32(0)))
    rounded = b.let("rounded", add(low, b.let("up", up)))
    return b.let("scaled", select(lt(acc, i32(0)), sub(i32(0), rounded), rounded))


def _to_float(b: KernelBuilder, size: Expr) -> Expr:
    """i64: a number below 2**32 with 24 significant bits, halves to even."""
    octave = highest_bit(b, cast(size, Scalar.U32))
    extra = max_(sub(octave, i32(MANTISSA_BITS - 1)), i32(0))
    count = b.let("extra", cast(extra, Scalar.I64))
    half = shr(sub(shl(_long(1), count), _long(1)), _long(1))
    odd = and_(shr(size, count), min_(count, _long(1)))
    kept = b.let("kept", shr(add(size, half, odd), count))
    return b.let("rounded_size", shl(kept, count))


def in_floats(b: KernelBuilder, acc: Expr, scale: Expr) -> Expr:
    """Returns i32: the same by way of float32, for processors that compute no more precisely than
    that."""
    product = b.let("real", mul(cast(acc, Scalar.F32), scale))
    return round_half_even(b, b.let("near", clamp(product, -BEYOND, BEYOND)))
