"""Of which pixels TensorFlow Lite makes resized images, with its reference kernels' arithmetic.

Rows and columns alike: each is made of one or two of the input's.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.ops import Resize

ONE = 1 << 10
"""The integer kernels' unit of distance."""
_HALF = np.float32(0.5)


def _ratio(size: int, output_size: int, *, align_corners: bool) -> np.float32:
    """Returns the pixels of the input per pixel of the output."""
    if align_corners and output_size > 1:
        return np.float32(size - 1) / np.float32(output_size - 1)
    return np.float32(size) / np.float32(output_size)


def nearest(op: Resize, size: int, output_size: int) -> list[int]:
    """Returns the row (or column) that each one of the output is a copy of
    (``GetNearestNeighbor``)."""
    ratio = _ratio(size, output_size, align_corners=op.align_corners)
    offset = _HALF if op.half_pixel_centers else np.float32(0.0)
    result = []
    for number in range(output_size):
        place = float(np.float32(np.float32(number) + offset) * ratio)
        # Halves away from zero, and no place is negative.
        whole = math.floor(place + 0.5) if op.align_corners else math.floor(place)
        result.append(max(min(whole, size - 1), 0))
    return result


class Blend(Struct, frozen=True):
    """For each row (or column) of the output: the two of the input, and the second one's part."""

    lower: list[int]
    upper: list[int]
    part: npt.NDArray[np.generic]


def float_blend(op: Resize, size: int, output_size: int) -> Blend:
    """Parts of 1 in float32 (``ComputeInterpolationValues``)."""
    ratio = _ratio(size, output_size, align_corners=op.align_corners)
    place = np.arange(output_size, dtype=np.float32)
    place = (place + _HALF) * ratio - _HALF if op.half_pixel_centers else place * ratio
    lower = np.clip(np.floor(place), 0, size - 1).astype(np.int64)
    upper = np.clip(np.ceil(place), 0, size - 1).astype(np.int64)
    part = place - lower.astype(np.float32)
    return Blend(lower.tolist(), upper.tolist(), part.astype(np.float32))


def integer_blend(op: Resize, size: int, output_size: int) -> Blend:
    """Parts of 1024 (``ComputeInterpolationValuesInteger``); divisions truncate toward zero."""
    if op.align_corners and output_size > 1:
        ratio = (ONE * (size - 1) + (output_size - 1) // 2) // (output_size - 1)
    else:
        ratio = (ONE * size + output_size // 2) // output_size
    lower, upper, part = [], [], []
    for number in range(output_size):
        place = number * ratio
        if op.half_pixel_centers:
            place += ratio // 2 - ONE // 2
        first = min(max(_quotient(place, ONE), 0), size - 1)
        lower.append(first)
        upper.append(max(min(_quotient(place + ONE - 1, ONE), size - 1), 0))
        part.append(place - first * ONE)
    return Blend(lower, upper, np.array(part, np.int32))


def _quotient(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)
