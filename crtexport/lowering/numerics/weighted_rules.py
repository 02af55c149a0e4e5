"""Rules for convolutions and matrix products that are lowered, as sentences for the user."""

from __future__ import annotations

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import FullyConnected
from crtexport.ir.types import DType
from crtexport.lowering.registry import Context, Rule
from crtexport.lowering.rules import at_most_inputs, quantized_weights

_TYPES: dict[tuple[DType, DType], tuple[DType, ...]] = {
    (DType.FLOAT32, DType.FLOAT32): (DType.FLOAT32,),
    (DType.FLOAT32, DType.INT8): (DType.FLOAT32,),
    (DType.INT8, DType.INT8): (DType.INT32,),
    (DType.UINT8, DType.UINT8): (DType.INT32,),
    (DType.INT16, DType.INT8): (DType.INT64, DType.INT32),
}
"""The biases that go with an input and weights."""


class WeightedTypes:
    """Input and weights must be float32, int8 or uint8, or int16 with int8 weights, or float32 with
    int8 weights (hybrid); the output is like the input; the bias is float32 for float32, int32 for
    int8 and uint8, int64 or int32 for int16."""

    own_signatures = (((DType.FLOAT32, DType.INT8, DType.FLOAT32), (DType.FLOAT32,)),)
    """Element types of inputs and output that no reference kernel computes alike, and so no
    differential test shows."""

    def __call__(self, context: Context) -> str | None:
        x, w, y = context.input(0).dtype, context.input(1).dtype, context.output().dtype
        biases = _TYPES.get((x, w))
        if biases is None or y is not x:
            return f"found input {x.value}, weights {w.value}, output {y.value}"
        if context.has(2) and context.input(2).dtype not in biases:
            return f"found a {context.input(2).dtype.value} bias"
        return None


weighted_types = WeightedTypes()


def computed_weights(context: Context) -> bool:
    """Returns whether the node is a fully connected layer whose weights are computed at run time,
    as in attention."""
    if not isinstance(context.node.op, FullyConnected):
        return False
    return context.graph.constant(context.graph.required(context.node, 1)) is None


def constant_weights(context: Context) -> str | None:
    """Weights and bias must be constants."""
    return _computed(context, (1, 2))


def constant_bias(context: Context) -> str | None:
    """The bias must be a constant, and int8 weights of float32 inputs; other weights may be
    computed, as in attention."""
    hybrid = context.input(0).dtype.is_float and not context.input(1).dtype.is_float
    return _computed(context, (1, 2) if hybrid else (2,))


def _computed(context: Context, positions: tuple[int, ...]) -> str | None:
    for position in positions:
        tensor = context.graph.optional(context.node, position)
        if tensor is not None and context.graph.constant(tensor) is None:
            return f"input {position} is computed at run time"
    return None


def symmetric_weights(context: Context) -> str | None:
    """The zero point of int8 weights must be 0, but for a fully connected layer of integers with
    one scale, and any with one scale and the numerics of ONNX Runtime; uint8 weights have one scale
    and any zero point."""
    weights = context.input(1)
    quant = weights.quant
    if quant is None:
        return None
    if weights.dtype is DType.UINT8:
        return None if quant.per_tensor else f"found {len(quant.scale)} scales"
    shifted = isinstance(context.node.op, FullyConnected) or context.numerics is Numerics.ORT
    shifted &= quant.per_tensor and not context.input(0).dtype.is_float
    if weights.dtype is DType.INT8 and any(quant.zero_point) and not shifted:
        return f"found {next(z for z in quant.zero_point if z)}"
    return None


def symmetric_int16(context: Context) -> str | None:
    """The zero point of int16 inputs and outputs must be 0."""
    types = [
        context.graph.type(t)
        for t in (*context.node.inputs, *context.node.outputs) if t is not None
    ]
    for type_ in types:
        if type_.dtype is DType.INT16 and type_.quant and any(type_.quant.zero_point):
            return f"found {next(z for z in type_.quant.zero_point if z)}"
    return None


def long_bias(context: Context) -> str | None:
    """The bias of an int16 depthwise convolution must be int64."""
    if context.input(0).dtype is not DType.INT16 or not context.has(2):
        return None
    bias = context.input(2).dtype
    return None if bias is DType.INT64 else f"found {bias.value}"


def _rules(constants: Rule) -> tuple[Rule, ...]:
    return (
        at_most_inputs(3), weighted_types, constants, quantized_weights, symmetric_weights,
        symmetric_int16,
    )


WEIGHTED_RULES, DENSE_RULES = _rules(constant_weights), _rules(constant_bias)
"""Of convolutions, and of fully connected layers."""
