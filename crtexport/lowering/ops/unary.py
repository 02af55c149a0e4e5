"""ABS, NEG, SQUARE, EXP, LOG, SQRT, RSQRT, SIN, COS, CEIL, FLOOR, ROUND, erf and atan."""

from __future__ import annotations

import math

import numpy as np

from crtexport.ir import ops
from crtexport.ir.numerics import Numerics
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    cast,
    const,
    div,
    f32,
    gt,
    i32,
    lt,
    max_,
    min_,
    mul,
    select,
    shl,
    sub,
    wrap_sub,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics import (
    float_exact,
    float_math,
    float_reference,
    float_trig,
    lut8,
)
from crtexport.lowering.numerics.elementwise_maps import (
    Function,
    element_map,
    has_scales,
    prepared_map,
    rescaler,
    stored,
    table_lookup,
    through_table,
)
from crtexport.lowering.numerics.gemmlowp import inverse_root
from crtexport.lowering.numerics.requantize import (
    Multiplier,
    Requantizer,
    rounding_doubling_high_mul,
)
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types
from crtexport.support.fixedpoint import Rounding, quantize_multiplier

FLOAT = same_types(DType.FLOAT32)
FLOAT_OR_INTEGERS = same_types(DType.FLOAT32, DType.INT8, DType.INT16)


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


@lowers(ops.Exp, FLOAT_OR_INTEGERS, has_scales)
def exp(context: Context) -> Lowered:
    """e**x."""
    if context.input(0).dtype is DType.FLOAT32:
        return element_map(context, "exp", float_math.exp_to_the_limits)
    return through_table(context, "exp", float_reference.exp)


@lowers(ops.Log, FLOAT_OR_INTEGERS, has_scales)
def log(context: Context) -> Lowered:
    """Natural logarithm; of floats -infinity of 0 and NaN of negative numbers, of integers the
    smallest result for these."""
    if context.input(0).dtype is DType.FLOAT32:
        return element_map(context, "log", float_math.log)
    target = context.output()
    least = float(lut8.scale(target) * np.float32(target.dtype.limits[0] - lut8.zero(target)))
    return through_table(
        context, "log", lambda x: math.log(x) if x > 0 else least
    )


@lowers(ops.Sqrt, FLOAT_OR_INTEGERS, has_scales)
def sqrt(context: Context) -> Lowered:
    """Square root, of floats correctly rounded and NaN of negative numbers, of integers 0 of these.
    """
    match context.input(0).dtype:
        case DType.FLOAT32:
            return element_map(context, "sqrt", float_exact.sqrt)
        case DType.INT8:
            return table_lookup(context, "sqrt", lut8.sqrt(context.input(0), context.output()))
    return prepared_map(context, "sqrt", _wide_sqrt)


def _wide_sqrt(lowering: Lowering) -> Function:
    """LiteRT's square root of int16, in float32; what is behind the point is cut off."""
    source, target = (float(lut8.scale(t)) for t in (
        lowering.context.input(0), lowering.context.output()
    ))

    def function(b: KernelBuilder, value: Expr) -> Expr:
        real = mul(f32(source), cast(max_(cast(value, Scalar.I32), i32(0)), Scalar.F32))
        root = float_exact.sqrt(b, b.let("real", real))
        steps = b.let("steps", min_(div(root, f32(target)), f32(32767.0)))
        return cast(cast(steps, Scalar.I32), Scalar.I16)

    return function


@lowers(ops.Rsqrt, FLOAT_OR_INTEGERS, has_scales)
def rsqrt(context: Context) -> Lowered:
    """1 / sqrt(x)."""
    source, target = context.input(0), context.output()
    match source.dtype:
        case DType.FLOAT32:
            return element_map(
                context, "rsqrt", lambda b, x: div(f32(1.0), float_exact.sqrt(b, x))
            )
        case DType.INT8:
            return table_lookup(context, "rsqrt", lut8.rsqrt(source, target, context.numerics))
    if context.numerics is Numerics.TFLM:
        return prepared_map(context, "rsqrt", _fixed_rsqrt)
    most = float(lut8.scale(target) * np.float32(target.dtype.limits[1]))
    return through_table(
        context, "rsqrt",
        lambda x: float(np.float32(1.0) / np.sqrt(np.float32(x))) if x > 0 else most,
    )


def _fixed_rsqrt(lowering: Lowering) -> Function:
    """TensorFlow Lite Micro's fixed point for int16; the largest result for 0, and for negative
    numbers, which it refuses."""
    source, target = lowering.context.input(0), lowering.context.output()
    mantissa, shift = quantize_multiplier(lut8.rsqrt_ratio(source, target, Numerics.TFLM))
    places = lut8.RSQRT_SHIFT
    multiplier = Multiplier((mantissa,), (shift - places,))
    requantizer = Requantizer(lowering, multiplier, Rounding.DOUBLE, 1 << places)
    most = target.dtype.limits[1]

    def function(b: KernelBuilder, value: Expr) -> Expr:
        x = b.let("x", cast(value, Scalar.I32))
        root, right = inverse_root(b, x)
        unit = b.let("unit", shl(i32(1), sub(i32(places), right)))
        fine = b.let("fine", rounding_doubling_high_mul(b, unit, root))
        scaled = b.let("scaled", requantizer(fine, const(0)))
        result = select(gt(x, i32(0)), scaled, i32(most))
        return stored(b, b.let("result", result), 0, DType.INT16)

    return function


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
