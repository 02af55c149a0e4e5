"""Marks weights of fewer than 8 bits that kernels read packed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected, TransposeConv2D
from crtexport.ir.types import ConstantRef, DType

_WIDTHS = (2, 4)
_LAYERS = (Conv2D, DepthwiseConv2D, FullyConnected, TransposeConv2D)
_BY_UNITS = (Conv2D, FullyConnected)
"""Layers whose bytes hold weights of neighbouring output channels; in others, neighbouring weights
of one channel share a byte."""


def pack_weights(graph: Graph, allowed: Callable[[Graph, Node], bool]) -> Graph:
    """Returns ``graph`` with packed weights where their values fit 4 or 2 bits, whatever their type
    in the file.

    Weights are packed only if all their readers are convolutions (also depthwise and transposed) or
    fully connected layers, and ``allowed`` agrees for each reader, given the graph with packed
    weights. Requires: nothing. Ensures: the same results.
    """
    layers: dict[int, list[Node]] = {}
    others = set(graph.outputs)
    for node in graph.nodes:
        for position, tensor in enumerate(node.inputs):
            if tensor is None:
                continue
            if position == 1 and isinstance(node.op, _LAYERS):
                layers.setdefault(tensor, []).append(node)
            else:
                others.add(tensor)
    tensors = list(graph.tensors)
    for number, readers in layers.items():
        bits = None if number in others else _bits(graph, number, readers)
        if bits is None:
            continue
        packed = replace(tensors[number], packed_bits=bits)
        changed = (*graph.tensors[:number], packed, *graph.tensors[number + 1 :])
        if all(allowed(replace(graph, tensors=changed), node) for node in readers):
            tensors[number] = packed
    nodes = tuple(
        replace(node, graphs=tuple(pack_weights(inner, allowed) for inner in node.graphs))
        if node.graphs else node
        for node in graph.nodes
    )
    return replace(graph, tensors=tuple(tensors), nodes=nodes)


def _bits(graph: Graph, weights: int, readers: list[Node]) -> int | None:
    """Returns the fewest bits in which all ``readers`` can read their weights; None for whole
    bytes."""
    type_, constant = graph.type(weights), graph.constant(weights)
    if constant is None or type_.dtype is not DType.INT8 or not type_.nbytes:
        return None
    # The weights of a byte belong to neighbouring output channels of one group.
    by_units = [isinstance(node.op, _BY_UNITS) for node in readers]
    if len({*by_units}) > 1:
        return None
    block_sizes = [type_.shape[0] if by_units[0] else type_.elements]
    for node in readers:
        depth = graph.type(graph.required(node, 0)).shape[-1]
        if isinstance(node.op, Conv2D) and depth != type_.shape[3]:
            block_sizes.append(type_.shape[0] * type_.shape[3] // depth)
    least = _least_bits(constant)
    for bits in _WIDTHS:
        several = 8 // bits
        single = len(block_sizes) == 1
        if bits >= least and min(block_sizes) > 1 and (
            single or all(count % several == 0 for count in block_sizes)
        ):
            return bits
    return None


def _least_bits(constant: ConstantRef) -> int:
    """Returns the bits, at most 8, that the constant's int8 values need."""
    needed = 0
    for chunk in constant.chunks():
        values = np.frombuffer(chunk, np.int8)
        largest = int((values ^ (values >> 7)).max())  # ~x for x < 0
        needed = max(needed, largest.bit_length() + 1)
        if needed > max(_WIDTHS):
            return 8
    return needed
