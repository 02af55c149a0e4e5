"""float32 functions in Kernel IR, so that no target needs a libm and all agree.

Coefficients: the Cephes mathematical library (S. Moshier), ``expf.c``, ``tanhf.c``, ``logf.c`` and
``ndtrf.c``; relative error below 2e-7 for exp and log on their range, for tanh and erf. NaN gives
NaN. Angles are in :mod:`crtexport.lowering.numerics.float_trig`, roots and roundings in
:mod:`crtexport.lowering.numerics.float_exact`.
"""

from __future__ import annotations

import math

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    call,
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
    or_,
    select,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Expr, Scalar

_EXP_POLYNOMIAL = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)
_TANH_POLYNOMIAL = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)
_LOG_POLYNOMIAL = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)
_ERF_BELOW_1 = (
    7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2,
    1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710,
)
_ERFC_1_TO_2 = (
    2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1,
    6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1,
    5.638259427386472e-1,
)
_ERFC_ABOVE_2 = (
    -1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786,
    -1.015265279202700, 4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1,
)
_UNITS, _UNITS_ENCODED = 1.5 * 2.0**23, 0x4B400000
_LN2_HIGH, _LN2_LOW, _LOG2E = 0.693359375, -2.12194440e-4, 1.44269504088896341
EXP_LOW, EXP_HIGH = -87.0, 88.0
_OCTAVES = 128.0
_SMALLEST_NORMAL = 2.0**-126


def horner(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """The polynomial in the type of ``x``, highest power first."""
    result: Expr = const(coefficients[0], x.type)
    for coefficient in coefficients[1:]:
        result = add(mul(result, x), const(coefficient, x.type))
    return result


def bits(x: Expr) -> Expr:
    """i32: the encoding of an f32."""
    return call("bits_from_f32", x, type_=Scalar.I32)


def from_bits(encoding: Expr) -> Expr:
    """f32: the number with this encoding."""
    return call("f32_from_bits", encoding, type_=Scalar.F32)


def negative(x: Expr) -> Expr:
    """f32: -x, but 0 for 0."""
    return sub(f32(0.0), x)


def magnitude_of(b: KernelBuilder, x: Expr) -> Expr:
    """f32: the absolute value, also of -0 and infinities."""
    return b.let("magnitude", from_bits(and_(bits(x), i32(0x7FFFFFFF))))


def round_to_int(b: KernelBuilder, x: Expr) -> Expr:
    """i32: ``x`` (f32, within ±2**30) to the nearest integer, halves away from zero."""
    whole = b.let("whole", cast(x, Scalar.I32))
    rest = b.let("rest", sub(x, cast(whole, Scalar.F32)))
    up = select(ge(rest, f32(0.5)), i32(1), i32(0))
    down = select(ge(f32(-0.5), rest), i32(1), i32(0))
    return sub(add(whole, up), down)


def round_half_even(b: KernelBuilder, x: Expr) -> Expr:
    """Returns i32: ``x`` (f32, within ±2**22) to the nearest integer, halves to even: the low bits
    of its sum with a number whose unit in the last place is 1."""
    moved = b.let("moved", add(x, f32(_UNITS)))
    return sub(bits(moved), i32(_UNITS_ENCODED))


def _reduced(b: KernelBuilder, x: Expr) -> tuple[Expr, Expr]:
    """(n, e**r) with e**x = 2**n * e**r; ``x`` within ±128 or NaN."""
    # The minimum turns NaN into a number, which alone may become an integer; r stays NaN.
    b.comment("exp(x) = 2**octaves * e**r with |r| <= ln(2) / 2, e**r by Cephes' expf polynomial")
    turns = b.let("octaves", min_(f32(_OCTAVES), mul(x, f32(_LOG2E))))
    n = b.let("n", round_to_int(b, turns))
    octaves = b.let("n_real", cast(n, Scalar.F32))
    r = b.let(
        "r", sub(sub(x, mul(octaves, f32(_LN2_HIGH))), mul(octaves, f32(_LN2_LOW)))
    )
    series = add(mul(mul(horner(r, _EXP_POLYNOMIAL), r), r), r)
    return n, b.let("mantissa", add(series, f32(1.0)))


def _power_of_two(n: Expr) -> Expr:
    return from_bits(shl(add(n, i32(127)), i32(23)))


def exp(b: KernelBuilder, x: Expr) -> Expr:
    """f32: e**x; arguments are clamped to [-87, 88], where results are normal numbers."""
    n, mantissa = _reduced(b, b.let("x", clamp(x, EXP_LOW, EXP_HIGH)))
    return b.let("exp", mul(mantissa, _power_of_two(n)))


def exp_to_the_limits(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: e**x for any ``x``, up to infinity and down to subnormal numbers and 0."""
    n, mantissa = _reduced(b, b.let("x", clamp(x, -104.0, 89.0)))
    # 2**n may be no normal number itself: two factors that are.
    half = b.let("half", shr(n, i32(1)))
    return b.let("exp", mul(mul(mantissa, _power_of_two(half)), _power_of_two(sub(n, half))))


def expm1_of_negative(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: e**x - 1 for ``x`` ≤ 0, precise near 0; of others, anything finite."""
    x = b.let("argument", min_(x, f32(0.0)))
    near = add(mul(mul(horner(x, _EXP_POLYNOMIAL), x), x), x)
    far = b.let("far", sub(exp(b, x), f32(1.0)))
    return b.let("expm1", select(gt(x, f32(-0.35)), b.let("near", near), far))


def log(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: natural logarithm; -infinity of 0, NaN of negative numbers."""
    x = b.let("x", x)
    tiny = b.let("scaled", select(
        lt(x, f32(_SMALLEST_NORMAL)), b.let("raised", mul(x, f32(2.0**24))), x
    ))
    encoding = b.let("encoding", bits(tiny))
    mantissa = b.let(
        "mantissa", from_bits(or_(and_(encoding, i32(0x7FFFFF)), i32(126 << 23)))
    )
    small = b.let("small", select(lt(mantissa, f32(math.sqrt(0.5))), i32(1), i32(0)))
    lowered = b.let("lowered", select(lt(x, f32(_SMALLEST_NORMAL)), i32(126 + 24), i32(126)))
    exponent = sub(sub(and_(shr(encoding, i32(23)), i32(255)), lowered), small)
    octaves = b.let("octaves", cast(exponent, Scalar.F32))
    # Twice a mantissa below the root of one half; then less one, which is exact.
    doubled = select(gt(small, i32(0)), b.let("twice", add(mantissa, mantissa)), mantissa)
    m = b.let("m", sub(b.let("doubled", doubled), f32(1.0)))
    square = b.let("square", mul(m, m))
    series = mul(mul(horner(m, _LOG_POLYNOMIAL), m), square)
    low = add(series, mul(octaves, f32(_LN2_LOW)))
    rest = b.let("rest", sub(low, mul(square, f32(0.5))))
    finite = b.let("finite", add(add(m, rest), mul(octaves, f32(_LN2_HIGH))))
    large = select(lt(x, f32(math.inf)), finite, x)  # infinity and NaN stay
    other = select(eq(x, f32(0.0)), f32(-math.inf), f32(math.nan))
    return b.let(
        "log", select(gt(x, f32(0.0)), b.let("large", large), b.let("other", other))
    )


def logistic(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: 1 / (1 + e**-x)."""
    return div(f32(1.0), add(f32(1.0), exp(b, negative(x))))


def tanh(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: hyperbolic tangent, odd polynomial near 0, 1 - 2/(e**2x + 1) elsewhere."""
    magnitude = b.let("magnitude", max_(x, negative(x)))
    square = b.let("square", mul(x, x))
    small = add(mul(mul(horner(square, _TANH_POLYNOMIAL), square), x), x)
    grown = exp(b, add(magnitude, magnitude))
    large = b.let("large", sub(f32(1.0), div(f32(2.0), add(grown, f32(1.0)))))
    signed = select(lt(x, f32(0.0)), negative(large), large)
    return select(gt(f32(0.625), magnitude), b.let("small", small), b.let("signed", signed))


def erfc(b: KernelBuilder, x: Expr) -> Expr:
    """f32: 1 - erf(x), with its relative precision where it is small."""
    x = b.let("x", x)
    magnitude = magnitude_of(b, x)
    square = b.let("square", mul(x, x))
    inner = b.let("inner", mul(horner(square, _ERF_BELOW_1), x))
    # At least 1, so that the division is harmless where it isn't used.
    outside = b.let("outside", max_(magnitude, f32(1.0)))
    inverse = b.let("inverse", div(f32(1.0), outside))
    y = b.let("y", mul(inverse, inverse))
    medium, far = horner(y, _ERFC_1_TO_2), horner(y, _ERFC_ABOVE_2)
    series = b.let("series", select(
        lt(outside, f32(2.0)), b.let("medium", medium), b.let("far", far)
    ))
    tail = mul(mul(exp(b, negative(mul(outside, outside))), inverse), series)
    upper = b.let("tail", tail)
    outer = select(lt(x, f32(0.0)), b.let("reflected", sub(f32(2.0), upper)), upper)
    return b.let("erfc", select(
        lt(magnitude, f32(1.0)), b.let("near", sub(f32(1.0), inner)), b.let("outer", outer)
    ))


def erf(b: KernelBuilder, x: Expr) -> Expr:
    """Returns f32: the error function, odd polynomial near 0, 1 - erfc elsewhere."""
    x = b.let("x", x)
    near = b.let("near", mul(horner(b.let("square", mul(x, x)), _ERF_BELOW_1), x))
    far = b.let("far", sub(f32(1.0), erfc(b, x)))
    return b.let("erf", select(lt(magnitude_of(b, x), f32(1.0)), near, far))
