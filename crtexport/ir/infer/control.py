"""Operators that run the graphs of their nodes."""

from __future__ import annotations

from crtexport.ir.graph import Graph
from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.ops import Control, If, While
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


@infers(If, required=1, most=None)
def if_(op: If, inputs: InputTypes) -> tuple[TensorType, ...]:
    graphs = _graphs(op, inputs)
    _truth(inputs[0], "the condition")
    first, second = (_results(graph) for graph in graphs)
    if first != second:
        raise CrtExportError(f"its graphs give {_listed(first)} and {_listed(second)}")
    return first


@infers(While, required=0, most=None)
def while_(op: While, inputs: InputTypes) -> tuple[TensorType, ...]:
    condition, body = _graphs(op, inputs)
    results = _results(condition)
    if len(results) != 1:
        raise CrtExportError(f"the graph of its condition gives {len(results)} values, not one")
    _truth(results[0], "the condition")
    carried = tuple(same(body.type(tensor)) for tensor in body.inputs[: len(body.outputs)])
    if _results(body) != carried:
        raise CrtExportError(
            f"its body makes {_listed(_results(body))} of {_listed(carried)}",
            hint="values that a loop carries must keep their types and shapes",
        )
    return carried


def _graphs(op: Control, inputs: InputTypes) -> tuple[Graph, ...]:
    """Returns the node's graphs, whose inputs must fit those that the node passes to them."""
    if len(inputs.graphs) != op.graphs:
        raise CrtExportError(f"expected {op.graphs} graphs, found {len(inputs.graphs)}")
    # What a loop only writes may begin as anything.
    free = len(inputs.graphs[1].outputs) if isinstance(op, While) else 0
    arguments = [
        None if position < free and inputs.optional(position) is None else same(inputs[position])
        for position in range(op.first, len(inputs.types))
    ]
    for number, graph in enumerate(inputs.graphs):
        wanted = [same(graph.type(tensor)) for tensor in graph.inputs]
        if len(wanted) != len(arguments):
            raise CrtExportError(
                f"graph {number} takes {len(wanted)} inputs, but is given {len(arguments)}"
            )
        for position, (found, want) in enumerate(zip(arguments, wanted, strict=True)):
            if found is not None and found != want:
                raise CrtExportError(f"input {position} of graph {number} is {want}, not {found}")
    return inputs.graphs


def _results(graph: Graph) -> tuple[TensorType, ...]:
    return tuple(same(graph.type(tensor)) for tensor in graph.outputs)


def _truth(type_: TensorType, role: str) -> None:
    if type_.dtype is not DType.BOOL or type_.elements != 1:
        raise CrtExportError(f"{role} must be one truth value, found {type_}")


def _listed(types: tuple[TensorType, ...]) -> str:
    return ", ".join(map(str, types)) or "nothing"
