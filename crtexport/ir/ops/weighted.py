"""Operators with weights: convolutions and matrix products."""

from __future__ import annotations

from crtexport.ir.ops.base import NO_PADDING, Activation, Op, Padding2D


class Conv2D(Op, frozen=True):
    """2-D convolution of input, weights (O,KH,KW,I/groups) and an optional bias (O)."""

    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE


class DepthwiseConv2D(Op, frozen=True):
    """Convolution of each channel alone; weights (1,KH,KW,I*multiplier), optional bias."""

    depth_multiplier: int = 1
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE


class TransposeConv2D(Op, frozen=True):
    """Transposed convolution to ``size`` cells by weights (O,KH,KW,I) and an optional bias (O)."""

    # Input cell i adds its window at i * stride - crop; what falls outside of size is dropped.

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    crop: tuple[int, int] = (0, 0)
    activation: Activation = Activation.NONE


class FullyConnected(Op, frozen=True):
    """Product of the input, flattened to rows of the weights' depth, and weights; optional bias."""

    keep_num_dims: bool = False
    activation: Activation = Activation.NONE


class BatchMatMul(Op, frozen=True):
    """Products of the matrices in the last two axes, each transposed if the attribute says so;
    other axes broadcast."""

    adj_x: bool = False
    adj_y: bool = False


class EmbeddingLookup(Op, frozen=True):
    """Rows of a table (second input) by int32 indices (first); outside of it the nearest row."""
