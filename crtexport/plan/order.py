"""In which order the nodes run."""

from __future__ import annotations

from crtexport.ir.graph import Graph


def execution_order(graph: Graph) -> tuple[int, ...]:
    """Node numbers in the order of execution: as the model gives them.

    The one place that decides this; everything after it works with any valid order.
    """
    return tuple(range(len(graph.nodes)))
