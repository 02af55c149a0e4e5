"""Operators that move elements and change none."""

from __future__ import annotations

from crtexport.ir.ops.base import Activation, Op


class Reshape(Op, frozen=True):
    """The same elements in the same order under another shape."""

    shape: tuple[int, ...]


class Pad(Op, frozen=True):
    """Real zero added before and after each axis."""

    paddings: tuple[tuple[int, int], ...]


class PadV2(Op, frozen=True):
    """The second input's one element added before and after each axis."""

    paddings: tuple[tuple[int, int], ...]


class MirrorPad(Op, frozen=True):
    """Mirrored elements added before and after each axis; ``symmetric`` repeats the edge."""

    paddings: tuple[tuple[int, int], ...]
    symmetric: bool = False


class Concatenation(Op, frozen=True):
    """Inputs joined along ``axis`` (non-negative)."""

    axis: int
    activation: Activation = Activation.NONE


class Pack(Op, frozen=True):
    """Inputs of one shape side by side along a new ``axis`` (non-negative)."""

    axis: int


class Split(Op, frozen=True):
    """The input cut along ``axis`` (non-negative) into outputs of ``sizes``."""

    axis: int
    sizes: tuple[int, ...]


class Unpack(Op, frozen=True):
    """One output for each position along ``axis`` (non-negative), without that axis."""

    axis: int


class Slice(Op, frozen=True):
    """Per axis ``size`` elements, ``stride`` (not 0) apart; then ``shape``, as Reshape."""

    begin: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    shape: tuple[int, ...]


class Transpose(Op, frozen=True):
    """Axis i of the output is axis ``permutation[i]`` of the input."""

    permutation: tuple[int, ...]


class BroadcastTo(Op, frozen=True):
    """The input repeated along its axes of size 1, and along new ones in front, to ``shape``."""

    shape: tuple[int, ...]


class Tile(Op, frozen=True):
    """The whole input repeated ``multiples[i]`` times along axis i."""

    multiples: tuple[int, ...]


class SpaceToDepth(Op, frozen=True):
    """Square blocks of pixels become channels: rows and columns shrink by ``block_size``."""

    block_size: int


class DepthToSpace(Op, frozen=True):
    """Channels become square blocks of pixels: rows and columns grow by ``block_size``."""

    block_size: int


class SpaceToBatchNd(Op, frozen=True):
    """Real zero added by ``paddings``, then each position in a block becomes a batch of its own."""

    block: tuple[int, ...]
    paddings: tuple[tuple[int, int], ...]


class BatchToSpaceNd(Op, frozen=True):
    """Batches become the positions in blocks, of which ``crops`` are cut off at the ends."""

    block: tuple[int, ...]
    crops: tuple[tuple[int, int], ...]
