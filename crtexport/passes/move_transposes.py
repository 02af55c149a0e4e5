"""Moves Transposes of graph outputs before the operator that computes them.

A network from a file with channels first is computed with channels last. If its output is a sum
with its input, that input already exists in the order of the output.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from crtexport.ir.evaluate import move
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Add, Maximum, Minimum, Mul, Reshape, Sub, Transpose
from crtexport.passes.element_numbers import LARGE, Array, element_numbers
from crtexport.passes.uses import producers, readers

_ELEMENTWISE = (Add, Sub, Mul, Maximum, Minimum)

def move_transposes(graph: Graph) -> Graph:
    """Transposes the other operand of an elementwise operator instead of its result, if the result
    is a graph output and one operand is a graph input that was transposed the other way round.

    Requires: nothing. Ensures: there are no more Transposes than before, and the transposed input
    isn't kept for that operator.
    """
    for output in graph.outputs:
        graph = _moved(graph, output)
    return graph


def _moved(graph: Graph, output: int) -> Graph:
    made_by, uses = producers(graph), readers(graph)
    behind = _moves(made_by, output)
    result = graph.required(behind[-1], 0) if behind else output
    last = made_by.get(result)
    if not behind or last is None or not isinstance(last.op, _ELEMENTWISE):
        return graph
    shape, given = graph.type(result).shape, [graph.required(last, i) for i in (0, 1)]
    between = [output, *(graph.required(node, 0) for node in behind)]
    if (
        any(uses[tensor] > 1 for tensor in between) or graph.type(result).elements > LARGE
        or any(graph.type(t).shape != shape or graph.constant(t) is not None for t in given)
    ):
        return graph
    order = _order(graph, result, behind[::-1]).reshape(-1)
    for position, tensor in enumerate(given):
        before = _moves(made_by, tensor)
        source = graph.required(before[-1], 0) if before else tensor
        if source in graph.inputs:
            found = _order(graph, source, before[::-1]).reshape(-1)[order]
            if np.array_equal(found, np.arange(found.size)):
                return _exchanged(graph, last, position, source, behind[::-1])
    return graph


def _moves(made_by: Mapping[int, Node], tensor: int) -> list[Node]:
    """Returns the Reshapes and Transposes that lead to a tensor, the last one first."""
    found: list[Node] = []
    source: int | None = tensor
    while source is not None and (node := made_by.get(source)) is not None:
        if not isinstance(node.op, Reshape | Transpose):
            break
        found.append(node)
        (source,) = node.inputs
    return found


def _order(graph: Graph, tensor: int, moves: list[Node]) -> Array:
    """Returns, for each element of the output of ``moves``, its index in ``tensor``."""
    elements = element_numbers(graph.type(tensor))
    for node in moves:
        (elements,) = move(node.op, [elements]) or (elements,)
    return elements


def _exchanged(
    graph: Graph, last: Node, position: int, source: int, moves: list[Node]
) -> Graph:
    """Returns the graph with ``moves`` applied to the other operand, and the operator as its last
    node."""
    tensors, nodes = list(graph.tensors), list[Node]()

    def at(tensor: int, op: Reshape | Transpose, shape: tuple[int, ...]) -> int:
        tensors.append(replace(
            tensors[tensor], type=replace(tensors[tensor].type, shape=shape), constant=None
        ))
        nodes.append(Node(op, (tensor,), (len(tensors) - 1,), last.name, last.origin))
        return len(tensors) - 1

    output = moves[-1].outputs[0]
    other = graph.required(last, 1 - position)
    for node in moves:
        if isinstance(node.op, Reshape | Transpose):
            other = at(other, node.op, graph.type(node.outputs[0]).shape)
    shape = graph.type(output).shape
    if graph.type(source).shape != shape:
        source = at(source, Reshape(shape), shape)
    inputs = (other, source) if position else (source, other)
    nodes.append(replace(last, inputs=inputs, outputs=(output,)))
    gone = {id(last), *map(id, moves)}
    kept = [node for node in graph.nodes if id(node) not in gone]
    return replace(graph, tensors=tuple(tensors), nodes=(*kept, *nodes))
