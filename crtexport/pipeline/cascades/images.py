"""Layers of sequences and slices as layers of images, so that rows can be computed of them.

A sequence of shape (1, T, C) is an image of one row or column: layers of it that stand between
those of images, as converters leave them around convolutions over time, become layers of such.
A slice of an image stays an image: what it becomes another shape afterwards is a node of its own.
"""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import TensorType
from crtexport.passes.drop_dead import drop_dead

_SEQUENCE = 3
_IMAGE = 4


def as_images(graph: Graph) -> Graph:
    """Returns the graph with layers of sequences and slices as layers of images."""
    made = _Images(graph).run()
    return graph if made.nodes == graph.nodes else _without_detours(made)


def fed_tensor(graph: Graph) -> tuple[int, int]:
    """Returns the image that the rows of a graph's one input are, and the number of the node that
    reads it first. Those before only give the input that shape."""
    tensor = graph.inputs[0]
    for number, node in enumerate(graph.nodes):
        if tensor not in node.inputs:
            continue
        others = any(tensor in later.inputs for later in graph.nodes[number + 1 :])
        if others or not isinstance(node.op, ops.Reshape):
            return tensor, number
        tensor = node.outputs[0]
    return tensor, len(graph.nodes)


class _Images:
    """Gathers the tensors and nodes of the graph that is made."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors = list(graph.tensors)
        self._nodes: list[Node] = []
        axes = [_widened(graph, node) for node in graph.nodes if isinstance(node.op, ops.Reshape)]
        self._axis = min((axis for axis in axes if axis is not None), default=None)

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if isinstance(node.op, ops.Slice):
                self._slice(node, node.op)
            elif self._axis is not None and (
                op := _of_image(self._graph, node, self._axis)
            ) is not None:
                self._layer(replace(node, op=op), self._axis)
            else:
                self._nodes.append(node)
        return replace(self._graph, tensors=tuple(self._tensors), nodes=tuple(self._nodes))

    def _slice(self, node: Node, op: ops.Slice) -> None:
        """A slice of an image, then its shape."""
        source, axis = self._graph.required(node, 0), self._axis
        if axis is not None and _is_sequence(self._graph.type(source)):
            begin = _wider(op.begin, axis, 0)
            size, stride = _wider(op.size, axis), _wider(op.stride, axis)
            source = self._shaped(source, _wider(self._graph.type(source).shape, axis), node)
            op = ops.Slice(begin, size, stride, op.shape)
        if len(op.size) != _IMAGE or op.size == op.shape:
            self._nodes.append(node)
            return
        (output,) = node.outputs
        made = self._like(output, op.size)
        self._nodes += [
            replace(node, op=replace(op, shape=op.size), inputs=(source,), outputs=(made,)),
            _reshape(op.shape, made, output, node),
        ]

    def _layer(self, node: Node, axis: int) -> None:
        """A layer of sequences as one of images."""
        inputs = tuple(
            tensor if tensor is None or self._graph.constant(tensor) is not None
            else self._shaped(tensor, _wider(self._graph.type(tensor).shape, axis), node)
            for tensor in node.inputs
        )
        (output,) = node.outputs
        shape = self._graph.type(output).shape
        made = self._like(output, _wider(shape, axis))
        self._nodes += [
            replace(node, inputs=inputs, outputs=(made,)), _reshape(shape, made, output, node)
        ]

    def _shaped(self, tensor: int, shape: tuple[int, ...], node: Node) -> int:
        found = self._like(tensor, shape)
        self._nodes.append(_reshape(shape, tensor, found, node))
        return found

    def _like(self, tensor: int, shape: tuple[int, ...]) -> int:
        given = self._graph.tensors[tensor]
        type_ = TensorType(given.type.dtype, shape, given.type.quant)
        self._tensors.append(Tensor(given.name, type_))
        return len(self._tensors) - 1


def _reshape(shape: tuple[int, ...], source: int, target: int, node: Node) -> Node:
    return Node(ops.Reshape(shape), (source,), (target,), node.name, f"shape of {node}")


def _wider(values: tuple[int, ...], axis: int, value: int = 1) -> tuple[int, ...]:
    """Returns values of the three axes of a sequence with one for a fourth."""
    return (*values[:axis], value, *values[axis:])


def _is_sequence(type_: TensorType) -> bool:
    return len(type_.shape) == _SEQUENCE and type_.shape[0] == 1


def _widened(graph: Graph, node: Node) -> int | None:
    """Returns the axis that a sequence has not but the image that a Reshape makes of it, or it of
    that; None for other shapes, or where that can't be told."""
    shapes = [graph.type(t).shape for t in (graph.required(node, 0), node.outputs[0])]
    short, long = sorted(shapes, key=len)
    if len(short) != _SEQUENCE or len(long) != _IMAGE or short[1] == 1:
        return None
    return next((axis for axis in (1, 2) if long == _wider(short, axis)), None)


def _of_image(graph: Graph, node: Node, axis: int) -> ops.Op | None:
    """Returns the operator for images with one row or column, whose ``axis`` that is, that computes
    what a node does with sequences; None where there is none, or these aren't sequences."""
    if node.graphs or len(node.outputs) != 1:
        return None
    tensors = (*(t for t in node.inputs if t is not None), *node.outputs)
    given = [graph.type(t) for t in tensors if graph.constant(t) is None]
    if not all(map(_is_sequence, given)):
        return None
    match node.op:
        case ops.Elementwise() | ops.Quantize() | ops.Dequantize():
            return node.op
        case ops.Concatenation(axis=joined, activation=activation) if joined == _SEQUENCE - 1:
            return ops.Concatenation(_IMAGE - 1, activation)
        case ops.Pad(paddings=paddings):
            return ops.Pad((*paddings[:axis], (0, 0), *paddings[axis:]))
        case _:
            return None


def _without_detours(graph: Graph) -> Graph:
    """Returns the graph without Reshapes to the shape that a tensor had before another one."""
    before: dict[int, tuple[int, ...]] = {}
    same: dict[int, int] = {}
    nodes = []
    for node in graph.nodes:
        inputs = tuple(t if t is None else same.get(t, t) for t in node.inputs)
        if isinstance(node.op, ops.Reshape) and not graph.outputs.count(node.outputs[0]):
            source, output = graph.required(node, 0), node.outputs[0]
            before[output] = (*before.get(source, ()), source)
            known = next((t for t in before[output] if graph.type(t) == graph.type(output)), None)
            if known is not None:
                same[output] = same.get(known, known)
                continue
        nodes.append(replace(node, inputs=inputs))
    return drop_dead(graph.with_nodes(tuple(nodes)))
