"""int8 sums on machines without DSP instructions: blocks of pixels by channels in registers.

Each value of the input is loaded once for all channels of a block, each weight once for all its
pixels. What windows see is gathered into lines first, those of a block's pixels side by side
(:mod:`crtexport.schedules.common.im2col_lines`).

Armv7-M has few registers, and MLA takes words: input values are widened to words while gathering,
of two pixels, so that LDRD loads both; with two channels, that and two loads of weights feed four
MLA. RISC-V loads bytes as words and has registers for blocks of four by four.

Armv6-M has eight registers, and multiplying destroys a factor: there a block is three pixels of
one channel, or one of four channels (LLVM needs fewer instructions for
:mod:`crtexport.schedules.scalar.pixel_pairs_mul32`). It can't load a signed byte from an address
that it needn't compute first, so weights are stored plus 128, and sums begin with what that is too
much.
"""

from __future__ import annotations

import functools

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.types import DType
from crtexport.kir.builder import KernelBuilder, add, cast, const, i32, load, mul
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered
from crtexport.lowering.weight_packing import Array, ByteLanes, Packing, by_blocks
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.conv_geometry import IntegerSumLayer
from crtexport.schedules.common.im2col_lines import Im2colGather, LineTotals
from crtexport.schedules.common.loop_tiling import in_steps
from crtexport.schedules.scalar.blocked_products import BlockedProducts
from crtexport.schedules.scalar.int8_epilogue import int8_epilogue
from crtexport.schedules.scalar.requantize_int8 import RequantMethod, ScalarEpilogue
from crtexport.schedules.scalar.requantize_mul32 import Mul32Epilogue

FEW_CHANNELS = 4
"""Fewer channels don't pay for gathering."""
LIFT = 128
"""Added to int8 values, makes them uint8."""
MOST_TAPS = 1 << 14
"""Sums of as many products of int8 and uint8, and what they begin with, fit 31 bits."""


class RegisterTiling(Struct, frozen=True):
    """Blocks for a machine.

    ``pixels``: how many a block may have, ``channels_per_block``: channels of it then,
    ``channels_of_one_pixel``: channels of a block of one pixel; 0 where that isn't done. ``value``:
    of lines; bytes of one pixel are multiplied where they lie. ``steps``: how many values of a line
    may be multiplied in one go; ``usual``: for each level. ``lifted``: weights are stored plus 128,
    those of a block's channels side by side. ``repeated``: lines are multiplied in two goes at
    least, where they are long enough: LLVM loads the weights of a single one in front of the loop
    over pixels, and has no registers for so many.
    """

    pixels: tuple[int, ...]
    channels_per_block: int
    channels_of_one_pixel: int
    value: Scalar
    method: RequantMethod
    steps: tuple[int, ...]
    usual: dict[str, int]
    lifted: bool = False
    repeated: bool = False

    def pixels_per_block(self, pixels: int) -> int:
        """Returns how many of ``pixels`` a block has, for the fewest instructions by rough count; 0
        where they are too few."""
        if pixels == 1 and self.channels_of_one_pixel:
            return 1

        def cost(count: int) -> int:
            return -(-pixels // count) * (
                2 * count * self.channels_per_block + self.channels_per_block + count
            )

        fits = [count for count in self.pixels if count <= pixels]
        return min(fits, key=cost, default=0)


ARMV7M = RegisterTiling(
    (2,), 2, 0, Scalar.I32, RequantMethod.MUL64, (4, 8, 16),
    {"compact": 4, "balanced": 8, "speed": 16}, repeated=True,
)
RISCV = RegisterTiling(
    (4, 3, 2), 4, 8, Scalar.I8, RequantMethod.MUL64_SHIFT, (2, 4, 8),
    {"compact": 2, "balanced": 4, "speed": 8},
)
ARMV6M = RegisterTiling(
    (3, 2), 1, 4, Scalar.I32, RequantMethod.MUL32_ONLY, (4, 8),
    {"compact": 4, "balanced": 8, "speed": 8}, lifted=True,
)
I386 = replace(ARMV6M, method=RequantMethod.MUL64, channels_of_one_pixel=0)
"""A row that is alone is multiplied as it is: a copy takes four times its memory."""


def candidates(context: Context, optimize: str, tiling: RegisterTiling = ARMV7M) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, in such blocks; none where it
    can't be or isn't worth it. ``optimize`` is any level but size."""
    layer = IntegerSumLayer.of(context, DType.INT8, group=1)
    if layer is None or not tiling.pixels_per_block(layer.windows.pixels):
        return []
    scaling = _scaling(layer, tiling.method)
    if scaling is None or layer.channels < FEW_CHANNELS:
        return []
    if tiling.lifted and layer.windows.taps > MOST_TAPS:
        return []
    usual = tiling.usual[optimize]
    most = layer.windows.words // 2 if tiling.repeated else max(tiling.steps)
    steps = [step for step in tiling.steps if step <= most]
    return [
        Candidate(f"quads, {step} words", functools.partial(_lower, tiling, layer, scaling, step))
        for step in sorted(steps or tiling.steps[:1], key=lambda step: step != usual)
    ]


def _scaling(layer: IntegerSumLayer, method: RequantMethod) -> ScalarEpilogue | None:
    """Returns what scales sums; where a channel has many, it may have more constants."""
    context, sums, activation = layer.context, layer.sums, layer.op.activation
    short: ScalarEpilogue | None = None
    if method is RequantMethod.MUL32_ONLY and layer.windows.pixels > 1:
        short = Mul32Epilogue.of(context, sums, activation)
    return short or int8_epilogue(context, sums, activation, method)


def _lower(
    tiling: RegisterTiling, layer: IntegerSumLayer, scaling: ScalarEpilogue, step: int
) -> Lowered:
    windows, lowering = layer.windows, layer.begin()
    x = lowering.input(0, "input")
    pixels = tiling.pixels_per_block(windows.pixels)
    channels = tiling.channels_of_one_pixel if pixels == 1 else tiling.channels_per_block
    weights = (
        lowering.packed("weights", Scalar.U8, Lifted(channels), layer.channels)
        if tiling.lifted else lowering.input(1, "weights")
    )
    scaling.begin(lowering)
    # Lines that a store to the output might change are loaded anew for each block of channels;
    # compilers would keep them on the stack instead.
    output = lowering.output(noalias=False)
    gather, lines = None, x
    if pixels > 1 or not windows.pointwise or tiling.value is not x.dtype:
        count = (windows.words + tiling.lifted) * pixels
        lines = lowering.scratch("lines", tiling.value, count, noalias=False)
        gather = Im2colGather(
            lowering.b, windows, x, lines, pixels, layer.sums.zero_point,
            LineTotals(lines, windows.words * pixels, -LIFT) if tiling.lifted else None,
        )
    _RegisterBlocks(
        lowering.b, layer, (weights, lines, output), scaling, (pixels, channels), step,
        tiling.lifted
    ).emit(gather)
    return lowering.finish()


class Lifted(Packing, frozen=True):
    """channels x taps plus 128: blocks of ``channels_per_block`` channels, tap by tap, and one of
    those left."""

    channels_per_block: int

    @property
    def block(self) -> int:
        return self.channels_per_block

    @property
    def byte_lanes(self) -> ByteLanes:
        return ByteLanes(plus=LIFT)

    def nbytes(self, rows: int, columns: int) -> int:
        return rows * columns

    def __call__(self, weights: Array) -> Array:
        lifted: Array = by_blocks(weights, self.channels_per_block).view(np.uint8) ^ np.uint8(LIFT)
        return lifted


class _RegisterBlocks(BlockedProducts):
    """int8 times int8 or, lifted, uint8."""

    def __init__(
        self, b: KernelBuilder, layer: IntegerSumLayer, buffers: tuple[Buffer, Buffer, Buffer],
        scaling: ScalarEpilogue, block: tuple[int, int], step: int, lifted: bool,
    ) -> None:
        """``block``: pixels and channels; ``step``: words that are multiplied in one go."""
        super().__init__(b, layer.windows, layer.channels, block[0])
        self.channels_per_block, self.scaling = block[1], scaling
        self.step, self.lifted = step, lifted
        self.weights, self.lines, self.output = buffers

    def all_channels(self, pixels: list[Expr]) -> None:
        rows = self.rows(pixels)
        whole, rest = divmod(self.channels, self.channels_per_block)
        with self.b.loop("block", whole) as block:
            self._block(rows, mul(block, const(self.channels_per_block)), self.channels_per_block)
        if rest:
            self._block(rows, const(whole * self.channels_per_block), rest)

    def _block(self, rows: list[Expr], channel: Expr, count: int) -> None:
        """Emits ``count`` channels from ``channel`` on, of all pixels."""
        b, words = self.b, self.windows.words
        sums = [
            [b.local(f"sum_p{p}_c{c}", self._start(p)) for p in range(len(rows))]
            for c in range(count)
        ]
        start = b.let("first", mul(channel, const(words)))
        in_steps(b, words, self.step, functools.partial(self._words, sums, start))
        for i, line in enumerate(sums):
            at = add(channel, const(i))
            with b.named(f"c{i}"):
                constants = self.scaling.values(at)
            for p, (row, total) in enumerate(zip(rows, line, strict=True)):
                with b.named(f"p{p}_c{i}"):
                    b.store(self.output, add(row, at), self.scaling.finished(total, constants))

    def _start(self, line: int) -> Expr:
        """Returns what the sums of a line begin with."""
        if not self.lifted:
            return i32(0)
        return load(self.lines, const(self.windows.words * self.pixels_per_block + line))

    def _words(self, sums: list[list[Var]], start: Expr, word: Expr, count: int) -> None:
        """Emits ``count`` words of the lines from ``word`` on, times those of all channels."""
        b, words = self.b, self.windows.words
        channels, pixels = len(sums), self.pixels_per_block

        def value(place: int, line: int) -> Expr:
            at = add(mul(word, const(pixels)), const(place * pixels + line))
            return b.let(f"value{place}_p{line}", cast(load(self.lines, at), Scalar.I32))

        def weight(place: int, channel: int) -> Expr:
            at = (
                add(
                    start, mul(word, const(channels)),
                    const(place * channels + channel)
                ) if self.lifted
                else add(start, word, const(channel * words + place))
            )
            return b.let(f"weight{place}_c{channel}", cast(load(self.weights, at), Scalar.I32))

        for place in range(count):
            # Where weights are for one channel each value is needed once.
            xs = [value(place, i) for i in range(pixels)] if channels > 1 else []
            for channel, line in enumerate(sums):
                w = weight(place, channel)
                for i, total in enumerate(line):
                    x = xs[i] if xs else value(place, i)
                    b.assign(total, add(total, mul(x, w)))
