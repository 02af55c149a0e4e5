"""Operators that move elements and change none."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import Activation


@dataclass(frozen=True)
class Reshape:
    """The same elements in the same order under another shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Pad:
    """Real zero added before and after each axis."""

    paddings: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Concatenation:
    """Inputs joined along ``axis`` (non-negative)."""

    axis: int
    activation: Activation = Activation.NONE
