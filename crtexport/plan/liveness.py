"""The steps at which each tensor is live."""

from __future__ import annotations

from msgspec import Struct

from crtexport.ir.graph import Graph


class Lifetime(Struct, frozen=True):
    """Positions in the order of execution, both inclusive.

    ``first`` is -1 for a tensor that exists before the first node; ``last`` is the number of nodes
    for one that is read after the last node.
    """

    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Returns whether both are live at the same time."""
        return self.first <= other.last and other.first <= self.last

    def joined(self, other: Lifetime) -> Lifetime:
        """Returns the lifetime from the first step of either to the last step of either."""
        return Lifetime(min(self.first, other.first), max(self.last, other.last))


def lifetimes(graph: Graph, order: tuple[int, ...]) -> dict[int, Lifetime]:
    """Returns the lifetime of each tensor that is a graph input or output or that a node reads or
    writes.

    An output that nothing reads is live while its node runs. Constants are always live.
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
