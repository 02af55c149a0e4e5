"""Facts about the channels of a network: layers, value ranges, and contributions that biases can
include."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from crtexport.ir.graph import Graph
from crtexport.ir.scaling import wide_sums
from crtexport.passes.channels.layers import Array, IntegerLayer, layers_of
from crtexport.passes.channels.ranges import ChannelRange, ranges_of
from crtexport.support.fixedpoint import INT32_MAX, INT32_MIN


class Folded(Struct, frozen=True, eq=False):
    """Constant input channels that are folded into a layer's bias: ``inputs`` is a mask of them,
    with their contribution to each accumulator."""

    inputs: Array
    added: Array


class ChannelFacts(Struct, frozen=True, eq=False):
    """``layers`` and ``folded`` are indexed by the number of the node, ``ranges`` by tensor."""

    graph: Graph
    layers: Mapping[int, IntegerLayer]
    ranges: Mapping[int, ChannelRange]
    folded: Mapping[int, Folded]


def channel_facts(graph: Graph) -> ChannelFacts:
    """Returns the facts about ``graph``; without layers if it has no integer layers."""
    layers = layers_of(graph)
    ranges = ranges_of(graph, layers) if layers else {}
    folded = {
        number: _folded(graph, layer, ranges[layer.x]) for number, layer in layers.items()
    }
    return ChannelFacts(graph, layers, ranges, folded)


def _folded(graph: Graph, layer: IntegerLayer, input_range: ChannelRange) -> Folded:
    """Returns the constant input channels whose products the bias can include.

    A channel that always equals the zero point adds nothing. Another constant channel is folded
    only if no cell is padded, since padding isn't that constant, and if the sums still fit the type
    of the bias.
    """
    constant, nothing = input_range.constant, np.zeros(layer.outputs, np.int64)
    if not np.count_nonzero(constant):
        return Folded(constant, nothing)
    if not layer.padded and not layer.depthwise:
        added = layer.contributions(input_range.low, constant)
        if wide_sums(graph, layer.node) or _fits(layer.bias + added):
            return Folded(constant, added)
    return Folded(constant & (input_range.low == layer.zero_point), nothing)


def _fits(bias: Array) -> bool:
    return bool(bias.min() >= INT32_MIN and bias.max() <= INT32_MAX)
