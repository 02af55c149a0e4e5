"""The correspondence between input and output channels of operators without weights.

A tensor's channels are the cells of its last axis. A :class:`Link` says that channel ``b`` of one
tensor corresponds to channel ``channel_of[b]`` of another: both are kept or neither.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.passes.channels.layers import MAX_CHANNELS, Array

_POINTWISE = (
    ops.Add, ops.Sub, ops.Mul, ops.Maximum, ops.Minimum, ops.Relu, ops.Relu6, ops.ReluN1To1,
    ops.LeakyRelu, ops.Elu, ops.Gelu, ops.HardSwish, ops.Logistic, ops.Tanh, ops.Abs, ops.Neg,
    ops.Quantize,
)  # fmt: skip
_SPATIAL = (ops.AveragePool2D, ops.MaxPool2D, ops.ResizeNearestNeighbor)
_REDUCTIONS = (ops.Mean, ops.Sum, ops.ReduceMax, ops.ReduceMin)


class Link(Struct, frozen=True, eq=False):
    """Channel ``b`` of ``second`` is channel ``channel_of[b]`` of ``first``."""

    first: int
    second: int
    channel_of: Array


def channels(graph: Graph, tensor: int) -> int:
    """Returns the number of cells of a tensor's last axis; 1 for a scalar."""
    shape = graph.type(tensor).shape
    return shape[-1] if shape else 1


def links_of(graph: Graph, node: Node) -> tuple[Link, ...] | None:
    """Returns the links between the inputs and the output of ``node``; None if it may mix channels.
    Every channel of the output reads all of an input that has no link."""
    if len(node.outputs) != 1 or None in node.inputs or not node.inputs:
        return None
    result = node.outputs[0]
    inputs = [graph.required(node, i) for i in range(len(node.inputs))]
    types = [graph.type(t) for t in (*inputs, result)]
    # Only constants have scales per channel; empty tensors have no channels.
    if any(not t.shape or 0 in t.shape or t.shape[-1] > MAX_CHANNELS for t in types):
        return None
    if any(t.quant is not None and t.quant.axis is not None for t in types):
        return None
    op, count = node.op, channels(graph, result)
    if isinstance(op, ops.Reshape):
        return _reshape(channels(graph, inputs[0]), count, inputs[0], result)
    if isinstance(op, ops.Pad):
        before, _ = op.paddings[-1]
        return (Link(result, inputs[0], before + np.arange(channels(graph, inputs[0]))),)
    if isinstance(op, ops.Concatenation) and op.axis == len(graph.type(result).shape) - 1:
        return _joined(graph, inputs, result)
    if not isinstance(op, (*_POINTWISE, *_SPATIAL, ops.Concatenation, *_REDUCTIONS)):
        return None
    if isinstance(op, _REDUCTIONS) and len(graph.type(inputs[0]).shape) - 1 in op.axes:
        return None
    return _aligned(graph, inputs, result)


def _reshape(
    source_count: int, result_count: int, source: int, result: int
) -> tuple[Link, ...] | None:
    """Returns the link of a Reshape to k times as many channels, which repeats them k times."""
    if result_count % source_count == 0:
        return (Link(source, result, np.arange(result_count) % source_count),)
    if source_count % result_count == 0:
        return (Link(result, source, np.arange(source_count) % result_count),)
    return None


def _joined(graph: Graph, inputs: list[int], result: int) -> tuple[Link, ...]:
    made, start = list[Link](), 0
    for tensor in inputs:
        count = channels(graph, tensor)
        made.append(Link(result, tensor, start + np.arange(count)))
        start += count
    return tuple(made)


def _aligned(graph: Graph, inputs: list[int], result: int) -> tuple[Link, ...]:
    """Links channel by channel; an input that is broadcast over all channels has no link."""
    count = channels(graph, result)
    return tuple(
        Link(result, tensor, np.arange(count))
        for tensor in inputs if channels(graph, tensor) == count
    )
