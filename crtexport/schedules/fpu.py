"""float32 convolutions and fully connected layers on Cortex-M with a floating-point unit.

Sums of a few pixels times a few channels stay in registers; each step loads a value of each pixel
and a weight of each channel, and adds their products with one rounding. What the windows of these
pixels see is gathered once for all channels, unless it lies in the input as it is needed. Weights
are packed while exporting in the order in which they are met. Weights of int8 stay that: their
scale comes last.
"""

from __future__ import annotations

import functools

from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.kernels.build import add, call, cast, clamp, const, f32, load, mul
from crtexport.kernels.ir import Buffer, Expr, Scalar
from crtexport.kernels.packing import Blocks
from crtexport.kernels.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.kernels.requantize import float_range
from crtexport.schedules.candidates import Candidate
from crtexport.schedules.covering import packed_channels, pixels_overlapping
from crtexport.schedules.geometry import Windows, windows_of
from crtexport.schedules.patches import Gather
from crtexport.schedules.reals import Numbers

CHANNELS = {1: 8, 2: 8, 3: 6, 4: 4, 5: 4, 6: 4}
"""Channels that share values, by the pixels that go together and share weights."""
USUAL = 5
"""Most pixels that usually go together: with more, gcc runs out of the 32 registers."""
_UNROLL = 4
"""Most steps that are written one after the other in a loop."""


def candidates(context: Context, op: Conv2D | FullyConnected) -> list[Candidate]:
    """Forms of a layer of floats that keeps its operator's rules; none where this is no way."""
    windows = windows_of(context, group=1)
    if windows is None:
        return []
    counts = [count for count in CHANNELS if count <= windows.pixels]
    usual = min(
        (count for count in counts if count <= USUAL),
        # Instructions for a channel: what loads and multiplies, for all blocks of pixels.
        key=lambda count: -(-windows.pixels // count) * (1 + count + count / CHANNELS[count]),
    )
    return [
        Candidate(
            f"{count} pixels", functools.partial(_lower, context, op, windows, count),
            rare=count != usual,
        )
        for count in sorted(counts, key=lambda count: count != usual)
    ]


def _lower(
    context: Context, op: Conv2D | FullyConnected, windows: Windows, together: int
) -> Lowered:
    name = (
        "fully_connected" if isinstance(op, FullyConnected)
        else "pointwise_conv2d" if windows.pointwise else "conv2d"
    )
    lowering = Lowering(name, context)
    _Products(lowering, windows, op, together).emit()
    return lowering.finish()


def fma(x: Expr, w: Expr, total: Expr) -> Expr:
    """total + x * w, rounded once."""
    return call("fma_f32", x, w, total, type_=Scalar.F32)


class Finish:
    """What sums of a channel begin with, and what becomes of them."""

    def __init__(self, lowering: Lowering, numbers: Numbers) -> None:
        self.b = lowering.b
        self._range = float_range(numbers.activation)
        self._bias: Buffer | None = None
        if lowering.context.has(2):
            self._bias = lowering.input(2, "bias")
        self._scales: Buffer | None = None
        if numbers.scales is not None:
            # One for all lies in memory, too, so that layers of one shape can have one kernel.
            self._alike = bool((numbers.scales == numbers.scales[0]).all())
            stored = numbers.scales[:1] if self._alike else numbers.scales
            self._scales = lowering.derived("scales", Scalar.F32, stored)

    def start(self, channel: Expr) -> Expr:
        """The sum of ``channel`` (index) before the first product."""
        if self._bias is None or self._scales is not None:
            return f32(0.0)
        return self.b.let("start", load(self._bias, channel))

    def result(self, total: Expr, channel: Expr) -> Expr:
        """The value of a sum."""
        if self._scales is not None:
            total = mul(total, load(self._scales, const(0) if self._alike else channel))
            if self._bias is not None:
                total = add(total, load(self._bias, channel))
            total = self.b.let("real", total)
        return clamp(total, *self._range)


class _Products:
    """Covers pixels x channels with blocks."""

    def __init__(
        self, lowering: Lowering, windows: Windows, op: Conv2D | FullyConnected, together: int
    ) -> None:
        self.b, self.windows, self.together = lowering.b, windows, together
        self.wide = CHANNELS[together]
        numbers = Numbers.of(lowering.context, op, 0)
        self.channels = numbers.channels
        self.x = lowering.input(0, "input")
        stored = lowering.context.input(1).dtype
        self.weights = lowering.packed(
            "weights", SCALAR_OF[stored], Blocks(self.wide, stored.itemsize), self.channels
        )
        self.finish = Finish(lowering, numbers)
        # Values that a store to the output might change are loaded anew for each block of
        # channels; compilers would keep them on the stack instead.
        self.output = lowering.output(noalias=False)
        self.gather: Gather | None = None
        if not windows.pointwise:
            lines = lowering.scratch(
                "lines", Scalar.F32, windows.taps * self.together, noalias=False
            )
            self.gather = Gather(self.b, windows, self.x, lines, self.together, 0)

    def emit(self) -> None:
        """All pixels, ``together`` at a time."""
        b, taps = self.b, self.windows.taps
        with pixels_overlapping(b, self.windows.pixels, self.together) as first:
            if self.gather is not None:
                self.gather.emit(lambda line: add(first, line))
            pixels = [add(first, const(i)) for i in range(self.together)]
            starts = [b.let("line", mul(pixel, const(taps))) for pixel in pixels]
            rows = [b.let("row", mul(pixel, const(self.channels))) for pixel in pixels]
            packed_channels(
                b, self.channels, self.wide, self.wide * taps,
                functools.partial(self._block, starts, rows),
            )

    def _block(
        self, starts: list[Expr], rows: list[Expr], channel: Expr, at: Expr, wide: int
    ) -> None:
        """``wide`` channels from ``channel`` on, whose weights begin at ``at``, of all pixels."""
        b = self.b
        channels = [add(channel, const(i)) for i in range(wide)]
        first = [self.finish.start(one) for one in channels]
        sums = [[b.local("sum", one) for one in first] for _ in rows]
        taps = self.windows.taps
        unroll = next(n for n in range(_UNROLL, 0, -1) if taps % n == 0)
        with b.loop("tap", taps, unroll=unroll) as tap:
            weights = [
                b.let("weight", self._weight(add(at, mul(tap, const(wide)), const(i))))
                for i in range(wide)
            ]
            for i, (start, line) in enumerate(zip(starts, sums, strict=True)):
                x = b.let("value", self._value(start, tap, i))
                for total, w in zip(line, weights, strict=True):
                    b.assign(total, fma(x, w, total))
        for row, line in zip(rows, sums, strict=True):
            for one, total in zip(channels, line, strict=True):
                b.store(self.output, add(row, one), self.finish.result(total, one))

    def _weight(self, index: Expr) -> Expr:
        stored = load(self.weights, index)
        if stored.type.is_float:
            return stored
        return cast(cast(stored, Scalar.I32), Scalar.F32)

    def _value(self, start: Expr, tap: Expr, line: int) -> Expr:
        if self.gather is None:
            return load(self.x, add(start, tap))
        return load(self.gather.lines, add(mul(tap, const(self.together)), const(line)))
