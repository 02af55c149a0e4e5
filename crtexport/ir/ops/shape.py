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
class PadV2:
    """The second input's one element added before and after each axis."""

    paddings: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class MirrorPad:
    """Mirrored elements added before and after each axis; ``symmetric`` repeats the edge."""

    paddings: tuple[tuple[int, int], ...]
    symmetric: bool = False


@dataclass(frozen=True)
class Concatenation:
    """Inputs joined along ``axis`` (non-negative)."""

    axis: int
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Pack:
    """Inputs of one shape side by side along a new ``axis`` (non-negative)."""

    axis: int


@dataclass(frozen=True)
class Split:
    """The input cut along ``axis`` (non-negative) into outputs of ``sizes``."""

    axis: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Unpack:
    """An output for each position along ``axis`` (non-negative), which they don't have."""

    axis: int


@dataclass(frozen=True)
class Slice:
    """Per axis ``size`` elements, ``stride`` (not 0) apart; then ``shape``, as Reshape."""

    begin: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Transpose:
    """Axis i of the output is axis ``permutation[i]`` of the input."""

    permutation: tuple[int, ...]


@dataclass(frozen=True)
class BroadcastTo:
    """The input repeated along its axes of size 1, and along new ones in front, to ``shape``."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """The whole input repeated ``multiples[i]`` times along axis i."""

    multiples: tuple[int, ...]


@dataclass(frozen=True)
class SpaceToDepth:
    """Square blocks of pixels become channels: rows and columns shrink by ``block_size``."""

    block_size: int


@dataclass(frozen=True)
class DepthToSpace:
    """Channels become square blocks of pixels: rows and columns grow by ``block_size``."""

    block_size: int


@dataclass(frozen=True)
class SpaceToBatchNd:
    """Real zero added by ``paddings``, then each position in a block becomes a batch of its own."""

    block: tuple[int, ...]
    paddings: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BatchToSpaceNd:
    """Batches become the positions in blocks, of which ``crops`` are cut off at the ends."""

    block: tuple[int, ...]
    crops: tuple[tuple[int, int], ...]
