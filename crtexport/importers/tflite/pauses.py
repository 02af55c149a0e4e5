"""Networks that go on from some operator in every Nth run only, as If nodes.

The importer marks such a place with an If without graphs: what follows runs if its condition is
true. Here this becomes the node's first graph, which also keeps the network's results, and the
second one gives those of the last run that went on, zeros before there was one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from crtexport.importers.tflite.subgraphs import renumbered
from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.ops import AssignVariable, If, ReadVariable


def with_pauses(graph: Graph) -> Graph:
    """Returns ``graph`` with all that follows a mark in a graph of the marking node."""
    for place in reversed(range(len(graph.nodes))):
        node = graph.nodes[place]
        if isinstance(node.op, If) and not node.graphs:
            graph = _split(graph, place)
    return graph


def _split(graph: Graph, place: int) -> Graph:
    """Returns the graph in which the nodes behind node ``place`` have become that node's graph."""
    mark, rest = graph.nodes[place], graph.nodes[place + 1 :]
    made = set(chain.from_iterable(node.outputs for node in rest))
    results = [tensor for tensor in dict.fromkeys(graph.outputs) if tensor in made]
    if not results:
        return graph.with_nodes((*graph.nodes[:place], *rest))
    used = dict.fromkeys(tensor for node in rest for tensor in node.inputs if tensor is not None)
    read = [tensor for tensor in used if tensor not in made and graph.constant(tensor) is None]
    tensors = list(graph.tensors)
    for tensor in results:
        like = tensors[tensor]
        tensors.append(Tensor(f"{like.name}/last", like.type, variable=Variable()))
    kept = range(len(graph.tensors), len(tensors))
    outer = replace(graph, tensors=tuple(tensors))
    storing = [
        Node(AssignVariable(), (last, tensor), (), graph.tensors[tensor].name, mark.origin)
        for last, tensor in zip(kept, results, strict=True)
    ]
    reading = [
        Node(ReadVariable(), (last,), (tensor,), graph.tensors[tensor].name, mark.origin)
        for last, tensor in zip(kept, results, strict=True)
    ]
    inputs = [*read, *kept]
    node = replace(
        mark, inputs=(*mark.inputs, *inputs), outputs=tuple(results),
        graphs=tuple(
            _part(outer, nodes, inputs, results) for nodes in ([*rest, *storing], reading)
        ),
    )
    return outer.with_nodes((*graph.nodes[:place], node))


def _part(
    graph: Graph, nodes: Sequence[Node], inputs: Sequence[int], outputs: Sequence[int]
) -> Graph:
    """Returns some of the nodes as a graph of their own, whose variables are those of ``graph``."""
    tensors = [
        replace(tensor, variable=None if tensor.variable is None else Variable())
        for tensor in graph.tensors
    ]
    used = {t for node in nodes for t in (*node.inputs, *node.outputs) if t is not None}
    numbers = {old: new for new, old in enumerate(sorted({*used, *inputs, *outputs}))}
    return renumbered(
        Graph(
            graph.name, tuple(tensors[old] for old in numbers), tuple(nodes), tuple(inputs),
            tuple(outputs),
        ),
        numbers, {},
    )
