"""Sine, cosine and inverse tangent in float32 as Kernel IR, precise for every finite number.

Near angles are reduced by multiples of π/2 in three parts (Cody and Waite; parts and polynomials
of Cephes' ``sinf.c``), far ones by as many digits of 2/π as matter (Payne and Hanek), in integers.
The inverse tangent is that of Cephes' ``atanf.c``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    const,
    div,
    f32,
    gt,
    i32,
    load,
    lt,
    mul,
    or_,
    select,
    shl,
    shr,
    sub,
    wrap_add,
    wrap_mul,
    wrap_sub,
    xor,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics.float_math import (
    bits,
    horner,
    magnitude_of,
    negative,
    round_to_int,
)
from crtexport.lowering.registry import Lowering

_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_HALF_PI = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
_ARCTANGENT = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_TAN_EIGHTH, _TAN_THREE_EIGHTHS = math.tan(math.pi / 8), math.tan(3 * math.pi / 8)
_NEAR = 8192.0
_DIGITS = 24 * 8  # bits of 2/π that a float32 may need, and more
_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0", 16
) >> (320 - _DIGITS)


def digits_of_two_over_pi(lowering: Lowering) -> Buffer:
    """Word i holds bits 8*i - 24 to 8*i + 7 after the point of 2/π (those before it are 0)."""
    words = [
        (_TWO_OVER_PI >> (_DIGITS - 8 - 8 * i)) & 0xFFFFFFFF for i in range(_DIGITS // 8)
    ]
    return lowering.derived(
        "digits", Scalar.U32, np.array(words, np.uint32),
        "word i: bits 8 * i - 24 to 8 * i + 7 of 2/pi after the point",
    )


def sine(lowering: Lowering) -> Callable[[KernelBuilder, Expr], Expr]:
    """Emits f32: sin(x); NaN of infinities."""
    return _turned(digits_of_two_over_pi(lowering), 0)


def cosine(lowering: Lowering) -> Callable[[KernelBuilder, Expr], Expr]:
    """Emits f32: cos(x); NaN of infinities."""
    return _turned(digits_of_two_over_pi(lowering), 1)


def _turned(digits: Buffer, quarters: int) -> Callable[[KernelBuilder, Expr], Expr]:
    """Emits sin(x + quarters * π/2)."""

    def function(b: KernelBuilder, x: Expr) -> Expr:
        x = b.let("x", x)
        magnitude = magnitude_of(b, x)
        angle, turn = b.local("angle", f32(0.0)), b.local("turn", i32(0))
        with b.if_(lt(magnitude, f32(_NEAR))):
            _reduce_near(b, magnitude, angle, turn)
        with b.else_():
            _reduce_far(b, digits, magnitude, angle, turn)
        # The quarters that x has more than the angle; sine is odd, cosine even.
        square = b.let("square", mul(angle, angle))
        sine_ = b.let("sine", add(mul(mul(horner(square, _SINE), square), angle), angle))
        series = mul(mul(horner(square, _COSINE), square), square)
        cosine_ = b.let("cosine", add(sub(series, mul(square, f32(0.5))), f32(1.0)))
        quarter = b.let("quarter", add(and_(turn, i32(3)), i32(quarters)))
        straight = select(gt(and_(quarter, i32(1)), i32(0)), cosine_, sine_)
        value = b.let("value", straight)
        down = b.let("down", and_(shr(quarter, i32(1)), i32(1)))
        if quarters == 0:
            down = b.let("down", xor(down, select(lt(x, f32(0.0)), i32(1), i32(0))))
        signed = select(gt(down, i32(0)), negative(value), value)
        return b.let("result", select(
            lt(magnitude, f32(math.inf)), b.let("signed", signed), f32(math.nan)
        ))

    return function


def _reduce_near(b: KernelBuilder, x: Expr, angle: Var, turn: Var) -> None:
    """``x`` in [0, 8192) as ``turn`` quarters and an ``angle`` within about ±π/4."""
    b.assign(turn, round_to_int(b, b.let("turns", mul(x, f32(2 / math.pi)))))
    count = b.let("count", cast(turn, Scalar.F32))
    rest: Expr = x
    for part in _HALF_PI:
        rest = sub(rest, mul(count, f32(part)))
    b.assign(angle, rest)


def _reduce_far(
    b: KernelBuilder, digits: Buffer, x: Expr, angle: Var, turn: Var
) -> None:
    """The same for any larger ``x``: its mantissa times the digits of 2/π that leave no whole
    turns, as a fraction of 64 bits with the quarters in the upper two."""
    encoding = b.let("encoding", bits(x))
    first = b.let("first", cast(and_(shr(encoding, i32(26)), i32(15)), Scalar.INDEX))
    mantissa = b.let("mantissa", shl(
        or_(and_(encoding, i32(0x7FFFFF)), i32(0x800000)), and_(shr(encoding, i32(23)), i32(7))
    ))
    words = [load(digits, add(first, const(4 * i))) for i in range(3)]
    upper = cast(wrap_mul(cast(mantissa, Scalar.U32), words[0]), Scalar.I64)
    wide = b.let("wide", and_(cast(mantissa, Scalar.I64), const(0x7FFFFFFF, Scalar.I64)))
    middle, lower = (mul(wide, cast(word, Scalar.I64)) for word in words[1:])
    shift = const(32, Scalar.I64)
    whole = b.let("turns", wrap_add(
        or_(shl(upper, shift), shr(b.let("lower", lower), shift)), b.let("middle", middle)
    ))
    nudged = wrap_add(whole, const(1 << 61, Scalar.I64))
    quarters = b.let("quarters", and_(
        shr(b.let("nudged", nudged), const(62, Scalar.I64)), const(3, Scalar.I64)
    ))
    fraction = wrap_sub(whole, shl(quarters, const(62, Scalar.I64)))
    b.assign(turn, cast(quarters, Scalar.I32))
    b.assign(angle, mul(
        cast(b.let("fraction", fraction), Scalar.F32), f32(math.pi / 2 * 2.0**-62)
    ))


def arctangent(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: the angle within ±π/2 whose tangent is ``x``; of infinities ±π/2."""
    x = b.let("x", x)
    magnitude = magnitude_of(b, x)
    steep = gt(magnitude, f32(_TAN_THREE_EIGHTHS))
    flat = gt(f32(_TAN_EIGHTH), magnitude)
    over = b.let("over", select(steep, f32(-1.0), sub(magnitude, f32(1.0))))
    under = b.let("under", select(steep, magnitude, add(magnitude, f32(1.0))))
    turned = b.let("turned", div(over, under))
    t = b.let("t", select(flat, magnitude, turned))
    start = b.let("start", select(steep, f32(math.pi / 2), f32(math.pi / 4)))
    square = b.let("square", mul(t, t))
    series = add(mul(mul(horner(square, _ARCTANGENT), square), t), t)
    angle = b.let("angle", add(select(flat, f32(0.0), start), series))
    return b.let("atan", select(lt(x, f32(0.0)), negative(angle), angle))
