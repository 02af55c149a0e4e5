"""Copies the inputs and outputs of operators with an arena of their own."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import EthosU, Reshape


def copy_arenas(graph: Graph) -> Graph:
    """Inserts a copy before each input of an Ethos-U operator that lies in its arena, and after
    each output.

    Requires: nothing. Ensures: such a tensor has one writer and one reader, so that its offset can
    be fixed. The planner makes views of the copies where the other tensor can lie in the arena as
    well.
    """
    if not any(isinstance(node.op, EthosU) for node in graph.nodes):
        return graph
    tensors, nodes = list(graph.tensors), list[Node]()
    for node in graph.nodes:
        if not isinstance(node.op, EthosU):
            nodes.append(node)
            continue
        first = node.op.first
        inputs, outputs, after = list(node.inputs[:first]), list[int](), list[Node]()
        for position in range(first, len(node.inputs)):
            source, inside = graph.required(node, position), len(tensors)
            tensors.append(_inside(tensors[source]))
            nodes.append(_copy(tensors, source, inside, f"{node}: input"))
            inputs.append(inside)
        for target in node.outputs:
            inside = len(tensors)
            tensors.append(_inside(tensors[target]))
            after.append(_copy(tensors, inside, target, f"{node}: output"))
            outputs.append(inside)
        nodes += [replace(node, inputs=tuple(inputs), outputs=tuple(outputs)), *after]
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _inside(tensor: Tensor) -> Tensor:
    return replace(tensor, name=f"{tensor.name} in the arena", constant=None, variable=None)


def _copy(tensors: list[Tensor], source: int, target: int, origin: str) -> Node:
    shape = tensors[target].type.shape
    return Node(Reshape(shape), (source,), (target,), tensors[target].name, origin)
