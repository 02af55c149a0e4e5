"""Memory that a node may have for itself without the workspace getting larger."""

from __future__ import annotations

from crtexport.ir.graph import Graph, Node
from crtexport.lowering.registry import Context


def largest(graph: Graph) -> int:
    """Returns the bytes of the largest node's tensors in the workspace, inputs and outputs."""
    return max((_read(graph, node) + _written(graph, node) for node in graph.nodes), default=0)


def held(context: Context) -> int:
    """Returns the bytes of a node's tensors in the workspace."""
    return _read(context.graph, context.node) + _written(context.graph, context.node)


def beside_in_place(context: Context) -> int:
    """Returns how many bytes of scratch a node surely may have that can write its output over its
    first input: less than 0 where it alone might be what takes the most memory.

    A workspace is no smaller than all inputs of a node, or all outputs.
    """
    graph, node = context.graph, context.node
    least = max(max(_read(graph, one), _written(graph, one)) for one in graph.nodes)
    own = _read(graph, node), _written(graph, node)
    first = node.inputs[0]
    readers = sum(one.inputs.count(first) for one in graph.nodes)
    alone = readers == 1 and first not in graph.outputs
    return least - (max(own) if alone else sum(own))


def _read(graph: Graph, node: Node) -> int:
    return _bytes(graph, {tensor for tensor in node.inputs if tensor is not None})


def _written(graph: Graph, node: Node) -> int:
    return _bytes(graph, set(node.outputs))


def _bytes(graph: Graph, tensors: set[int]) -> int:
    caller = {*graph.inputs, *graph.outputs}
    return sum(
        graph.type(tensor).nbytes for tensor in tensors - caller
        if graph.constant(tensor) is None
    )
