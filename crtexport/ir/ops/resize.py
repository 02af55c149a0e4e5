"""Operators that resize images."""

from __future__ import annotations

from crtexport.ir.ops.base import Op, Resize


class ResizeBilinear(Resize, frozen=True):
    """An image of ``size`` (rows, columns), interpolated linearly between pixels."""


class ResizeNearestNeighbor(Resize, frozen=True):
    """An image of ``size`` (rows, columns) of the nearest pixels' values."""


class Resample(Op, frozen=True):
    """Each element along ``axes`` is a weighted sum of some of the input's, or a copy of one: a
    table of indices for each axis, clamped into it, then one of weights for each axis, if any."""

    axes: tuple[int, ...]
