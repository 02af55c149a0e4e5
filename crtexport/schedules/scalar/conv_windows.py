"""int8 convolutions in blocks of output channels, which share the walk over the window.

Where a tap lies, and whether it lies in the image, is found out once for a block instead of once
for each channel; and each value of the input is loaded once for it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from crtexport.ir.ops import Conv2D, DepthwiseConv2D
from crtexport.ir.types import DType
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import add, const, flat_index, load_word, mul
from crtexport.kir.language import Expr, Var
from crtexport.lowering.numerics.weighted_layer import Weighted
from crtexport.lowering.ops.conv import window_taps
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.scalar.dot_product_step import DotProductStep

LANES = 4
"""Bytes of a word."""
FEW = 4
"""Input channels that don't fill a word twice: then the walk is most of the work."""


class ChannelBlock(Struct, frozen=True):
    """Neighbouring output channels and their accumulators."""

    channels: tuple[Expr, ...]
    accs: tuple[Var, ...]


class Taps(Struct, frozen=True):
    """Emits the products of a cell with a block of channels: of a cell of the image (n, iy, ix)
    under (ky, kx), a padded one."""

    inside: Callable[[ChannelBlock, tuple[Expr, Expr], tuple[Expr, Expr, Expr]], None]
    outside: Callable[[ChannelBlock, tuple[Expr, Expr]], None]


def lower(context: Context, step: DotProductStep) -> Lowered | None:
    """Returns a node that keeps its operator's rules in blocks of channels; None where it isn't
    such a convolution."""
    op = context.node.op
    if not isinstance(op, Conv2D | DepthwiseConv2D):
        return None
    if context.input(0).dtype is not DType.INT8 or context.input(1).dtype is not DType.INT8:
        return None
    depthwise = isinstance(op, DepthwiseConv2D)
    if isinstance(op, DepthwiseConv2D) and op.depth_multiplier != 1:
        return None
    if not depthwise and context.input(1).shape[3] != context.input(0).shape[3]:
        return None
    if context.output().shape[3] < LANES:
        return None
    lowering = Lowering("depthwise_conv2d" if depthwise else "conv2d", context)
    weighted = Weighted(lowering, 3 if depthwise else 0, op.activation)
    if not weighted.plain_int8:
        return None
    taps = (_depthwise_taps if depthwise else _dense_taps)(context, weighted, step)
    few = depthwise or context.input(0).shape[3] <= FEW
    channels_per_block = 2 * LANES if few and context.output().shape[3] >= 2 * LANES else LANES
    _positions(context, op, lowering, weighted, taps, channels_per_block)
    return lowering.finish()


def _positions(
    context: Context, op: Conv2D | DepthwiseConv2D, lowering: Lowering, weighted: Weighted,
    taps: Taps, channels_per_block: int,
) -> None:
    """Loops over all output positions and blocks of channels; then the channels that are left."""
    b, y, w = lowering.b, context.output().shape, context.input(1).shape
    window = WindowGeometry.of(op, context.input(0).shape, y, (w[1], w[2]))
    counts = weighted.padding_counts and op.padding.any
    with b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy, b.loop("ox", y[2]) as ox:

        def block_of(first: Expr, width: int) -> None:
            channels = tuple(b.let(f"channel_{i}", add(first, const(i))) for i in range(width))
            block = ChannelBlock(channels, tuple(weighted.start(channel) for channel in channels))

            def inside(ky: Expr, kx: Expr, iy: Expr, ix: Expr) -> None:
                taps.inside(block, (ky, kx), (n, iy, ix))

            def outside(ky: Expr, kx: Expr) -> None:
                taps.outside(block, (ky, kx))

            window_taps(b, window, (oy, ox), inside, outside if counts else None)
            for acc, channel in zip(block.accs, block.channels, strict=True):
                weighted.finish(acc, channel, flat_index([n, oy, ox, channel], y))

        whole = y[3] - y[3] % channels_per_block
        with b.loop("block", whole // channels_per_block) as index:
            block_of(b.let("first", mul(index, const(channels_per_block))), channels_per_block)
        if whole < y[3]:
            with b.loop("rest", y[3] - whole) as rest:
                block_of(add(const(whole), rest), 1)


def _dense_taps(context: Context, weighted: Weighted, step: DotProductStep) -> Taps:
    """Returns a cell of all input channels times the block's filters."""
    b, x, w = weighted.b, context.input(0).shape, context.input(1).shape
    depth = x[3]
    width = step.width if depth >= 2 * step.width else 1

    def inside(
        block: ChannelBlock, k: tuple[Expr, Expr], i: tuple[Expr, Expr, Expr]
    ) -> None:
        cell = b.let("cell", flat_index([*i, const(0)], x))
        filters = [
            b.let(f"filter_{c}", flat_index([channel, *k, const(0)], w))
            for c, channel in enumerate(block.channels)
        ]
        if width > 1:
            with b.loop("d", depth // width) as d:
                at = mul(d, const(width))
                values = step.load(b, "x", weighted.x, add(cell, at))
                for c, (acc, first) in enumerate(zip(block.accs, filters, strict=True)):
                    weights = step.load(b, f"w_{c}", weighted.weights, add(first, at))
                    step.multiply(b, acc, values, weights)
        rest = depth % width if width > 1 else depth
        with b.loop("ic", rest) as ic:
            at = add(const(depth - rest), ic)
            for acc, first in zip(block.accs, filters, strict=True):
                weighted.accumulate(acc, add(cell, at), add(first, at))

    def outside(block: ChannelBlock, k: tuple[Expr, Expr]) -> None:
        with b.loop("ic", depth) as ic:
            for acc, channel in zip(block.accs, block.channels, strict=True):
                weighted.accumulate_padded(acc, flat_index([channel, *k, ic], w))

    return Taps(inside, outside)


def _depthwise_taps(context: Context, weighted: Weighted, step: DotProductStep) -> Taps:
    """Returns a cell of the block's channels times the same channels of the filter."""
    b, x, w = weighted.b, context.input(0).shape, context.input(1).shape

    def inside(
        block: ChannelBlock, k: tuple[Expr, Expr], i: tuple[Expr, Expr, Expr]
    ) -> None:
        first = block.channels[0]
        cell, tap = flat_index([*i, first], x), flat_index([const(0), *k, first], w)
        words = len(block.accs) - len(block.accs) % LANES if step.lanes is not None else 0
        for offset in range(0, words, LANES):
            if step.lanes is not None:
                values = load_word(weighted.x, add(cell, const(offset)))
                weights = load_word(weighted.weights, add(tap, const(offset)))
                step.lanes(b, block.accs[offset : offset + LANES], values, weights)
        for offset, acc in list(enumerate(block.accs))[words:]:
            weighted.accumulate(acc, add(cell, const(offset)), add(tap, const(offset)))

    def outside(block: ChannelBlock, k: tuple[Expr, Expr]) -> None:
        for acc, channel in zip(block.accs, block.channels, strict=True):
            weighted.accumulate_padded(acc, flat_index([const(0), *k, channel], w))

    return Taps(inside, outside)
