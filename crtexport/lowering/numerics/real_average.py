"""Averages of integers as ONNX Runtime computes them: real numbers are added in float32, in the
order of the window, and divided by their number and by the output's scale; the zero point is added,
and then the sum rounded, halves to even (``qlinear_pool.cc``).

Rounding to float32 moves an average by a ten thousandth of a step at most, so that the sum of the
integers decides which result it is, unless the average is nearer to the middle of two. Whole sums
are scaled by one product, in which a margin on both sides tells these cases; only there floats are
added. An odd number of cells on the output's scale has none.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from msgspec import Struct

from crtexport.ir.types import Quantization
from crtexport.support.fixedpoint import nearest_even

_WORD = 32
_ULP = 2.0**-24
_MOST_PLACES = 13
_LEAST_SHIFT = 8


class AverageSteps(Struct, frozen=True):
    """The result of a sum is ``((sum << places) + addend) * factor >> 32``, less and plus
    ``margin``, shifted by ``shift``, where both are the same; ``decided``: always."""

    places: int
    addend: int
    factor: int
    shift: int
    margin: int
    decided: bool


@functools.lru_cache(maxsize=256)
def average_steps(
    source: Quantization, target: Quantization, count: int, less: int, limits: tuple[int, int]
) -> AverageSteps | None:
    """Returns the constants for averages of ``count`` numbers of 8 bits, None if there are none;
    ``less``: the zero point of the output was so much more when it was added."""
    scale, zero = source.scale[0], source.zero_point[0]
    ratio = float(np.float32(scale)) / float(np.float32(target.scale[0])) / count
    low, high = -128 * count, 127 * count
    reach = 128 * count
    largest = max(abs(-128 - zero), 127 - zero) * ratio * count
    places = min(_MOST_PLACES, 30 - (reach + int(abs(zero) * count + 512 / ratio)).bit_length())
    # Factors have 31 bits, and so have results with what is cut off behind them.
    shift = min(places - 1 - math.frexp(ratio)[1], 30 - math.ceil(math.log2(2 * largest + 1024)))
    if places < 0 or shift < _LEAST_SHIFT:
        return None
    factor = round(math.ldexp(ratio, _WORD + shift - places))
    zero_out = target.zero_point[0]
    middle = math.ldexp((zero_out + 0.5) / ratio - zero * count, places)
    error = ((count + 5) * largest + 256 + abs(zero_out) + less) * _ULP * 1.01
    margin = math.ceil(math.ldexp(error, shift)) + 3
    found = AverageSteps(places, round(middle), factor, shift, margin, decided=False)
    sums = np.arange(low, high + 1, dtype=np.int64)
    whole = (sums << places) + found.addend
    upper = whole * factor >> _WORD
    ends = [np.clip(upper + side >> shift, *limits) for side in (-margin, margin)]
    if max(np.abs(whole).max(), np.abs(upper).max() + margin) >= 1 << 31:
        return None
    exact = (sums - zero * count) * ratio + zero_out
    possible = [np.clip(nearest_even(exact + side), *limits) for side in (-error, error)]
    sure = ends[0] == ends[1]
    if not all((ends[0] == one)[sure].all() for one in possible):
        return None
    return AverageSteps(
        places, found.addend, factor, shift, margin, decided=bool(sure.all())
    )
