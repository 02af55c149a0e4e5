"""Powers: of floats by logarithm and exponential in double precision, of whole numbers by squares.

The logarithm is a series in (m - 1) / (m + 1) for a mantissa m around 1, the exponential its Taylor
series around 0; both are good to 1e-15, so that float32 results are rounded about once.
"""

from __future__ import annotations

import math

from crtexport.ir.ops import Pow
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    div,
    eq,
    f32,
    ge,
    gt,
    i32,
    lt,
    max_,
    min_,
    mul,
    ne,
    or_,
    select,
    shl,
    shr,
    sub,
    wrap_mul,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.float_math import bits, from_bits, horner, magnitude_of, negative
from crtexport.lowering.ops.elementwise import Compute, binary
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

_LOG_TERMS = tuple(2.0 / n for n in range(17, 0, -2))
_EXP_TERMS = tuple(1.0 / math.factorial(n) for n in range(12, -1, -1))
_EVEN = 2.0**24
"""Floats from here on are even numbers."""


def f64(value: float) -> Expr:
    return const(value, Scalar.F64)


def _logarithm(b: KernelBuilder, x: Expr) -> Expr:
    """Emits f64: the logarithm of a positive, finite f32."""
    small = lt(x, f32(2.0**-126))
    raised = b.let("raised", select(small, mul(x, f32(2.0**24)), x))
    encoding = b.let("encoding", bits(raised))
    # Mantissas from 1/sqrt(2) on: those above sqrt(2) are halved.
    mantissa = b.let("mantissa", from_bits(or_(and_(encoding, i32(0x7FFFFF)), i32(127 << 23))))
    high = b.let("high", select(gt(mantissa, f32(math.sqrt(2))), i32(1), i32(0)))
    around = b.let("around", select(gt(high, i32(0)), mul(mantissa, f32(0.5)), mantissa))
    biased = b.let("biased", and_(shr(encoding, i32(23)), i32(255)))
    bias = b.let("bias", select(small, i32(127 + 24), i32(127)))
    octaves = cast(add(sub(biased, bias), high), Scalar.F64)
    m = b.let("m", cast(around, Scalar.F64))
    s = b.let("s", div(sub(m, f64(1.0)), add(m, f64(1.0))))
    series = mul(horner(b.let("ss", mul(s, s)), _LOG_TERMS), s)
    return b.let("log", add(mul(octaves, f64(math.log(2))), series))


def _exponential(b: KernelBuilder, t: Expr) -> Expr:
    """Emits f32: e**t, infinity where it overflows, 0 where it underflows."""
    inside = b.let("inside", min_(f64(90.0), max_(f64(-105.0), t)))
    octaves = b.let("octaves", mul(inside, f64(1 / math.log(2))))
    half = b.let("half", select(lt(octaves, f64(0.0)), f64(-0.5), f64(0.5)))
    n = b.let("n", cast(add(octaves, half), Scalar.I32))
    rest = b.let("rest", sub(inside, mul(cast(n, Scalar.F64), f64(math.log(2)))))
    mantissa = b.let("factor", cast(horner(rest, _EXP_TERMS), Scalar.F32))
    lower = b.let("lower", shr(n, i32(1)))
    scales = [from_bits(shl(add(part, i32(127)), i32(23))) for part in (lower, sub(n, lower))]
    return b.let("power", mul(mul(mantissa, scales[0]), scales[1]))


def _real(b: KernelBuilder, x: Expr, y: Expr) -> Expr:
    """f32: x**y as C's powf gives it."""
    x, y = b.let("base", x), b.let("exponent", y)
    size, zero, one = magnitude_of(b, x), f32(0.0), f32(1.0)
    usual = and_(gt(size, zero), lt(size, f32(math.inf)))
    log = _logarithm(b, b.let("usual", select(usual, size, one)))
    # NaN exponents are dealt with below; the product of a number with 0 is no NaN.
    given = b.let("given", select(eq(y, y), y, zero))
    bounded = b.let("bounded", clamp(given, -3e38, 3e38))
    finite = _exponential(b, b.let("t", mul(cast(bounded, Scalar.F64), log)))
    grows = or_(and_(gt(size, zero), gt(y, zero)), and_(eq(size, zero), lt(y, zero)))
    edge = b.let("edge", select(grows, f32(math.inf), zero))
    positive = b.let("positive", select(usual, finite, edge))
    # Negative bases have powers by whole numbers, negative ones by odd numbers.
    length = magnitude_of(b, y)
    counted = b.let("counted", cast(clamp(given, -_EVEN, _EVEN), Scalar.I32))
    whole = or_(ge(length, f32(_EVEN)), eq(cast(counted, Scalar.F32), y))
    odd = and_(lt(length, f32(_EVEN)), ne(and_(counted, i32(1)), i32(0)))
    down = b.let("down", select(odd, negative(positive), positive))
    below = b.let("below", select(
        or_(whole, eq(size, f32(math.inf))), down, f32(math.nan)
    ))
    signed = b.let("signed", select(lt(x, zero), below, positive))
    known = b.let("known", select(and_(eq(x, x), eq(y, y)), signed, f32(math.nan)))
    return b.let("pow", select(or_(eq(y, zero), eq(x, one)), one, known))


def _whole(b: KernelBuilder, x: Expr, y: Expr) -> Expr:
    """x**y of whole numbers, which wraps; of negative y 0, but for the powers of 1 and -1."""
    type_ = x.type
    one, zero = const(1, type_), const(0, type_)
    x, y = b.let("base", x), b.let("exponent", y)
    unit = or_(eq(x, one), eq(x, const(-1, type_)))
    start = select(or_(ge(y, zero), unit), one, zero)
    result, square = b.local("result", start), b.local("square", x)
    # A power of a negative exponent is that of its lowest bit: units alternate.
    left = b.local("left", select(ge(y, zero), y, and_(y, one)))
    with b.loop("bit", 8 * type_.itemsize):
        factor = b.let("factor", select(eq(and_(left, one), one), square, one))
        b.assign(result, wrap_mul(result, factor))
        b.assign(square, wrap_mul(square, square))
        b.assign(left, shr(left, one))
    return result


@lowers(Pow, same_types(DType.FLOAT32, DType.INT32, DType.INT64))
def pow_(context: Context) -> Lowered:
    """x**y; integers wrap."""

    def prepare(lowering: Lowering) -> Compute:
        b, work = lowering.b, SCALAR_OF[lowering.context.input(0).dtype]
        function = _real if work.is_float else _whole
        return lambda x, y: function(b, x, y)

    return binary(context, "pow", prepare)
