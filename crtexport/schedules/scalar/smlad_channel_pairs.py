"""int8 sums on Armv7E-M with two output channels in each word of weights.

A half word holds 256 * c1 + c0, the weights of two channels for one input value. SMLAD of such a
word with two input values adds 256 * sum1 + sum0 modulo 2**32 without unpacking anything; SMLAD
of what SXTB16 leaves of it adds sum0 alone. At the end their difference is 256 * sum1, which is
exact as long as sum1 has 24 bits: known while exporting. So two channels times two values cost one
load, one SXTB16 and two SMLAD, and weights stay one byte each in flash.

Input values are widened once for all channels (:mod:`crtexport.schedules.common.im2col_lines`), two
pixels at a time where there are as many, which then share each load of weights. Of a lone pixel
they may also be widened for each block of channels anew: two instructions more for four values, but
no memory.
"""

from __future__ import annotations

import functools

import numpy as np
from msgspec import Struct

from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    call,
    const,
    i32,
    load,
    load_word,
    mul,
    shr,
    wrap_sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered
from crtexport.lowering.weight_packing import Array, ByteLanes, Matrix, Packing
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.conv_geometry import IntegerSumLayer, Windows
from crtexport.schedules.common.im2col_lines import MOST_LEFT, Im2colGather
from crtexport.schedules.common.loop_tiling import in_steps
from crtexport.schedules.scalar.blocked_products import BlockedProducts
from crtexport.schedules.scalar.int8_epilogue import int8_epilogue
from crtexport.schedules.scalar.requantize_int8 import (
    ChannelConstants,
    Int8Epilogue,
    RequantMethod,
)

STEPS = (2, 4, 8, 16)
"""Words of a line that may be multiplied in one go; all of them are another choice."""
LIKELY = {(1, 1): 4, (1, 2): 16, (1, 4): 16, (2, 1): 64, (2, 2): 16}
"""Pixels and pairs of channels whose sums leave registers for what they are made of, and the most
words that are worth their code."""
LIKELY_DIRECT = {(1, 1): 16, (1, 2): 16, (1, 3): 16}
"""The same of values that are widened where they are multiplied: that takes a register."""
FEW_BITS = 24
"""Of sums in whose other bits loops may count their iterations: as few as few layers exceed."""
MOST_WHOLE = 64
"""Longer lines are never multiplied in one go."""


class PairTile(Struct, frozen=True):
    """``pixels`` x ``pairs`` of channels, whose sums are in registers; ``step`` words of a line are
    multiplied in one go. ``direct``: there is no line, the values of the one pixel are widened
    where they are multiplied."""

    pixels: int
    pairs: int
    step: int
    direct: bool = False

    @property
    def name(self) -> str:
        """Returns the name among the candidates of a node."""
        tile = f"paired {self.pixels}x{2 * self.pairs}, {self.step} words"
        return f"{tile}, direct" if self.direct else tile

    @property
    def likely(self) -> int:
        """Returns the most words that are worth their code."""
        return (LIKELY_DIRECT if self.direct else LIKELY).get((self.pixels, self.pairs), 0)


def candidates(context: Context, *, floats: bool = False) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, in pairs of channels, if it
    can be. ``floats``: those of ONNX Runtime are scaled in them."""
    layer = IntegerSumLayer.of(context, DType.INT8, group=4)
    if layer is None:
        return []
    windows = layer.windows
    method = RequantMethod.FPU if floats else RequantMethod.DSP
    scaling = int8_epilogue(context, layer.sums, layer.op.activation, method)
    if scaling is None or len(windows.leftover_taps) > MOST_LEFT:
        return []
    if layer.sums.reach[1::2].max(initial=0) >= 1 << 23:
        return []
    if not joinable(context.matrix(layer.channels)):
        return []
    return [
        Candidate(
            block.name,
            functools.partial(_lower, layer, scaling, block),
            rare=block.pixels < min(windows.pixels, 2) or block.step > block.likely,
        )
        for block in _blocks(windows, layer.channels)
    ]


def _blocks(windows: Windows, channels: int) -> list[PairTile]:
    """Returns the register blocks that there is work for, the usual one first."""
    steps = {step for step in STEPS if 2 * step <= windows.words}
    if windows.words <= MOST_WHOLE or not steps:
        steps.add(windows.words)
    lone = windows.pixels == 1
    sizes = [(1, 2), (1, 1), (1, 4)] if lone else [(2, 1), (1, 2), (2, 2), (4, 1)]
    usual = 2 if lone else 4
    # Two words are widened of four values at once.
    unpacked = lone and windows.pointwise and not windows.leftover_taps
    tiles = [(False, size) for size in sizes]
    tiles += [(True, size) for size in ((1, 2), (1, 1), (1, 3)) if unpacked]
    return [
        PairTile(pixels, pairs, step, direct) for direct, (pixels, pairs) in tiles
        for step in sorted(steps, key=lambda step: (step != usual, step))
        if pixels <= windows.pixels and (pairs == 1 or 2 * pairs <= channels)
        and not (direct and step % 2)
    ]


def _lower(layer: IntegerSumLayer, scaling: Int8Epilogue, block: PairTile) -> Lowered:
    channels, windows, lowering = layer.channels, layer.windows, layer.begin()
    if block.pixels == 1 or block.step < windows.words:
        # Elsewhere first products need nothing to be added to.
        scaling = scaling.begun_in_pairs(layer.sums, 2 * block.pairs) or scaling
    x = lowering.input(0, "input")
    weights = lowering.packed(
        "weights", Scalar.I32, PairWords(windows, block.pairs), channels,
        note="each half word is 256 * c1 + c0, the weights of two channels for one input",
    )
    scaling.begin(lowering)
    # Lines that a store to the output might change are loaded anew for each block of channels;
    # compilers would keep them on the stack instead.
    output = lowering.output(noalias=False)
    if block.direct:
        _ChannelPairs(lowering.b, layer, (weights, x, output), scaling, block).emit(None)
        return lowering.finish()
    lines = lowering.scratch("lines", Scalar.I32, windows.words * block.pixels, noalias=False)
    gather = Im2colGather(lowering.b, windows, x, lines, block.pixels, layer.sums.zero_point)
    _ChannelPairs(lowering.b, layer, (weights, lines, output), scaling, block).emit(gather)
    return lowering.finish()


# ---- weights


def joinable(weights: Matrix) -> bool:
    """Returns whether the weights of two channels always fit a half word: 256 * odd + even has 16
    bits but for odd = -128 and even < 0."""
    return not any(
        ((rows[1::2] == -128) & (rows[: len(rows) - len(rows) % 2 : 2] < 0)).any()
        for rows in weights.blocks(2)
    )


class PairWords(Packing, frozen=True):
    """channels x taps as words, of windows' lines, in blocks of ``pairs`` pairs of channels.

    Each block has its words of the first place of a line, then those of the second, and so on.
    Behind the blocks lie the pairs that are left, one after the other, and at last, if there is
    one, a lone channel in halves of its own.
    """

    windows: Windows
    pairs: int

    @property
    def block(self) -> int:
        return 2 * self.pairs

    @property
    def byte_lanes(self) -> ByteLanes:
        return ByteLanes(nbytes=2)

    def nbytes(self, rows: int, columns: int) -> int:
        del columns
        return -(-rows // 2) * self.windows.words * 4

    def __call__(self, weights: Array) -> Array:
        words, whole = self.windows.words, len(weights) - len(weights) % 2
        padded = np.zeros((len(weights), weights.shape[1] + 1), np.int16)
        padded[:, :-1] = weights
        lines = padded.take(self.windows.pairs().reshape(-1), axis=1)
        joined = (256 * lines[1::2] + lines[:whole:2]).view("<i4")
        blocks = len(joined) - len(joined) % self.pairs
        inner = joined[:blocks].reshape(-1, self.pairs, words).swapaxes(1, 2)
        lone = lines[whole:].view("<i4")
        return np.concatenate([inner.reshape(-1), joined[blocks:].reshape(-1), lone.reshape(-1)])


# ---- products


class _PairSums(Struct, frozen=True):
    """Of two channels: ``both`` is 256 * second + first; or ``first`` is that of one alone."""

    first: Var
    both: Var | None


class _ChannelPairs(BlockedProducts):
    """Values of pixels times words of the weights of two channels."""

    def __init__(
        self, b: KernelBuilder, layer: IntegerSumLayer, buffers: tuple[Buffer, Buffer, Buffer],
        scaling: Int8Epilogue, block: PairTile,
    ) -> None:
        super().__init__(b, layer.windows, layer.channels, block.pixels)
        self.scaling, self.pairs, self.step = scaling, block.pairs, block.step
        self.direct = block.direct
        # The sums of single channels may begin with their biases.
        most = int((abs(layer.sums.folded) + layer.sums.reach)[::2].max())
        self.bits = FEW_BITS if most < 1 << FEW_BITS - 1 else None
        # Those of lines, or of the input itself.
        self.weights, self.values, self.output = buffers

    def all_channels(self, pixels: list[Expr]) -> None:
        rows = self.rows(pixels)
        with self.b.loop("channels", 1, assembled=True):
            self._all_channels(rows)

    def _all_channels(self, rows: list[Expr]) -> None:
        b, pairs, words = self.b, self.pairs, self.windows.words
        self.scaling.load_common()
        blocks, single = divmod(self.channels // 2, pairs)
        if blocks:
            with b.loop("block", blocks) as block:
                start = b.let("first", mul(block, const(pairs * words)))
                self._block(rows, mul(block, const(2 * pairs)), pairs, start)
        done = blocks * pairs
        if single:
            with b.loop("pair", single) as pair:
                number = add(const(done), pair)
                self._block(rows, mul(number, const(2)), 1, mul(number, const(words)))
        if self.channels % 2:
            done += single
            self._block(rows, const(2 * done), 0, const(done * words))

    def _block(self, rows: list[Expr], channel: Expr, pairs: int, start: Expr) -> None:
        """Emits ``pairs`` pairs of channels from ``channel`` on, or one alone, of all pixels."""
        b = self.b

        def begun(name: str, pixel: int, offset: int) -> Var:
            start = self.scaling.begun(channel, offset, max(2 * pairs, 1))
            bits = self.bits if offset % 2 == 0 else None
            return b.local(f"{name}_p{pixel}_c{offset - offset % 2}", start, bits)

        sums = [
            [
                _PairSums(
                    begun("sum", p, 2 * pair), begun("both", p, 2 * pair + 1) if pairs else None
                )
                for pair in range(max(pairs, 1))
            ]
            for p in range(len(rows))
        ]
        if pairs:
            b.comment("sum: of channel c0; both: 256 * that of c1 + that of c0, modulo 2**32")
        words = functools.partial(self._words, sums, start)
        in_steps(b, self.windows.words, self.step, words)
        for pair in range(max(pairs, 1)):
            self._finish(
                rows, channel, 2 * pair, [line[pair] for line in sums], max(2 * pairs, 1)
            )

    def _words(self, sums: list[list[_PairSums]], start: Expr, word: Expr, count: int) -> None:
        """Emits ``count`` words of the lines from ``word`` on, times those of all channels."""
        b, pairs, pixels = self.b, len(sums[0]), self.pixels_per_block
        at = add(start, mul(word, const(pairs)))
        weights = [
            b.let(f"weights{i // pairs}_c{i % pairs * 2}", load(self.weights, add(at, const(i))))
            for i in range(count * pairs)
        ]
        for place in range(count):
            first = add(mul(word, const(pixels)), const(place * pixels))
            xs = [self._widened(word, place)] if self.direct else [
                b.let(f"values{place}_p{i}", load(self.values, add(first, const(i))))
                for i in range(pixels)
            ]
            for pair in range(pairs):
                w = weights[place * pairs + pair]
                single = w
                if sums[0][pair].both is not None:
                    name = f"alone{place}_c{2 * pair}"
                    single = b.let(name, call("arm_sxtb16", w, type_=Scalar.I32))
                for x, line in zip(xs, sums, strict=True):
                    both = line[pair].both
                    if both is not None:
                        b.assign(both, _smlad(w, x, both))
                    b.assign(line[pair].first, _smlad(single, x, line[pair].first))

    def _widened(self, word: Expr, place: int) -> Expr:
        """Returns the values of the input in a line's word, ``place`` behind the even ``word``: two
        of four neighbours, which are loaded for the first two."""
        if place % 2 == 0:
            first = add(mul(word, const(2)), const(2 * place))
            self._bytes = self.b.let(f"bytes{place}", load_word(self.values, first))
        name = "arm_sxtb16_ror8" if place % 2 else "arm_sxtb16"
        return self.b.let(f"values{place}_p0", call(name, self._bytes, type_=Scalar.I32))

    def _finish(
        self, rows: list[Expr], start: Expr, offset: int, sums: list[_PairSums], size: int
    ) -> None:
        """Scales and stores a pair of channels, ``offset`` behind ``start``, of all pixels;
        ``size``: channels that are computed together."""
        channel = add(start, const(offset))
        with self.b.named(f"c{offset}"):
            constants = self.scaling.of_block(start, offset, size)
        for p, (row, one) in enumerate(zip(rows, sums, strict=True)):
            with self.b.named(f"p{p}_c{offset}"):
                whole = self.scaling.whole(one.first, constants)
                self._store(row, channel, whole, constants)
        if sums[0].both is None:
            return
        channel = add(channel, const(1))
        with self.b.named(f"c{offset + 1}"):
            constants = self.scaling.of_block(start, offset + 1, size)
        for p, (row, one) in enumerate(zip(rows, sums, strict=True)):
            if one.both is not None:
                with self.b.named(f"p{p}_c{offset + 1}"):
                    apart = wrap_sub(one.both, one.first)
                    if self.scaling.places < 8:
                        apart = shr(apart, i32(8 - self.scaling.places))
                    self._store(row, channel, add(apart, constants.bias), constants)

    def _store(self, row: Expr, channel: Expr, total: Expr, constants: ChannelConstants) -> None:
        value = self.scaling.result(self.b.let("whole", total), constants)
        self.b.store(self.output, add(row, channel), value)


def _smlad(a: Expr, b: Expr, total: Expr) -> Expr:
    return call("arm_smlad", a, b, total, type_=Scalar.I32)
