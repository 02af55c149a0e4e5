"""ABS, NEG, SQUARE, EXP, LOG, SQRT, RSQRT, SIN, COS, CEIL, FLOOR, ROUND, erf and atan."""

from __future__ import annotations

from crtexport.ir import ops
from crtexport.ir.types import DType
from crtexport.kir.builder import (
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
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics import (
    float_exact,
    float_math,
    float_reference,
    float_trig,
    lut8,
    lut16,
)
from crtexport.lowering.numerics.elementwise_maps import (
    Function,
    element_map,
    has_scales,
    interpolation,
    prepared_map,
    rescaler,
    stored,
    table_lookup,
)
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

FLOAT = same_types(DType.FLOAT32)


def _negated(value: Expr) -> Expr:
    """Returns -x; the smallest integer is its own negative."""
    if value.type.is_float:
        return mul(value, f32(-1.0))
    if value.type.itemsize < Scalar.I32.itemsize:
        return cast(wrap_sub(i32(0), cast(value, Scalar.I32)), value.type)
    return wrap_sub(const(0, value.type), value)


@lowers(ops.Abs, same_types(DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32), has_scales)
def abs_(context: Context) -> Lowered:
    """|x|."""
    source, target = context.input(0), context.output()
    match source.dtype:
        case DType.FLOAT32:
            return element_map(context, "abs", float_math.magnitude_of)
        case DType.INT8:
            return table_lookup(context, "abs", lut8.absolute(source, target, context.numerics))
        case DType.INT32:
            return element_map(
                context, "abs", lambda _, x: select(lt(x, i32(0)), _negated(x), x)
            )
    rescaled = lut8.scale(source) != lut8.scale(target)

    def prepare(lowering: Lowering) -> Function:
        ratio = lut8.ratio_of(source, target, context.numerics)
        rescale = rescaler(lowering, ratio, 1 << 15)

        def function(b: KernelBuilder, value: Expr) -> Expr:
            x = b.let("x", cast(value, Scalar.I32))
            size = b.let("size", select(lt(x, i32(0)), _negated(x), x))
            return stored(b, rescale(size) if rescaled else size, 0, DType.INT16)

        return function

    return prepared_map(context, "abs", prepare)


def negatable(context: Context) -> str | None:
    """Int8 and int16: input and output must have the same scale, and zero point 0, or none."""
    if context.input(0).dtype not in (DType.INT8, DType.INT16):
        return None
    first, second = context.input(0).quant, context.output().quant
    if first != second:
        return "found two"
    return f"found {first.zero_point[0]}" if first is not None and any(first.zero_point) else None


@lowers(
    ops.Neg, same_types(DType.FLOAT32, DType.INT32, DType.INT64, DType.INT8, DType.INT16), negatable
)
def neg(context: Context) -> Lowered:
    """-x; the smallest integer stays itself."""
    return element_map(context, "neg", lambda _, x: _negated(x))


@lowers(ops.Square, FLOAT)
def square(context: Context) -> Lowered:
    """x * x."""
    return element_map(context, "square", lambda _, x: mul(x, x))


@lowers(ops.Exp, same_types(DType.FLOAT32, DType.INT8, DType.INT16), has_scales)
def exp(context: Context) -> Lowered:
    """e**x."""
    source, target = context.input(0), context.output()
    match source.dtype:
        case DType.FLOAT32:
            return element_map(context, "exp", float_math.exp_to_the_limits)
        case DType.INT8:
            table8 = lut8.through_float(source, target, float_reference.exp)
            return table_lookup(context, "exp", table8)
    table = lut16.through_float(source, target, float_reference.exp)
    return prepared_map(context, "exp", lambda lowering: _between(lowering, table))


def _between(lowering: Lowering, table: lut8.Table) -> Function:
    interpolated = interpolation(lowering, "table", table)
    return lambda b, x: cast(interpolated(b, cast(x, Scalar.I32)), Scalar.I16)


@lowers(ops.Log, FLOAT)
def log(context: Context) -> Lowered:
    """Natural logarithm; -infinity of 0, NaN of negative numbers."""
    return element_map(context, "log", float_math.log)


@lowers(ops.Sqrt, FLOAT)
def sqrt(context: Context) -> Lowered:
    """Square root, correctly rounded; NaN of negative numbers."""
    return element_map(context, "sqrt", float_exact.sqrt)


@lowers(ops.Rsqrt, same_types(DType.FLOAT32, DType.INT8), has_scales)
def rsqrt(context: Context) -> Lowered:
    """1 / sqrt(x)."""
    source, target = context.input(0), context.output()
    if source.dtype is DType.INT8:
        return table_lookup(context, "rsqrt", lut8.rsqrt(source, target, context.numerics))
    return element_map(
        context, "rsqrt", lambda b, x: div(f32(1.0), float_exact.sqrt(b, x))
    )


@lowers(ops.Sin, FLOAT)
def sin(context: Context) -> Lowered:
    """sin(x)."""
    return prepared_map(context, "sin", float_trig.sine)


@lowers(ops.Cos, FLOAT)
def cos(context: Context) -> Lowered:
    """cos(x)."""
    return prepared_map(context, "cos", float_trig.cosine)


@lowers(ops.Erf, FLOAT)
def erf(context: Context) -> Lowered:
    """The error function."""
    return element_map(context, "erf", float_math.erf)


@lowers(ops.Atan, FLOAT)
def atan(context: Context) -> Lowered:
    """The angle within ±π/2 whose tangent is x."""
    return element_map(context, "atan", float_trig.arctangent)


@lowers(ops.Ceil, FLOAT)
def ceil(context: Context) -> Lowered:
    """The smallest integer that is not below x."""
    return element_map(context, "ceil", float_exact.ceil)


@lowers(ops.Floor, FLOAT)
def floor(context: Context) -> Lowered:
    """The largest integer that is not above x."""
    return element_map(context, "floor", float_exact.floor)


@lowers(ops.Round, FLOAT)
def round_(context: Context) -> Lowered:
    """The nearest integer, of two the even one."""
    return element_map(context, "round", float_exact.round_half_even)
