"""Readers and producers of each tensor."""

from __future__ import annotations

from crtexport.ir.graph import Graph, Node


def readers(graph: Graph) -> dict[int, int]:
    """Returns the number of reads of each tensor, by nodes and as graph outputs."""
    counts = dict.fromkeys(range(len(graph.tensors)), 0)
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None:
                counts[tensor] += 1
    for tensor in graph.outputs:
        counts[tensor] += 1
    return counts


def reading(graph: Graph) -> dict[int, list[int]]:
    """Returns, for each tensor that is read, the numbers of the nodes that read it, each once."""
    found: dict[int, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        for tensor in dict.fromkeys(node.inputs):
            if tensor is not None:
                found.setdefault(tensor, []).append(number)
    return found


def producers(graph: Graph) -> dict[int, Node]:
    """Returns the node that computes each computed tensor."""
    return {tensor: node for node in graph.nodes for tensor in node.outputs}
