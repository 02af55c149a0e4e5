"""Computes the tables of the operator Resample: for each element along a resized axis, the input
elements from which it is interpolated, and their weights.

Formulas are those of ONNX's Resize. A position of the output has a coordinate in the input. It has
as many neighbours as the mode has coefficients; neighbours beyond the ends are replaced by the
outermost elements. Coordinates are float32, as in ONNX Runtime, so that ties are rounded alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]

COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)
MODES = ("nearest", "linear", "cubic")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class Resizing(Struct, frozen=True):
    """The attributes of a Resize."""

    mode: str
    coordinates: str
    rounding: str
    cubic: float
    exclude_outside: bool
    antialias: bool


class ResizedAxis(Struct, frozen=True):
    """An axis of ``size`` elements that is resized to ``wanted`` elements, by the factor ``scale``.
    ``region`` is (start, end) of the part that tf_crop_and_resize takes, as fractions of the axis.
    """

    size: int
    wanted: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


class ResampleTable(Struct, frozen=True):
    """For each output element the indices of input elements, shape (wanted, taps), and their
    float64 weights, of the same shape. ``inside`` are the bounds of the output positions that have
    values; the others lie outside of the image."""

    indices: Array
    weights: Array
    inside: tuple[int, int]

    @property
    def copies(self) -> bool:
        """Returns whether each element is a copy of one."""
        return bool(self.indices.shape[1] == 1)

    def dense(self, size: int) -> Array:
        """Returns the same interpolation as a matrix (wanted, size)."""
        matrix = np.zeros((len(self.indices), size))
        rows = np.broadcast_to(np.arange(len(self.indices))[:, None], self.indices.shape)
        np.add.at(matrix, (rows, self.indices), self.weights)
        return matrix


def coordinates(resizing: Resizing, line: ResizedAxis) -> Array:
    """Returns the coordinate in the input of each position of the output, as float32."""
    one, half = np.float32(1), np.float32(0.5)
    place = np.arange(line.wanted, dtype=np.float32)
    scale, last = np.float32(line.scale), np.float32(line.size - 1)
    exact = np.float32(line.scale * line.size)
    match resizing.coordinates:
        case "half_pixel":
            return (place + half) / scale - half
        case "half_pixel_symmetric":
            offset = np.float32(line.size / 2) * (one - np.float32(line.wanted) / exact)
            return offset + (place + half) / scale - half
        case "pytorch_half_pixel":
            return (place + half) / scale - half if line.wanted > 1 else place
        case "tf_half_pixel_for_nn":
            return (place + half) / scale
        case "align_corners":
            return place if exact == 1 else place * last / (exact - one)
        case "asymmetric":
            return place / scale
        case _:
            start, end = (np.float32(edge) for edge in line.region)
            if line.wanted == 1:
                return place + half * (start + end) * last
            return start * last + place * (end - start) * last / np.float32(line.wanted - 1)


def table(resizing: Resizing, line: ResizedAxis) -> ResampleTable:
    """Returns the table of an axis."""
    x = coordinates(resizing, line)
    inside = (0, line.wanted)
    if resizing.coordinates == "tf_crop_and_resize":
        (there,) = np.nonzero((x >= 0) & (x <= line.size - 1))
        inside = (int(there[0]), int(there[-1]) + 1) if there.size else (0, 0)
        x = x[inside[0] : inside[1]]
    # The neighbour before a place is never the place itself: 0 < ratio <= 1.
    before = np.ceil(x).astype(np.int64) - 1
    ratio = (x - before.astype(np.float32)).astype(np.float64)
    if resizing.mode == "nearest":
        index = np.clip(before + _second(resizing.rounding, ratio), 0, line.size - 1)[:, None]
        return ResampleTable(index, np.ones(index.shape), inside)
    if resizing.mode == "linear" and not (resizing.antialias or resizing.exclude_outside):
        return ResampleTable(*_linear(x, line.size), inside)
    weights = _coefficients(resizing, ratio, line.scale)
    taps = weights.shape[1]
    indices = before[:, None] + (1 - taps // 2) + np.arange(taps)
    if resizing.exclude_outside:
        weights = np.where((indices < 0) | (indices >= line.size), 0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    used = np.flatnonzero((weights != 0).any(0))
    if used.size:  # taps at the ends that no position needs
        kept = slice(int(used[0]), int(used[-1]) + 1)
        indices, weights = indices[:, kept], weights[:, kept]
    return ResampleTable(np.clip(indices, 0, line.size - 1), weights, inside)


def _linear(x: Array, size: int) -> tuple[Array, Array]:
    """Returns indices and weights, (positions, taps), of the two neighbours of each position; one
    tap if no position needs the second. Weights are rounded to float32 as in ONNX Runtime."""
    x = np.clip(x, np.float32(0), np.float32(size - 1))
    first = x.astype(np.int64)
    second = np.minimum(first + 1, size - 1)
    weights = np.abs(np.stack([x - second, x - first], axis=1).astype(np.float32))
    alone = first == second
    if not weights[~alone, 1].any():
        return first[:, None], np.ones((len(x), 1))
    weights[alone] = 0.5
    return np.stack([first, second], axis=1), weights.astype(np.float64)


def _second(rounding: str, ratio: Array) -> Array:
    """Returns, for each coordinate, 1 if the neighbour after it is the nearest, 0 if the one before
    it is."""
    taken: Mapping[str, Array] = {
        "round_prefer_floor": ratio > 0.5, "round_prefer_ceil": ratio >= 0.5,
        "floor": ratio == 1, "ceil": ratio > 0,
    }
    found: Array = taken[rounding].astype(np.int64)
    return found


def _coefficients(resizing: Resizing, ratio: Array, scale: float) -> Array:
    """Returns the weights of the neighbours, (places, taps); when an image is made smaller with
    ``antialias``, the filter is made wider."""
    stretch = min(float(np.float32(scale)), 1.0) if resizing.antialias else 1.0
    reach = 1 if resizing.mode == "linear" else 2
    start = int(np.floor(-reach / stretch)) + 1
    distance = np.arange(start, 2 - start) - ratio[:, None]
    if resizing.mode == "linear":
        weights = np.clip(1 - np.abs(distance * stretch), 0, 1)
    else:
        weights = _cubic(np.abs(distance * stretch), resizing.cubic)
    normal: Array = weights / weights.sum(1, keepdims=True) if resizing.antialias else weights
    return normal


def _cubic(x: Array, a: float) -> Array:
    """Returns Keys' convolution kernel at distances ``x``."""
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    found: Array = np.where(x <= 1, near, np.where(x < 2, far, 0))
    return found


def checked(value: str, allowed: tuple[str, ...], what: str) -> str:
    """Returns an attribute's text. Raises CrtExportError where it isn't one of ``allowed``."""
    if value not in allowed:
        raise CrtExportError(f"{what} {value!r}", hint=f"known are {', '.join(allowed)}")
    return value
