"""LOGISTIC, TANH, the RELU family, ELU, GELU and HARD_SWISH."""

from __future__ import annotations

from crtexport.ir.ops import (
    Activation,
    Elu,
    Gelu,
    HardSwish,
    LeakyRelu,
    Logistic,
    Relu,
    Relu6,
    ReluN1To1,
    Tanh,
)
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kernels import mathf, realf, sigmoid16, tables
from crtexport.kernels.build import (
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
)
from crtexport.kernels.hard_swish import hard_swish as hard_swish_table
from crtexport.kernels.hard_swish import hard_swish_scales
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.maps import (
    BYTES,
    SCALED,
    Function,
    element_map,
    has_scales,
    prepared_map,
    rescaler,
    stored,
    table_lookup,
)
from crtexport.kernels.registry import Context, Lowered, Lowering, lowers
from crtexport.kernels.requantize import float_range
from crtexport.kernels.rules import same_types

ANY = same_types(DType.FLOAT32, *SCALED)
BYTES_OR_FLOAT = same_types(DType.FLOAT32, *BYTES)


@lowers(Logistic, ANY, has_scales, sigmoid16.logistic_output, sigmoid16.input_scale)
def logistic(context: Context) -> Lowered:
    """1 / (1 + exp(-x))."""
    match context.input(0).dtype:
        case DType.FLOAT32:
            return element_map(context, "logistic", mathf.logistic)
        case DType.INT16:
            return prepared_map(context, "logistic", sigmoid16.logistic)
    return table_lookup(
        context, "logistic",
        tables.through_float(context.input(0), context.output(), realf.logistic),
    )


@lowers(Tanh, ANY, has_scales, sigmoid16.tanh_output, sigmoid16.input_scale)
def tanh(context: Context) -> Lowered:
    """Hyperbolic tangent."""
    match context.input(0).dtype:
        case DType.FLOAT32:
            return element_map(context, "tanh", mathf.tanh)
        case DType.INT16:
            return prepared_map(context, "tanh", sigmoid16.tanh)
    return table_lookup(
        context, "tanh", tables.through_float(context.input(0), context.output(), realf.tanh)
    )


def _clamped(context: Context, name: str, activation: Activation) -> Lowered:
    source, target = context.input(0), context.output()
    if source.dtype is DType.FLOAT32:
        return element_map(
            context, name, lambda _, value: clamp(value, *float_range(activation))
        )
    if source.dtype in BYTES:
        return table_lookup(context, name, tables.relu(source, target, activation))

    def prepare(lowering: Lowering) -> Function:
        rescale = rescaler(lowering, tables.ratio_of(source, target), 1 << 15)

        def function(b: KernelBuilder, value: Expr) -> Expr:
            scaled = b.let("scaled", rescale(cast(value, Scalar.I32)))
            return cast(clamp(scaled, *activation_range(activation, target)), Scalar.I16)

        return function

    return prepared_map(context, name, prepare)


@lowers(Relu, ANY, has_scales)
def relu(context: Context) -> Lowered:
    """max(x, 0)."""
    return _clamped(context, "relu", Activation.RELU)


@lowers(Relu6, ANY, has_scales)
def relu6(context: Context) -> Lowered:
    """min(max(x, 0), 6)."""
    return _clamped(context, "relu6", Activation.RELU6)


@lowers(ReluN1To1, BYTES_OR_FLOAT, has_scales)
def relu_n1_to_1(context: Context) -> Lowered:
    """min(max(x, -1), 1)."""
    return _clamped(context, "relu_n1_to_1", Activation.RELU_N1_TO_1)


@lowers(LeakyRelu, ANY, has_scales)
def leaky_relu(context: Context) -> Lowered:
    """x where it is positive, alpha * x elsewhere."""
    op = context.node.op
    if not isinstance(op, LeakyRelu):
        raise TypeError(op)
    source, target, alpha = context.input(0), context.output(), op.alpha
    if source.dtype is DType.FLOAT32:
        return element_map(
            context, "leaky_relu",
            lambda b, x: select(gt(x, f32(0.0)), x, b.let("leak", mul(x, f32(alpha)))),
        )
    if source.dtype in BYTES:
        return table_lookup(context, "leaky_relu", tables.leaky_relu(source, target, alpha))

    def prepare(lowering: Lowering) -> Function:
        upper = rescaler(lowering, tables.ratio_of(source, target), 1 << 15)
        lower = rescaler(lowering, tables.leaky_ratio(source, target, alpha), 1 << 15)

        def function(b: KernelBuilder, value: Expr) -> Expr:
            x = b.let("x", cast(value, Scalar.I32))
            above, below = b.let("above", upper(x)), b.let("below", lower(x))
            scaled = b.let("scaled", select(ge(x, i32(0)), above, below))
            return stored(b, scaled, 0, DType.INT16)

        return function

    return prepared_map(context, "leaky_relu", prepare)


@lowers(Elu, same_types(DType.FLOAT32, DType.INT8), has_scales)
def elu(context: Context) -> Lowered:
    """x where it is positive, exp(x) - 1 elsewhere."""
    if context.input(0).dtype is DType.INT8:
        return table_lookup(
            context, "elu", tables.through_float(context.input(0), context.output(), realf.elu)
        )
    return element_map(
        context, "elu",
        lambda b, x: select(lt(x, f32(0.0)), mathf.expm1_of_negative(b, x), x),
    )


@lowers(Gelu, BYTES_OR_FLOAT, has_scales)
def gelu(context: Context) -> Lowered:
    """x times the normal distribution function at x, exactly or by a hyperbolic tangent."""
    op = context.node.op
    if not isinstance(op, Gelu):
        raise TypeError(op)
    if context.input(0).dtype is not DType.FLOAT32:
        function = realf.gelu_by_tanh if op.approximate else realf.gelu
        table = tables.through_float(context.input(0), context.output(), function)
        return table_lookup(context, "gelu", table)
    return element_map(context, "gelu", _gelu_by_tanh if op.approximate else _gelu)


def _gelu(b: KernelBuilder, x: Expr) -> Expr:
    # With erfc in place of 1 + erf nothing cancels for negative x.
    tail = mathf.erfc(b, mul(x, f32(-(0.5**0.5))))
    return mul(mul(x, f32(0.5)), tail)


def _gelu_by_tanh(b: KernelBuilder, x: Expr) -> Expr:
    cubic = add(x, mul(mul(mul(x, f32(0.044715)), x), x))
    bent = mathf.tanh(b, b.let("cubic", mul(cubic, f32(0.7978845608028654))))
    return mul(mul(x, f32(0.5)), add(f32(1.0), bent))


@lowers(HardSwish, BYTES_OR_FLOAT, has_scales, hard_swish_scales)
def hard_swish(context: Context) -> Lowered:
    """x * min(max(x + 3, 0), 6) / 6."""
    source, target = context.input(0), context.output()
    if source.dtype is not DType.FLOAT32:
        return table_lookup(context, "hard_swish", hard_swish_table(source, target))
    return element_map(context, "hard_swish", lambda _, x: div(
        mul(x, min_(f32(6.0), max_(f32(0.0), add(x, f32(3.0))))), f32(6.0)
    ))
