"""The report of channel removal: its effect on each layer, and the reason."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.macs import macs
from crtexport.passes.channels.known import ChannelFacts
from crtexport.passes.channels.needs import Needs


class LayerChannels(Struct, frozen=True):
    """A layer with weights, before and after: channels that it reads and computes, its
    multiply-accumulates, and bytes of weights.

    Of the channels that it no longer computes, ``zero_weights`` are constants for want of weights,
    ``one_value`` are clamped to one value whatever the input, and no layer read ``unread``.
    """

    layer: str
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    macs: tuple[int, int]
    weight_bytes: tuple[int, int]
    zero_weights: int
    one_value: int
    unread: int

    @property
    def changed(self) -> bool:
        return any(a != b for a, b in (self.inputs, self.outputs, self.macs, self.weight_bytes))


def report(known: ChannelFacts, after: Graph, needs: Needs) -> tuple[LayerChannels, ...]:
    """Returns a record of each analysed layer, in order; both graphs have the same nodes."""
    before, made = known.graph, list[LayerChannels]()
    for number, layer in known.layers.items():
        gone = ~needs.kept[layer.y]
        constant = gone & known.ranges[layer.y].constant
        zero = constant & layer.unweighted()
        old, new = before.nodes[number], after.nodes[number]
        made.append(LayerChannels(
            str(old),
            (layer.inputs, _count(needs.kept[layer.x])),
            (layer.outputs, _count(needs.kept[layer.y])),
            (macs(before, old), macs(after, new)),
            (_weight_bytes(before, old), _weight_bytes(after, new)),
            _count(zero), _count(constant & ~zero), _count(gone & ~constant),
        ))
    return tuple(made)


def _count(mask: npt.NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask))  # a numpy.int64 since NumPy 2.3, which no format takes


def _weight_bytes(graph: Graph, node: Node) -> int:
    return graph.type(graph.required(node, 1)).nbytes
