"""Which channels of which tensors are read, and which must stay for the others' sake."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field

from crtexport.fixedpoint import INT32_MAX, INT32_MIN
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import FullyConnected
from crtexport.ir.scaling import wide_sums
from crtexport.ir.types import DType
from crtexport.passes.channels.layers import MAX_CHANNELS, Array, Layer
from crtexport.passes.channels.links import Link, channels, links_of
from crtexport.passes.channels.ranges import Range


class Folded(Struct, frozen=True, eq=False):
    """What a layer's bias takes over: ``inputs``, a mask of channels that are constants, and what
    they add to each accumulator."""

    inputs: Array
    added: Array


class Needs(Struct):
    """Masks of channels by tensor.

    ``live``: the value is read. ``kept``: the channel stays; it is live, or it is kept because the
    other end of a link is, with any value. ``folded``: by number of node.
    """

    live: dict[int, Array] = field(default_factory=dict)
    kept: dict[int, Array] = field(default_factory=dict)
    folded: dict[int, Folded] = field(default_factory=dict)
    changed: bool = False

    def demand(self, masks: dict[int, Array], tensor: int, which: Array) -> None:
        """Adds ``which`` to a mask."""
        if np.any(which & ~masks[tensor]):
            masks[tensor] = masks[tensor] | which
            self.changed = True

    def read(self, tensor: int, which: Array) -> None:
        self.demand(self.live, tensor, which)
        self.demand(self.kept, tensor, which)

    def whole(self, tensor: int) -> None:
        self.read(tensor, np.ones(len(self.live[tensor]), bool))


def needs_of(
    graph: Graph, layers: Mapping[int, Layer], ranges: Mapping[int, Range]
) -> Needs:
    """The fewest channels that give the graph its outputs, found from the outputs backwards."""
    needs = Needs()
    for tensor in range(len(graph.tensors)):
        count = channels(graph, tensor)
        needs.live[tensor] = np.zeros(min(count, MAX_CHANNELS), bool)
        needs.kept[tensor] = needs.live[tensor]
    links = {number: links_of(graph, node) for number, node in enumerate(graph.nodes)}
    for number, layer in layers.items():
        needs.folded[number] = folded_inputs(graph, layer, ranges[layer.x])
    named = {t for node in graph.nodes for t in (*node.inputs, *node.outputs)}
    fixed = (*graph.inputs, *graph.outputs, *graph.variables)
    for tensor in (*fixed, *(set(needs.live) - named)):
        needs.whole(tensor)
    _settle(graph, layers, ranges, links, needs)
    while _fill(graph, layers, needs):
        _settle(graph, layers, ranges, links, needs)
    return needs


def _settle(
    graph: Graph, layers: Mapping[int, Layer], ranges: Mapping[int, Range],
    links: Mapping[int, tuple[Link, ...] | None], needs: Needs,
) -> None:
    needs.changed = True
    while needs.changed:
        needs.changed = False
        for number in reversed(range(len(graph.nodes))):
            if number in layers:
                _of_layer(layers[number], ranges, needs.folded[number], needs)
            else:
                _of_node(graph.nodes[number], links[number], needs)


def _of_layer(
    layer: Layer, ranges: Mapping[int, Range], folded: Folded, needs: Needs
) -> None:
    computed = needs.live[layer.y] & ~ranges[layer.y].constant
    needs.read(layer.x, layer.reads(computed) & ~folded.inputs)
    for tensor in layer.node.inputs[1:]:
        if tensor is not None:
            needs.whole(tensor)
    if layer.depthwise:
        _link(Link(layer.x, layer.y, layer.source), needs)


def _of_node(node: Node, links: tuple[Link, ...] | None, needs: Needs) -> None:
    linked = set[int]()
    for link in links or ():
        _link(link, needs)
        linked |= {link.first, link.second}
        result = node.outputs[0]
        if link.second == result:
            read = np.zeros(len(needs.live[link.first]), bool)
            read[link.channel_of[needs.live[result]]] = True
            needs.read(link.first, read)
        else:
            needs.read(link.second, needs.live[result][link.channel_of])
    for tensor in (*node.inputs, *node.outputs):
        if tensor is not None and tensor not in linked:
            needs.whole(tensor)


def _link(link: Link, needs: Needs) -> None:
    """Both ends are kept or neither."""
    first = np.zeros(len(needs.kept[link.first]), bool)
    first[link.channel_of[needs.kept[link.second]]] = True
    needs.demand(needs.kept, link.first, first)
    needs.demand(needs.kept, link.second, needs.kept[link.first][link.channel_of])


def _fill(graph: Graph, layers: Mapping[int, Layer], needs: Needs) -> bool:
    """Keeps a channel where none is needed, and two of a fully connected layer with a scale for
    each: with one left, its product would be computed as if there had been one scale."""
    least = {tensor: 1 for node in graph.nodes for tensor in (*node.inputs, *node.outputs)
             if tensor is not None}
    for layer in layers.values():
        if isinstance(layer.node.op, FullyConnected) and len(layer.scaling.pairs) > 1:
            least[layer.y] = 2
    needs.changed = False
    for tensor, count in least.items():
        kept = needs.kept[tensor]
        missing = min(count, len(kept)) - int(kept.sum())
        if missing > 0:
            more = np.zeros(len(kept), bool)
            more[np.flatnonzero(~kept)[:missing]] = True
            needs.demand(needs.kept, tensor, more)
    return needs.changed


def folded_inputs(graph: Graph, layer: Layer, given: Range) -> Folded:
    """Input channels that are constants and whose products the bias can take.

    Those that equal the zero point always: they add nothing. Others where no cell is padded, as
    padding is no constant of theirs, and where the sums still fit the type of the bias.
    """
    nothing = given.constant & (given.low == layer.zero_point)
    if not layer.padded and not layer.depthwise:
        added = layer.contributions(given.low, given.constant)
        if wide_sums(graph, layer.node) or _fits(layer.bias + added):
            return Folded(given.constant, added)
    return Folded(nothing, np.zeros(layer.outputs, np.int64))


def _fits(bias: Array) -> bool:
    return bool(len(bias) == 0 or (bias.min() >= INT32_MIN and bias.max() <= INT32_MAX))


def bias_type(graph: Graph, node: Node) -> DType:
    """The type that a layer's bias has, or would have: it decides how TFLite sums."""
    tensor = graph.optional(node, 2)
    if tensor is not None:
        return graph.type(tensor).dtype
    return DType.INT64 if wide_sums(graph, node) else DType.INT32
