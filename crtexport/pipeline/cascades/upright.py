"""Images of one row, which run along time, turned upright: each of their pixels is a row then.

The elements stay in their order: only layers of a cascade are turned, and what they read and write
has the other shape around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import TensorType

V = TypeVar("V")
_IMAGE = 4
_KERNEL = ops.Conv2D | ops.DepthwiseConv2D | ops.TransposeConv2D
_TURNED = (
    _KERNEL | ops.MaxPool2D | ops.AveragePool2D | ops.ChannelSums | ops.Elementwise | ops.Quantize
    | ops.Dequantize | ops.Concatenation | ops.Pad | ops.Slice | ops.ResizeNearestNeighbor
)
"""Operators of layers that can be turned."""


def upright(graph: Graph) -> Graph:
    """Returns the graph as it is where images of one row, wherever all layers of them can be
    turned, have one column instead: the same nodes and tensors by number. Other nodes that use such
    a tensor don't fit to it any more."""
    turned = _turned(graph)
    if not turned:
        return graph
    tensors = [
        replace(tensor, type=_turn(tensor.type)) if number in turned else tensor
        for number, tensor in enumerate(graph.tensors)
    ]
    nodes = []
    for node in graph.nodes:
        if not isinstance(node.op, _TURNED) or turned.isdisjoint(node.outputs):
            nodes.append(node)
            continue
        inputs = list(node.inputs)
        for position, tensor in enumerate(node.inputs):
            if tensor is None or graph.constant(tensor) is None:
                continue
            shape = _constant_shape(node.op, graph.type(tensor).shape)
            if shape != graph.type(tensor).shape:
                inputs[position] = len(tensors)
                tensors.append(_with_shape(graph.tensors[tensor], shape))
        nodes.append(replace(node, op=_op(node.op), inputs=tuple(inputs)))
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def joined(graph: Graph, turned: Graph, cascades: Iterable[tuple[int, int, Node]]) -> Graph:
    """Returns a graph with nodes ``start`` to ``end`` (exclusive) of each cascade replaced by it;
    its parts are those of ``turned``, which is :func:`upright` of the graph."""
    tensors = [*graph.tensors, *turned.tensors[len(graph.tensors) :]]
    nodes: list[Node] = []
    at = 0
    for start, end, cascade in cascades:
        nodes += graph.nodes[at:start]
        inputs = tuple(t for t in cascade.inputs if t is not None)
        around, inside = {*inputs, *cascade.outputs}, dict[int, int]()
        for tensor in sorted(around | {t for part in cascade.parts for t in part.outputs}):
            if turned.tensors[tensor].type == tensors[tensor].type:
                continue
            if tensor in around:
                inside[tensor] = len(tensors)
                tensors.append(turned.tensors[tensor])
            else:
                tensors[tensor] = turned.tensors[tensor]
        nodes += (
            Node(ops.Reshape(tensors[inside[t]].type.shape), (t,), (inside[t],), cascade.name,
                 f"shape of {cascade}")
            for t in inputs if t in inside
        )
        nodes.append(_renumbered(cascade, inside))
        nodes += (
            Node(ops.Reshape(tensors[t].type.shape), (inside[t],), (t,), cascade.name,
                 f"shape of {cascade}")
            for t in cascade.outputs if t in inside
        )
        at = end
    return replace(graph, tensors=tuple(tensors), nodes=(*nodes, *graph.nodes[at:]))


def _renumbered(node: Node, numbers: Mapping[int, int]) -> Node:
    def of(tensors: Sequence[int | None]) -> tuple[int | None, ...]:
        return tuple(t if t is None else numbers.get(t, t) for t in tensors)

    return replace(
        node, inputs=of(node.inputs), outputs=tuple(numbers.get(t, t) for t in node.outputs),
        parts=tuple(_renumbered(part, numbers) for part in node.parts),
    )


def _turned(graph: Graph) -> set[int]:
    """Returns the tensors that are turned: those of one row of which each layer that computes rows
    can be turned."""
    turned = {
        number for number, tensor in enumerate(graph.tensors)
        if _is_row(tensor.type) and graph.constant(number) is None
    }
    if all(graph.type(tensor).shape[2] == 1 for tensor in turned):
        return set()
    layers = [node for node in graph.nodes if isinstance(node.op, _TURNED)]
    while True:
        fixed: set[int] = set()
        for node in layers:
            used = {
                t for t in (*node.inputs, *node.outputs)
                if t is not None and graph.constant(t) is None
            }
            if not (used <= turned and _can(graph, node)):
                fixed |= used & turned
        if not fixed:
            return turned
        turned -= fixed


def _is_row(type_: TensorType) -> bool:
    return len(type_.shape) == _IMAGE and type_.shape[:2] == (1, 1)


def _can(graph: Graph, node: Node) -> bool:
    """Returns whether a layer of images of one row computes nothing from rows around it."""
    op = node.op
    if isinstance(op, _KERNEL) and graph.type(graph.required(node, 1)).shape[1] != 1:
        return False
    if isinstance(op, ops.MaxPool2D | ops.AveragePool2D) and op.window[0] != 1:
        return False
    if isinstance(op, ops.Slice):
        return op.size == op.shape
    return not isinstance(op, ops.Concatenation) or op.axis == _IMAGE - 1


def _op(op: ops.Op) -> ops.Op:
    """Returns the operator with rows and columns the other way round."""
    match op:
        case ops.Conv2D() | ops.DepthwiseConv2D():
            return replace(
                op, stride=_swapped(op.stride), dilation=_swapped(op.dilation),
                padding=_padding(op.padding),
            )
        case ops.TransposeConv2D():
            return replace(
                op, size=_swapped(op.size), stride=_swapped(op.stride), crop=_swapped(op.crop)
            )
        case ops.MaxPool2D() | ops.AveragePool2D():
            return replace(
                op, window=_swapped(op.window), stride=_swapped(op.stride),
                padding=_padding(op.padding),
            )
        case ops.ResizeNearestNeighbor():
            return replace(op, size=_swapped(op.size))
        case ops.Pad():
            return ops.Pad(_axes(op.paddings))
        case ops.Slice():
            return ops.Slice(*map(_axes, (op.begin, op.size, op.stride, op.shape)))
        case _:
            return op


def _constant_shape(op: ops.Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of a constant that a turned layer reads: weights of one row, or what is
    broadcast over an image."""
    if isinstance(op, _KERNEL):
        return _axes(shape) if len(shape) == _IMAGE else shape
    wide = (1,) * (_IMAGE - len(shape)) + shape
    return shape if wide[1] == wide[2] else _axes(wide)


def _padding(padding: ops.Padding2D) -> ops.Padding2D:
    return ops.Padding2D(padding.left, padding.right, padding.top, padding.bottom)


def _swapped(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[1], pair[0]


def _axes(values: tuple[V, ...]) -> tuple[V, ...]:
    """Returns values of four axes with rows and columns the other way round."""
    batch, rows, columns, channels = values
    return (batch, columns, rows, channels)


def _turn(type_: TensorType) -> TensorType:
    return TensorType(type_.dtype, _axes(type_.shape), type_.quant)


def _with_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    type_ = tensor.type
    return replace(tensor, type=TensorType(type_.dtype, shape, type_.quant))
