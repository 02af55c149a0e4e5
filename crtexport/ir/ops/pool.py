"""Windows without weights."""

from __future__ import annotations

from crtexport.ir.ops.base import Activation, Op, Pool2D


class AveragePool2D(Pool2D, frozen=True):
    """Mean over a window; cells in the padding don't count. ``from_uint8``: int8 stands for uint8
    less 128, whose zero point ONNX Runtime adds before it rounds."""

    from_uint8: bool = False


class MaxPool2D(Pool2D, frozen=True):
    """Largest value in a window; cells in the padding don't count."""


class L2Pool2D(Pool2D, frozen=True):
    """Root of the mean square over a window; cells in the padding don't count."""


class ChannelSums(Op, frozen=True):
    """Sums of each channel of an image of integers over all its pixels, as int32; on top of those
    of the second input, if it is there."""


class AverageOfSums(Op, frozen=True):
    """Means, as AveragePool2D, of int32 sums over ``cells`` integers each."""

    cells: int
    activation: Activation = Activation.NONE
