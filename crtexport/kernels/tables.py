"""Tables of 8-bit functions, computed while exporting with the reference kernels' arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from crtexport.fixedpoint import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
)
from crtexport.ir.ops import Activation
from crtexport.ir.types import Quantization, TensorType
from crtexport.kernels.requantize import activation_range

Table = tuple[int, ...]


def _quant(type_: TensorType) -> Quantization:
    return type_.quant or Quantization((1.0,), (0,))


def _map(source: TensorType, target: TensorType, function: Callable[[int], int]) -> Table:
    low, high = target.dtype.limits
    first, last = source.dtype.limits
    return tuple(min(max(function(x), low), high) for x in range(first, last + 1))


def through_float(
    source: TensorType, target: TensorType, function: Callable[[float], float]
) -> Table:
    """TFLite ``PopulateLookupTable``: dequantize, apply, quantize, all in float32."""
    a, c = _quant(source), _quant(target)
    inverse = np.float32(1.0) / np.float32(c.scale[0])

    def value(x: int) -> int:
        real = np.float32(a.scale[0]) * np.float32(x - a.zero_point[0])
        scaled = float(np.float32(function(float(real))) * inverse)
        rounded = math.floor(abs(scaled) + 0.5)
        return int(math.copysign(rounded, scaled)) + c.zero_point[0]

    return _map(source, target, value)


def logistic(source: TensorType, target: TensorType) -> Table:
    """1 / (1 + e**-x)."""

    def function(x: float) -> float:
        grown = np.float32(math.exp(-x)) if x > -88.0 else np.float32(np.inf)
        return float(np.float32(1.0) / (np.float32(1.0) + grown))

    return through_float(source, target, function)


def tanh(source: TensorType, target: TensorType) -> Table:
    """Hyperbolic tangent."""
    return through_float(source, target, math.tanh)


def requantize(source: TensorType, target: TensorType) -> Table:
    """The same real value under another scale, zero point or type (TFLite ``Requantize``)."""
    ratio = _quant(source).scale[0] / _quant(target).scale[0]
    return _rescaled(source, target, ratio, target.dtype.limits)


def _rescaled(
    source: TensorType, target: TensorType, ratio: float, bounds: tuple[int, int]
) -> Table:
    before, after = _quant(source).zero_point[0], _quant(target).zero_point[0]
    mantissa, shift = quantize_multiplier(ratio)

    def value(x: int) -> int:
        scaled = multiply_by_quantized_multiplier(x - before, mantissa, shift)
        return min(max(scaled + after, bounds[0]), bounds[1])

    return _map(source, target, value)


def relu(source: TensorType, target: TensorType, activation: Activation) -> Table:
    """RELU and RELU6: rescaled by a float32 ratio, then clamped (TFLite ``ReluX``)."""
    ratio = float(np.float32(_quant(source).scale[0]) / np.float32(_quant(target).scale[0]))
    return _rescaled(source, target, ratio, activation_range(activation, target))
