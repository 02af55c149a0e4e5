"""Merges channels that are always equal: their readers read the first of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

import numpy as np
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import Concatenation, Pad, Reshape
from crtexport.ir.types import ConstantRef, DType
from crtexport.passes.channels.known import ChannelFacts, Folded, channel_facts
from crtexport.passes.channels.layers import MAX_CHANNELS, Array, IntegerLayer, taps_of
from crtexport.passes.channels.links import channels, links_of


def merge_equal(facts: ChannelFacts) -> ChannelFacts:
    """Adds the weights of equal channels and stores the sum for the first of them, wherever the sum
    fits the type; the weights of the others become real zero.

    Outputs of a layer are equal if it computes them with the same weights, bias and scale, from
    inputs that are equal. Ensures: only constant weights change, and no result does.
    """
    graph, first = facts.graph, dict[int, Array]()
    tensors, nodes = list(graph.tensors), list(graph.nodes)
    for number, node in enumerate(graph.nodes):
        if number not in facts.layers:
            equal = _carried(graph, node, first)
        else:
            layer = facts.layers[number]
            same = first.get(layer.x)
            if same is not None and not layer.depthwise and layer.x not in graph.outputs:
                nodes[number] = _reading(graph, tensors, layer, same)
            equal = _computed(graph, layer, same, facts.folded[number])
        if equal is not None and len(np.unique(equal)) < len(equal):
            first[node.outputs[0]] = equal
    if len(tensors) == len(graph.tensors):  # no weights have changed
        return facts
    return channel_facts(replace(graph, tensors=tuple(tensors), nodes=tuple(nodes)))


def _firsts(keys: Iterable[Hashable]) -> Array:
    """Returns, for each key, the index of the first key that equals it."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(key, position) for position, key in enumerate(keys)])


def _computed(
    graph: Graph, layer: IntegerLayer, first_equal: Array | None, folded: Folded
) -> Array | None:
    """Returns the index of the first equal output for each output, or None if all differ.

    ``first_equal`` has the first equal input for each input, or is None if all inputs differ.
    Contributions of constants count as bias.
    """
    bias = layer.bias + folded.added
    # Outputs without weights are constants, which are folded into biases.
    weighted = np.flatnonzero(~layer.unweighted())
    biases = bias[weighted].tolist()
    often = Counter(biases)
    taps = taps_of(graph, layer.node) if len(often) < len(biases) else None
    if taps is None:
        return None
    alike = weighted[[often[one] > 1 for one in biases]]
    scaling = layer.scaling
    scales = np.broadcast_to([scaling.multipliers, scaling.shifts], (2, layer.outputs))
    if layer.depthwise:
        source = layer.source if first_equal is None else first_equal[layer.source]
        weights = taps[:, alike].T
    else:
        source = np.zeros(layer.outputs, int)
        # Sums of weights can need more bits than one weight.
        weights = taps[alike] if first_equal is None else taps[alike].astype(np.int32)
        weights[..., folded.inputs] = 0
        for channel, one in _others(first_equal):
            weights[..., one] += weights[..., channel]
            weights[..., channel] = 0
    numbers = np.stack([*scales, bias, source], axis=1)[alike].tolist()
    equal = np.arange(layer.outputs)
    equal[alike] = alike[_firsts(
        (*row, part.tobytes()) for row, part in zip(numbers, weights, strict=True)
    )]
    return equal


def _others(first_equal: Array | None) -> list[tuple[int, int]]:
    """Returns pairs: a channel that equals an earlier one, and the first that it equals."""
    if first_equal is None:
        return []
    return [(channel, one) for channel, one in enumerate(first_equal.tolist()) if channel != one]


def _carried(graph: Graph, node: Node, first_equal: Mapping[int, Array]) -> Array | None:
    """Returns the first equal channel for each output channel of a node that doesn't mix channels.
    """
    inputs = [t for t in node.inputs if t is not None]
    if not any(t in first_equal for t in inputs) or isinstance(node.op, Concatenation | Pad):
        return None
    if not links_of(graph, node):
        return None
    count = channels(graph, node.outputs[0])
    if isinstance(node.op, Reshape):
        return _reshaped(first_equal[inputs[0]], count)
    # An input that is broadcast over channels is the same for all of them.
    given = [_known(graph, t, first_equal) for t in inputs if channels(graph, t) == count]
    return _firsts(list(zip(*(g.tolist() for g in given), strict=True)))


def _known(graph: Graph, tensor: int, first_equal: Mapping[int, Array]) -> Array:
    return first_equal.get(tensor, np.arange(channels(graph, tensor)))


def _reshaped(first_equal: Array, count: int) -> Array | None:
    """Returns the first equal channels after a Reshape whose last axis repeats the channels."""
    if count % len(first_equal) or count > MAX_CHANNELS:
        return None
    starts = np.repeat(np.arange(0, count, len(first_equal)), len(first_equal))
    return np.asarray(starts + np.tile(first_equal, count // len(first_equal)))


def _reading(graph: Graph, tensors: list[Tensor], layer: IntegerLayer, first_equal: Array) -> Node:
    """Returns the layer with its weights moved to the first of equal channels, where the sums fit.
    """
    node = layer.node
    number, taps = graph.required(node, 1), taps_of(graph, node)
    weights = graph.tensors[number]
    if taps is None or weights.type.quant is None:
        return node
    zero = weights.type.quant.zero_point[0]
    low, high = weights.type.dtype.limits
    low = max(low, -high) if weights.type.dtype is DType.INT8 else low
    moved = taps.astype(np.int32)
    for channel, one in _others(first_equal):
        total = moved[..., one] + moved[..., channel] + zero
        if moved[..., channel].any() and total.min() >= low and total.max() <= high:
            moved[..., one] += moved[..., channel]
            moved[..., channel] = 0
    if np.array_equal(moved, taps):
        return node
    values = (moved + zero).reshape(weights.type.shape)
    tensors.append(replace(
        weights, constant=ConstantRef.of(values.astype(weights.type.dtype.numpy))
    ))
    return replace(node, inputs=(layer.x, len(tensors) - 1, *node.inputs[2:]))
