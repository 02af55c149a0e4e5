"""Writes a network anew without the channels that nothing needs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import DepthwiseConv2D, FullyConnected, Op, Pad, Reshape
from crtexport.ir.types import ConstantRef, Quantization, TensorType
from crtexport.passes.channels.layers import Array, Layer
from crtexport.passes.channels.needs import Needs, bias_type
from crtexport.passes.channels.ranges import Range


def rewrite(
    graph: Graph, layers: Mapping[int, Layer], ranges: Mapping[int, Range], needs: Needs
) -> Graph:
    """``graph`` with the channels that ``needs`` keeps. Old weights stay as tensors without use."""
    tensors = [
        _kept(tensor, needs.kept[number]) if not needs.kept[number].all() else tensor
        for number, tensor in enumerate(graph.tensors)
    ]
    nodes = []
    for number, node in enumerate(graph.nodes):
        if number in layers:
            nodes.append(_layer(graph, tensors, number, layers[number], ranges, needs))
        else:
            nodes.append(replace(node, op=_operator(graph, tensors, node, needs)))
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _kept(tensor: Tensor, which: Array) -> Tensor:
    """A tensor with some of the cells of its last axis."""
    type_ = replace(tensor.type, shape=(*tensor.type.shape[:-1], int(which.sum())))
    if tensor.constant is None:
        return replace(tensor, type=type_)
    values = tensor.constant.array(tensor.type)[..., which]
    return replace(tensor, type=type_, constant=ConstantRef.of(values))


def _operator(graph: Graph, tensors: list[Tensor], node: Node, needs: Needs) -> Op:
    """The operator with the attributes that say shapes."""
    op = node.op
    if isinstance(op, Reshape):
        return replace(op, shape=tensors[node.outputs[0]].type.shape)
    if isinstance(op, Pad) and op.paddings:
        before, _ = op.paddings[-1]
        source = graph.required(node, 0)
        inside = len(needs.kept[source])
        kept = needs.kept[node.outputs[0]]
        sides = int(kept[:before].sum()), int(kept[before + inside :].sum())
        return replace(op, paddings=(*op.paddings[:-1], sides))
    return op


def _layer(
    graph: Graph, tensors: list[Tensor], number: int, layer: Layer,
    ranges: Mapping[int, Range], needs: Needs,
) -> Node:
    """The layer with the weights of kept channels; what folded channels add is in its bias."""
    node, folded = layer.node, needs.folded[number]
    inputs, outputs = needs.kept[layer.x], needs.kept[layer.y]
    fixed = ranges[layer.y].constant | ~needs.live[layer.y]
    if inputs.all() and outputs.all() and not (folded.inputs | ~needs.live[layer.x]).any():
        return node
    weights, bias = graph.tensors[graph.required(node, 1)], layer.bias + folded.added
    # Any accumulator of a constant gives it, so the bias alone may; of what isn't read, any.
    ends, _ = layer.accumulators(ranges[layer.x].low, ranges[layer.x].high)
    low, high = layer.scaling.bounds
    constant = ranges[layer.y].constant & (low < high)
    bias = np.where(fixed, np.where(constant, ends, 0), bias)
    values = _cleared(layer, weights, fixed, folded.inputs | ~needs.live[layer.x])
    values = _selected(layer, values, inputs, outputs)
    numbers = [layer.x, len(tensors)]
    tensors.append(replace(
        weights, constant=ConstantRef.of(values),
        type=TensorType(weights.type.dtype, values.shape, _quant(weights.type.quant, outputs)),
    ))
    if graph.optional(node, 2) is not None or bias[outputs].any():
        numbers.append(len(tensors))
        tensors.append(_bias(graph, layer, bias[outputs], outputs))
    return replace(node, inputs=tuple(numbers))


def _cleared(layer: Layer, weights: Tensor, outputs: Array, inputs: Array) -> Array:
    """The weights as they are stored, real zero for the given outputs and inputs (masks)."""
    if weights.constant is None or weights.type.quant is None:
        raise ValueError("weights of a layer are constant and scaled")
    values = weights.constant.array(weights.type).copy()
    zero = weights.type.quant.zero_point[0]
    if isinstance(layer.node.op, DepthwiseConv2D):
        values[..., outputs | inputs[layer.source]] = zero
        return values
    values[outputs] = zero
    by_channel = values.reshape(*values.shape[:-1], -1, layer.inputs)
    by_channel[..., inputs] = zero
    return by_channel.reshape(values.shape)


def _selected(layer: Layer, values: Array, inputs: Array, outputs: Array) -> Array:
    if isinstance(layer.node.op, DepthwiseConv2D):
        return values[..., outputs]
    if isinstance(layer.node.op, FullyConnected):
        rows = int(outputs.sum())
        return values[outputs].reshape(rows, -1, layer.inputs)[..., inputs].reshape(rows, -1)
    return values[outputs][..., inputs]


def _quant(quant: Quantization | None, which: Array) -> Quantization | None:
    """The scales of some of the slices."""
    if quant is None or len(quant.scale) == 1:
        return quant
    numbers = np.flatnonzero(which).tolist()
    return replace(
        quant, scale=tuple(quant.scale[i] for i in numbers),
        zero_point=tuple(quant.zero_point[i] for i in numbers),
    )


def _bias(graph: Graph, layer: Layer, values: Array, which: Array) -> Tensor:
    dtype = bias_type(graph, layer.node)
    number = graph.optional(layer.node, 2)
    if number is None:
        name, quant = f"bias of {graph.tensors[layer.y].name}", _bias_scales(graph, layer)
    else:
        name, quant = graph.tensors[number].name, graph.type(number).quant
    return Tensor(
        name, TensorType(dtype, (len(values),), _quant(quant, which)),
        ConstantRef.of(values.astype(dtype.numpy)),
    )


def _bias_scales(graph: Graph, layer: Layer) -> Quantization | None:
    """Scale of input × scales of weights."""
    data = graph.type(layer.x).quant
    weights = graph.type(graph.required(layer.node, 1)).quant
    if data is None or weights is None:
        return None
    scales = tuple(data.scale[0] * scale for scale in weights.scale)
    return Quantization(scales, (0,) * len(scales), None if weights.axis is None else 0)
