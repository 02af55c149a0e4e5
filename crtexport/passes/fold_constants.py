"""Evaluates nodes that depend only on constants."""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.evaluate import evaluate
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.strided_constant import moved
from crtexport.ir.types import ConstantRef, DType, Made, TensorType

_WEIGHTS = 1
_LARGE = 1 << 20
"""Constants up to this number of bytes are folded in memory; larger ones are moved while they are
written."""
_CHANNEL_AXIS: dict[type[ops.Op], int] = {
    ops.Conv2D: 0, ops.FullyConnected: 0, ops.TransposeConv2D: 0, ops.DepthwiseConv2D: 3,
}


def fold_constants(graph: Graph) -> Graph:
    """Evaluates operators on constants: Reshape, Dequantize, other operators that only move
    elements, and integer arithmetic.

    If a Dequantize makes floats of the int8 weights of a convolution or fully connected operator,
    that operator reads the int8 weights instead: its kernel scales them, and flash holds a quarter
    of the bytes.

    Requires: nothing. Ensures: no Reshape or Dequantize reads a constant, except a Reshape that
    copies one to a graph output; nothing grows to more than a few kilobytes. Large constants are
    moved while they are written, and never computed with.
    """
    tensors = list(graph.tensors)
    stored: dict[int, int] = {}  # the int8 constant behind each Dequantize, by its output
    nodes: list[Node] = []
    for node in graph.nodes:
        source = _foldable_input(graph, node)
        if source is None or tensors[source].constant is None:
            constants = _evaluated(graph, node, tensors)
            if constants is None:
                nodes.append(_with_stored_weights(node, tensors, stored))
            else:
                for output, constant in zip(node.outputs, constants, strict=True):
                    tensors[output] = replace(tensors[output], constant=constant)
            continue
        output = node.outputs[0]
        if isinstance(node.op, ops.Dequantize) and tensors[source].type.dtype is DType.INT8:
            stored[output] = source
        if output not in stored or not _only_weights(graph, output, tensors[source].type):
            tensors[output] = _folded(node.op, tensors[source], tensors[output])
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _foldable_input(graph: Graph, node: Node) -> int | None:
    """Returns the input of a node that would be folded if that input were constant."""
    match node.op:
        case ops.Dequantize():
            return node.inputs[0]
        case ops.Reshape() if node.outputs[0] not in graph.outputs:
            return node.inputs[0]
        case _:
            return None


def _evaluated(graph: Graph, node: Node, tensors: list[Tensor]) -> list[ConstantRef] | None:
    """Returns the outputs of a node that only moves constants, or computes shapes and indices from
    them."""
    if not set(graph.outputs).isdisjoint(node.outputs):
        return None
    given = [tensors[t] for t in node.inputs if t is not None]
    if len(given) < len(node.inputs):
        return None
    if sum(tensor.type.nbytes for tensor in given) > _LARGE:
        return moved(node.op, given)
    arrays = evaluate(node.op, given, [graph.type(t).dtype for t in node.outputs])
    return None if arrays is None else list(map(ConstantRef.of, arrays))


def _with_stored_weights(
    node: Node, tensors: list[Tensor], stored: dict[int, int]
) -> Node:
    """Returns ``node`` with int8 weights in place of their dequantized floats."""
    weights = node.inputs[_WEIGHTS] if len(node.inputs) > _WEIGHTS else None
    source = stored.get(weights) if weights is not None else None
    if source is None or not _scalable(node.op, tensors[source].type):
        return node
    inputs = (*node.inputs[:_WEIGHTS], source, *node.inputs[_WEIGHTS + 1 :])
    return replace(node, inputs=inputs)


def _scalable(op: ops.Op, weights: TensorType) -> bool:
    """Returns whether the kernels of ``op`` can scale these weights: symmetric, per tensor or per
    channel."""
    axis, quant = _CHANNEL_AXIS.get(type(op)), weights.quant
    if axis is None or quant is None or any(quant.zero_point):
        return False
    return quant.per_tensor or quant.axis == axis


def _only_weights(graph: Graph, tensor: int, source: TensorType) -> bool:
    """Returns whether all readers of ``tensor`` can read ``source`` as their weights instead."""
    return tensor not in graph.outputs and all(
        position == _WEIGHTS and _scalable(node.op, source)
        for node in graph.nodes
        for position, read in enumerate(node.inputs)
        if read == tensor
    )


def _folded(op: ops.Op, source: Tensor, output: Tensor) -> Tensor:
    """Returns ``output`` as a constant."""
    if source.constant is None:
        raise ValueError(f"{source.name!r} is no constant")
    if isinstance(op, ops.Reshape):
        return replace(output, constant=source.constant)
    sizes = source.type.dtype.itemsize, output.type.dtype.itemsize
    made = Made(source.constant, _RealValues(source.type), sizes)
    return replace(output, constant=ConstantRef(nbytes=output.type.nbytes, made=made))


class _RealValues(Struct, frozen=True):
    """The conversion of a type's stored values to real values, as float32."""

    type: TensorType

    def __call__(self, position: int, piece: bytes) -> bytes:
        type_, quant = self.type, self.type.quant
        values = np.frombuffer(piece, type_.dtype.numpy)
        if quant is None:
            return values.astype("<f4").tobytes()
        zero, scale = np.array(quant.zero_point, np.int64), np.array(quant.scale, np.float32)
        if quant.axis is not None and len(scale) > 1:
            start, inner = position // type_.dtype.itemsize, prod(type_.shape[quant.axis + 1 :])
            channel = np.arange(start, start + len(values)) // inner % type_.shape[quant.axis]
            zero, scale = zero[channel], scale[channel]
        real = (values.astype(np.int64) - zero).astype(np.float32) * scale
        return real.astype("<f4").tobytes()
