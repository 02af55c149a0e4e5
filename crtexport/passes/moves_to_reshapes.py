"""Replaces operators that move no element by Reshapes."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node


def moves_to_reshapes(graph: Graph) -> Graph:
    """Turns operators that keep all elements in their order into Reshapes, which the planner makes
    views.

    These are a Transpose that moves only axes of size 1, a Slice of everything, and a Split or
    Concatenation of one tensor. Requires: nothing. Ensures: no such operator is left; outputs keep
    their scales and zero points.
    """
    return graph.with_nodes(tuple(
        replace(node, op=ops.Reshape(graph.type(node.outputs[0]).shape))
        if _moves_nothing(graph, node) else node
        for node in graph.nodes
    ))


def _moves_nothing(graph: Graph, node: Node) -> bool:
    if len(node.inputs) != 1 or len(node.outputs) != 1:
        return False
    before, after = graph.type(graph.required(node, 0)), graph.type(node.outputs[0])
    # A Concatenation may requantize its only input.
    if before.elements != after.elements or before.quant != after.quant:
        return False
    match node.op:
        case ops.Transpose(permutation=permutation):
            moved = [axis for axis in permutation if before.shape[axis] != 1]
            return moved == sorted(moved)
        case ops.Slice(size=size, stride=stride):
            return all(n <= 1 or step == 1 for n, step in zip(size, stride, strict=True))
        case ops.Concatenation(activation=activation):
            return activation is ops.Activation.NONE
        case (
            ops.BroadcastTo() | ops.Tile() | ops.Split() | ops.Unpack() | ops.Pack() | ops.Pad()
            | ops.MirrorPad()
        ):
            return True
        case _:
            return False
