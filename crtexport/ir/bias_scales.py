"""Scales of integer biases, which say nothing that the scales of input and weights don't.

A bias is added to sums of products, so its real values are its integers times input scale × weight
scale, whatever scale a file gives it. TensorFlow Lite's runtimes refuse another one only in layers
with one scale for all weights that are fully connected or of uint8.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected, TransposeConv2D
from crtexport.ir.types import DType, TensorType

_TOLERANCE = 0.01


def scale_difference(graph: Graph, node: Node) -> str | None:
    """Returns a sentence about the scale of the node's bias where that isn't the one of the sums
    that it is added to; else None."""
    tensor = graph.optional(node, 2)
    if tensor is None or not isinstance(
        node.op, Conv2D | DepthwiseConv2D | FullyConnected | TransposeConv2D
    ):
        return None
    data, weights = (graph.type(graph.required(node, i)) for i in (0, 1))
    return _difference(data, weights, graph.type(tensor), graph.type(node.outputs[0]))


def odd_scale(graph: Graph, node: Node) -> str | None:
    """Returns the same sentence, but None where the bias is all zero."""
    found = scale_difference(graph, node)
    if found is None:
        return None
    constant = graph.constant(graph.required(node, 2))
    zero = constant is not None and not np.frombuffer(constant.read(), np.uint8).any()
    return None if zero else found


def refused_by_runtimes(graph: Graph, node: Node) -> bool:
    """Returns whether TensorFlow Lite's runtimes refuse the node for such a scale."""
    weights = graph.type(graph.required(node, 1))
    legacy = isinstance(node.op, FullyConnected) or weights.dtype is DType.UINT8
    return legacy and weights.quant is not None and weights.quant.per_tensor


def oddities(graph: Graph) -> Iterator[str]:
    """Yields a sentence for each node of ``graph`` whose bias has such a scale."""
    for inner in graph.nested():
        for node in inner.nodes:
            sentence = odd_scale(inner, node)
            if sentence is not None:
                yield f"{node}: {sentence}"


def _difference(
    data: TensorType, weights: TensorType, bias: TensorType, result: TensorType
) -> str | None:
    if bias.quant is None or data.quant is None or weights.quant is None or result.quant is None:
        return None
    data_scale, own = data.quant.scale[0], bias.quant.scale
    count = max(len(own), len(weights.quant.scale))
    pairs = zip(_each(weights.quant.scale, count), _each(own, count), strict=True)
    # Both tolerances: converters round tiny scales, and the result can't show tiny ones.
    invisible = 2 * _TOLERANCE * result.quant.scale[0]
    for unit, (weight_scale, bias_scale) in enumerate(pairs):
        off = abs(data_scale * weight_scale - bias_scale)
        if off > invisible and off > _TOLERANCE * (data_scale * weight_scale):
            return (
                f"the bias of unit {unit} has scale {bias_scale:.6g}, but input and weights"
                f" give {data_scale * weight_scale:.6g}"
            )
    return None


def _each(scales: tuple[float, ...], count: int) -> tuple[float, ...]:
    """Returns one scale for each of ``count`` units."""
    return scales if len(scales) == count else scales * count
