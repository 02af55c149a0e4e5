"""int16 depthwise convolutions on MVE: eight channels at once, whose products have 32 bits."""

from __future__ import annotations

import numpy as np

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import add, call, const, load_vector, mul
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.padded_row_ring import Ring, geometry
from crtexport.schedules.common.row_products import cover
from crtexport.schedules.mve.requantize import Scaler, Sums, vector

PIXELS = 2
"""Neighbouring pixels that share the weights that are loaded: two vectors of sums each."""
EIGHT = Scalar.I16X8.lanes


def lower(context: Context, op: DepthwiseConv2D, sums: Sums) -> Lowered:
    """Returns a depthwise convolution that keeps its operator's rules, of one output a channel."""
    lowering = Lowering("depthwise_conv2d", context)
    _MveDepthwise16(lowering, sums, geometry(context, op)).emit()
    return lowering.finish()


class _MveDepthwise16:
    def __init__(self, lowering: Lowering, sums: Sums, window: WindowGeometry) -> None:
        self.b, self.window = lowering.b, window
        channels = window.x[3]
        self.ring = Ring(lowering, lowering.input(0, "input"), window, min(channels, EIGHT))
        starts = np.minimum(np.arange(self.ring.blocks) * EIGHT, max(channels - EIGHT, 0))
        lanes = starts[:, None] + np.arange(EIGHT)
        lanes[lanes >= channels] = -1
        taps = lowering.context.values(1).reshape(-1, channels)
        self.taps = len(taps)
        packed = np.where(lanes < 0, 0, taps[:, np.maximum(lanes, 0)]).swapaxes(0, 1)
        self.packed = lowering.derived(
            "packed", Scalar.I8, packed.astype(np.int8),
            f"for each {EIGHT} channels: the weights of each tap",
        )
        order = lanes.reshape(-1, EIGHT // 2, 2).swapaxes(1, 2).reshape(-1).tolist()
        self.scaler = Scaler(lowering, sums, order)
        self.output = lowering.output()

    def emit(self) -> None:
        b, y, ring = self.b, self.window.y, self.ring
        high = min(PIXELS, ring.width)
        with ring.walk() as part:
            line = b.let("line", mul(part.pixel(self.window), const(y[3])))
            with b.loop("channels", ring.blocks) as block:
                starts = ring.starts(block, part)
                first = b.let("first", ring.channel(block))

                def pixels(ox: Expr) -> None:
                    for i, sums in enumerate(self._sums(starts, block, ox, high)):
                        with b.named(f"x{i}"):
                            result = self.scaler.eight(*sums, mul(block, const(2)))
                        at = add(line, mul(add(ox, const(i)), const(y[3])), first)
                        b.store_vector(self.output, at, result, min(EIGHT, y[3]))

                cover(b, ring.width, high, pixels)

    def _sums(
        self, starts: list[Expr], block: Expr, ox: Expr, high: int
    ) -> list[tuple[Expr, Expr]]:
        """Returns the sums of even and of odd channels, for each of ``high`` pixels from ``ox``
        on."""
        b, window, cell = self.b, self.window, self.ring.cell
        base = b.let("w", mul(block, const(self.taps * EIGHT)))
        columns = b.let("column", mul(ox, const(window.stride[1] * cell)))
        sums: list[dict[str, Expr]] = [{} for _ in range(high)]
        for tap in range(self.taps):
            ky, kx = divmod(tap, window.kernel[1])
            place = add(starts[ky], columns, const(kx * window.dilation[1] * cell))
            w = b.let(f"weights_tap{tap}", load_vector(
                self.packed, add(base, const(tap * EIGHT)), Scalar.I16X8
            ))
            for i, halves in enumerate(sums):
                at = add(place, const(i * window.stride[1] * cell))
                x = b.let(f"values_tap{tap}_x{i}", load_vector(self.ring.rows, at, Scalar.I16X8))
                for letter in "bt":
                    product = call(f"mve_mull{letter}_s16", x, w, type_=Scalar.I32X4)
                    if letter in halves:
                        product = vector("add_s32", halves[letter], product)
                    halves[letter] = b.let(f"sums_{letter}_tap{tap}_x{i}", product)
        return [(halves["b"], halves["t"]) for halves in sums]
