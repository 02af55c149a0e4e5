"""The channel arithmetic of integer convolutions and fully connected layers, in exact integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected
from crtexport.ir.scaling import (
    EXTREME,
    EXTREME_HINT,
    activation_range,
    layer_scales,
    wide_sums,
)
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError
from crtexport.support.fixedpoint import (
    INT32_MAX,
    INT32_MIN,
    Rounding,
    multiply_all_by_quantized_multiplier,
    multiply_by_quantized_multiplier,
    multiply_wide_by_quantized_multiplier,
    quantize_multipliers,
)

Array = npt.NDArray[Any]

MAX_CHANNELS = 1 << 20
"""The most channels of a tensor that are tracked one by one."""

MAX_WEIGHTS = 1 << 21
"""The most weights of a layer that is analysed: they are held in memory as a whole."""

MAX_TOTAL = 1 << 22
"""The most weights of all analysed layers together."""

_MAX_BIAS = 1 << 62


class OutputScaling(Struct, frozen=True, eq=False):
    """The requantization of accumulators to stored outputs."""

    multipliers: Array  # int64, one or one for each output channel
    shifts: Array
    rounding: Rounding
    wide: bool
    zero_point: int
    bounds: tuple[int, int]

    def stored(self, channel: int, acc: int) -> int | None:
        """Returns the output for an accumulator; None if the computation overflows."""
        place = channel if len(self.multipliers) > 1 else 0
        multiplier, shift = int(self.multipliers[place]), int(self.shifts[place])
        if self.wide and self.rounding is Rounding.DOUBLE:
            if shift >= 15 or abs(acc) >= 1 << 47:
                return None
            scaled = multiply_wide_by_quantized_multiplier(acc, multiplier, shift)
        else:
            if shift > 30 or not INT32_MIN < acc << max(shift, 0) <= INT32_MAX:
                return None
            scaled = multiply_by_quantized_multiplier(acc, multiplier, shift, self.rounding)
        if abs(acc) * multiplier >= (INT32_MAX - (1 << 16)) << (31 - shift):
            return None
        low, high = self.bounds
        return min(max(scaled + self.zero_point, low), high)

    def all_stored(self, accs: Array) -> tuple[Array, Array]:
        """Returns :meth:`stored` for accumulators of shape (..., channels), int64, and a mask of
        those that don't overflow."""
        low, _ = self.bounds
        if self.wide or self.rounding is not Rounding.DOUBLE:
            channels = accs.shape[-1]
            found = [self.stored(i % channels, acc) for i, acc in enumerate(accs.ravel().tolist())]
            certain = np.array([value is not None for value in found], bool).reshape(accs.shape)
            values = np.array([low if v is None else v for v in found], np.int64)
            return values.reshape(accs.shape), certain
        shifts, sizes = self.shifts, np.abs(accs)
        left = np.maximum(shifts, 0)
        certain = sizes <= INT32_MAX >> left
        sums: Array = accs * certain
        if np.count_nonzero(shifts >= 0):
            # Products of values within the limits are below 2**62.
            limits = np.int64(INT32_MAX - (1 << 16)) << np.clip(31 - shifts, 0, 31)
            certain &= (shifts <= 30) & ((shifts < 0) | (sizes * self.multipliers < limits))
            sums <<= np.minimum(left, 30)
        scaled = multiply_all_by_quantized_multiplier(sums, self.multipliers, left - shifts)
        return np.clip(scaled + self.zero_point, *self.bounds), certain


class IntegerLayer(Struct, frozen=True, eq=False):
    """A convolution or fully connected layer of integers.

    ``positive`` and ``negative`` are sums over the taps of the weights of each sign, without their
    zero point: (outputs, inputs), or (outputs,) if each output reads one input channel. They are
    doubles, which represent these sums and their products with stored values exactly. ``used`` is a
    mask of the nonzero weights.

    ``inputs`` and ``outputs`` are numbers of channels: the last axes of the tensors ``x`` and
    ``y``.
    """

    node: Node
    x: int
    y: int
    inputs: int
    outputs: int
    positive: Array
    negative: Array
    used: Array
    bias: Array  # int64
    zero_point: int  # of the input
    padded: bool
    scaling: OutputScaling

    @property
    def depthwise(self) -> bool:
        return isinstance(self.node.op, DepthwiseConv2D)

    @property
    def source(self) -> Array:
        """Returns the input channel of each output channel of a depthwise layer."""
        return np.arange(self.outputs) // max(self.outputs // max(self.inputs, 1), 1)

    def unweighted(self) -> Array:
        """Returns a mask of the outputs that have only zero weights."""
        return np.asarray(~self.used if self.depthwise else ~self.used.any(axis=1))

    def accumulators(self, low: Array, high: Array) -> Array:
        """Returns the smallest and the largest accumulator of each output, for stored inputs from
        ``low`` to ``high``."""
        ends = np.array([low, high], np.float64) - self.zero_point
        if self.padded:  # a padded cell counts as real 0
            np.minimum(ends[0], 0, out=ends[0])
            np.maximum(ends[1], 0, out=ends[1])
        if self.depthwise:
            ends = ends[:, self.source]
            sums = self.positive * ends + self.negative * ends[::-1]
        else:
            sums = _products(self.positive, ends) + _products(self.negative, ends[::-1])
        return np.asarray(self.bias + sums.astype(np.int64))

    def reads(self, outputs: Array) -> Array:
        """Returns a mask of the input channels for which the given outputs (a mask) have weights.
        """
        if not self.depthwise:
            return np.asarray(self.used[outputs].any(axis=0))
        read = np.zeros(self.inputs, bool)
        read[self.source[outputs & self.used]] = True
        return read

    def contributions(self, values: Array, which: Array) -> Array:
        """Returns what the input channels ``which`` (a mask) with these stored values contribute to
        each accumulator."""
        delta = np.where(which, values - self.zero_point, 0).astype(np.float64)
        weights = self.positive + self.negative
        added = weights * delta[self.source] if self.depthwise else _products(weights, delta)
        return added.astype(np.int64)


def _products(weights: Array, values: Array) -> Array:
    """Returns the sum over inputs of weights (outputs, inputs) times values (..., inputs)."""
    return np.asarray(np.einsum("oi,...i->...o", weights, values))


def layers_of(graph: Graph) -> dict[int, IntegerLayer]:
    """Returns the layers of a graph by the number of their node, up to the limit of weights that
    can be analysed."""
    layers: dict[int, IntegerLayer] = {}
    held = 0
    for number, node in enumerate(graph.nodes):
        try:
            layer = layer_of(graph, node) if held < MAX_TOTAL else None
        except ArithmeticError as error:
            raise CrtExportError(EXTREME, location=str(node), hint=EXTREME_HINT) from error
        if layer is not None:
            layers[number] = layer
            held += layer.positive.size
    return layers


def layer_of(graph: Graph, node: Node) -> IntegerLayer | None:
    """Returns ``node`` as a layer, or None: only integer layers with constant weights and without
    groups are analysed, and none with too many weights."""
    op = node.op
    if not isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected):
        return None
    x, y = graph.required(node, 0), node.outputs[0]
    data, result = graph.type(x), graph.type(y)
    weights = graph.type(graph.required(node, 1))
    if not _understood(graph, node) or not data.shape:
        return None
    taps = taps_of(graph, node)
    if taps is None:
        return None
    bias = _bias(graph, node, result.shape[-1])
    if bias is None:
        return None
    positive, negative = _of_each_sign(taps)
    return IntegerLayer(
        node, x, y, data.shape[-1], result.shape[-1], positive, negative,
        positive != negative, bias,
        data.quant.zero_point[0] if data.quant is not None else 0,
        not isinstance(op, FullyConnected) and op.padding.any,
        _scaling(graph, node, data, weights, result),
    )


def _of_each_sign(taps: Array) -> tuple[Array, Array]:
    """Returns the sums over taps of the positive and of the negative weights, as doubles."""
    weights = taps.astype(np.float64)
    if weights.shape[-2] == 1:
        weights = weights[..., 0, :]
        positive = np.maximum(weights, 0)
        return positive, weights - positive
    positive = np.maximum(weights, 0).sum(axis=-2)
    return positive, weights.sum(axis=-2) - positive


def taps_of(graph: Graph, node: Node) -> Array | None:
    """Returns the constant weights of a layer without their zero point: (outputs, taps, inputs), or
    (taps, outputs) for a depthwise layer; None if they don't fit the input's channels."""
    tensor = graph.required(node, 1)
    weights, constant = graph.type(tensor), graph.constant(tensor)
    depth = graph.type(graph.required(node, 0)).shape[-1]
    if constant is None:
        return None
    zero = weights.quant.zero_point[0] if weights.quant is not None else 0
    values = constant.array(weights)
    if zero or weights.dtype is not DType.INT8:
        values = values.astype(np.int16) - np.int16(zero)
    if isinstance(node.op, DepthwiseConv2D):
        return values.reshape(-1, values.shape[-1])
    if isinstance(node.op, FullyConnected):
        whole = values.shape[1] == depth
        if values.shape[1] % depth or (node.op.keep_num_dims and not whole):
            return None
    elif values.shape[3] != depth:
        return None
    return values.reshape(values.shape[0], -1, depth)


def _understood(graph: Graph, node: Node) -> bool:
    data, result = graph.type(graph.required(node, 0)), graph.type(node.outputs[0])
    weights = graph.type(graph.required(node, 1))
    if weights.dtype not in (DType.INT8, DType.UINT8) or weights.elements > MAX_WEIGHTS:
        return False
    if 0 in (data.elements, weights.elements, result.elements):
        return False
    if max(data.shape[-1], result.shape[-1]) > MAX_CHANNELS:
        return False
    if data.dtype not in (DType.INT8, DType.UINT8, DType.INT16) or result.dtype is not data.dtype:
        return False
    for type_ in (data, result):
        if type_.quant is None or not type_.quant.per_tensor:
            return False
    quant = weights.quant
    return (
        quant is not None and len(quant.scale) in (1, result.shape[-1])
        and len(set(quant.zero_point)) == 1
    )


def _bias(graph: Graph, node: Node, outputs: int) -> Array | None:
    """Returns the bias as int64, zeros if there is none; None if it isn't a constant that can be
    analysed."""
    tensor = graph.optional(node, 2)
    if tensor is None:
        return np.zeros(outputs, np.int64)
    constant = graph.constant(tensor)
    if constant is None:
        return None
    type_ = graph.type(tensor)
    values = constant.array(type_).astype(np.int64).reshape(-1)
    wide = type_.dtype is DType.INT64
    if wide and not np.all((values > -_MAX_BIAS) & (values < _MAX_BIAS)):
        return None
    return values


def _scaling(
    graph: Graph, node: Node, data: TensorType, weights: TensorType, result: TensorType
) -> OutputScaling:
    fully = isinstance(node.op, FullyConnected)
    rounding = graph.numerics.rounding(fully_connected=fully)
    reals = layer_scales(data, weights, result, graph.numerics, fully_connected=fully)
    op = node.op
    if not isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected) or result.quant is None:
        raise TypeError(op)
    return OutputScaling(
        *quantize_multipliers(reals), rounding, wide_sums(graph, node),
        result.quant.zero_point[0], activation_range(op.activation, result),
    )
