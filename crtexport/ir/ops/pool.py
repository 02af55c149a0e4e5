"""Windows without weights."""

from __future__ import annotations

from crtexport.ir.ops.base import Pool2D


class AveragePool2D(Pool2D, frozen=True):
    """Mean over a window; cells in the padding don't count. ``from_uint8``: int8 stands for uint8
    less 128, whose zero point ONNX Runtime adds before it rounds."""

    from_uint8: bool = False


class MaxPool2D(Pool2D, frozen=True):
    """Largest value in a window; cells in the padding don't count."""


class L2Pool2D(Pool2D, frozen=True):
    """Root of the mean square over a window; cells in the padding don't count."""
