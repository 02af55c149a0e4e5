"""Tables of 8-bit functions, computed while exporting with the reference kernels' arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import Quantization, TensorType
from crtexport.support.fixedpoint import (
    inverse_sqrt_multiplier,
    multiply_by_quantized_multiplier,
    nearest_even,
    quantize_multiplier,
    round_half_away,
    rounding_divide_by_pot,
)

Table = tuple[int, ...]
Real = Callable[[float], float]


def _quant(type_: TensorType) -> Quantization:
    return type_.quant or Quantization((1.0,), (0,))


def scale(type_: TensorType) -> np.float32:
    """The scale as the float32 that it is in a file."""
    return np.float32(_quant(type_).scale[0])


def scales(numerics: Numerics, *types: TensorType) -> tuple[np.floating[Any], ...]:
    """The scales in the precision in which ``numerics`` multiply and divide them."""
    return tuple(numerics.precision(scale(type_)) for type_ in types)


def zero(type_: TensorType) -> int:
    """The zero point."""
    return _quant(type_).zero_point[0]


def mapped(source: TensorType, target: TensorType, function: Callable[[int], int]) -> Table:
    """Returns ``function`` of every value that the input can have, clamped to what the output
    can."""
    low, high = target.dtype.limits
    first, last = source.dtype.limits
    return tuple(min(max(function(x), low), high) for x in range(first, last + 1))


def through_float(source: TensorType, target: TensorType, function: Real) -> Table:
    """TFLite ``LUTPopulate``: dequantize, apply, quantize, all in float32.

    What no int32 can hold saturates, and what is no number (0 by a scale next to 0) becomes 0;
    there the reference's behaviour is undefined.
    """
    with np.errstate(over="ignore"):
        inverse = np.float32(1.0) / scale(target)

    def value(x: int) -> int:
        with np.errstate(over="ignore"):
            real = scale(source) * np.float32(x - zero(source))
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = float(np.float32(function(float(real))) * inverse)
        if math.isnan(scaled):
            return zero(target)
        rounded = math.floor(min(abs(scaled), 2.0**31) + 0.5)
        return int(math.copysign(rounded, scaled)) + zero(target)

    return mapped(source, target, value)


def requantize(source: TensorType, target: TensorType) -> Table:
    """The same real value under another scale, zero point or type (TFLite ``Requantize``)."""
    ratio = _quant(source).scale[0] / _quant(target).scale[0]
    return _rescaled(source, target, ratio, target.dtype.limits)


def requantize_as_floats(source: TensorType, target: TensorType) -> Table:
    """The same as ONNX Runtime does: the real value, divided by the other scale, halves to even,
    in float32."""
    with np.errstate(over="ignore"):
        first, last = source.dtype.limits
        reals = np.arange(first - zero(source), last + 1 - zero(source)).astype(np.float32)
        steps = nearest_even(reals * scale(source) / scale(target))
    return tuple(np.clip(steps + zero(target), *target.dtype.limits).tolist())


def _rescaled(
    source: TensorType, target: TensorType, ratio: float, bounds: tuple[int, int]
) -> Table:
    mantissa, shift = quantize_multiplier(ratio)

    def value(x: int) -> int:
        scaled = multiply_by_quantized_multiplier(x - zero(source), mantissa, shift)
        return min(max(scaled + zero(target), bounds[0]), bounds[1])

    return mapped(source, target, value)


def fixed_point(
    source: TensorType, target: TensorType, function: Callable[[int, int], int], places: int
) -> Table:
    """LOGISTIC and TANH as TensorFlow Lite Micro computes them (``integer_ops/logistic.h``,
    ``tanh.h``): ``function`` of 4 integer and 27 fractional bits, to ``places`` fractional bits."""
    bits = 4
    fraction, shift = math.frexp(float(scale(source)) * (1 << (31 - bits)))
    multiplier = round_half_away(fraction * (1 << 31))
    radius = math.floor(15 * 2.0 ** (31 - bits - shift))
    low, high = target.dtype.limits

    def value(x: int) -> int:
        centred = x - zero(source)
        if abs(centred) >= radius:
            return low if centred <= 0 else high
        argument = multiply_by_quantized_multiplier(centred, multiplier, shift)
        scaled = rounding_divide_by_pot(function(argument, bits), 31 - places)
        return scaled + zero(target)

    return mapped(source, target, value)


def ratio_of(source: TensorType, target: TensorType, numerics: Numerics) -> float:
    """The input's scale over the output's."""
    before, after = scales(numerics, source, target)
    return float(before / after)


def relu(
    source: TensorType, target: TensorType, activation: Activation, numerics: Numerics
) -> Table:
    """RELU, RELU6, RELU_N1_TO_1: rescaled, then clamped (TFLite ``ReluX``)."""
    bounds = activation_range(activation, target)
    return _rescaled(source, target, ratio_of(source, target, numerics), bounds)


def leaky_ratio(
    source: TensorType, target: TensorType, alpha: float, numerics: Numerics
) -> float:
    """Returns what LEAKY_RELU multiplies negative numbers by."""
    before, after = scales(numerics, source, target)
    return float(before * numerics.precision(np.float32(alpha)) / after)


def leaky_relu(
    source: TensorType, target: TensorType, alpha: float, numerics: Numerics
) -> Table:
    """LEAKY_RELU: one multiplier for each sign; one below 0 scales the magnitude in TensorFlow Lite
    Micro."""
    upper = quantize_multiplier(ratio_of(source, target, numerics))
    lower = quantize_multiplier(leaky_ratio(source, target, alpha, numerics))
    turned = numerics is Numerics.TFLM and lower[0] < 0

    def value(x: int) -> int:
        centred = x - zero(source)
        if centred < 0 and turned:
            return zero(target) - multiply_by_quantized_multiplier(centred, -lower[0], lower[1])
        multiplier = upper if centred >= 0 else lower
        return multiply_by_quantized_multiplier(centred, *multiplier) + zero(target)

    return mapped(source, target, value)


def absolute(source: TensorType, target: TensorType, numerics: Numerics) -> Table:
    """ABS: rescaled only where the scales differ."""
    multiplier = quantize_multiplier(ratio_of(source, target, numerics))
    rescaled = scale(source) != scale(target)

    def value(x: int) -> int:
        magnitude = abs(x - zero(source))
        if rescaled:
            magnitude = multiply_by_quantized_multiplier(magnitude, *multiplier)
        return magnitude + zero(target)

    return mapped(source, target, value)


def sqrt(source: TensorType, target: TensorType) -> Table:
    """SQRT as LiteRT has it: in float32, and cut off; 0 for negative numbers, which it refuses."""

    def value(x: int) -> int:
        real = scale(source) * np.float32(max(x - zero(source), 0))
        with np.errstate(over="ignore"):
            steps = float(np.sqrt(real) / scale(target))
        return int(min(steps, 2.0**31)) + zero(target)

    return mapped(source, target, value)


RSQRT_SHIFT = 20
"""Bits that keep an inverse root, below 1, an integer."""


def rsqrt_ratio(source: TensorType, target: TensorType, numerics: Numerics) -> float:
    """Returns what RSQRT multiplies inverse roots of stored numbers by."""
    before, after = scales(numerics, source, target)
    return 1.0 / float(numerics.precision(np.sqrt(before)) * after)


def rsqrt(source: TensorType, target: TensorType, numerics: Numerics) -> Table:
    """RSQRT in TFLite's fixed point; the largest result for 0, and for negative numbers, which the
    reference refuses."""
    mantissa, shift = quantize_multiplier(rsqrt_ratio(source, target, numerics))

    def value(x: int) -> int:
        centred = x - zero(source)
        if centred <= 0:
            return target.dtype.limits[1]
        root, moved = inverse_sqrt_multiplier(centred)
        data = multiply_by_quantized_multiplier(1, root, moved + RSQRT_SHIFT)
        scaled = multiply_by_quantized_multiplier(data, mantissa, shift - RSQRT_SHIFT)
        return scaled + zero(target)

    return mapped(source, target, value)
