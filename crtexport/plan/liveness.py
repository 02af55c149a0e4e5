"""From when until when each tensor is needed."""

from __future__ import annotations

from msgspec import Struct

from crtexport.ir.graph import Graph


class Lifetime(Struct, frozen=True):
    """Positions in the order of execution, both inclusive.

    ``first`` is -1 for what is there before the first node; ``last`` is the number of nodes for
    what is still read after the last one.
    """

    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Returns whether both are live at some time."""
        return self.first <= other.last and other.first <= self.last

    def joined(self, other: Lifetime) -> Lifetime:
        """From the first of both to the last of both."""
        return Lifetime(min(self.first, other.first), max(self.last, other.last))


def lifetimes(graph: Graph, order: tuple[int, ...]) -> dict[int, Lifetime]:
    """The lifetime of each tensor that is a graph input or output or that a node touches.

    What a node writes and nobody reads is needed while that node runs. Constants are always there.
    """
    end = len(order)
    first: dict[int, int] = dict.fromkeys(graph.inputs, -1)
    last: dict[int, int] = dict.fromkeys(graph.inputs, -1)
    for position, number in enumerate(order):
        node = graph.nodes[number]
        for tensor in node.inputs:
            if tensor is not None:
                first.setdefault(tensor, -1)
                last[tensor] = position
        for tensor in node.outputs:
            first[tensor] = last[tensor] = position
    for tensor in graph.outputs:
        last[tensor] = end
    for tensor in last:
        if graph.constant(tensor) is not None:
            last[tensor] = end
    return {t: Lifetime(first[t], last[t]) for t in sorted(first)}
