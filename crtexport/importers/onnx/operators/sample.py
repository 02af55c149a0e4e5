"""Images sampled at computed positions: GridSample, AffineGrid, RoiAlign; and MaxUnpool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.numbers import clamped, combined
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, channels_last
from crtexport.ir.ops import (
    Add,
    BatchMatMul,
    BroadcastTo,
    Concatenation,
    Floor,
    Gather,
    GreaterEqual,
    Interpolation,
    LessEqual,
    Maximum,
    Mean,
    Mul,
    Outside,
    PadV2,
    ReduceMax,
    Sample,
    ScatterElements,
    Sub,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_MODES = {
    "bilinear": Interpolation.LINEAR, "linear": Interpolation.LINEAR,
    "nearest": Interpolation.NEAREST, "bicubic": Interpolation.CUBIC,
    "cubic": Interpolation.CUBIC,
}
_MOST_PLACES = 1 << 22
"""The largest number of pixels of a grid, which is a constant."""


@operator("GridSample", inputs=(2, 2), image=True)
def grid_sample(node: OnnxNode) -> Value:
    """Converts positions from -1 to 1, x before y before z, to pixels."""
    x, grid = node.all()
    rank = len(x.shape)
    sizes = x.shape[2:]
    if rank < 3 or len(grid.shape) != rank or grid.shape[-1] != len(sizes):
        raise CrtExportError(f"a grid {grid.shape} in an image {x.shape}")
    corners = bool(node.integer("align_corners", 0))
    mode, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if mode not in _MODES or padding not in ("zeros", "border", "reflection"):
        raise CrtExportError(f"the mode {mode!r} with padding {padding!r}")
    if padding == "reflection" and corners:
        padding = Outside.MIRROR.value
    extent = np.array(sizes, np.float64)
    scale, shift = ((extent - 1) / 2, (extent - 1) / 2) if corners else (
        extent / 2, (extent - 1) / 2
    )
    places = node.builder.reshaped(
        node.cast(grid, DType.FLOAT32), (grid.shape[0], prod(grid.shape[1:-1]), len(sizes))
    )
    places = node.elementwise(Mul(), node.builder.plain(places), node.constant(scale[::-1]))
    places = node.elementwise(Add(), places, node.constant(shift[::-1]))
    made = sampled(node, x, places, Sample(_MODES[mode], Outside(padding)))
    moved = made.transposed((0, 2, 1))
    return node.builder.reshaped(moved, (x.shape[0], x.shape[1], *grid.shape[1:-1]))


def sampled(node: OnnxNode, x: Value, places: Value, op: Sample) -> Value:
    """Returns the pixels as (batch, points, channels)."""
    tensor = node.builder.arranged(node.cast(x, DType.FLOAT32), channels_last(len(x.shape)))
    made = node.emit(op, tensor, node.builder.arranged(places))
    return node.cast(made, node.dtype(x))


@operator("AffineGrid", inputs=(2, 2))
def affine_grid(node: OnnxNode) -> Value:
    """Returns the positions of all pixels, transformed by a matrix for each image."""
    theta, shape = node.input(0), node.integers(1, "the size")
    sizes, corners = shape[2:], bool(node.integer("align_corners", 0))
    if len(sizes) not in (2, 3) or theta.shape != (shape[0], len(sizes), len(sizes) + 1) or (
        not 0 < prod(sizes) <= _MOST_PLACES
    ):
        raise CrtExportError(f"matrices {theta.shape} for images of {list(shape)}")
    lines = [
        np.linspace(-1, 1, size) if corners else (2 * np.arange(size) + 1) / size - 1
        for size in sizes
    ]
    mesh = np.meshgrid(*lines, indexing="ij")[::-1]
    base = np.stack([*mesh, np.ones(sizes)], -1).reshape(1, -1, len(sizes) + 1)
    made = node.emit(
        BatchMatMul(adj_y=True), node.constant(base).tensor, node.builder.arranged(theta)
    )
    return node.builder.reshaped(made, (shape[0], *sizes, len(sizes)))


@operator("MaxUnpool", inputs=(2, 3))
def max_unpool(node: OnnxNode) -> Value:
    """Writes each number to the position where a MaxPool found it, in the whole tensor; the rest is
    0."""
    x, indices = node.input(0), node.input(1)
    window = node.numbers("kernel_shape")
    axes = len(window)
    strides, pads = node.numbers("strides", (1,) * axes), node.numbers("pads", (0,) * 2 * axes)
    if len(x.shape) != axes + 2 or indices.shape != x.shape:
        raise CrtExportError(f"windows {list(window)} and indices {indices.shape} for {x.shape}")
    sizes = [
        (n - 1) * strides[i] + window[i] - pads[i] - pads[i + axes]
        for i, n in enumerate(x.shape[2:])
    ]
    shape = (*x.shape[:2], *sizes)
    empty = node.constant(np.zeros(prod(shape)), node.dtype(x))
    flat = [
        node.builder.arranged(node.builder.reshaped(value, (x.elements,)))
        for value in (indices, x)
    ]
    made = node.emit(ScatterElements(0), empty.tensor, *flat)
    made = node.builder.reshaped(made, shape)
    if node.optional(2) is None:
        return made
    wanted = node.integers(2, "the output's shape")
    if len(wanted) != len(shape) or any(a < b for a, b in zip(wanted, shape, strict=True)):
        raise CrtExportError(f"an output of {list(wanted)} for {list(shape)}")
    more = tuple((0, a - b) for a, b in zip(wanted, shape, strict=True))
    return node.emit(PadV2(more), node.builder.arranged(made), node.like(0, x).tensor)


@operator("RoiAlign", inputs=(3, 3), image=True)
def roi_align(node: OnnxNode) -> Value:
    """Returns the mean of samples in each cell of a region; or, as runtimes compute it, the largest
    of the products that a sample is the sum of."""
    x, rois, batch = node.all()
    if len(x.shape) != 4 or rois.shape != (batch.elements, 4):
        raise CrtExportError(f"regions {rois.shape} of {batch.elements} images {x.shape}")
    cells = (node.integer("output_height", 1), node.integer("output_width", 1))
    ratio, scale = node.integer("sampling_ratio", 0), node.real("spatial_scale", 1.0)
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    half = node.text("coordinate_transformation_mode", default) == "half_pixel"
    mode = node.text("mode", "avg")
    if mode not in ("avg", "max"):
        raise CrtExportError(f"the mode {mode!r} is unknown")
    if ratio < 1:
        raise CrtExportError(
            "sampling_ratio 0 takes as many samples as a region has pixels, which is known at run "
            "time only", hint="export the network with a fixed sampling_ratio",
        )
    lines = [
        _samples(node, rois, (1 - axis, 3 - axis), cells[axis] * ratio, scale, half=half)
        for axis in (0, 1)
    ]
    grid = (rois.shape[0], *(line.shape[1] for line in lines), 1)
    spread = []
    for axis, line in enumerate(lines):
        shape = tuple(n if i in (0, axis + 1) else 1 for i, n in enumerate(grid))
        there = node.builder.arranged(node.builder.reshaped(line, shape))
        spread.append(node.emit(BroadcastTo(grid), there))
    inside = _inside(node, spread, x.shape[2:])
    images = 1 if x.shape[0] == 1 else grid[0]
    if images > 1:
        order = channels_last(4)
        x = node.emit(
            Gather(0), node.builder.arranged(x, order),
            node.builder.arranged(node.builder.reshaped(batch, (batch.elements,))), order=order,
        )

    def pixels(lines: Sequence[Value], interpolation: Interpolation) -> Value:
        places = node.emit(
            Concatenation(3), *(node.builder.arranged(line) for line in reversed(lines))
        )
        places = node.builder.reshaped(places, (images, prod(grid) // images, 2))
        found = sampled(node, x, places, Sample(interpolation, Outside.BORDER))
        return node.builder.reshaped(found, (*grid[:3], x.shape[1]))

    if mode == "avg":
        made = pixels(spread, Interpolation.LINEAR)
    else:
        made = _largest_product(node, spread, x.shape[2:], pixels)
    made = node.elementwise(Mul(), made, inside)
    parts = node.builder.reshaped(
        made, (grid[0], cells[0], ratio, cells[1], ratio, x.shape[1])
    )
    joined = node.reduce(Mean if mode == "avg" else ReduceMax, parts, (2, 4))
    result = node.builder.reshaped(joined, (grid[0], *cells, x.shape[1]))
    return result.transposed((0, 3, 1, 2))


def _largest_product(
    node: OnnxNode, places: Sequence[Value], sizes: Sequence[int],
    pixels: Callable[[Sequence[Value], Interpolation], Value],
) -> Value:
    """Returns the largest of the four pixels around each place, each times its share in it."""
    lines = []
    for line, size in zip(places, sizes, strict=True):
        place = clamped(node, line, 0, size - 1)
        low = node.unary(Floor(), place)
        high = clamped(node, node.elementwise(Add(), low, node.like(1, low)), None, size - 1)
        share = node.elementwise(Sub(), place, low)
        rest = node.elementwise(Sub(), node.like(1, share), share)
        lines.append(((low, rest), (high, share)))
    return combined(node, Maximum(), (
        node.elementwise(
            Mul(), pixels((row, column), Interpolation.NEAREST),
            node.elementwise(Mul(), tall, wide),
        )
        for (row, tall), (column, wide) in product(*lines)
    ))


def _samples(
    node: OnnxNode, rois: Value, columns: tuple[int, int], count: int, scale: float, *, half: bool
) -> Value:
    """Returns the places of samples along an axis, (regions, count)."""
    start, end = (
        node.emit(Gather(1), node.builder.arranged(rois), node.constant([c], DType.INT32).tensor)
        for c in columns
    )
    extent = node.elementwise(Sub(), end, start)
    extent = node.elementwise(Mul(), extent, node.like(scale, extent))
    first = node.elementwise(Mul(), start, node.like(scale, start))
    if half:
        first = node.elementwise(Sub(), first, node.like(0.5, first))
    else:
        extent = node.elementwise(Maximum(), extent, node.like(1, extent))
    parts = node.constant(((np.arange(count) + 0.5) / count)[None])
    return node.elementwise(Add(), first, node.elementwise(Mul(), extent, parts))


def _inside(node: OnnxNode, places: list[Value], sizes: tuple[int, ...]) -> Value:
    """Returns 1 where a sample is at most a pixel outside of the image, else 0."""
    masks = []
    for line, size in zip(places, sizes, strict=True):
        for op, limit in ((GreaterEqual(), -1), (LessEqual(), size)):
            held = node.elementwise(op, line, node.like(limit, line))
            masks.append(node.cast(held, DType.FLOAT32))
    result = masks[0]
    for mask in masks[1:]:
        result = node.elementwise(Mul(), result, mask)
    return result
