"""Removes nodes and tensors that no graph output depends on."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node


def drop_dead(graph: Graph) -> Graph:
    """Drops nodes without use and tensors without readers and writers, and renumbers the others.

    Requires: a valid order. Ensures: each node leads to a graph output or writes a variable, and
    each tensor is an input of the graph or is used by a node or output; graph inputs stay even if
    nothing reads them. Each node is a new object, even if an inner graph occurs twice.
    """
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs) and not graph.written(node):
            continue
        kept.append(node)
        needed.update(t for t in node.inputs if t is not None)
        needed.update(node.outputs)
    needed.update(graph.inputs)
    number = {old: new for new, old in enumerate(sorted(needed))}
    return replace(
        graph,
        tensors=tuple(graph.tensors[old] for old in sorted(needed)),
        nodes=tuple(_renumbered(node, number) for node in reversed(kept)),
        inputs=tuple(number[t] for t in graph.inputs),
        outputs=tuple(number[t] for t in graph.outputs),
    )


def _renumbered(node: Node, number: dict[int, int]) -> Node:
    return replace(
        node,
        inputs=tuple(None if t is None else number[t] for t in node.inputs),
        outputs=tuple(number[t] for t in node.outputs),
    )
