"""Fuses a clamp into the operator before it."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.passes.uses import producers, readers

_CLAMP: dict[type[ops.Op], ops.Activation] = {
    ops.Relu: ops.Activation.RELU, ops.Relu6: ops.Activation.RELU6,
    ops.ReluN1To1: ops.Activation.RELU_N1_TO_1,
}


def fuse_activation(graph: Graph) -> Graph:
    """Makes Relu, Relu6 and ReluN1To1 the activation of the operator before them, if nothing else
    reads its result.

    Requires: nothing. Ensures: that operator computes the clamp's output itself. On quantized
    tensors, only clamps that keep scale and zero point are fused: these change no integer between
    their bounds, which are those of the fused activation.
    """
    uses, computed_by = readers(graph), producers(graph)
    replaced: dict[int, Node | None] = {}
    for node in graph.nodes:
        activation = _CLAMP.get(type(node.op))
        if activation is None:
            continue
        tensor = graph.required(node, 0)
        before = computed_by.get(tensor)
        if before is None or uses[tensor] != 1:
            continue
        op = _with_activation(before.op, activation)
        if op is None or graph.type(tensor).quant != graph.type(node.outputs[0]).quant:
            continue
        replaced[before.outputs[0]] = replace(before, op=op, outputs=node.outputs)
        replaced[node.outputs[0]] = None
    nodes = (
        replaced.get(node.outputs[0], node) if node.outputs else node for node in graph.nodes
    )
    return graph.with_nodes(tuple(node for node in nodes if node is not None))


def _with_activation(op: ops.Op, activation: ops.Activation) -> ops.Op | None:
    """Returns ``op`` with a fused activation; None if it can't have one or already has one."""
    match op:
        case (
            ops.Conv2D() | ops.DepthwiseConv2D() | ops.FullyConnected() | ops.TransposeConv2D()
            | ops.AveragePool2D() | ops.MaxPool2D() | ops.Add() | ops.Sub() | ops.Mul()
        ) if op.activation is ops.Activation.NONE:
            return replace(op, activation=activation)
        case _:
            return None
