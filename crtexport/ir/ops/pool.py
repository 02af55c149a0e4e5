"""Windows without weights."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import NO_PADDING, Activation, Padding2D


@dataclass(frozen=True)
class AveragePool2D:
    """Mean over a window; cells in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class MaxPool2D:
    """Largest value in a window; cells in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class L2Pool2D:
    """Root of the mean square over a window; cells in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE
