"""Rebuilds a network without the channels that aren't needed."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import Op, Pad, Reshape
from crtexport.ir.types import ConstantRef, Quantization, TensorType
from crtexport.passes.channels.known import ChannelFacts
from crtexport.passes.channels.layers import Array, IntegerLayer, taps_of
from crtexport.passes.channels.needs import Needs, bias_type
from crtexport.passes.channels.ranges import ChannelRange


def rewrite(facts: ChannelFacts, needs: Needs) -> Graph:
    """Returns the graph with the channels that ``needs`` keeps. Old weights stay as unused tensors.
    """
    graph = facts.graph
    tensors = [
        _kept(tensor, needs.kept[number]) if not needs.kept[number].all() else tensor
        for number, tensor in enumerate(graph.tensors)
    ]
    nodes = []
    for number, node in enumerate(graph.nodes):
        if number in facts.layers:
            nodes.append(_layer(facts, tensors, number, needs))
        else:
            nodes.append(replace(node, op=_operator(graph, tensors, node, needs)))
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _kept(tensor: Tensor, which: Array) -> Tensor:
    """Returns a tensor with only some cells of its last axis."""
    type_ = replace(tensor.type, shape=(*tensor.type.shape[:-1], int(which.sum())))
    if tensor.constant is None:
        return replace(tensor, type=type_)
    values = tensor.constant.array(tensor.type)[..., which]
    return replace(tensor, type=type_, constant=ConstantRef.of(values))


def _operator(graph: Graph, tensors: list[Tensor], node: Node, needs: Needs) -> Op:
    """Returns the operator with its shape attributes adapted."""
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


def _layer(facts: ChannelFacts, tensors: list[Tensor], number: int, needs: Needs) -> Node:
    """Returns the layer with the weights of the kept channels; its bias includes the contributions
    of folded channels."""
    graph, layer, folded = facts.graph, facts.layers[number], facts.folded[number]
    node, given, result = layer.node, facts.ranges[layer.x], facts.ranges[layer.y]
    inputs, outputs = needs.kept[layer.x], needs.kept[layer.y]
    fixed, unread = result.constant | ~needs.live[layer.y], folded.inputs | ~needs.live[layer.x]
    if inputs.all() and outputs.all() and not unread.any():
        return node
    weights, bias = graph.tensors[graph.required(node, 1)], layer.bias + folded.added
    if np.count_nonzero(fixed & outputs):
        bias = np.where(fixed, _of_constants(layer, given, result), bias)
    taps = taps_of(graph, node)
    if taps is None:
        raise ValueError("a layer has weights that meet its input")
    values = _stored(weights.type, _selected(layer, taps, (outputs, fixed), (inputs, unread)))
    numbers = [layer.x, len(tensors)]
    tensors.append(replace(
        weights, constant=ConstantRef.of(values),
        type=TensorType(weights.type.dtype, values.shape, _quant(weights.type.quant, outputs)),
    ))
    if graph.optional(node, 2) is not None or np.count_nonzero(bias[outputs]):
        numbers.append(len(tensors))
        tensors.append(_bias(graph, layer, bias[outputs], outputs))
    return replace(node, inputs=tuple(numbers))


def _of_constants(layer: IntegerLayer, input_range: ChannelRange, result: ChannelRange) -> Array:
    """Returns biases that alone give the constant outputs; 0 for outputs that aren't constant."""
    # Every accumulator in the range gives the constant.
    ends, _ = layer.accumulators(input_range.low, input_range.high)
    low, high = layer.scaling.bounds
    return np.where(result.constant & (low < high), ends, 0)


def _selected(
    layer: IntegerLayer, taps: Array, outputs: tuple[Array, Array], inputs: tuple[Array, Array]
) -> Array:
    """Returns the weights of the kept outputs and inputs; 0 for inputs that are folded. All are
    masks."""
    (made, fixed), (read, unread) = outputs, inputs
    if layer.depthwise:
        chosen = taps[..., made]
        chosen[..., (fixed | unread[layer.source])[made]] = 0
    else:
        chosen = taps[made][..., read]
        chosen[fixed[made]] = 0
        chosen[..., unread[read]] = 0
    return chosen


def _stored(type_: TensorType, taps: Array) -> Array:
    """Returns weights as they are stored, in the shape of ``type_`` with these numbers of channels.
    """
    zero = type_.quant.zero_point[0] if type_.quant is not None else 0
    values = (taps + zero).astype(type_.dtype.numpy)
    outputs, *window, _ = type_.shape
    last = values.shape[-1]
    if values.ndim == 2:
        return values.reshape(outputs, *window, last)
    return values.reshape(len(values), *window, last if window else -1)


def _quant(quant: Quantization | None, which: Array) -> Quantization | None:
    """Returns the scales of the kept slices."""
    if quant is None or len(quant.scale) == 1:
        return quant
    numbers = np.flatnonzero(which).tolist()
    return replace(
        quant, scale=tuple(quant.scale[i] for i in numbers),
        zero_point=tuple(quant.zero_point[i] for i in numbers),
    )


def _bias(graph: Graph, layer: IntegerLayer, values: Array, which: Array) -> Tensor:
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


def _bias_scales(graph: Graph, layer: IntegerLayer) -> Quantization | None:
    """Returns scale of input × scales of weights."""
    data = graph.type(layer.x).quant
    weights = graph.type(graph.required(layer.node, 1)).quant
    if data is None or weights is None:
        return None
    scales = tuple(data.scale[0] * scale for scale in weights.scale)
    return Quantization(scales, (0,) * len(scales), None if weights.axis is None else 0)
