"""Operators that run the graphs of their nodes."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.graph import Graph
from crtexport.ir.infer.base import Given, infers, same
from crtexport.ir.ops import Control, If, While
from crtexport.ir.types import DType, TensorType


@infers(If, required=1, most=None)
def if_(op: If, given: Given) -> tuple[TensorType, ...]:
    graphs = _graphs(op, given)
    _truth(given[0], "the condition")
    first, second = (_results(graph) for graph in graphs)
    if first != second:
        raise CrtExportError(f"its graphs give {_listed(first)} and {_listed(second)}")
    return first


@infers(While, required=0, most=None)
def while_(op: While, given: Given) -> tuple[TensorType, ...]:
    condition, body = _graphs(op, given)
    results = _results(condition)
    if len(results) != 1:
        raise CrtExportError(f"the graph of its condition gives {len(results)} values, not one")
    _truth(results[0], "the condition")
    carried = tuple(same(type_) for type_ in given.all()[: len(body.outputs)])
    if _results(body) != carried:
        raise CrtExportError(
            f"its body makes {_listed(_results(body))} of {_listed(carried)}",
            hint="what goes round must keep its type and shape",
        )
    return carried


def _graphs(op: Control, given: Given) -> tuple[Graph, ...]:
    """The node's graphs, which take what the node gives them."""
    if len(given.graphs) != op.graphs:
        raise CrtExportError(f"expected {op.graphs} graphs, found {len(given.graphs)}")
    arguments = [same(type_) for type_ in given.all()[op.first :]]
    for number, graph in enumerate(given.graphs):
        wanted = [same(graph.type(tensor)) for tensor in graph.inputs]
        if len(wanted) != len(arguments):
            raise CrtExportError(
                f"graph {number} takes {len(wanted)} inputs, but is given {len(arguments)}"
            )
        for position, (found, want) in enumerate(zip(arguments, wanted, strict=True)):
            if found != want:
                raise CrtExportError(f"input {position} of graph {number} is {want}, not {found}")
    return given.graphs


def _results(graph: Graph) -> tuple[TensorType, ...]:
    return tuple(same(graph.type(tensor)) for tensor in graph.outputs)


def _truth(type_: TensorType, what: str) -> None:
    if type_.dtype is not DType.BOOL or type_.elements != 1:
        raise CrtExportError(f"{what} must be one truth value, found {type_}")


def _listed(types: tuple[TensorType, ...]) -> str:
    return ", ".join(map(str, types)) or "nothing"
