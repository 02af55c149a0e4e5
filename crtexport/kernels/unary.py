"""ABS, NEG, SQUARE, EXP, LOG, SQRT, RSQRT, SIN, COS, CEIL, FLOOR and ROUND."""

from __future__ import annotations

from crtexport.ir.ops import (
    Abs,
    Ceil,
    Cos,
    Exp,
    Floor,
    Log,
    Neg,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
)
from crtexport.ir.types import DType
from crtexport.kernels import mathf, mathf_exact, mathf_trig, realf, tables, tables16
from crtexport.kernels.build import (
    KernelBuilder,
    cast,
    const,
    div,
    f32,
    i32,
    lt,
    mul,
    select,
    wrap_sub,
)
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.maps import (
    Function,
    element_map,
    has_scales,
    interpolation,
    prepared_map,
    rescaler,
    stored,
    table_lookup,
)
from crtexport.kernels.registry import Context, Lowered, Lowering, lowers
from crtexport.kernels.rules import same_types

FLOAT = same_types(DType.FLOAT32)


def _negated(value: Expr) -> Expr:
    """-x; the smallest integer stays what it is."""
    if value.type.is_float:
        return mul(value, f32(-1.0))
    return wrap_sub(const(0, value.type), value)


@lowers(Abs, same_types(DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32), has_scales)
def abs_(context: Context) -> Lowered:
    """|x|."""
    source, target = context.input(0), context.output()
    match source.dtype:
        case DType.FLOAT32:
            return element_map(context, "abs", mathf.magnitude_of)
        case DType.INT8:
            return table_lookup(context, "abs", tables.absolute(source, target))
        case DType.INT32:
            return element_map(
                context, "abs", lambda _, x: select(lt(x, i32(0)), _negated(x), x)
            )
    rescaled = tables.scale(source) != tables.scale(target)

    def prepare(lowering: Lowering) -> Function:
        rescale = rescaler(lowering, tables.ratio_of(source, target), 1 << 15)

        def function(b: KernelBuilder, value: Expr) -> Expr:
            x = b.let("x", cast(value, Scalar.I32))
            size = b.let("size", select(lt(x, i32(0)), _negated(x), x))
            return stored(b, rescale(size) if rescaled else size, 0, DType.INT16)

        return function

    return prepared_map(context, "abs", prepare)


@lowers(Neg, same_types(DType.FLOAT32, DType.INT32, DType.INT64))
def neg(context: Context) -> Lowered:
    """-x."""
    return element_map(context, "neg", lambda _, x: _negated(x))


@lowers(Square, FLOAT)
def square(context: Context) -> Lowered:
    """x * x."""
    return element_map(context, "square", lambda _, x: mul(x, x))


@lowers(Exp, same_types(DType.FLOAT32, DType.INT8, DType.INT16), has_scales)
def exp(context: Context) -> Lowered:
    """e**x."""
    source, target = context.input(0), context.output()
    match source.dtype:
        case DType.FLOAT32:
            return element_map(context, "exp", mathf.exp_to_the_limits)
        case DType.INT8:
            return table_lookup(context, "exp", tables.through_float(source, target, realf.exp))
    table = tables16.through_float(source, target, realf.exp)
    return prepared_map(context, "exp", lambda lowering: _between(lowering, table))


def _between(lowering: Lowering, table: tables.Table) -> Function:
    interpolated = interpolation(lowering, "table", table)
    return lambda b, x: cast(interpolated(b, cast(x, Scalar.I32)), Scalar.I16)


@lowers(Log, FLOAT)
def log(context: Context) -> Lowered:
    """Natural logarithm; -infinity of 0, NaN of negative numbers."""
    return element_map(context, "log", mathf.log)


@lowers(Sqrt, FLOAT)
def sqrt(context: Context) -> Lowered:
    """Square root, correctly rounded; NaN of negative numbers."""
    return element_map(context, "sqrt", mathf_exact.sqrt)


@lowers(Rsqrt, same_types(DType.FLOAT32, DType.INT8), has_scales)
def rsqrt(context: Context) -> Lowered:
    """1 / sqrt(x)."""
    source, target = context.input(0), context.output()
    if source.dtype is DType.INT8:
        return table_lookup(context, "rsqrt", tables.rsqrt(source, target))
    return element_map(
        context, "rsqrt", lambda b, x: div(f32(1.0), mathf_exact.sqrt(b, x))
    )


@lowers(Sin, FLOAT)
def sin(context: Context) -> Lowered:
    """sin(x)."""
    return prepared_map(context, "sin", mathf_trig.sine)


@lowers(Cos, FLOAT)
def cos(context: Context) -> Lowered:
    """cos(x)."""
    return prepared_map(context, "cos", mathf_trig.cosine)


@lowers(Ceil, FLOAT)
def ceil(context: Context) -> Lowered:
    """The smallest integer that is not below x."""
    return element_map(context, "ceil", mathf_exact.ceil)


@lowers(Floor, FLOAT)
def floor(context: Context) -> Lowered:
    """The largest integer that is not above x."""
    return element_map(context, "floor", mathf_exact.floor)


@lowers(Round, FLOAT)
def round_(context: Context) -> Lowered:
    """The nearest integer, of two the even one."""
    return element_map(context, "round", mathf_exact.round_half_even)
