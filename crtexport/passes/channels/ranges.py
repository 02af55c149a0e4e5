"""The range of values of each channel of each integer tensor, for any input of the network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.numerics import Numerics
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.passes.channels.layers import MAX_CHANNELS, MAX_WEIGHTS, Array, IntegerLayer
from crtexport.passes.channels.links import channels, links_of
from crtexport.support.fixedpoint import multiply_all_by_quantized_multiplier, quantize_multiplier

_STORED = (DType.INT8, DType.UINT8, DType.INT16)
_SUM_SHIFT = 20


class ChannelRange(Struct, frozen=True, eq=False):
    """Smallest and largest stored value of each channel, as int64."""

    low: Array
    high: Array

    @property
    def constant(self) -> Array:
        """Returns a mask of the channels that have only one value."""
        known: Array = self.low == self.high
        return known

    def clamped(self, low: int, high: int) -> ChannelRange:
        return ChannelRange(np.clip(self.low, low, high), np.clip(self.high, low, high))


def ranges_of(graph: Graph, layers: Mapping[int, IntegerLayer]) -> dict[int, ChannelRange]:
    """Returns the ranges of all int8, uint8 and int16 tensors; ``layers`` are indexed by the number
    of the node."""
    ranges: dict[int, ChannelRange] = {}
    used = {
        tensor for number, node in enumerate(graph.nodes)
        for tensor in ((layers[number].x,) if number in layers else node.inputs)
        if tensor is not None
    }
    others = {t for n, node in enumerate(graph.nodes) if n not in layers for t in node.outputs}
    computed = {layer.y for layer in layers.values()}
    for tensor in sorted((used | others) - computed):
        given = _given(graph, tensor)
        if given is not None:
            ranges[tensor] = given
    for number, node in enumerate(graph.nodes):
        found = (
            _of_layer(layers[number], ranges[layers[number].x]) if number in layers
            else _of_node(graph, node, ranges)
        )
        if found is not None:
            ranges[node.outputs[0]] = found
    return ranges


def _given(graph: Graph, tensor: int) -> ChannelRange | None:
    """Returns the range of a tensor's type, or of its values if it is constant."""
    type_, constant = graph.type(tensor), graph.constant(tensor)
    count = channels(graph, tensor)
    if type_.dtype not in _STORED or count > MAX_CHANNELS:
        return None
    if constant is not None and 0 < type_.elements <= MAX_WEIGHTS:
        values = constant.array(type_).reshape(-1, count)
        low, high = values.min(axis=0), values.max(axis=0)
        return ChannelRange(low.astype(np.int64), high.astype(np.int64))
    least, most = type_.dtype.limits
    return ChannelRange(np.full(count, least, np.int64), np.full(count, most, np.int64))


def _of_layer(layer: IntegerLayer, input_range: ChannelRange) -> ChannelRange:
    """Requantization is monotonic: the ends of an accumulator's range give those of the output's.
    """
    values, (low, high) = layer.scaling.all_stored(
        layer.accumulators(input_range.low, input_range.high)
    )
    least, most = layer.scaling.bounds
    return ChannelRange(*np.where(low & high, values, np.array([[least], [most]])))


def _of_node(graph: Graph, node: Node, ranges: Mapping[int, ChannelRange]) -> ChannelRange | None:
    """Returns the range of a node's output; None if nothing is known but its type."""
    links = links_of(graph, node)
    given = [ranges.get(graph.required(node, i)) for i in range(len(node.inputs))] if links else []
    if not links or len(links) != len(node.inputs) or None in given:
        return None
    inputs = [range_ for range_ in given if range_ is not None]
    op, result = node.op, graph.type(node.outputs[0])
    if graph.numerics is Numerics.ORT and isinstance(op, ops.Add | ops.AveragePool2D):
        return None  # int16 has other formulas there
    if isinstance(op, ops.Add):
        return _of_sum(graph, node, op.activation, inputs)
    if any(graph.type(link_input).quant != result.quant for link_input in _ids(graph, node)):
        return None
    match op:
        case ops.MaxPool2D() | ops.AveragePool2D():
            least = activation_range(op.activation, result)
            return inputs[0].clamped(*least) if _covers(op) else None
        case ops.Relu():
            return inputs[0].clamped(*activation_range(ops.Activation.RELU, result))
        case ops.Relu6():
            return inputs[0].clamped(*activation_range(ops.Activation.RELU6, result))
        case ops.ReluN1To1():
            return inputs[0].clamped(*activation_range(ops.Activation.RELU_N1_TO_1, result))
        case ops.ResizeNearestNeighbor() | ops.ReduceMax() | ops.ReduceMin():
            return inputs[0]
        case ops.Reshape():
            return _reshaped(graph, node, inputs[0])
        case ops.Pad():
            return _padded(op, inputs[0], result.quant.zero_point[0] if result.quant else 0)
        case ops.Concatenation(activation=ops.Activation.NONE):
            return _joined(op, len(result.shape), inputs)
        case _:
            return None


def _ids(graph: Graph, node: Node) -> list[int]:
    return [graph.required(node, i) for i in range(len(node.inputs))]


def _covers(op: ops.MaxPool2D | ops.AveragePool2D) -> bool:
    """Returns whether each window contains a cell of the image."""
    pad, (height, width) = op.padding, op.window
    return max(pad.top, pad.bottom) < height and max(pad.left, pad.right) < width


def _reshaped(graph: Graph, node: Node, input_range: ChannelRange) -> ChannelRange:
    after, before = channels(graph, node.outputs[0]), len(input_range.low)
    if after >= before:
        copies = after // before
        return ChannelRange(np.tile(input_range.low, copies), np.tile(input_range.high, copies))
    return ChannelRange(
        input_range.low.reshape(-1, after).min(axis=0),
        input_range.high.reshape(-1, after).max(axis=0),
    )


def _padded(op: ops.Pad, input_range: ChannelRange, zero: int) -> ChannelRange:
    low, high = input_range.low, input_range.high
    if any(before or after for before, after in op.paddings[:-1]):
        low, high = np.minimum(low, zero), np.maximum(high, zero)
    return ChannelRange(
        np.pad(low, op.paddings[-1], constant_values=zero),
        np.pad(high, op.paddings[-1], constant_values=zero),
    )


def _joined(op: ops.Concatenation, rank: int, inputs: list[ChannelRange]) -> ChannelRange:
    lows, highs = [r.low for r in inputs], [r.high for r in inputs]
    if op.axis == rank - 1:
        return ChannelRange(np.concatenate(lows), np.concatenate(highs))
    return ChannelRange(np.min(lows, axis=0), np.max(highs, axis=0))


def _of_sum(
    graph: Graph, node: Node, activation: ops.Activation, terms: list[ChannelRange]
) -> ChannelRange | None:
    """Returns the range of ADD of int8 or uint8 (TFLite's ``add.h``), which is monotonic in both
    operands."""
    result = graph.type(node.outputs[0])
    quants = [graph.type(t).quant for t in _ids(graph, node)]
    if result.dtype not in (DType.INT8, DType.UINT8) or result.quant is None or None in quants:
        return None
    known = [quant for quant in quants if quant is not None]
    twice = 2.0 * max(quant.scale[0] for quant in known)
    operands = [quantize_multiplier(quant.scale[0] / twice) for quant in known]
    final = quantize_multiplier(twice / ((1 << _SUM_SHIFT) * result.quant.scale[0]))
    if final[1] > 0 or max(shift for _, shift in operands) > 0:
        return None  # an overflow can't be ruled out
    total = np.zeros((2, len(terms[0].low)), np.int64)
    for range_, quant, (multiplier, shift) in zip(terms, known, operands, strict=True):
        raised = (np.array([range_.low, range_.high]) - quant.zero_point[0]) << _SUM_SHIFT
        total += multiply_all_by_quantized_multiplier(raised, multiplier, -shift)
    multiplier, shift = final
    sums = multiply_all_by_quantized_multiplier(total, multiplier, -shift)
    low, high = sums + result.quant.zero_point[0]
    return ChannelRange(low, high).clamped(*activation_range(activation, result))
