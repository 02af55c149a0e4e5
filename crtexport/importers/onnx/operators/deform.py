"""DeformConv: a convolution whose taps are at computed positions."""

from __future__ import annotations

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.convolution import constant_weights
from crtexport.importers.onnx.operators.matmul import fully_connected
from crtexport.importers.onnx.operators.move import element, joined, section
from crtexport.importers.onnx.operators.sample import sampled
from crtexport.importers.onnx.operators.windows import conv_axes
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import Add, Mul, Sample
from crtexport.support.errors import CrtExportError


@operator("DeformConv", inputs=(3, 5), image=True, oldest=19)
def deform_conv(node: OnnxNode) -> Value:
    """Returns a deformable convolution: the cells under all taps are sampled, then multiplied by
    the weights as a matrix."""
    x, offset, mask = node.input(0), node.input(2), node.optional(4)
    w = constant_weights(node, 1, x)
    if len(x.shape) != 4:
        raise CrtExportError(f"images must have two dimensions, found {x.shape}")
    axes = conv_axes(node, x.shape[2:], w.shape[2:])
    batch, channels = x.shape[:2]
    rows, columns = (axis.positions for axis in axes)
    taps = w.shape[2] * w.shape[3]
    group, parts = node.integer("group", 1), node.integer("offset_group", 1)
    if min(group, parts) < 1 or channels % parts or channels != w.shape[1] * group or (
        w.shape[0] % group or offset.shape != (batch, parts * taps * 2, rows, columns)
        or (mask is not None and mask.shape != (batch, parts * taps, rows, columns))
    ):
        raise CrtExportError(
            f"{group} groups and {parts} groups of offsets {offset.shape} for {x.shape}, "
            f"weights {w.shape}"
        )
    lines = [
        np.arange(axis.positions)[:, None] * axis.stride - axis.before
        + np.arange(axis.taps) * axis.dilation
        for axis in axes
    ]
    base = np.stack(np.broadcast_arrays(
        lines[0][:, None, :, None], lines[1][None, :, None, :]
    ), -1).reshape(1, 1, rows, columns, taps, 2)
    # (batch, part, tap, row before column, rows, columns), as (…, tap, row before column)
    moved = node.builder.reshaped(offset, (batch, parts, taps, 2, rows, columns))
    places = node.elementwise(
        Add(), node.builder.plain(moved.transposed((0, 1, 4, 5, 2, 3))), node.constant(base)
    )
    places = node.builder.reshaped(places, (batch, parts, rows * columns * taps, 2))
    each = channels // parts
    found = []
    for part in range(parts):
        image = section(node, x, 1, part * each, each)
        own = element(node, places, 1, part)
        # Samples count columns before rows.
        flipped = section(node, own, 2, 1, 2, -1)
        cells = sampled(node, image, flipped, Sample())
        cells = node.builder.reshaped(cells, (batch, rows, columns, taps, each))
        if mask is not None:
            shares = node.builder.reshaped(mask, (batch, parts, taps, rows, columns))
            shares = section(node, shares, 1, part, 1).transposed((0, 3, 4, 2, 1))
            cells = node.elementwise(Mul(), cells, node.builder.plain(shares))
        found.append(cells)
    return _multiplied(node, joined(node, found, 4), w, group)


def _multiplied(node: OnnxNode, cells: Value, w: Value, group: int) -> Value:
    """Returns the images (N, O, rows, columns) of cells (N, rows, columns, taps, C)."""
    *front, taps, channels = cells.shape
    inner, units = channels // group, w.shape[0] // group
    bias, made = node.optional(3), []
    for number in range(group):
        own = section(node, cells, 4, number * inner, inner)
        matrix = section(node, w, 0, number * units, units)
        matrix = node.builder.reshaped(matrix, (units, inner, taps)).transposed((2, 1, 0))
        share = None if bias is None else node.builder.arranged(
            section(node, bias, 0, number * units, units)
        )
        made.append(fully_connected(
            node, node.builder.reshaped(own, (*front, taps * inner)),
            node.builder.reshaped(matrix, (taps * inner, units)), share,
        ))
    return joined(node, made, 3).transposed((0, 3, 1, 2))
