"""Operators that pick or place elements by numbers that are computed at run time."""

from __future__ import annotations

from msgspec import Struct


class Gather(Struct, frozen=True):
    """Slices of the first input along ``axis``, numbered by the second; numbers are clamped."""

    axis: int = 0
    batch_dims: int = 0


class GatherNd(Struct, frozen=True):
    """Slices of the first input at the positions in the second's last axis, each clamped."""


class DynamicUpdateSlice(Struct, frozen=True):
    """The first input with the second in it, from the position on that the third says, clamped."""
