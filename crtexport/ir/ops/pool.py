"""Windows without weights."""

from __future__ import annotations

from crtexport.ir.ops.base import NO_PADDING, Activation, Op, Padding2D


class AveragePool2D(Op, frozen=True):
    """Mean over a window; cells in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE


class MaxPool2D(Op, frozen=True):
    """Largest value in a window; cells in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE


class L2Pool2D(Op, frozen=True):
    """Root of the mean square over a window; cells in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE
