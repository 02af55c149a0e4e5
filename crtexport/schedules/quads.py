"""int8 sums on machines without DSP instructions: blocks of pixels by channels in registers.

Each value of the input is loaded once for all channels of a block, each weight once for all its
pixels. What windows see is gathered into lines first, those of a block's pixels side by side
(:mod:`crtexport.schedules.patches`).

Armv7-M has few registers, and MLA takes words: input values are widened to words while gathering,
of two pixels, so that LDRD loads both; with two channels, that and two loads of weights feed four
MLA. RISC-V loads bytes as words and has registers for blocks of four by four.

Armv6-M has eight registers, and multiplying destroys a factor: there a block is three pixels of
one channel, or one of four channels (LLVM needs fewer instructions for
:mod:`crtexport.schedules.pixel_pairs`). It can't load a signed byte from an address that it needn't
compute first, so weights are stored plus 128, and sums begin with what that is too much.
"""

from __future__ import annotations

import functools

import numpy as np
from msgspec import Struct

from crtexport.ir.types import DType
from crtexport.kernels.build import KernelBuilder, add, cast, const, i32, load, mul
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.packing import Array, Packing, by_blocks
from crtexport.kernels.registry import Context, Lowered
from crtexport.schedules.candidates import Candidate
from crtexport.schedules.covering import in_steps, pixels_with_last_again
from crtexport.schedules.geometry import Layer, Windows
from crtexport.schedules.patches import Gather, Totals
from crtexport.schedules.scaling import Means, Scales, Scaling
from crtexport.schedules.scaling_short import ScalingShort

FEW_CHANNELS = 4
"""Fewer channels don't pay for gathering."""
LIFT = 128
"""What makes int8 values uint8."""
MOST_TAPS = 1 << 14
"""Sums of as many products of int8 and uint8, and what they begin with, fit 31 bits."""


class Form(Struct, frozen=True):
    """Blocks for a machine.

    ``pixels``: how many may go together, ``wide``: channels of a block then, ``alone``: channels of
    a block of one pixel; 0 where that isn't done. ``value``: of lines; bytes of one pixel are
    multiplied where they lie. ``steps``: how many values of a line may be multiplied in one go;
    ``usual``: for balanced and for speed. ``lifted``: weights are stored plus 128, those of a
    block's channels side by side.
    """

    pixels: tuple[int, ...]
    wide: int
    alone: int
    value: Scalar
    means: Means
    steps: tuple[int, ...]
    usual: dict[str, int]
    lifted: bool = False

    def together(self, pixels: int) -> int:
        """How many of ``pixels`` go together, for the fewest instructions by rough count; 0 where
        they are too few."""
        if pixels == 1 and self.alone:
            return 1

        def cost(count: int) -> int:
            return -(-pixels // count) * (2 * count * self.wide + self.wide + count)

        fits = [count for count in self.pixels if count <= pixels]
        return min(fits, key=cost, default=0)


ARMV7M = Form((2,), 2, 0, Scalar.I32, Means.PRODUCTS, (4, 8, 16), {"balanced": 8, "speed": 16})
RISCV = Form((4, 3, 2), 4, 8, Scalar.I8, Means.SHIFTS, (2, 4, 8), {"balanced": 4, "speed": 8})
ARMV6M = Form(
    (3, 2), 1, 4, Scalar.I32, Means.PIECES, (4, 8), {"balanced": 8, "speed": 8}, lifted=True
)


def candidates(context: Context, optimize: str, form: Form = ARMV7M) -> list[Candidate]:
    """Forms of a node that keeps its operator's rules, in such blocks; none where it can't be or
    isn't worth it. ``optimize`` is balanced or speed."""
    layer = Layer.of(context, DType.INT8, group=1)
    if layer is None or not form.together(layer.windows.pixels):
        return []
    scaling = _scaling(layer, form.means)
    if scaling is None or layer.channels < FEW_CHANNELS:
        return []
    if form.lifted and layer.windows.taps > MOST_TAPS:
        return []
    usual = form.usual[optimize]
    return [
        Candidate(f"quads, {step} words", functools.partial(_lower, form, layer, scaling, step))
        for step in sorted(form.steps, key=lambda step: step != usual)
    ]


def _scaling(layer: Layer, means: Means) -> Scales | None:
    """What scales sums; where a channel has many, it may have more constants."""
    context, sums, activation = layer.context, layer.sums, layer.op.activation
    short: Scales | None = None
    if means is Means.PIECES and layer.windows.pixels > 1:
        short = ScalingShort.of(context, sums, activation)
    return short or Scaling.of(context, sums, activation, means)


def _lower(form: Form, layer: Layer, scaling: Scales, step: int) -> Lowered:
    windows, lowering = layer.windows, layer.begin()
    x = lowering.input(0, "input")
    together = form.together(windows.pixels)
    wide = form.alone if together == 1 else form.wide
    weights = (
        lowering.packed("weights", Scalar.U8, Lifted(wide), layer.channels)
        if form.lifted else lowering.input(1, "weights")
    )
    scaling.begin(lowering)
    # Lines that a store to the output might change are loaded anew for each block of channels;
    # compilers would keep them on the stack instead.
    output = lowering.output(noalias=False)
    gather, lines = None, x
    if together > 1 or not windows.pointwise or form.value is not x.dtype:
        count = (windows.words + form.lifted) * together
        lines = lowering.scratch("lines", form.value, count, noalias=False)
        gather = Gather(
            lowering.b, windows, x, lines, together, layer.sums.zero_point,
            Totals(lines, windows.words * together, -LIFT) if form.lifted else None,
        )
    products = _Products(
        lowering.b, windows, (weights, lines, output), scaling, together, wide, step, form.lifted
    )
    products.emit(gather, layer.channels)
    return lowering.finish()


class Lifted(Packing, frozen=True):
    """channels x taps plus 128: blocks of ``wide`` channels, tap by tap, and one of those left."""

    wide: int

    @property
    def block(self) -> int:
        return self.wide

    def nbytes(self, rows: int, columns: int) -> int:
        return rows * columns

    def __call__(self, weights: Array) -> Array:
        lifted: Array = by_blocks(weights, self.wide).view(np.uint8) ^ np.uint8(LIFT)
        return lifted


class _Products:
    """Covers pixels x channels with blocks."""

    def __init__(
        self, b: KernelBuilder, windows: Windows, buffers: tuple[Buffer, Buffer, Buffer],
        scaling: Scales, together: int, wide: int, step: int, lifted: bool,
    ) -> None:
        self.b, self.windows, self.scaling, self.step = b, windows, scaling, step
        self.together, self.wide, self.lifted = together, wide, lifted
        self.weights, self.lines, self.output = buffers

    def emit(self, gather: Gather | None, channels: int) -> None:
        """All pixels, some at a time."""
        b, together = self.b, self.together
        with pixels_with_last_again(b, self.windows.pixels, together) as pixel:
            if gather is not None:
                gather.emit(pixel)
            rows = [
                b.let("row", mul(pixel(const(i)), const(channels))) for i in range(together)
            ]
            with b.loop("block", channels // self.wide) as block:
                self._block(rows, mul(block, const(self.wide)), self.wide)
            if channels % self.wide:
                self._block(rows, const(channels - channels % self.wide), channels % self.wide)

    def _block(self, rows: list[Expr], channel: Expr, wide: int) -> None:
        """``wide`` channels from ``channel`` on, of all pixels."""
        b, words = self.b, self.windows.words
        sums = [
            [b.local("sum", self._start(i)) for i in range(len(rows))] for _ in range(wide)
        ]
        start = b.let("first", mul(channel, const(words)))
        in_steps(b, words, self.step, functools.partial(self._words, sums, start))
        for i, line in enumerate(sums):
            at = add(channel, const(i))
            constants = self.scaling.values(at)
            for row, total in zip(rows, line, strict=True):
                b.store(self.output, add(row, at), self.scaling.finished(total, constants))

    def _start(self, line: int) -> Expr:
        """What the sums of a line begin with."""
        if not self.lifted:
            return i32(0)
        return load(self.lines, const(self.windows.words * self.together + line))

    def _words(self, sums: list[list[Var]], start: Expr, word: Expr, count: int) -> None:
        """``count`` words of the lines from ``word`` on, times those of all channels."""
        b, words, wide, together = self.b, self.windows.words, len(sums), self.together

        def value(place: int, line: int) -> Expr:
            at = add(mul(word, const(together)), const(place * together + line))
            return b.let("value", cast(load(self.lines, at), Scalar.I32))

        def weight(place: int, channel: int) -> Expr:
            at = (
                add(start, mul(word, const(wide)), const(place * wide + channel)) if self.lifted
                else add(start, word, const(channel * words + place))
            )
            return b.let("weight", cast(load(self.weights, at), Scalar.I32))

        for place in range(count):
            # Where weights are for one channel each value is needed once.
            xs = [value(place, i) for i in range(together)] if wide > 1 else []
            for channel, line in enumerate(sums):
                w = weight(place, channel)
                for i, total in enumerate(line):
                    x = xs[i] if xs else value(place, i)
                    b.assign(total, add(total, mul(x, w)))
