"""Fuses padding into the convolution that reads it."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Conv2D, DepthwiseConv2D, Pad, Padding2D
from crtexport.passes.uses import producers


def fuse_pad(graph: Graph) -> Graph:
    """Turns a convolution of a padded image into a convolution with more padding.

    A padded cell is real 0 in both. Requires: nothing. Ensures: no Conv2D or DepthwiseConv2D reads
    a Pad of rows and columns that keeps the quantization; the Pad stays for other readers.
    """
    computed_by = producers(graph)
    return graph.with_nodes(
        tuple(_fused(graph, node, computed_by) for node in graph.nodes)
    )


def _fused(graph: Graph, node: Node, computed_by: dict[int, Node]) -> Node:
    """Returns ``node`` with all consecutive Pads before it fused."""
    while isinstance(node.op, Conv2D | DepthwiseConv2D):
        pad = computed_by.get(graph.required(node, 0))
        if pad is None or not isinstance(pad.op, Pad):
            break
        added = _spatial(pad.op)
        source = graph.required(pad, 0)
        if added is None or graph.type(source).quant != graph.type(pad.outputs[0]).quant:
            break
        node = replace(
            node,
            op=replace(node.op, padding=_sum(node.op.padding, added)),
            inputs=(source, *node.inputs[1:]),
        )
    return node


def _spatial(op: Pad) -> Padding2D | None:
    """Returns the rows and columns by which ``op`` pads NHWC images; None if it pads other axes."""
    if len(op.paddings) != 4 or any(op.paddings[0]) or any(op.paddings[3]):
        return None
    (top, bottom), (left, right) = op.paddings[1], op.paddings[2]
    return Padding2D(top, bottom, left, right)


def _sum(a: Padding2D, b: Padding2D) -> Padding2D:
    return Padding2D(a.top + b.top, a.bottom + b.bottom, a.left + b.left, a.right + b.right)
