"""gemmlowp's and TFLite's fixed-point functions of one i32, as Kernel IR."""

from __future__ import annotations

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    div,
    gt,
    i32,
    lt,
    max_,
    min_,
    select,
    shl,
    shr,
    sub,
    wrap_sub,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.requantize import (
    rounding_divide_by_pot,
    rounding_doubling_high_mul,
)

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
_LOG_OF_2, _ROOT_OF_HALF, _FOURTH_ROOT_OF_HALF = 1488522236, 1518500250, 1805811301  # Q0.31
_48_OVER_17, _32_OVER_17 = 1515870810, 1010580540  # Q2.29
# The rational function of log_of_sum, in Q0.31
_ALPHA_N, _ALPHA_D, _ALPHA_I, _ALPHA_F = 117049297, 127690142, 1057819769, 638450708


def saturating_shl(b: KernelBuilder, value: Expr, count: int) -> Expr:
    """i32: value * 2**count, saturated (gemmlowp ``SaturatingRoundingMultiplyByPOT``)."""
    b.comment(f"saturate(value * 2**{count}): gemmlowp SaturatingRoundingMultiplyByPOT")
    limit = 1 << (31 - count)
    inside = b.let("inside", clamp(value, -limit, limit - 1))
    shifted = shl(inside, i32(count))
    low = b.let("low", select(lt(value, i32(-limit)), i32(INT32_MIN), shifted))
    return b.let("saturated", select(lt(i32(limit - 1), value), i32(INT32_MAX), low))


def normalized(b: KernelBuilder, value: Expr) -> tuple[Expr, Expr]:
    """i32: (``value``, which is positive, shifted so that its highest bit is bit 30; the shift)."""
    b.comment("normal = value << zeros has its highest bit at bit 30")
    zeros = b.local("zeros", i32(0))
    normal = b.local("normal", value)
    # By halving: five steps, no data-dependent loop.
    for step in (16, 8, 4, 2, 1):
        with b.if_(lt(normal, i32(1 << (31 - step)))):
            b.assign(normal, shl(normal, i32(step)))
            b.assign(zeros, add(zeros, i32(step)))
    return normal, zeros


def one_over_one_plus_x(b: KernelBuilder, a: Expr) -> Expr:
    """gemmlowp ``one_over_one_plus_x_for_x_in_0_1``: Newton-Raphson in Q2.29, three rounds."""
    b.comment("1 / (1 + fraction), Q0.31: gemmlowp one_over_one_plus_x_for_x_in_0_1")
    b.comment("half = (1 + fraction) / 2, Q0.31")
    sum64 = add(cast(a, Scalar.I64), const(INT32_MAX, Scalar.I64))
    # RoundingHalfSum of two numbers that are not negative
    half = b.let("half", cast(
        div(add(sum64, const(1, Scalar.I64)), const(2, Scalar.I64)), Scalar.I32
    ))
    b.comment(f"48/17 - 32/17 * half, Q2.29: {_48_OVER_17} = 48/17 * 2**29, {_32_OVER_17} = 32/17")
    with b.named("start"):
        x: Expr = b.local("x", add(
            i32(_48_OVER_17), rounding_doubling_high_mul(b, half, i32(-_32_OVER_17), "slope")
        ))
    for number in ("first", "second", "third"):
        b.comment(f"Newton-Raphson, {number} step: x += 4 * (x * (1 - half * x)), Q2.29")
        with b.named(number):
            product = rounding_doubling_high_mul(b, half, x, "product")
            rest = b.let("rest", sub(i32(1 << 29), product))
            step = rounding_doubling_high_mul(b, x, rest, "step")
            # A Q4.27 product back to Q2.29, saturating
            x = b.let("x", add(x, saturating_shl(b, step, 2)))
    # Q2.29 x/2 read as Q0.31
    return saturating_shl(b, x, 1)


def log_of_sum(b: KernelBuilder, total: Expr) -> Expr:
    """Returns i32: TFLite ``log_x_for_x_greater_than_or_equal_to_1``: natural logarithm of a Q12.19
    number of at least 1, as Q5.26."""
    def high(x: Expr, y: Expr) -> Expr:
        return rounding_doubling_high_mul(b, x, y)

    normal, zeros = normalized(b, total)
    r_a = saturating_shl(b, high(normal, i32(_ROOT_OF_HALF)), 1)
    z_b = high(total, i32(_ROOT_OF_HALF))
    _, zeros_b = normalized(b, z_b)
    # What makes the smaller number's highest bit bit 30 may push the larger beyond bit 31.
    wide = shl(cast(total, Scalar.I64), cast(zeros_b, Scalar.I64))
    r_b = b.let("r_b", cast(min_(wide, const(INT32_MAX, Scalar.I64)), Scalar.I32))
    octaves_a = add(shl(sub(i32(11), zeros), i32(25)), i32(1 << 23))
    octaves_b = sub(shl(sub(i32(12), zeros_b), i32(25)), i32(1 << 23))
    octaves = b.let("octaves", max_(
        b.let("octaves_a", octaves_a), b.let("octaves_b", octaves_b)
    ))
    r = b.let("r", min_(r_a, r_b))
    middle = add(cast(r, Scalar.I64), const(_FOURTH_ROOT_OF_HALF + 1, Scalar.I64))
    p = b.let("p", cast(shr(middle, const(1, Scalar.I64)), Scalar.I32))
    away = b.let("away", sub(r, i32(_FOURTH_ROOT_OF_HALF)))
    q = b.let("q", add(away, away))
    square = high(q, q)
    numerator = b.let("numerator", add(
        high(q, r), high(high(q, square), i32(_ALPHA_N))
    ))
    slope = b.let("slope", add(i32(_ALPHA_I), q, high(i32(_ALPHA_D), square)))
    denominator = b.let("denominator", add(high(p, slope), high(i32(_ALPHA_F), q)))
    inverse = one_over_one_plus_x(b, denominator)
    scaled = b.let("scaled", rounding_divide_by_pot(b, numerator, i32(6)))
    log = b.let("log", add(high(octaves, i32(_LOG_OF_2)), high(scaled, inverse)))
    return saturating_shl(b, log, 1)


def inverse_root(b: KernelBuilder, value: Expr) -> tuple[Expr, Expr]:
    """Returns i32: (m, right shift) of
    :func:`crtexport.support.fixedpoint.inverse_sqrt_multiplier`."""
    value = b.let("sum", max_(value, i32(1)))
    _, zeros = normalized(b, value)
    pairs = b.let("pairs", sub(shr(zeros, i32(1)), i32(1)))
    none = lt(pairs, i32(0))
    left = b.let("left", shl(max_(pairs, i32(0)), i32(1)))
    scaled = b.let("scaled", select(none, shr(value, i32(2)), shl(value, left)))
    half = b.let("half", rounding_divide_by_pot(b, shr(scaled, i32(1)), i32(1)))
    x: Expr = i32(1 << 28)
    for _ in range(5):
        square = rounding_doubling_high_mul(b, x, x)
        cube = saturating_shl(b, rounding_doubling_high_mul(b, square, x), 6)
        step = wrap_sub(
            rounding_doubling_high_mul(b, i32((1 << 28) + (1 << 27)), x),
            rounding_doubling_high_mul(b, half, cube),
        )
        x = saturating_shl(b, b.let("step", step), 3)
    root = rounding_doubling_high_mul(b, x, i32(_ROOT_OF_HALF))
    right = b.let("right", sub(i32(11), pairs))
    over = b.let("over", and_(max_(sub(i32(0), right), i32(0)), i32(31)))
    several = gt(value, i32(1))
    raised = b.let("raised", shl(root, over))
    return (
        b.let("root", select(several, raised, i32(INT32_MAX))),
        b.let("root_shift", select(several, max_(right, i32(0)), i32(0))),
    )
