"""Removes channels of integer networks that are constant, or that nothing reads.

A channel whose weights are all zero, or whose result is clamped to one value whatever the input,
is a constant: what it adds to the layers that read it goes into their biases. A channel that always
equals another is read as that other one. What then reads nothing, or is read by nothing, is removed
with it, and so on up and down the network. Every output stays bit for bit.
"""

from __future__ import annotations

from crtexport.ir.graph import Graph
from crtexport.passes.channels.equal import merge_equal
from crtexport.passes.channels.known import known_of
from crtexport.passes.channels.needs import needs_of
from crtexport.passes.channels.report import LayerChannels, report
from crtexport.passes.channels.rewrite import rewrite
from crtexport.passes.drop_dead import drop_dead

__all__ = ["LayerChannels", "remove_channels", "with_report"]


def remove_channels(graph: Graph) -> Graph:
    """``graph`` without channels that don't tell its outputs anything.

    Requires: a valid graph. Ensures: inputs and outputs stay as they are; each tensor keeps one
    channel at least; nothing stays of weights that are left out.
    """
    return with_report(graph)[0]


def with_report(graph: Graph) -> tuple[Graph, tuple[LayerChannels, ...]]:
    """What :func:`remove_channels` gives, and what became of each layer; nothing where no channel
    goes."""
    known = known_of(graph)
    if not known.layers:
        return graph, ()
    known = merge_equal(known)
    needs = needs_of(known)
    if all(kept.all() for kept in needs.kept.values()):
        return known.graph, ()
    smaller = rewrite(known, needs)
    return drop_dead(smaller), report(known, smaller, needs)
