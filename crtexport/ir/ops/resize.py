"""Operators that resize images."""

from __future__ import annotations

from crtexport.ir.ops.base import Op


class ResizeBilinear(Op, frozen=True):
    """An image of ``size`` (rows, columns), interpolated linearly between pixels."""

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False


class ResizeNearestNeighbor(Op, frozen=True):
    """An image of ``size`` (rows, columns) of the nearest pixels' values."""

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False


class Resample(Op, frozen=True):
    """Each element along ``axes`` is a weighted sum of some of the input's, or a copy of one: a
    table of indices for each axis, clamped into it, then one of weights for each axis, if any."""

    axes: tuple[int, ...]
