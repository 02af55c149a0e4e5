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


def needed_channels(known: ChannelFacts) -> Needs:
    """Returns the smallest sets of channels from which the graph's outputs can be computed, found
    from the outputs backwards."""
    graph, layers = known.graph, known.layers
    links = {
        number: links_of(graph, node) or () for number, node in enumerate(graph.nodes)
        if number not in layers
    }
    whole = _whole(known, links)
    masks = {
        tensor: np.full(min(channels(graph, tensor), MAX_CHANNELS), tensor in whole)
        for tensor in range(len(graph.tensors))
    }
    needs = Needs(masks, dict(masks))
    _settle(known, links, needs)
    while _fill(known, needs):
        _settle(known, links, needs)
    return needs


def _whole(known: ChannelFacts, links: Mapping[int, tuple[Link, ...]]) -> set[int]:
    """Returns the tensors of which every channel is, or may be, read."""
    graph, named = known.graph, set[int]()
    whole = {*graph.inputs, *graph.outputs, *graph.variables}
    for number, node in enumerate(graph.nodes):
        tensors = {t for t in (*node.inputs, *node.outputs) if t is not None}
        named |= tensors
        if number in known.layers:
            whole.update(t for t in node.inputs[1:] if t is not None)
        else:
            whole |= tensors - {t for link in links[number] for t in (link.first, link.second)}
    return whole | (set(range(len(graph.tensors))) - named)


def _settle(known: ChannelFacts, links: Mapping[int, tuple[Link, ...]], needs: Needs) -> None:
    needs.changed = True
    while needs.changed:
        needs.changed = False
        for number in reversed(range(len(known.graph.nodes))):
            if number in known.layers:
                _of_layer(known, number, needs)
            else:
                _of_node(known.graph.nodes[number], links[number], needs)


def _of_layer(known: ChannelFacts, number: int, needs: Needs) -> None:
    layer = known.layers[number]
    computed = needs.live[layer.y] & ~known.ranges[layer.y].constant
    needs.read(layer.x, layer.reads(computed) & ~known.folded[number].inputs)
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


def _fill(known: ChannelFacts, needs: Needs) -> bool:
    """Keeps one channel of a tensor that needs none, and two of a fully connected layer with a
    scale per channel: with one channel left, the layer would be computed as if it had a scale per
    tensor. Returns whether anything changed."""
    least = {tensor: 1 for node in known.graph.nodes for tensor in (*node.inputs, *node.outputs)
             if tensor is not None}
    for layer in known.layers.values():
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
