"""Blocks of images that become channels, crops and paddings around the middle, columns."""

from __future__ import annotations

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.move import sliced
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import PadV2, Reduction, ScatterNd
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError


def _image(node: OnnxNode) -> tuple[Value, tuple[int, ...], int]:
    x, block = node.input(0), node.integer("blocksize")
    if len(x.shape) != 4 or block < 1:
        raise CrtExportError(f"blocks of {block} in {x.shape}")
    return x, x.shape, block


@operator("DepthToSpace")
def depth_to_space(node: OnnxNode) -> Value:
    x, (n, c, h, w), block = _image(node)
    mode = node.text("mode", "DCR")
    if c % block**2 or mode not in ("DCR", "CRD"):
        raise CrtExportError(f"{c} channels, blocks of {block}, mode {mode!r}")
    depth = c // block**2
    if mode == "DCR":
        parts = node.builder.reshaped(x, (n, block, block, depth, h, w))
        moved = parts.transposed((0, 3, 4, 1, 5, 2))
    else:
        parts = node.builder.reshaped(x, (n, depth, block, block, h, w))
        moved = parts.transposed((0, 1, 4, 2, 5, 3))
    return node.builder.reshaped(moved, (n, depth, h * block, w * block))


@operator("SpaceToDepth")
def space_to_depth(node: OnnxNode) -> Value:
    x, (n, c, h, w), block = _image(node)
    mode = node.text("mode", "DCR")
    if h % block or w % block or mode not in ("DCR", "CRD"):
        raise CrtExportError(f"an image of {h}x{w}, blocks of {block}, mode {mode!r}")
    parts = node.builder.reshaped(x, (n, c, h // block, block, w // block, block))
    moved = parts.transposed((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return node.builder.reshaped(moved, (n, c * block**2, h // block, w // block))


@operator("CenterCropPad", inputs=(2, 2))
def center(node: OnnxNode) -> Value:
    x, sizes = node.input(0), node.integers(1, "the shape")
    rank = len(x.shape)
    axes = node.axes(node.numbers("axes", tuple(range(rank))), rank)
    if len(axes) != len(sizes):
        raise CrtExportError(f"{len(sizes)} sizes for {len(axes)} axes")
    begin, size, pads = [0] * rank, list(x.shape), [(0, 0)] * rank
    for axis, wanted in zip(axes, sizes, strict=True):
        there = x.shape[axis]
        if wanted <= there:
            begin[axis], size[axis] = (there - wanted) // 2, wanted
        else:
            before = (wanted - there) // 2
            pads[axis] = (before, wanted - there - before)
    cut = sliced(node, x, begin, size, [1] * rank)
    if not any(map(any, pads)):
        return cut
    tensor, order = node.builder.ordered(cut)
    pairs = tuple(pads[axis] for axis in order)
    return node.emit(PadV2(pairs), tensor, node.like(0, x).tensor, order=order)


@operator("Col2Im", inputs=(3, 3))
def columns_to_image(node: OnnxNode) -> Value:
    """Columns (N, C * block, positions) added up where they lie in the image."""
    x = node.input(0)
    image, block = node.integers(1, "the image's shape"), node.integers(2, "the block's shape")
    axes = len(image)
    strides, spread = node.numbers("strides", (1,) * axes), node.numbers("dilations", (1,) * axes)
    pads = node.numbers("pads", (0,) * (2 * axes))
    padded = [n + pads[i] + pads[i + axes] for i, n in enumerate(image)]
    counts = [
        (n - spread[i] * (block[i] - 1) - 1) // strides[i] + 1 for i, n in enumerate(padded)
    ]
    channels = x.shape[1] // int(np.prod(block))
    if x.shape[2] != np.prod(counts) or channels * np.prod(block) != x.shape[1]:
        raise CrtExportError(f"{x.shape} are no columns of {list(image)} by {list(block)}")
    taps = np.indices(block).reshape(axes, -1, 1)
    positions = np.indices(counts).reshape(axes, 1, -1)
    scale, gap = (np.array(v).reshape(-1, 1, 1) for v in (strides, spread))
    places = np.moveaxis(positions * scale + taps * gap, 0, -1)
    values = node.builder.reshaped(x, (x.shape[0], channels, *places.shape[:2]))
    batches = node.builder.arranged(values, (2, 3, 0, 1))
    empty = node.constant(np.zeros((*padded, x.shape[0], channels)), node.dtype(x))
    made = node.emit(
        ScatterNd(Reduction.ADD), empty.tensor, node.constant(places, DType.INT32).tensor, batches
    )
    whole = made.transposed((axes, axes + 1, *range(axes)))
    begin = [0, 0, *pads[:axes]]
    return sliced(node, whole, begin, [*whole.shape[:2], *image], [1] * len(begin))
