"""Checks and order of accesses to variables, tensors that keep their values between runs."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, variable_positions
from crtexport.support.errors import CrtExportError


def lend(graph: Graph) -> Graph:
    """Returns ``graph`` whose inner graphs know the initial values of the variables that they
    receive.

    Raises nothing: the arguments of inner graphs are verified elsewhere.
    """
    return graph.with_nodes(tuple(
        replace(node, graphs=tuple(lend(_borrowing(graph, node, inner)) for inner in node.graphs))
        if node.graphs else node
        for node in graph.nodes
    ))


def _borrowing(outer: Graph, node: Node, inner: Graph) -> Graph:
    tensors = list(inner.tensors)
    for tensor, given in zip(inner.inputs, node.given, strict=False):
        owned = outer.tensors[given].variable if given is not None else None
        if tensors[tensor].variable is not None and owned is not None:
            tensors[tensor] = replace(tensors[tensor], variable=owned)
    return replace(inner, tensors=tuple(tensors))


def check_variables(graph: Graph) -> None:
    """Raises CrtExportError, naming the node, unless variables stand where they may and only there.

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
        for inner in node.graphs:
            if _borrowing(graph, node, inner) != inner:
                raise CrtExportError(
                    "a graph of it knows another initial value of a variable", location=str(node)
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
