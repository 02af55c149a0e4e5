"""Means over whole images as sums, which can grow row by row, and their means."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import AverageOfSums, AveragePool2D, ChannelSums
from crtexport.ir.types import DType, TensorType


def with_sums(graph: Graph) -> Graph:
    """Returns the graph with means over whole images of integers as sums, which grow row by row,
    and their means."""
    tensors, nodes = list(graph.tensors), []
    for node in graph.nodes:
        if not _is_mean(graph, node):
            nodes.append(node)
            continue
        source, output = graph.required(node, 0), node.outputs[0]
        _, height, width, channels = graph.type(source).shape
        tensors.append(Tensor(
            f"sums of {graph.tensors[source].name}", TensorType(DType.INT32, (1, 1, 1, channels))
        ))
        between = len(tensors) - 1
        mean = AverageOfSums(height * width, cast(AveragePool2D, node.op).activation)
        nodes += [
            replace(node, op=ChannelSums(), outputs=(between,), origin=f"sums of {node}"),
            replace(node, op=mean, inputs=(between,), outputs=(output,)),
        ]
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _is_mean(graph: Graph, node: Node) -> bool:
    if not isinstance(node.op, AveragePool2D) or graph.numerics is Numerics.ORT:
        return False
    source = graph.type(graph.required(node, 0))
    cells = source.shape[1] * source.shape[2]
    few = source.dtype.is_integer and cells <= (1 << 31 - 8 * source.dtype.itemsize)
    return few and source.shape[0] == 1 and (
        node.op.window == source.shape[1:3] and not node.op.padding.any
    )


def without_sums(graph: Graph) -> Graph:
    """Returns the graph with sums that are no part of a cascade as what they were."""
    sums = {
        node.outputs[0]: node for node in graph.nodes if isinstance(node.op, ChannelSums)
    }
    nodes = []
    for node in graph.nodes:
        whole = sums.get(node.inputs[0] or 0) if isinstance(node.op, AverageOfSums) else None
        if whole is not None and isinstance(node.op, AverageOfSums):
            shape = graph.type(graph.required(whole, 0)).shape
            pool = AveragePool2D((shape[1], shape[2]), activation=node.op.activation)
            nodes.append(replace(node, op=pool, inputs=whole.inputs))
        elif not (node.outputs and node.outputs[0] in sums):
            nodes.append(node)
    return graph.with_nodes(tuple(nodes))
