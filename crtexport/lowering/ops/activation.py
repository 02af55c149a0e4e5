"""LOGISTIC, TANH, the RELU family, ELU, GELU and HARD_SWISH."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.ir import ops
from crtexport.ir.numerics import Numerics
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    div,
    f32,
    ge,
    gt,
    i32,
    lt,
    max_,
    min_,
    mul,
    select,
    sub,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics import float_math, float_reference, lut8, sigmoid16
from crtexport.lowering.numerics.elementwise_maps import (
    BYTES,
    SCALED,
    Function,
    element_map,
    has_scales,
    prepared_map,
    rescaler,
    stored,
    table_lookup,
    through_table,
)
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.ops.hard_swish import hard_swish as hard_swish_table
from crtexport.lowering.ops.hard_swish import hard_swish_scales
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types
from crtexport.support.fixedpoint import fixed_logistic, fixed_tanh

ANY = same_types(DType.FLOAT32, *SCALED)
BYTES_OR_FLOAT = same_types(DType.FLOAT32, *BYTES)


@lowers(ops.Logistic, ANY, has_scales, sigmoid16.logistic_output, sigmoid16.input_scale)
def logistic(context: Context) -> Lowered:
    """1 / (1 + exp(-x))."""
    match context.input(0).dtype:
        case DType.FLOAT32:
            return element_map(context, "logistic", float_math.logistic)
        case DType.INT16:
            return prepared_map(context, "logistic", sigmoid16.logistic)
    return table_lookup(
        context, "logistic", _curve(context, float_reference.logistic, fixed_logistic, 8)
    )


def _curve(
    context: Context, real: lut8.Real, fixed: Callable[[int, int], int], places: int
) -> lut8.Table:
    """Returns the table of a function, computed in float32, or for TensorFlow Lite Micro's int8 in
    fixed point."""
    source, target = context.input(0), context.output()
    if context.numerics is Numerics.TFLM and source.dtype is DType.INT8:
        return lut8.fixed_point(source, target, fixed, places)
    return lut8.through_float(source, target, real)


@lowers(ops.Tanh, ANY, has_scales, sigmoid16.tanh_output, sigmoid16.input_scale)
def tanh(context: Context) -> Lowered:
    """Hyperbolic tangent."""
    match context.input(0).dtype:
        case DType.FLOAT32:
            return element_map(context, "tanh", float_math.tanh)
        case DType.INT16:
            return prepared_map(context, "tanh", sigmoid16.tanh)
    return table_lookup(context, "tanh", _curve(context, float_reference.tanh, fixed_tanh, 7))


def _clamped(context: Context, name: str, activation: ops.Activation) -> Lowered:
    source, target = context.input(0), context.output()
    if source.dtype is DType.FLOAT32:
        return element_map(
            context, name, lambda _, value: clamp(value, *float_range(activation))
        )
    if source.dtype in BYTES:
        return table_lookup(
            context, name, lut8.relu(source, target, activation, context.numerics)
        )

    def prepare(lowering: Lowering) -> Function:
        ratio = lut8.ratio_of(source, target, context.numerics)
        rescale = rescaler(lowering, ratio, 1 << 15)

        def function(b: KernelBuilder, value: Expr) -> Expr:
            scaled = b.let("scaled", rescale(cast(value, Scalar.I32)))
            return cast(clamp(scaled, *activation_range(activation, target)), Scalar.I16)

        return function

    return prepared_map(context, name, prepare)


@lowers(ops.Relu, ANY, has_scales)
def relu(context: Context) -> Lowered:
    """max(x, 0)."""
    return _clamped(context, "relu", ops.Activation.RELU)


@lowers(ops.Relu6, ANY, has_scales)
def relu6(context: Context) -> Lowered:
    """min(max(x, 0), 6)."""
    if context.numerics is Numerics.TFLM and context.input(0).dtype in (DType.INT8, DType.INT16):
        return _clamped_as_stored(context)
    return _clamped(context, "relu6", ops.Activation.RELU6)


def _clamped_as_stored(context: Context) -> Lowered:
    """Emits TensorFlow Lite Micro's RELU6: the stored numbers are clamped on the input's scale."""
    bounds = activation_range(ops.Activation.RELU6, context.input(0))
    dtype = SCALAR_OF[context.input(0).dtype]
    return element_map(
        context, "relu6", lambda _, x: cast(clamp(cast(x, Scalar.I32), *bounds), dtype)
    )


@lowers(ops.ReluN1To1, BYTES_OR_FLOAT, has_scales)
def relu_n1_to_1(context: Context) -> Lowered:
    """min(max(x, -1), 1)."""
    return _clamped(context, "relu_n1_to_1", ops.Activation.RELU_N1_TO_1)


@lowers(ops.LeakyRelu, ANY, has_scales)
def leaky_relu(context: Context) -> Lowered:
    """x where it is positive, alpha * x elsewhere."""
    op = context.op(ops.LeakyRelu)
    source, target, alpha = context.input(0), context.output(), op.alpha
    if source.dtype is DType.FLOAT32:
        return element_map(
            context, "leaky_relu",
            lambda b, x: select(gt(x, f32(0.0)), x, b.let("leak", mul(x, f32(alpha)))),
        )
    if source.dtype in BYTES:
        table = lut8.leaky_relu(source, target, alpha, context.numerics)
        return table_lookup(context, "leaky_relu", table)

    def prepare(lowering: Lowering) -> Function:
        upper = rescaler(lowering, lut8.ratio_of(source, target, context.numerics), 1 << 15)
        lower = _lower(lowering, lut8.leaky_ratio(source, target, alpha, context.numerics))

        def function(b: KernelBuilder, value: Expr) -> Expr:
            x = b.let("x", cast(value, Scalar.I32))
            above, below = b.let("above", upper(x)), b.let("below", lower(x))
            scaled = b.let("scaled", select(ge(x, i32(0)), above, below))
            return stored(b, scaled, 0, DType.INT16)

        return function

    return prepared_map(context, "leaky_relu", prepare)


def _lower(lowering: Lowering, ratio: float) -> Callable[[Expr], Expr]:
    """Scales what is below 0; TensorFlow Lite Micro by the magnitude of the ratio, then its sign.
    """
    if ratio >= 0 or lowering.context.numerics is not Numerics.TFLM:
        return rescaler(lowering, ratio, 1 << 15)
    magnitude = rescaler(lowering, -ratio, 1 << 15)
    return lambda value: sub(i32(0), magnitude(value))


@lowers(ops.Elu, same_types(DType.FLOAT32, DType.INT8), has_scales)
def elu(context: Context) -> Lowered:
    """x where it is positive, exp(x) - 1 elsewhere."""
    if context.input(0).dtype is DType.INT8:
        return table_lookup(
            context, "elu",
            lut8.through_float(context.input(0), context.output(), float_reference.elu),
        )
    return element_map(
        context, "elu",
        lambda b, x: select(lt(x, f32(0.0)), float_math.expm1_of_negative(b, x), x),
    )


@lowers(ops.Gelu, ANY, has_scales)
def gelu(context: Context) -> Lowered:
    """x times the normal distribution function at x, exactly or by a hyperbolic tangent."""
    op = context.op(ops.Gelu)
    if context.input(0).dtype is not DType.FLOAT32:
        function = float_reference.gelu_by_tanh if op.approximate else float_reference.gelu
        return through_table(context, "gelu", function)
    return element_map(context, "gelu", _gelu_by_tanh if op.approximate else _gelu)


def _gelu(b: KernelBuilder, x: Expr) -> Expr:
    # With erfc in place of 1 + erf nothing cancels for negative x.
    tail = float_math.erfc(b, mul(x, f32(-(0.5**0.5))))
    return mul(mul(x, f32(0.5)), tail)


def _gelu_by_tanh(b: KernelBuilder, x: Expr) -> Expr:
    cubic = add(x, mul(mul(mul(x, f32(0.044715)), x), x))
    bent = float_math.tanh(b, b.let("cubic", mul(cubic, f32(0.7978845608028654))))
    return mul(mul(x, f32(0.5)), add(f32(1.0), bent))


@lowers(ops.HardSwish, BYTES_OR_FLOAT, has_scales, hard_swish_scales)
def hard_swish(context: Context) -> Lowered:
    """x * min(max(x + 3, 0), 6) / 6."""
    source, target = context.input(0), context.output()
    if source.dtype is not DType.FLOAT32:
        table = hard_swish_table(source, target, context.numerics)
        return table_lookup(context, "hard_swish", table)
    return element_map(context, "hard_swish", lambda _, x: div(
        mul(x, min_(f32(6.0), max_(f32(0.0), add(x, f32(3.0))))), f32(6.0)
    ))
