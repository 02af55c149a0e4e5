"""Operators that pick or place elements by numbers that are computed at run time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gather:
    """Slices of the first input along ``axis``, numbered by the second; numbers are clamped."""

    axis: int = 0
    batch_dims: int = 0


@dataclass(frozen=True)
class GatherNd:
    """Slices of the first input at the positions in the second's last axis, each clamped."""


@dataclass(frozen=True)
class DynamicUpdateSlice:
    """The first input with the second in it, from the position on that the third says, clamped."""
