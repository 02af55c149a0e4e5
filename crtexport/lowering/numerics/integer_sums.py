"""The constants of the integer sums of convolutions and fully connected layers."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from crtexport.ir.channel_sums import Ints
from crtexport.ir.scaling import layer_scales, wide_sums
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.registry import Context
from crtexport.support.fixedpoint import Rounding

FOLDED_BIAS = "for each output channel: bias - zero point of the input * sum of the weights"
"""Describes :attr:`IntegerSums.folded` to readers of C sources."""


def weight_scales(context: Context, channels: int) -> Quantization:
    """Returns the quantization of the weights: one scale, or one for each output channel."""
    quant = context.input(1).quant
    if quant is None:
        raise context.refuse("integer weights need a quantization scale")
    if len(quant.scale) not in (1, channels):
        raise context.refuse(
            f"the weights have {len(quant.scale)} scales for {channels} output channels"
        )
    return quant


def _largest_sums(weights: TensorType, axis: int, zero: int) -> tuple[Ints, Ints]:
    """Returns, for weights that aren't known, a sum of 0 for each channel, which must not be used,
    and the largest possible sum of magnitudes."""
    low, high = weights.dtype.limits
    channels = weights.shape[axis]
    most = weights.elements // max(channels, 1) * max(zero - low, high - zero)
    return np.zeros(channels, np.int64), np.full(channels, most, np.int64)


class IntegerSums(Struct, frozen=True, eq=False):
    """The sums of a node with integer inputs (x, weights, bias?), and their scale.

    ``magnitudes``: the sum of the magnitudes of each channel's weights. ``raw``: the bias of each
    channel; ``folded``: the same with the input's zero point folded in. ``bound``: the largest
    magnitude of a sum. ``wide``: TFLite sums in 64 bits, as the type of the bias says, or by
    default.
    """

    zero_point: int
    weight_zero: int
    magnitudes: Ints
    raw: Ints
    folded: Ints
    bound: int
    multiplier: Multiplier
    rounding: Rounding
    wide: bool

    @property
    def reach(self) -> Ints:
        """Returns the largest magnitude of each channel's sum without its bias, where inputs are
        of int8, their zero point folded in."""
        return -DType.INT8.limits[0] * self.magnitudes

    @staticmethod
    def of(
        context: Context, channel_axis: int, *, fully_connected: bool = False,
        every_tap: bool = True,
    ) -> IntegerSums:
        """For the arguments see :class:`crtexport.lowering.numerics.weighted_layer.Weighted`."""
        data = context.input(0)
        channels = context.input(1).shape[channel_axis]
        zero_point = context.quant(data).zero_point[0]
        weight_zero = weight_scales(context, channels).zero_point[0]
        if context.graph.constant(context.graph.required(context.node, 1)) is None:
            totals, magnitudes = _largest_sums(context.input(1), channel_axis, weight_zero)
        else:
            totals, magnitudes = context.sums(1, channel_axis, weight_zero)
        raw = (
            context.values(2).astype(np.int64).reshape(-1)
            if context.has(2) else np.zeros(channels, np.int64)
        )
        low, high = data.dtype.limits
        folded = raw
        if every_tap:
            folded = raw - zero_point * totals
            reach = max(-low, high)
        else:
            reach = max(zero_point - low, high - zero_point)
        # In Python's integers: 64-bit biases may be anything.
        bound = max(
            (abs(b) + reach * t for b, t in zip(
                folded.tolist(), magnitudes.tolist(), strict=True
            )),
            default=0,
        )
        rounding = context.numerics.rounding(fully_connected=fully_connected)
        context.quant(context.output())  # refuses an output without one scale
        scales = layer_scales(
            data, context.input(1), context.output(), context.numerics,
            fully_connected=fully_connected,
        )
        return IntegerSums(
            zero_point, weight_zero, magnitudes, raw, folded, bound,
            Multiplier.of(scales), rounding, wide_sums(context.graph, context.node),
        )
