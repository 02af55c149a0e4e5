"""int8 sums on machines with eight registers and products of 32 bits: two pixels in a word.

Values plus 128 of two pixels are the halves of a word, so that one product with a weight, which is
stored plus 128 as well, has two products of 16 bits side by side, neither of which touches the
other. Words are summed up as they are, wrapping, and their upper halves once more, which gives the
sums of the second pixel; these, times 2**16, taken from the first, leave those of the first pixel.
That is five instructions for two multiply-accumulates, and one to load a weight for all pixels of a
block, of which Armv6-M has registers for four at the most.

With x + 128 = u and w + 128 = v the sum of x * w is that of u * v less 128 times that of u, which
sums begin with, less 128 times that of w, which is a channel's own and part of its bias.
"""

from __future__ import annotations

import functools

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
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.conv_geometry import IntegerSumLayer
from crtexport.schedules.common.im2col_lines import Im2colGather, LineTotals
from crtexport.schedules.common.loop_tiling import in_steps
from crtexport.schedules.scalar.blocked_products import BlockedProducts
from crtexport.schedules.scalar.int8_epilogue import int8_epilogue
from crtexport.schedules.scalar.register_blocks import FEW_CHANNELS, LIFT, MOST_TAPS, Lifted
from crtexport.schedules.scalar.requantize_int8 import RequantMethod, ScalarEpilogue
from crtexport.schedules.scalar.requantize_mul32 import Mul32Epilogue

_BLOCKS = ((2, 8), (4, 16), (2, 16))
"""Pixels of a block, and values of their lines that are multiplied in one go, the
usual one first."""
_HALF = i32(16)


def candidates(context: Context) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, by such words; none where it
    can't be or isn't worth it."""
    layer = IntegerSumLayer.of(context, DType.INT8, group=1)
    if layer is None or layer.windows.pixels < 2:
        return []
    if layer.channels < FEW_CHANNELS or layer.windows.taps > MOST_TAPS:
        return []
    scaling = _scaling(layer)
    if scaling is None:
        return []
    return [
        Candidate(
            f"pairs, {pixels_per_block} pixels, {step} words",
            functools.partial(_lower, layer, scaling, pixels_per_block, step),
            objects=True,  # gcc 12 sums up many products at once, and spills them
        )
        for pixels_per_block, step in _BLOCKS if pixels_per_block <= layer.windows.pixels
    ]


def _scaling(layer: IntegerSumLayer) -> ScalarEpilogue | None:
    """Returns what scales sums from which 128 times those of weights haven't been taken."""
    totals = LIFT * layer.context.sums(1, 0)[0]
    activation = layer.op.activation
    short = Mul32Epilogue.of(layer.context, layer.sums, activation, -totals)
    return short or int8_epilogue(
        layer.context, layer.sums, activation, RequantMethod.MUL32_ONLY, totals
    )


def _lower(
    layer: IntegerSumLayer, scaling: ScalarEpilogue, pixels_per_block: int, step: int
) -> Lowered:
    windows, lowering = layer.windows, layer.begin()
    x = lowering.input(0, "input")
    weights = lowering.packed("weights", Scalar.U8, Lifted(1), layer.channels)
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
        lowering.b, layer, (weights, lines, starts, output), scaling, pixels_per_block, step
    ).emit(gather)
    return lowering.finish()


class _PixelPairs(BlockedProducts):
    """Two pixels in a word times a weight, channel by channel."""

    def __init__(
        self, b: KernelBuilder, layer: IntegerSumLayer,
        buffers: tuple[Buffer, Buffer, Buffer, Buffer],
        scaling: ScalarEpilogue, pixels_per_block: int, step: int,
    ) -> None:
        super().__init__(b, layer.windows, layer.channels, pixels_per_block)
        self.scaling, self.step = scaling, step
        self.weights, self.lines, self.starts, self.output = buffers

    def all_channels(self, pixels: list[Expr]) -> None:
        rows = self.rows(pixels)
        with self.b.loop("channel", self.channels) as channel:
            totals = self._totals(channel)
            constants = self.scaling.values(channel)
            for p, (row, total) in enumerate(zip(rows, totals, strict=True)):
                with self.b.named(f"p{p}"):
                    result = self.scaling.finished(total, constants)
                    self.b.store(self.output, add(row, channel), result)

    def _totals(self, channel: Expr) -> list[Expr]:
        """Returns the sums of all pixels."""
        b, words = self.b, self.windows.words
        sums: list[tuple[Var, Var]] = []
        for first in range(0, self.pixels_per_block, 2):
            low, high = (
                b.let(f"start_p{p}", load(self.starts, const(p))) for p in (first, first + 1)
            )
            both = wrap_add(low, shl(high, _HALF))
            sums.append((b.local(f"both_p{first}", both), b.local(f"sum_p{first + 1}", high)))
        start = b.let("first", mul(channel, const(words)))
        in_steps(b, words, self.step, functools.partial(self._words, sums, start))
        return [total for both, second in sums for total in self._apart(both, second)]

    def _words(
        self, sums: list[tuple[Var, Var]], start: Expr, word: Expr, count: int
    ) -> None:
        """Emits ``count`` values of the lines from ``word`` on, times those of a channel."""
        b, pixels = self.b, self.pixels_per_block
        for place in range(count):
            at = add(start, word, const(place))
            weight = b.let(f"weight{place}", cast(load(self.weights, at), Scalar.U32))
            for number, (both, second) in enumerate(sums):
                pair = add(mul(word, const(pixels)), const(place * pixels + 2 * number))
                values = cast(load_word(self.lines, pair), Scalar.U32)
                products = b.let(f"products{place}_p{2 * number}", mul(values, weight))
                b.assign(both, wrap_add(both, cast(products, Scalar.I32)))
                upper = shr(products, const(16, Scalar.U32))
                b.assign(second, add(second, cast(upper, Scalar.I32)))

    def _apart(self, both: Var, second: Var) -> tuple[Expr, Expr]:
        return self.b.let("total", wrap_sub(both, shl(second, _HALF))), second
