"""The channels of each tensor that are read, and those that must stay because they correspond to
channels that are read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import FullyConnected
from crtexport.ir.scaling import wide_sums
from crtexport.ir.types import DType
from crtexport.passes.channels.known import ChannelFacts
from crtexport.passes.channels.layers import MAX_CHANNELS, Array
from crtexport.passes.channels.links import Link, channels, links_of


class Needs(Struct):
    """Masks of channels by tensor.

    ``live``: the value is read. ``kept``: the channel stays, either because it is live, or with any
    value because the other end of a link is kept.
    """

    live: dict[int, Array]
    kept: dict[int, Array]
    changed: bool = False

    def demand(self, masks: dict[int, Array], tensor: int, which: Array) -> None:
        """Adds ``which`` to the mask of a tensor."""
        if np.count_nonzero(which > masks[tensor]):
            masks[tensor] = masks[tensor] | which
            self.changed = True

    def read(self, tensor: int, which: Array) -> None:
        self.demand(self.live, tensor, which)
        self.demand(self.kept, tensor, which)


def needed_channels(facts: ChannelFacts) -> Needs:
    """Returns the smallest sets of channels from which the graph's outputs can be computed, found
    from the outputs backwards."""
    graph, layers = facts.graph, facts.layers
    links = {
        number: links_of(graph, node) or () for number, node in enumerate(graph.nodes)
        if number not in layers
    }
    whole = _whole(facts, links)
    masks = {
        tensor: np.full(min(channels(graph, tensor), MAX_CHANNELS), tensor in whole)
        for tensor in range(len(graph.tensors))
    }
    needs = Needs(masks, dict(masks))
    _settle(facts, links, needs)
    while _fill(facts, needs):
        _settle(facts, links, needs)
    return needs


def _whole(facts: ChannelFacts, links: Mapping[int, tuple[Link, ...]]) -> set[int]:
    """Returns the tensors of which every channel is, or may be, read."""
    graph, named = facts.graph, set[int]()
    whole = {*graph.inputs, *graph.outputs, *graph.variables}
    for number, node in enumerate(graph.nodes):
        tensors = {t for t in (*node.inputs, *node.outputs) if t is not None}
        named |= tensors
        if number in facts.layers:
            whole.update(t for t in node.inputs[1:] if t is not None)
        else:
            whole |= tensors - {t for link in links[number] for t in (link.first, link.second)}
    return whole | (set(range(len(graph.tensors))) - named)


def _settle(facts: ChannelFacts, links: Mapping[int, tuple[Link, ...]], needs: Needs) -> None:
    needs.changed = True
    while needs.changed:
        needs.changed = False
        for number in reversed(range(len(facts.graph.nodes))):
            if number in facts.layers:
                _of_layer(facts, number, needs)
            else:
                _of_node(facts.graph.nodes[number], links[number], needs)


def _of_layer(facts: ChannelFacts, number: int, needs: Needs) -> None:
    layer = facts.layers[number]
    computed = needs.live[layer.y] & ~facts.ranges[layer.y].constant
    needs.read(layer.x, layer.reads(computed) & ~facts.folded[number].inputs)
    if layer.depthwise:
        _link(Link(layer.x, layer.y, layer.source), needs)


def _of_node(node: Node, links: tuple[Link, ...], needs: Needs) -> None:
    for link in links:
        _link(link, needs)
        result = node.outputs[0]
        if link.second == result:
            read = np.zeros(len(needs.live[link.first]), bool)
            read[link.channel_of[needs.live[result]]] = True
            needs.read(link.first, read)
        else:
            needs.read(link.second, needs.live[result][link.channel_of])


def _link(link: Link, needs: Needs) -> None:
    """Keeps both ends of a link where one of them is kept."""
    first = np.zeros(len(needs.kept[link.first]), bool)
    first[link.channel_of[needs.kept[link.second]]] = True
    needs.demand(needs.kept, link.first, first)
    needs.demand(needs.kept, link.second, needs.kept[link.first][link.channel_of])


def _fill(facts: ChannelFacts, needs: Needs) -> bool:
    """Keeps one channel of a tensor that needs none, and two of a fully connected layer with a
    scale per channel: with one channel left, the layer would be computed as if it had a scale per
    tensor. Returns whether anything changed."""
    least = {tensor: 1 for node in facts.graph.nodes for tensor in (*node.inputs, *node.outputs)
             if tensor is not None}
    for layer in facts.layers.values():
        if isinstance(layer.node.op, FullyConnected) and len(layer.scaling.multipliers) > 1:
            least[layer.y] = 2
    needs.changed = False
    for tensor, count in least.items():
        kept = needs.kept[tensor]
        missing = min(count, len(kept)) - np.count_nonzero(kept)
        if missing > 0:
            more = np.zeros(len(kept), bool)
            more[np.flatnonzero(~kept)[:missing]] = True
            needs.demand(needs.kept, tensor, more)
    return needs.changed


def bias_type(graph: Graph, node: Node) -> DType:
    """Returns the type that a layer's bias has, or would have; TFLite's accumulator type depends on
    it."""
    tensor = graph.optional(node, 2)
    if tensor is not None:
        return graph.type(tensor).dtype
    return DType.INT64 if wide_sums(graph, node) else DType.INT32
