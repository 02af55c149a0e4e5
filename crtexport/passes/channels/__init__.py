"""Removes channels of integer networks that are constant, or that nothing reads.

A channel whose weights are all zero, or whose result is clamped to one value whatever the input, is
a constant: its contribution to the layers that read it goes into their biases. A channel that
always equals another is read as that other one. Then channels that read nothing, or that nothing
reads, are removed as well, and so on up and down the network. Every output stays bit for bit.
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
    """Returns ``graph`` without channels that have no influence on its outputs.

    Requires: a valid graph. Ensures: inputs and outputs stay as they are; each tensor keeps one
    channel at least; no node refers to the removed weights.
    """
    return with_report(graph)[0]


def with_report(graph: Graph) -> tuple[Graph, tuple[LayerChannels, ...]]:
    """Returns the graph of :func:`remove_channels`, and a report of each layer; empty where no
    channel goes."""
    known = known_of(graph)
    if not known.layers:
        return graph, ()
    known = merge_equal(known)
    needs = needs_of(known)
    if all(kept.all() for kept in needs.kept.values()):
        return known.graph, ()
    smaller = rewrite(known, needs)
    return drop_dead(smaller), report(known, smaller, needs)
