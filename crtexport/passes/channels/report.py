"""The report of channel removal: how it changed each layer, and why."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.macs import macs
from crtexport.passes.channels.known import ChannelFacts
from crtexport.passes.channels.needs import Needs


class LayerChannels(Struct, frozen=True):
    """A layer with weights before and after the removal: channels that it reads and computes, its
    multiply-accumulates, and bytes of weights.

    Of the channels that are no longer computed, ``zero_weights`` are constant because all their
    weights are zero, ``one_value`` are clamped to one value for every input, and ``unread`` are
    read by no layer.
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


def report(facts: ChannelFacts, after: Graph, needs: Needs) -> tuple[LayerChannels, ...]:
    """Returns a record for each analysed layer, in order; both graphs must have the same nodes."""
    original, made = facts.graph, list[LayerChannels]()
    for number, layer in facts.layers.items():
        gone = ~needs.kept[layer.y]
        constant = gone & facts.ranges[layer.y].constant
        zero = constant & layer.unweighted()
        old, new = original.nodes[number], after.nodes[number]
        made.append(LayerChannels(
            str(old),
            (layer.inputs, _count(needs.kept[layer.x])),
            (layer.outputs, _count(needs.kept[layer.y])),
            (macs(original, old), macs(after, new)),
            (_weight_bytes(original, old), _weight_bytes(after, new)),
            _count(zero), _count(constant & ~zero), _count(gone & ~constant),
        ))
    return tuple(made)


def _count(mask: npt.NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask))  # NumPy 2.3 returns numpy.int64, which JSON has not


def _weight_bytes(graph: Graph, node: Node) -> int:
    return graph.type(graph.required(node, 1)).nbytes
