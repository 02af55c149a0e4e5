"""TensorFlow Lite's arithmetic on floats ends at the largest numbers, where C has infinities.

Its Add, Sub, Mul and Div clamp their results to the numbers that float32 has. That shows after
functions that make infinities of ordinary numbers: a softplus, log(1 + exp(x)), is 88.7 for a
large x there, and not infinite. There alone the limits become operators, which cost their time.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import (
    Activation,
    Add,
    Div,
    Exp,
    Log,
    Maximum,
    Minimum,
    Mul,
    Op,
    Pow,
    Rsqrt,
    Sub,
)
from crtexport.ir.types import ConstantRef, DType, TensorType

_ENDLESS = (Exp, Log, Pow, Rsqrt)
_LARGEST = np.float32(np.finfo(np.float32).max)


def with_limits(graph: Graph) -> Graph:
    """Returns ``graph``, and those of its nodes, with the limits behind such arithmetic."""
    endless = {
        tensor for node in graph.nodes if isinstance(node.op, _ENDLESS) for tensor in node.outputs
    }
    tensors, nodes = list(graph.tensors), list[Node]()
    for node in graph.nodes:
        if isinstance(node.op, Add | Sub | Mul | Div) and not endless.isdisjoint(node.inputs) and (
            tensors[node.outputs[0]].type.dtype is DType.FLOAT32
        ):
            nodes += _limited(node, node.op.activation, tensors)
        elif node.graphs:
            nodes.append(replace(node, graphs=tuple(map(with_limits, node.graphs))))
        else:
            nodes.append(node)
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _limited(node: Node, activation: Activation, tensors: list[Tensor]) -> list[Node]:
    """Returns ``node`` with the limits that its activation doesn't set already; adds tensors."""
    limits: list[tuple[Op, np.float32]] = []
    if activation is Activation.NONE:
        limits.append((Maximum(), -_LARGEST))
    if activation in (Activation.NONE, Activation.RELU):
        limits.append((Minimum(), _LARGEST))
    found, result = [node], tensors[node.outputs[0]]
    for op, limit in limits:
        constant = ConstantRef.of(np.array(limit))
        tensors += (
            Tensor(f"{result.name}/free", result.type),
            Tensor(f"{result.name}/limit", TensorType(DType.FLOAT32, ()), constant),
        )
        free, bound = len(tensors) - 2, len(tensors) - 1
        outputs = found[-1].outputs
        found[-1] = replace(found[-1], outputs=(free,))
        # A NaN stays: these operators give their second input where they can't compare.
        found.append(Node(op, (bound, free), outputs, node.name, node.origin))
    return found
