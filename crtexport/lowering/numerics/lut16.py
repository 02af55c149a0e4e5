"""Tables of 513 int16 values with straight lines between them (TFLite ``LUTPopulate``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from crtexport.ir.types import TensorType
from crtexport.lowering.numerics.lut8 import Table, scale
from crtexport.support.fixedpoint import round_half_away

_LOW, _HIGH, _STEPS = -(1 << 15), (1 << 15) - 1, 512
_SIGMOID_STEPS = 24  # entries of the table per unit of the argument
_SIGMOID_ABOVE = frozenset((
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40,
    41, 43, 44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
))  # entries of the reference's table that are 1 more than the nearest integer


def populate(
    real: type[np.float32 | np.float64], source: tuple[float, int], target: tuple[float, int],
    function: Callable[[float], float],
) -> Table:
    """Returns ``function`` between the quantizations (scale, zero point), in arithmetic of
    ``real``.

    Each value is moved by half of the error that the straight line to the next makes midway.
    """
    (scale_in, zero_in), (scale_out, zero_out) = source, target
    first, last = (real(scale_in) * real(v - zero_in) for v in (_LOW, _HIGH))
    low, high = (real(scale_out) * real(v - zero_out) for v in (_LOW, _HIGH))
    step = (last - first) / real(_STEPS)
    inverse = real(_HIGH - _LOW + 1) / (high - low)

    def at(x: np.floating[Any]) -> np.floating[Any]:
        return real(function(float(x)))

    def rounded(x: np.floating[Any]) -> np.floating[Any]:
        return real(round_half_away(float(x))) if math.isfinite(x) else x

    def entry(i: int) -> int:
        x = first + real(i) * step
        sample = rounded(at(x) * inverse)
        line = rounded((at(first + real(i + 1) * step) * inverse + sample) / real(2))
        bias = rounded((line - rounded(at(x + step / real(2)) * inverse)) / real(2))
        return _limited(sample - bias)

    with np.errstate(over="ignore", invalid="ignore"):
        return (*map(entry, range(_STEPS)), _limited(rounded(at(last) * inverse)))


def _limited(value: np.floating[Any]) -> int:
    # As C++'s min(max(value, low), high): the bounds win over NaN.
    raised = float(value) if value > _LOW else float(_LOW)
    return int(raised) if raised < _HIGH else _HIGH


def through_float(
    source: TensorType, target: TensorType, function: Callable[[float], float]
) -> Table:
    """Returns the table of an operator between two int16 tensors, in float32."""
    return populate(
        np.float32, (float(scale(source)), 0), (float(scale(target)), 0), function
    )


def sigmoid() -> Table:
    """sigmoid(i / 24) as 0.16 fixed point for i from 0 to 255 (TFLite ``sigmoid_table_uint16``)."""
    nearest = (65536 / (1 + math.exp(-i / _SIGMOID_STEPS)) for i in range(256))
    return tuple(round_half_away(v) + (i in _SIGMOID_ABOVE) for i, v in enumerate(nearest))
