"""LOGISTIC, TANH, RELU, RELU6, QUANTIZE and DEQUANTIZE.

An 8-bit to 8-bit function is a table of 256 values computed while exporting, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir.ops import (
    Activation,
    Dequantize,
    Logistic,
    Quantize,
    Relu,
    Relu6,
    Tanh,
)
from crtexport.ir.types import DType
from crtexport.kernels import mathf, tables
from crtexport.kernels.build import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    div,
    f32,
    i32,
    load,
    mul,
    sub,
)
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.kernels.requantize import float_range
from crtexport.kernels.rules import FLOAT_OR_INT8, quantized_weights, same_types

BYTES = (DType.INT8, DType.UINT8)
UNARY_RULES = (same_types(*FLOAT_OR_INT8), quantized_weights)


def _table_lookup(context: Context, name: str, table: tables.Table) -> Lowered:
    """output[i] = table[input[i]] for 8-bit types."""
    lowering = Lowering(name, context)
    source = lowering.input(0, "input")
    low = context.input(0).dtype.limits[0]
    dtype = context.output().dtype
    values = lowering.derived("table", SCALAR_OF[dtype], np.array(table, dtype.numpy))
    output = lowering.output()
    with lowering.b.loop("i", context.output().elements) as i:
        position = sub(cast(load(source, i), Scalar.INDEX), const(low))
        lowering.b.store(output, i, load(values, position))
    return lowering.finish()


def _float_map(
    context: Context, name: str, function: Callable[[KernelBuilder, Expr], Expr]
) -> Lowered:
    """output[i] = function(input[i]) for floats."""
    lowering = Lowering(name, context)
    source, output = lowering.input(0, "input"), lowering.output()
    with lowering.b.loop("i", context.output().elements) as i:
        value = lowering.b.let("value", load(source, i))
        lowering.b.store(output, i, function(lowering.b, value))
    return lowering.finish()


@lowers(Logistic, *UNARY_RULES)
def logistic(context: Context) -> Lowered:
    """1 / (1 + exp(-x))."""
    if context.input(0).dtype is DType.FLOAT32:
        return _float_map(context, "logistic", mathf.logistic)
    return _table_lookup(
        context, "logistic", tables.logistic(context.input(0), context.output())
    )


@lowers(Tanh, *UNARY_RULES)
def tanh(context: Context) -> Lowered:
    """Hyperbolic tangent."""
    if context.input(0).dtype is DType.FLOAT32:
        return _float_map(context, "tanh", mathf.tanh)
    return _table_lookup(
        context, "tanh", tables.tanh(context.input(0), context.output())
    )


def _clamped(context: Context, name: str, activation: Activation) -> Lowered:
    if context.input(0).dtype is DType.FLOAT32:
        return _float_map(
            context, name, lambda _, value: clamp(value, *float_range(activation))
        )
    return _table_lookup(
        context, name, tables.relu(context.input(0), context.output(), activation)
    )


@lowers(Relu, *UNARY_RULES)
def relu(context: Context) -> Lowered:
    """max(x, 0)."""
    return _clamped(context, "relu", Activation.RELU)


@lowers(Relu6, *UNARY_RULES)
def relu6(context: Context) -> Lowered:
    """min(max(x, 0), 6)."""
    return _clamped(context, "relu6", Activation.RELU6)


def quantize_types(context: Context) -> str | None:
    """The input must be float32, int8 or uint8 and the output int8 or uint8."""
    source, target = context.input(0).dtype, context.output().dtype
    if source in (DType.FLOAT32, *BYTES) and target in BYTES:
        return None
    return f"found {source.value} to {target.value}"


@lowers(Quantize, quantize_types, quantized_weights)
def quantize(context: Context) -> Lowered:
    """round(x / scale) + zero point, clamped; halves away from zero."""
    if context.input(0).dtype is not DType.FLOAT32:
        return _table_lookup(
            context, "requantize", tables.requantize(context.input(0), context.output())
        )
    target = context.output()
    quant = context.quant(target)
    low, high = target.dtype.limits
    zero = quant.zero_point[0]

    def function(b: KernelBuilder, value: Expr) -> Expr:
        # Clamped to where the result saturates anyway, so that the conversion stays in range.
        steps = b.let("steps", clamp(
            div(value, f32(quant.scale[0])), float(low - zero - 1), float(high - zero + 1)
        ))
        rounded = add(mathf.round_to_int(b, steps), i32(zero))
        return cast(clamp(b.let("rounded", rounded), low, high), SCALAR_OF[target.dtype])

    return _float_map(context, "quantize", function)


def dequantize_types(context: Context) -> str | None:
    """The input must be int8 or uint8 and the output float32."""
    source, target = context.input(0).dtype, context.output().dtype
    if source in BYTES and target is DType.FLOAT32:
        return None
    return f"found {source.value} to {target.value}"


@lowers(Dequantize, dequantize_types, quantized_weights)
def dequantize(context: Context) -> Lowered:
    """(x - zero point) * scale."""
    quant = context.quant(context.input(0))

    def function(_: KernelBuilder, value: Expr) -> Expr:
        steps = sub(cast(value, Scalar.I32), i32(quant.zero_point[0]))
        return mul(cast(steps, Scalar.F32), f32(quant.scale[0]))

    return _float_map(context, "dequantize", function)
