"""DIV, FLOOR_DIV and FLOOR_MOD, with NumPy broadcasting.

TFLite refuses integer divisors that are 0 when it meets them; here what is divided by 0 is 0, so
that no processor traps.
"""

from __future__ import annotations

from crtexport.ir.ops import Activation, Div, FloorDiv, FloorMod
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    const,
    div,
    eq,
    f32,
    ge,
    lt,
    max_,
    mul,
    ne,
    or_,
    select,
    sub,
    wrap_add,
    wrap_sub,
    xor,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.quantized_arithmetic import SCALED, one_scale_each
from crtexport.lowering.numerics.quantized_div import Quotient
from crtexport.lowering.ops.elementwise import Compute, binary, directly
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

WHOLE_DOUBLE = float(1 << 52)
"""Doubles of this magnitude are whole numbers."""

_DIGITS = 24
"""Bits of a float32; a remainder is taken so many bits of the quotient at a time."""

_STEPS = 12
"""Enough to reach from the smallest float32 to the largest."""


def _whole_quotient(b: KernelBuilder, a: Expr, c: Expr) -> tuple[Expr, Expr]:
    """Returns a / c truncated, and the remainder, without a trap for divisors 0 and -1."""
    one, zero = const(1, a.type), const(0, a.type)
    by_zero = eq(c, zero)
    by_minus_one = eq(c, const(-1, a.type))
    divisor = b.let("divisor", select(or_(by_zero, by_minus_one), one, c))
    quotient = b.let("quotient", div(a, divisor))
    rest = b.let("rest", wrap_sub(a, mul(quotient, divisor)))
    negated = select(by_minus_one, wrap_sub(zero, a), quotient)
    return b.let("truncated", select(by_zero, zero, negated)), rest


def _apart(remainder: Expr, c: Expr) -> Expr:
    """Returns whether a remainder is not 0 and its sign differs from the divisor's (i1)."""
    zero = const(0, remainder.type)
    return and_(ne(remainder, zero), xor(lt(remainder, zero), lt(c, zero)))


def _floor(b: KernelBuilder, value: Expr) -> Expr:
    """f64 rounded down."""
    value = b.let("real", value)
    magnitude = max_(value, sub(const(0.0, Scalar.F64), value))
    small = lt(magnitude, const(WHOLE_DOUBLE, Scalar.F64))
    inner = b.let("inner", select(small, value, const(0.0, Scalar.F64)))
    whole = b.let("whole", cast(cast(inner, Scalar.I64), Scalar.F64))
    down = select(lt(inner, whole), const(1.0, Scalar.F64), const(0.0, Scalar.F64))
    return b.let("floor", select(small, sub(whole, down), value))


@lowers(
    Div, same_types(DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT32, DType.INT64),
    one_scale_each,
)
def div_(context: Context) -> Lowered:
    """input1 / input2; int32 and int64 truncated toward zero, and 0 where input2 is 0."""
    op = context.op(Div)
    return _divided(context, op.activation)


def _divided(context: Context, activation: Activation) -> Lowered:
    dtype = context.input(0).dtype
    if dtype in SCALED:
        return binary(context, "div", lambda lowering: Quotient(lowering, activation))
    if dtype is DType.FLOAT32:
        return binary(context, "div", directly(div, activation))

    def prepare(lowering: Lowering) -> Compute:
        return directly(lambda a, c: _whole_quotient(lowering.b, a, c)[0], activation)(lowering)

    return binary(context, "div", prepare)


FLOORED = (DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32)


@lowers(FloorDiv, same_types(*FLOORED))
def floor_div(context: Context) -> Lowered:
    """input1 / input2 of stored numbers, rounded down; integers by 0 give 0."""

    def prepare(lowering: Lowering) -> Compute:
        b = lowering.b

        def whole(a: Expr, c: Expr) -> Expr:
            a, c = b.let("dividend", a), b.let("by", c)
            quotient, rest = _whole_quotient(b, a, c)
            down = select(_apart(rest, c), const(1, a.type), const(0, a.type))
            return sub(quotient, down)

        def real(a: Expr, c: Expr) -> Expr:
            return cast(_floor(b, div(cast(a, Scalar.F64), cast(c, Scalar.F64))), Scalar.F32)

        return directly(real if _is_float(context) else whole)(lowering)

    return binary(context, "floor_div", prepare)


@lowers(FloorMod, same_types(*FLOORED, DType.INT64))
def floor_mod(context: Context) -> Lowered:
    """Remainder of input1 / input2 of stored numbers, rounded down; integers by 0 give 0."""

    def prepare(lowering: Lowering) -> Compute:
        b = lowering.b

        def remainder(a: Expr, c: Expr) -> Expr:
            a, c = b.let("dividend", a), b.let("by", c)
            rest = _real_rest(b, a, c) if _is_float(context) else _whole_quotient(b, a, c)[1]
            plus = add if a.type.is_float else wrap_add
            moved = b.let("moved", plus(rest, c))
            return select(_apart(rest, c), moved, rest)

        return directly(remainder)(lowering)

    return binary(context, "floor_mod", prepare)


def _is_float(context: Context) -> bool:
    return context.input(0).dtype is DType.FLOAT32


def _real_rest(b: KernelBuilder, a: Expr, c: Expr) -> Expr:
    """f32: C's ``fmod``, exact: the quotient is taken off in pieces of 24 bits, each of which a
    double holds together with its product."""
    zero = f32(0.0)
    dividend, by = (b.let("size", max_(v, sub(zero, v))) for v in (a, c))
    defined = b.let("defined", and_(lt(dividend, f32(float("inf"))), lt(zero, by)))
    rest = b.local("left", cast(dividend, Scalar.F64))
    unit = b.local("unit", mul(
        cast(by, Scalar.F64), const(2.0 ** (_DIGITS * (_STEPS - 1)), Scalar.F64)
    ))
    with b.if_(defined), b.loop("step", _STEPS):
        with b.if_(ge(rest, unit)):
            pieces = b.let("pieces", cast(cast(div(rest, unit), Scalar.I32), Scalar.F64))
            b.assign(rest, sub(rest, mul(pieces, unit)))
        b.assign(unit, mul(unit, const(2.0**-_DIGITS, Scalar.F64)))
    found = b.let("found", cast(rest, Scalar.F32))
    signed = b.let("signed", select(lt(a, zero), sub(zero, found), found))
    return b.let("rest", select(defined, signed, f32(float("nan"))))
