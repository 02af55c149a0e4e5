"""Multiply-accumulates of a node, with which instruction counts are compared."""

from __future__ import annotations

import math

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node


def macs(graph: Graph, node: Node) -> int:
    """Returns the number of multiply-accumulates of a node per run, padding counted as data; 0 for
    operators without products.

    This is the usual count of MLPerf Tiny and of vendors' tables: outputs times products per
    output.
    """
    match node.op:
        case ops.Fused() | ops.Cascade():
            return sum(macs(graph, part) for part in node.parts)
        case ops.Conv2D() | ops.DepthwiseConv2D() | ops.FullyConnected():
            return _cells(graph, node.outputs[0]) * _products(graph, node)
        case ops.TransposeConv2D():
            weights = graph.type(graph.required(node, 1)).shape
            n, h, w, _ = graph.type(graph.required(node, 0)).shape
            return n * h * w * math.prod(weights)
        case ops.BatchMatMul():
            x = graph.type(graph.required(node, 0)).shape
            return _cells(graph, node.outputs[0]) * x[-2 if node.op.adj_x else -1]
        case ops.Svdf():
            return _weights(graph, node, (1, 2)) * graph.type(graph.required(node, 0)).shape[0]
        case ops.UnidirectionalSequenceLstm():
            steps = math.prod(graph.type(graph.required(node, 0)).shape[:-1])
            return steps * _weights(graph, node, range(1, 9))
        case ops.Rnn() | ops.Gru() | ops.Lstm():
            steps = math.prod(graph.type(graph.required(node, 0)).shape[:-1])
            return steps * _weights(graph, node, (1, 2))
        case _:
            return 0


def _cells(graph: Graph, tensor: int) -> int:
    return math.prod(graph.type(tensor).shape)


def _products(graph: Graph, node: Node) -> int:
    """Returns the products in one output: all weights but the axis of outputs."""
    shape = graph.type(graph.required(node, 1)).shape
    return math.prod(shape[1:3]) if isinstance(node.op, ops.DepthwiseConv2D) else math.prod(
        shape[1:]
    )


def _weights(graph: Graph, node: Node, positions: range | tuple[int, ...]) -> int:
    tensors = (graph.optional(node, position) for position in positions)
    return sum(_cells(graph, tensor) for tensor in tensors if tensor is not None)
