"""float32 functions in Kernel IR, so that no target needs a libm and all agree.

Coefficients: the Cephes mathematical library (S. Moshier), ``expf.c`` and ``tanhf.c``; relative
error below 2e-7 for exp on its range and for tanh.
"""

from __future__ import annotations

from crtexport.kernels.build import (
    KernelBuilder,
    add,
    call,
    cast,
    clamp,
    div,
    f32,
    ge,
    gt,
    i32,
    lt,
    max_,
    mul,
    select,
    shl,
    sub,
)
from crtexport.kernels.ir import Expr, Scalar

_EXP_POLYNOMIAL = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)
_TANH_POLYNOMIAL = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)
_LN2_HIGH, _LN2_LOW, _LOG2E = 0.693359375, -2.12194440e-4, 1.44269504088896341
EXP_LOW, EXP_HIGH = -87.0, 88.0


def _horner(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    result: Expr = f32(coefficients[0])
    for coefficient in coefficients[1:]:
        result = add(mul(result, x), f32(coefficient))
    return result


def round_to_int(b: KernelBuilder, x: Expr) -> Expr:
    """i32: ``x`` (f32, within ±2**30) to the nearest integer, halves away from zero."""
    whole = b.let("whole", cast(x, Scalar.I32))
    rest = b.let("rest", sub(x, cast(whole, Scalar.F32)))
    up = select(ge(rest, f32(0.5)), i32(1), i32(0))
    down = select(ge(f32(-0.5), rest), i32(1), i32(0))
    return sub(add(whole, up), down)


def exp(b: KernelBuilder, x: Expr) -> Expr:
    """f32: e**x; arguments are clamped to [-87, 88], where results are normal numbers."""
    x = b.let("x", clamp(x, EXP_LOW, EXP_HIGH))
    n = b.let("n", round_to_int(b, b.let("octaves", mul(x, f32(_LOG2E)))))
    octaves = b.let("n_real", cast(n, Scalar.F32))
    r = b.let(
        "r", sub(sub(x, mul(octaves, f32(_LN2_HIGH))), mul(octaves, f32(_LN2_LOW)))
    )
    series = add(mul(mul(_horner(r, _EXP_POLYNOMIAL), r), r), r)
    mantissa = b.let("mantissa", add(series, f32(1.0)))
    power = call("f32_from_bits", shl(add(n, i32(127)), i32(23)), type_=Scalar.F32)
    return b.let("exp", mul(mantissa, power))


def logistic(b: KernelBuilder, x: Expr) -> Expr:
    """f32: 1 / (1 + e**-x)."""
    return div(f32(1.0), add(f32(1.0), exp(b, sub(f32(0.0), x))))


def tanh(b: KernelBuilder, x: Expr) -> Expr:
    """f32: hyperbolic tangent, odd polynomial near 0, 1 - 2/(e**2x + 1) elsewhere."""
    magnitude = b.let("magnitude", max_(x, sub(f32(0.0), x)))
    square = b.let("square", mul(x, x))
    small = add(mul(mul(_horner(square, _TANH_POLYNOMIAL), square), x), x)
    grown = exp(b, add(magnitude, magnitude))
    large = b.let("large", sub(f32(1.0), div(f32(2.0), add(grown, f32(1.0)))))
    signed = select(lt(x, f32(0.0)), sub(f32(0.0), large), large)
    return select(gt(f32(0.625), magnitude), b.let("small", small), b.let("signed", signed))
