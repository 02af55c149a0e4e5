"""Fuses a clamp into the operator before it."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import (
    Activation,
    Add,
    AveragePool2D,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool2D,
    Mul,
    Op,
    Relu,
    Relu6,
    ReluN1To1,
    Sub,
    TransposeConv2D,
)
from crtexport.passes.uses import producers, readers

_CLAMP: dict[type[Op], Activation] = {
    Relu: Activation.RELU, Relu6: Activation.RELU6, ReluN1To1: Activation.RELU_N1_TO_1,
}


def fuse_activation(graph: Graph) -> Graph:
    """Makes Relu, Relu6 and ReluN1To1 the activation of the operator whose result only they read.

    Requires: nothing. Ensures: that operator computes the clamp's output itself. Quantized tensors
    are fused only where the clamp keeps scale and zero point: it then moves no integer between its
    bounds, which are those of the fused activation.
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


def _with_activation(op: Op, activation: Activation) -> Op | None:
    """Returns ``op`` with a fused activation; None where it can't have one or has one already."""
    match op:
        case (
            Conv2D(activation=Activation.NONE) | DepthwiseConv2D(activation=Activation.NONE)
            | FullyConnected(activation=Activation.NONE)
            | TransposeConv2D(activation=Activation.NONE)
            | AveragePool2D(activation=Activation.NONE) | MaxPool2D(activation=Activation.NONE)
            | Add(activation=Activation.NONE) | Sub(activation=Activation.NONE)
            | Mul(activation=Activation.NONE)
        ):
            return replace(op, activation=activation)
        case _:
            return None
