"""HARD_SWISH of 8-bit numbers: TFLite's 16-bit fixed point (``reference/hard_swish.h``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from crtexport.ir.numerics import Numerics
from crtexport.ir.types import TensorType
from crtexport.lowering.numerics.lut8 import Table, mapped, scale, scales, zero
from crtexport.lowering.registry import Context
from crtexport.support.fixedpoint import INT32_MAX, quantize_multiplier, saturate, wrap

_HIGH = (1 << 15) - 1


def _truncated_high_mul(product: int) -> int:
    """Emits the upper half of the doubled product, truncated toward zero and saturated."""
    quotient = abs(product) >> 15
    return min(quotient if product >= 0 else -quotient, _HIGH)


def _rounded_high_mul(a: int, b: int) -> int:
    """gemmlowp ``SaturatingRoundingDoublingHighMul`` of int16."""
    product = a * b
    return _truncated_high_mul(product + ((1 << 14) if product >= 0 else 1 - (1 << 14)))


def _divide_by_pot(value: int, exponent: int) -> int:
    """gemmlowp ``RoundingDivideByPOT`` of int16, whose mask wraps for exponents above 15."""
    mask = wrap((1 << exponent) - 1, 16)
    threshold = (mask >> 1) + (1 if value < 0 else 0)
    return (value >> exponent) + (1 if (value & mask) > threshold else 0)


def _multiplier(real: np.floating[Any]) -> tuple[int, int]:
    """Returns (16-bit mantissa, exponent)."""
    mantissa, exponent = quantize_multiplier(float(real))
    if mantissa >= INT32_MAX - (1 << 15):
        return _HIGH, exponent
    return (mantissa + (1 << 15)) >> 16, exponent


def _output_multiplier(
    source: TensorType, target: TensorType, numerics: Numerics
) -> tuple[int, int]:
    before, after = scales(numerics, source, target)
    return _multiplier(before * numerics.precision(1 / 128) / after)


def hard_swish_scales(context: Context) -> str | None:
    """The input's scale must be less than 128 times the output's, for 8-bit numbers."""
    source, target = context.input(0), context.output()
    if source.quant is None or target.quant is None:
        return None
    if _output_multiplier(source, target, context.numerics)[1] > 0:
        return f"found {scale(source)} and {scale(target)}"
    return None


def hard_swish(source: TensorType, target: TensorType, numerics: Numerics) -> Table:
    """x * relu6(x + 3) / 6."""
    mantissa, exponent = _output_multiplier(source, target, numerics)
    hires = numerics.precision(scale(source)) * numerics.precision(1 / 128)
    bent_mantissa, bent_exponent = _multiplier(hires / numerics.precision(3 / 32768))

    def value(x: int) -> int:
        fine = (x - zero(source)) * 128
        line = _rounded_high_mul(fine, mantissa)
        bent = fine
        if bent_exponent > 0:
            bent = saturate(bent << (bent_exponent - 1), 16)
        bent = _rounded_high_mul(bent, bent_mantissa)
        if bent_exponent > 0:
            bent = saturate(bent << 1, 16)
        elif bent_exponent < 0:
            bent = _divide_by_pot(bent, -bent_exponent)
        bent = (bent + (1 << 15)) >> 1
        product = _truncated_high_mul(bent * line)
        return wrap(_divide_by_pot(product, -exponent) + zero(target), 16)

    return mapped(source, target, value)
