"""Splits fully connected operators whose results are only read in parts: one layer for each part.

Networks that compute gates, or queries, keys and values, with one matrix split its result
afterwards, which takes memory for both, and copies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import FullyConnected, Reshape, Slice
from crtexport.ir.strided_constant import moved
from crtexport.ir.types import Quantization, TensorType
from crtexport.passes.element_numbers import LARGE, Array, element_numbers, follow
from crtexport.passes.uses import reading

MOST = 8
"""The largest number of parts: each is a call of its own."""
LEAST = 4
"""The smallest number of units of a part."""


def split_layers(graph: Graph) -> Graph:
    """Replaces a fully connected operator by one for each part that is read, if each part is a
    range of units.

    Requires: nothing. Ensures: no product is computed twice, and no weight is stored twice.
    """
    readers = reading(graph)
    tensors, nodes = list(graph.tensors), list[Node]()
    gone = set[int]()
    for number, node in enumerate(graph.nodes):
        found = _Cuts(graph, node, readers) if _is_layer(graph, node, readers) else None
        if found is not None and found.worth:
            gone |= found.moves
            for part in found.parts:
                nodes += _part(node, part, tensors)
        elif number not in gone:
            nodes.append(node)
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _is_layer(graph: Graph, node: Node, readers: Mapping[int, list[int]]) -> bool:
    """Returns whether a node is a fully connected operator whose weights no other node reads."""
    if not isinstance(node.op, FullyConnected) or graph.type(node.outputs[0]).elements > LARGE:
        return False
    constants = [tensor for tensor in node.inputs[1:] if tensor is not None]
    return all(graph.constant(t) is not None and len(readers[t]) == 1 for t in constants)


class _LayerPart(Struct, frozen=True):
    """The tensor ``tensor`` is ``count`` units from unit ``first`` on."""

    tensor: int
    first: int
    count: int


class _Cuts:
    """The parts of a layer's result, and the nodes that only move them.

    ``worth`` is whether the parts cover everything that is read, and splitting pays.
    """

    def __init__(self, graph: Graph, layer: Node, readers: Mapping[int, list[int]]) -> None:
        self.graph, self.readers = graph, readers
        self.type = graph.type(layer.outputs[0])
        self.units = self.type.shape[-1]
        self.parts: list[_LayerPart] = []
        self.moves: set[int] = set()
        self.worth = (
            self._follow(layer.outputs[0], element_numbers(self.type))
            and 1 < len(self.parts) <= MOST
            and all(part.count >= LEAST for part in self.parts)
            and sum(part.count for part in self.parts) <= self.units
        )

    def _follow(self, tensor: int, elements: Array) -> bool:
        """Returns whether ``tensor``, which holds these elements of the result, is a part or is
        split into parts."""
        if elements.size < self.type.elements:
            return self._add(tensor, elements)
        readers = self.readers.get(tensor)
        if tensor in self.graph.outputs or not readers:
            return False
        return all(self._follow_node(number, tensor, elements) for number in readers)

    def _follow_node(self, number: int, tensor: int, elements: Array) -> bool:
        node = self.graph.nodes[number]
        made = follow(self.graph, node, tensor, elements)
        self.moves.add(number)
        return made is not None and all(
            self._follow(output, array) for output, array in zip(node.outputs, made, strict=True)
        )

    def _add(self, tensor: int, elements: Array) -> bool:
        """Adds a tensor as a part if it is a range of units; returns whether it is."""
        rows = self.type.elements // self.units
        if not elements.size or elements.size % rows:
            return False
        count, first = elements.size // rows, int(elements.flat[0])
        expected = np.add.outer(np.arange(rows) * self.units, np.arange(first, first + count))
        self.parts.append(_LayerPart(tensor, first, count))
        return (
            first + count <= self.units and np.array_equal(elements.reshape(rows, -1), expected)
            and self.graph.type(tensor).quant == self.type.quant
        )


def _part(layer: Node, part: _LayerPart, tensors: list[Tensor]) -> list[Node]:
    """Returns the layer of a part, and a Reshape if the part has another shape."""
    inputs = [layer.inputs[0]]
    for source in layer.inputs[1:]:
        inputs.append(None if source is None else len(tensors))
        if source is not None:
            tensors.append(_rows(tensors[source], part))
    wanted, whole = tensors[part.tensor], tensors[layer.outputs[0]].type
    shape = (*whole.shape[:-1], part.count)
    if wanted.type.shape == shape:
        return [replace(layer, inputs=tuple(inputs), outputs=(part.tensor,))]
    tensors.append(replace(wanted, type=replace(wanted.type, shape=shape)))
    made = len(tensors) - 1
    return [
        replace(layer, inputs=tuple(inputs), outputs=(made,)),
        Node(Reshape(wanted.type.shape), (made,), (part.tensor,), wanted.name, layer.origin),
    ]


def _rows(source: Tensor, part: _LayerPart) -> Tensor:
    """Returns the weights or the biases of a part."""
    shape = (part.count, *source.type.shape[1:])
    begin = (part.first, *(0 for _ in shape[1:]))
    (constant,) = moved(Slice(begin, shape, (1,) * len(shape), shape), [source]) or (None,)
    quant = source.type.quant
    if quant is not None and not quant.per_tensor and quant.axis == 0:
        ends = slice(part.first, part.first + part.count)
        quant = Quantization(quant.scale[ends], quant.zero_point[ends], 0)
    name = f"{source.name}[{part.first}:{part.first + part.count}]"
    return Tensor(name, TensorType(source.type.dtype, shape, quant), constant)
