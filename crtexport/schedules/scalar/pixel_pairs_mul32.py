"""int8 sums where products have 32 bits: those of two pixels at once, in the halves of a word.

Values plus 128 of two pixels are the halves of a word, so that one product with a weight, which is
stored plus 128 as well, has two products of 16 bits side by side, neither of which touches the
other. Words are summed up as they are, wrapping, and their upper halves once more, which gives the
sums of the second pixel; these, times 2**16, taken from the first, leave those of the first pixel.

Armv6-M has eight registers: it takes five instructions for two multiply-accumulates, and one to
load a weight for all pixels of a block, of which there are registers for four at the most. On
Cortex-M3 a shift is part of an addition, so that there are three; they take a cycle each, where
MLA, which multiplies for one pixel, takes two. There a block is four pixels of two channels.

With x + 128 = u and w + 128 = v the sum of x * w is that of u * v less 128 times that of u, which
sums begin with, less 128 times that of w, which is a channel's own and part of its bias.
"""

from __future__ import annotations

import functools

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    const,
    i32,
    load,
    load_word,
    mul,
    shl,
    shr,
    wrap_add,
    wrap_sub,
)
from crtexport.kir.intrinsics.in_order import word_in_order
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.conv_geometry import IntegerSumLayer
from crtexport.schedules.common.im2col_lines import Im2colGather, LineTotals
from crtexport.schedules.common.loop_tiling import in_steps, in_steps_of_loops
from crtexport.schedules.scalar.blocked_products import BlockedProducts
from crtexport.schedules.scalar.int8_epilogue import int8_epilogue
from crtexport.schedules.scalar.register_blocks import FEW_CHANNELS, LIFT, MOST_TAPS, Lifted
from crtexport.schedules.scalar.requantize_int8 import RequantMethod, ScalarEpilogue
from crtexport.schedules.scalar.requantize_mul32 import Mul32Epilogue

_HALF = i32(16)
_MANY = 8
"""Sums of a block that leave hardly a register."""
_ITERATIONS = 8
"""The fewest that a loop has where compilers of C decide what is in registers around it."""


class PairBlocks(Struct, frozen=True):
    """Blocks for a machine: their pixels, channels, and values of their lines that are multiplied
    in one go, the usual ones first. ``assembled``: the hot loops are to be instructions.
    ``in_order``: the kernels are for compilers of C, which are told to add each product where it
    stands: gcc 12 would sum up many at once, and spill them."""

    blocks: tuple[tuple[int, int, int], ...]
    method: RequantMethod
    assembled: bool = False
    in_order: bool = False


ARMV6M = PairBlocks(((2, 1, 8), (4, 1, 16), (2, 1, 16)), RequantMethod.MUL32_ONLY)
ARMV6M_SOURCES = PairBlocks(
    ((4, 1, 8), (4, 1, 4), (4, 1, 2)), RequantMethod.MUL32_ONLY, in_order=True
)
I386 = PairBlocks(((2, 1, 16), (2, 1, 8)), RequantMethod.MUL64)
I386_SOURCES = replace(ARMV6M_SOURCES, method=RequantMethod.MUL64)
ARMV7M = PairBlocks(
    ((4, 2, 8), (4, 2, 16), (4, 2, 4), (2, 2, 8)), RequantMethod.MUL64, assembled=True
)


def candidates(context: Context, machine: PairBlocks = ARMV6M) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, by such words; none where it
    can't be or isn't worth it."""
    layer = IntegerSumLayer.of(context, DType.INT8, group=1)
    if layer is None or layer.windows.pixels < 2:
        return []
    if layer.channels < FEW_CHANNELS or layer.windows.taps > MOST_TAPS:
        return []
    scaling = _scaling(layer, machine.method)
    if scaling is None:
        return []
    return [
        Candidate(
            f"{'ordered ' * machine.in_order}pairs, {block[0]}x{block[1]}, {block[2]} words",
            functools.partial(_lower, machine, layer, scaling, block),
            objects=not (machine.assembled or machine.in_order), sources=machine.in_order,
        )
        for block in machine.blocks if _is_worth(block, layer, machine)
    ]


def _is_worth(
    block: tuple[int, int, int], layer: IntegerSumLayer, machine: PairBlocks
) -> bool:
    """Returns whether there is work for a block. One of many sums has no registers for all else
    that is done behind a loop of one iteration."""
    pixels, channels, step = block
    words = layer.windows.words
    if machine.in_order:
        enough = _ITERATIONS * step <= words
    else:
        enough = pixels * channels < _MANY or 2 * step <= words
    return enough and pixels <= layer.windows.pixels and channels <= layer.channels


def _scaling(layer: IntegerSumLayer, method: RequantMethod) -> ScalarEpilogue | None:
    """Returns what scales sums from which 128 times those of weights haven't been taken."""
    totals = LIFT * layer.context.sums(1, 0)[0]
    activation = layer.op.activation
    short = Mul32Epilogue.of(layer.context, layer.sums, activation, -totals)
    return short or int8_epilogue(
        layer.context, layer.sums, activation, method, totals
    )


def _lower(
    machine: PairBlocks, layer: IntegerSumLayer, scaling: ScalarEpilogue,
    block: tuple[int, int, int],
) -> Lowered:
    pixels_per_block, channels_per_block, _ = block
    windows, lowering = layer.windows, layer.begin()
    x = lowering.input(0, "input")
    weights = lowering.packed("weights", Scalar.U8, Lifted(channels_per_block), layer.channels)
    scaling.begin(lowering)
    # What a store to the output might change is loaded anew for each channel; compilers would keep
    # it on the stack instead.
    output = lowering.output(noalias=False)
    lines = lowering.scratch(
        "lines", Scalar.I16, windows.words * pixels_per_block, noalias=False, align=4
    )
    starts = lowering.scratch("starts", Scalar.I32, pixels_per_block, noalias=False)
    gather = Im2colGather(
        lowering.b, windows, x, lines, pixels_per_block, layer.sums.zero_point,
        LineTotals(starts, 0, -LIFT), LIFT,
    )
    _PixelPairs(
        lowering.b, layer, (weights, lines, starts, output), scaling, block, machine
    ).emit(gather)
    return lowering.finish()


class _PixelPairs(BlockedProducts):
    """Two pixels in a word times a weight, some channels at a time."""

    def __init__(
        self, b: KernelBuilder, layer: IntegerSumLayer,
        buffers: tuple[Buffer, Buffer, Buffer, Buffer],
        scaling: ScalarEpilogue, block: tuple[int, int, int], machine: PairBlocks,
    ) -> None:
        super().__init__(b, layer.windows, layer.channels, block[0])
        self.scaling, (_, self.channels_per_block, self.step) = scaling, block
        self.weights, self.lines, self.starts, self.output = buffers
        self.assembled, self.in_order = machine.assembled, machine.in_order

    def all_channels(self, pixels: list[Expr]) -> None:
        rows = self.rows(pixels)
        if not self.assembled:
            self._all_channels(rows)
            return
        with self.b.loop("channels", 1, assembled=True):
            self._all_channels(rows)

    def _all_channels(self, rows: list[Expr]) -> None:
        whole, rest = divmod(self.channels, self.channels_per_block)
        with self.b.loop("block", whole) as block:
            self._block(rows, mul(block, const(self.channels_per_block)), self.channels_per_block)
        if rest:
            self._block(rows, const(whole * self.channels_per_block), rest)

    def _block(self, rows: list[Expr], first: Expr, count: int) -> None:
        """Emits ``count`` channels from ``first`` on, of all pixels."""
        for number, totals in enumerate(self._totals(first, count)):
            channel = add(first, const(number))
            with self.b.named(f"c{number}"):
                constants = self.scaling.values(channel)
            for p, (row, total) in enumerate(zip(rows, totals, strict=True)):
                with self.b.named(f"p{p}_c{number}"):
                    result = self.scaling.finished(total, constants)
                    self.b.store(self.output, add(row, channel), result)

    def _totals(self, channel: Expr, count: int) -> list[list[Expr]]:
        """Returns the sums of all pixels, for each channel."""
        b, words = self.b, self.windows.words
        sums: list[list[tuple[Var, Var]]] = [[] for _ in range(count)]
        for first in range(0, self.pixels_per_block, 2):
            low, high = (
                b.let(f"start_p{p}", load(self.starts, const(p))) for p in (first, first + 1)
            )
            both = b.let(f"start_both_p{first}", wrap_add(low, shl(high, _HALF)))
            for c, of_channel in enumerate(sums):
                of_channel.append((
                    b.local(f"both_p{first}_c{c}", both), b.local(f"sum_p{first + 1}_c{c}", high)
                ))
        start = b.let("first", mul(channel, const(words)))
        steps = in_steps_of_loops if self.assembled else in_steps
        steps(b, words, self.step, functools.partial(self._words, sums, start))
        return [
            [total for both, second in of_channel for total in self._apart(both, second)]
            for of_channel in sums
        ]

    def _words(
        self, sums: list[list[tuple[Var, Var]]], start: Expr, word: Expr, count: int
    ) -> None:
        """Emits ``count`` values of the lines from ``word`` on, times those of all channels."""
        b, pixels, channels = self.b, self.pixels_per_block, len(sums)
        for place in range(count):
            at = add(start, mul(word, const(channels)))
            weights = [
                b.let(f"weight{place}_c{c}", cast(
                    load(self.weights, add(at, const(place * channels + c))), Scalar.U32
                )) for c in range(channels)
            ]
            for number in range(pixels // 2):
                pair = add(mul(word, const(pixels)), const(place * pixels + 2 * number))
                values = cast(load_word(self.lines, pair), Scalar.U32)
                if channels > 1:
                    values = b.let(f"values{place}_p{2 * number}", values)
                for c, weight in enumerate(weights):
                    both, second = sums[c][number]
                    products = b.let(
                        f"products{place}_p{2 * number}_c{c}", mul(values, weight)
                    )
                    b.assign(both, self._sum(wrap_add(both, cast(products, Scalar.I32))))
                    upper = shr(products, const(16, Scalar.U32))
                    b.assign(second, self._sum(add(second, cast(upper, Scalar.I32))))

    def _sum(self, total: Expr) -> Expr:
        return word_in_order(total) if self.in_order else total

    def _apart(self, both: Var, second: Var) -> tuple[Expr, Expr]:
        return self.b.let("total", wrap_sub(both, shl(second, _HALF))), second
