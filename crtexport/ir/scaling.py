"""Rescaling between quantized types: real multipliers, and bounds of fused clamps."""

from __future__ import annotations

import numpy as np

from crtexport.ir.graph import Graph, Node
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Activation, Conv2D, DepthwiseConv2D, TransposeConv2D
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.support.fixedpoint import Rounding, round_half_away

EXTREME = "its scales are too large, too small or too far apart to compute with"
"""The message for a node whose scales lead arithmetic out of its range."""
EXTREME_HINT = "look at the quantization of its inputs and outputs"

_SMALLEST = 2.0**-149
"""The smallest positive float32."""


def layer_scales(
    data: TensorType, weights: TensorType, result: TensorType, numerics: Numerics, *,
    fully_connected: bool,
) -> list[float]:
    """Returns the factors that bring sums of products to the scale of ``result``: one real number,
    or one per output channel. All types carry scales, per tensor but for the weights.

    With DOUBLE rounding, the product of the scales of input and weights is float32 where TFLite's
    is (``GetQuantizedConvolutionMultipler``): for one scale of fully connected layers, and uint8;
    TensorFlow Lite Micro's is float64. With FLOAT, product and quotient are float32.
    """
    if data.quant is None or weights.quant is None or result.quant is None:
        raise ValueError("a layer of integers without scales")
    scale_in, scale_out, scales = data.quant.scale[0], result.quant.scale[0], weights.quant.scale
    rounding = numerics.rounding(fully_connected=fully_connected)
    if rounding is Rounding.FLOAT:
        with np.errstate(over="ignore"):
            products = np.float32(scale_in) * np.array(scales, np.float32)
            quotients: list[float] = (products / np.float32(scale_out)).tolist()
        return quotients
    legacy = (fully_connected and len(scales) == 1) or weights.dtype is DType.UINT8
    if legacy and rounding is Rounding.DOUBLE:
        with np.errstate(over="ignore"):
            product = float(numerics.precision(scale_in) * numerics.precision(scales[0]))
        return [product / scale_out]
    return [scale_in * s / scale_out for s in scales]


def wide_sums(graph: Graph, node: Node) -> bool:
    """Returns whether TFLite sums in 64 bits: the type of the bias decides, or its default.

    TensorFlow Lite Micro's default is 64 bits; transposed convolutions know no other there.
    """
    if graph.type(graph.required(node, 0)).dtype is not DType.INT16:
        return False
    micro = graph.numerics is Numerics.TFLM
    if micro and isinstance(node.op, TransposeConv2D):
        return True
    bias = graph.optional(node, 2)
    if bias is not None:
        return graph.type(bias).dtype is DType.INT64
    return micro or isinstance(node.op, Conv2D | DepthwiseConv2D)


def activation_range(activation: Activation, output: TensorType) -> tuple[int, int]:
    """Returns the integer clamp bounds of a fused activation (TFLite
    ``CalculateActivationRangeQuantized``)."""
    low, high = output.dtype.limits
    quant = output.quant or Quantization((1.0,), (0,))
    # Not 0, of which the smallest scales would be.
    scale, zero = float(np.float32(quant.scale[0])) or _SMALLEST, quant.zero_point[0]

    def quantized(real: float) -> int:
        # Rounded from double, quotients of float32 are those of float32; beyond the limits is
        # what no type can store.
        steps = float(np.float32(min(max(real / scale, -(2.0**31)), 2.0**31)))
        return zero + round_half_away(steps)

    match activation:
        case Activation.RELU:
            return max(low, quantized(0.0)), high
        case Activation.RELU6:
            return max(low, quantized(0.0)), min(high, quantized(6.0))
        case Activation.RELU_N1_TO_1:
            return max(low, quantized(-1.0)), min(high, quantized(1.0))
        case Activation.NONE:
            return low, high
