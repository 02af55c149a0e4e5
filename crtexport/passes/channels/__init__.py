"""Removes channels of integer networks that are constant, or that nothing reads.

A channel whose weights are all zero, or whose result is clamped to one value for every input, is
constant: its contribution to the layers that read it is added to their biases. Readers of a channel
that always equals another read the other one instead. Channels that are then unread are removed,
and the weights that computed them, through the whole network. Every output stays the same bit for
bit.
"""

from __future__ import annotations

from crtexport.ir.graph import Graph
from crtexport.passes.channels.equal import merge_equal
from crtexport.passes.channels.known import channel_facts
from crtexport.passes.channels.needs import needed_channels
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
    """Returns the graph of :func:`remove_channels`, and a report for each layer; the report is
    empty if no channel was removed."""
    known = channel_facts(graph)
    if not known.layers:
        return graph, ()
    known = merge_equal(known)
    needs = needed_channels(known)
    if all(kept.all() for kept in needs.kept.values()):
        return known.graph, ()
    smaller = rewrite(known, needs)
    return drop_dead(smaller), report(known, smaller, needs)
