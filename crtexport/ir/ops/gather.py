"""Operators that read or write elements at indices that are computed at run time."""

from __future__ import annotations

import enum

from crtexport.ir.ops.base import Op


class Gather(Op, frozen=True):
    """Slices of the first input along ``axis``, indexed by the second; indices are clamped."""

    axis: int = 0
    batch_dims: int = 0


class GatherNd(Op, frozen=True):
    """Slices of the first input at the positions in the second's last axis, each clamped."""


class GatherElements(Op, frozen=True):
    """Elements of the first input, each from where the second, an index for ``axis``, says."""

    axis: int = 0


class Reduction(enum.Enum):
    """The way in which an element is joined with another in its place; the value is its name."""

    NONE = "none"
    ADD = "add"
    MUL = "mul"
    MIN = "min"
    MAX = "max"


class ScatterElements(Op, frozen=True):
    """The first input with the elements of the third where the second, an index for ``axis``, says;
    the last one in a place counts, or all ``reduction`` joins."""

    axis: int = 0
    reduction: Reduction = Reduction.NONE


class ScatterNd(Op, frozen=True):
    """The first input with slices of the third at the positions in the second's last axis, each
    clamped; the last one in a place counts, or all ``reduction`` joins."""

    reduction: Reduction = Reduction.NONE


class DynamicUpdateSlice(Op, frozen=True):
    """The first input with the second written into it at the third, a start position, which is
    clamped."""
