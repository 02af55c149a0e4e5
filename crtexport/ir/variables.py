"""Tensors that keep their values between runs: who may touch them, and in which order."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Stateful


def variable_positions(node: Node) -> frozenset[int]:
    """The inputs of ``node`` that must be variables; all others must not be."""
    if not isinstance(node.op, Stateful):
        return frozenset()
    return frozenset((*node.op.reads, *node.op.writes))


def check_variables(graph: Graph) -> None:
    """Raise CrtExportError, naming the node, unless variables stand where they may and only there.

    Requires valid tensor numbers.
    """
    variables = set(graph.variables)
    for variable in variables:
        if graph.constant(variable) is not None:
            raise CrtExportError("a constant can't be a variable", location=f"tensor {variable}")
    for node in graph.nodes:
        wanted = variable_positions(node)
        for position, tensor in enumerate(node.inputs):
            if tensor is None or (position in wanted) == (tensor in variables):
                continue
            name = f"tensor {tensor} {graph.tensors[tensor].name!r}"
            kind = "must be a variable" if position in wanted else "is a variable"
            raise CrtExportError(
                f"{name} {kind}", location=(str(node), f"input {position}"),
                hint="a variable is read with ReadVariable and written with AssignVariable",
            )
    for position, output in enumerate(graph.outputs):
        if output in variables:
            raise CrtExportError(
                f"tensor {output} {graph.tensors[output].name!r} is a variable",
                location=f"graph output {position}", hint="read it with ReadVariable",
            )


def accesses(graph: Graph, order: tuple[int, ...]) -> dict[int, tuple[frozenset[int], ...]]:
    """For each variable, its nodes in ``order`` as groups that may trade places: each node that
    writes alone, the readers between two writers together."""
    groups: dict[int, list[frozenset[int]]] = {v: [frozenset()] for v in graph.variables}
    for number in order:
        node = graph.nodes[number]
        written = set(graph.written(node))
        for position in sorted(variable_positions(node)):
            variable = graph.required(node, position)
            if variable in written:
                groups[variable] += [frozenset([number]), frozenset()]
            else:
                groups[variable][-1] |= {number}
    return {variable: tuple(found) for variable, found in groups.items()}
