"""Finds out why a tensor is used before it is defined: wrong order, a cycle, or no definition."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.ir.graph import Graph, Node
from crtexport.support.errors import CrtExportError


def misplaced_use(graph: Graph, node: Node, position: int, tensor: int) -> CrtExportError:
    """Returns the error for a node whose input at ``position`` is defined by no node before it."""
    where = (str(node), f"input {position}")
    name = f"tensor {tensor} {graph.tensors[tensor].name!r}"
    producers = {t: n for n, other in enumerate(graph.nodes) for t in other.outputs}
    if tensor not in producers:
        return CrtExportError(f"{name} is computed by nothing", location=where)
    cycle = _cycle(graph, producers, producers[tensor], set(node.outputs))
    if cycle:
        names = " → ".join(str(graph.nodes[number]) for number in cycle)
        return CrtExportError(
            f"{name} depends on this very operator, through {names}: a cycle", location=where,
            hint="keep values from run to run in variables",
        )
    return CrtExportError(
        f"{name} is used before it is defined: {graph.nodes[producers[tensor]]} computes it later",
        location=where,
        hint="operators run in the order of the file: put those first that others need",
    )


def _cycle(
    graph: Graph, producers: Mapping[int, int], start: int, targets: set[int]
) -> list[int]:
    """Returns nodes from ``start`` on, each of which needs a result of the next, up to one that
    needs one of ``targets``; empty where ``start`` needs none."""
    needed_by: dict[int, int | None] = {start: None}
    waiting = [start]
    while waiting:
        number = waiting.pop()
        inputs = [tensor for tensor in graph.nodes[number].inputs if tensor is not None]
        if targets.intersection(inputs):
            found, step = [number], needed_by[number]
            while step is not None:
                found.insert(0, step)
                step = needed_by[step]
            return found
        for tensor in inputs:
            other = producers.get(tensor)
            if other is not None and other not in needed_by:
                needed_by[other] = number
                waiting.append(other)
    return []
