"""int16 layers on Armv7E-M: two values in a word meet two weights, which SMLAD multiplies at once.

Weights stay one byte each: a word holds those of two channels for two values, which SXTB16 takes
apart. What the windows of a few pixels see is gathered once, as words, for all channels. Sums have
32 bits where the weights don't allow more, which is known, or where TFLite's have; else 64, with
SMLALD.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import add, call, const, load, mul
from crtexport.kir.language import Expr, Scalar, Var
from crtexport.lowering.numerics.integer_sums import FOLDED_BIAS, IntegerSums
from crtexport.lowering.numerics.requantize import (
    WIDE_LIMIT,
    Requantizer,
    WideRequantizer,
    quantized_result,
)
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.lowering.weight_packing import Array, Packing
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.conv_geometry import IntegerSumLayer, Windows
from crtexport.schedules.common.im2col_lines import MOST_LEFT, Im2colGather
from crtexport.schedules.common.loop_tiling import in_steps, packed_channels
from crtexport.schedules.scalar.blocked_products import BlockedProducts
from crtexport.schedules.scalar.requantize_int16 import Int16Epilogue
from crtexport.support.fixedpoint import Rounding

_SHAPES = ((1, 4), (2, 2), (1, 2), (3, 2), (2, 4))
"""Pixels and channels whose sums may stay in registers."""
_STEPS = {"compact": (2, 4, 8), "balanced": (2, 4, 8), "speed": (8, 4, 2)}
"""Most words of a line that are multiplied in one go, the usual number first."""


class Int16Tile(Struct, frozen=True):
    """``pixels`` times ``channels`` (an even number), ``step`` words at a time."""

    pixels: int
    channels: int
    step: int

    @property
    def name(self) -> str:
        """Returns the name among the candidates of a node."""
        return f"{self.pixels} pixels, {self.channels} channels, {self.step} words"


def candidates(context: Context, optimize: str) -> list[Candidate]:
    """Returns the variants of an int16 layer that keeps its operator's rules; none where this is no
    way.

    ``optimize`` is any level but size.
    """
    layer = IntegerSumLayer.of(context, DType.INT16, group=2)
    if layer is None or len(layer.windows.leftover_taps) > MOST_LEFT or not _scales(layer.sums):
        return []
    blocks = _blocks(layer.windows, optimize)
    return [
        Candidate(block.name, functools.partial(_lower, layer, block), rare=block != blocks[0])
        for block in blocks
    ]


def _blocks(windows: Windows, optimize: str) -> list[Int16Tile]:
    """Returns the register blocks, the usual one first."""
    usual = (2, 2) if windows.pixels > 1 else (1, 4)
    shapes = sorted(
        (shape for shape in _SHAPES if shape[0] <= windows.pixels), key=lambda s: s != usual
    )
    steps = [
        next(n for n in range(most, 0, -1) if windows.words % n == 0)
        for most in _STEPS[optimize]
    ]
    return [Int16Tile(*shape, step) for shape in shapes for step in dict.fromkeys(steps)]


def _scales(sums: IntegerSums) -> bool:
    """Returns whether the portable kernel would scale the sums without complaint, and these as
    well."""
    if not sums.wide:
        return True
    return sums.rounding is Rounding.DOUBLE and sums.bound < WIDE_LIMIT


def _lower(layer: IntegerSumLayer, block: Int16Tile) -> Lowered:
    lowering = layer.begin()
    products = _Int16Products(lowering, layer, block)
    products.emit(products.gather)
    return lowering.finish()


class Int16Words(Packing, frozen=True):
    """channels x taps as words, of windows' lines: blocks of ``channels_per_block`` channels, in
    each word by word of a line, for each of these the pairs of channels: from the lowest byte on a
    weight of the first, one of the second, and so again. A channel of zeros fills the last pair;
    the last block has the pairs that are left."""

    windows: Windows
    channels_per_block: int

    @property
    def block(self) -> int:
        return self.channels_per_block

    def nbytes(self, rows: int, columns: int) -> int:
        del columns
        return -(-rows // 2) * self.windows.words * 4

    def __call__(self, weights: Array) -> Array:
        channels, words = len(weights), self.windows.words
        padded = np.zeros((channels + channels % 2, weights.shape[1] + 1), np.int8)
        padded[:channels, :-1] = weights
        ordered = padded[:, self.windows.pairs()].reshape(-1, 2, words, 2).transpose(0, 2, 3, 1)
        pairs = ordered.reshape(-1, 4 * words).view("<i4")
        channels_per_block = self.channels_per_block // 2
        return np.concatenate([
            pairs[first : first + channels_per_block].T.reshape(-1) for first in range(
                0, len(pairs), channels_per_block
            )
        ])


class _WideEpilogue:
    """Prologue and epilogue of the sums of a channel: bias, scale, activation."""

    def __init__(self, lowering: Lowering, layer: IntegerSumLayer) -> None:
        context, sums, op = layer.context, layer.sums, layer.op
        self.b, self.sum = lowering.b, Scalar.I32
        self._range = activation_range(op.activation, context.output())
        self._scaling = Int16Epilogue.of(context, sums, op.activation)
        self._requantizer: Requantizer | WideRequantizer | None = None
        if self._scaling is not None:
            self._scaling.begin(lowering)
            return
        if sums.wide:
            self._requantizer = WideRequantizer(lowering, sums.multiplier, sums.bound)
            self.sum = Scalar.I32 if sums.bound < 1 << 31 else Scalar.I64
        else:
            self._requantizer = Requantizer(
                lowering, sums.multiplier, sums.rounding, sums.bound
            )
        bias = sums.folded
        if self.sum is Scalar.I32:  # sums that TFLite has in 32 bits wrap there
            bias = (bias & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        self._bias = lowering.derived("bias", self.sum, bias, FOLDED_BIAS)

    def start(self, channel: Expr) -> Expr:
        """Returns the sum of ``channel`` (index) before the first product."""
        if self._scaling is not None:
            return self._scaling.value(channel, 0)
        return self.b.let("start", load(self._bias, channel))

    def factors(self, channel: Expr) -> list[Expr]:
        """Returns what results of ``channel`` are made with that can be loaded once for several."""
        if self._scaling is None:
            return []
        return [self._scaling.value(channel, word) for word in range(1, self._scaling.count)]

    def result(self, total: Expr, channel: Expr, factors: Sequence[Expr]) -> Expr:
        """Returns the i16 of a sum."""
        if self._scaling is not None:
            return self._scaling.made(total, (total, *factors))
        if self._requantizer is None:
            raise TypeError("a sum without a way to scale it")
        scaled = self._requantizer(total, channel)
        return quantized_result(scaled, 0, self._range, Scalar.I16)


class _Int16Products(BlockedProducts):
    """Two values of a pixel times two weights of a channel."""

    overlapping = True

    def __init__(self, lowering: Lowering, layer: IntegerSumLayer, block: Int16Tile) -> None:
        windows = layer.windows
        super().__init__(lowering.b, windows, layer.channels, block.pixels)
        self.tile = block
        x = lowering.input(0, "input")
        packing = Int16Words(windows, block.channels)
        self.weights = lowering.packed("weights", Scalar.I32, packing, self.channels)
        self.finish = _WideEpilogue(lowering, layer)
        # Lines that a store to the output might change are loaded anew for each block of
        # channels; compilers would keep them on the stack instead.
        self.output = lowering.output(noalias=False)
        self.lines = lowering.scratch(
            "lines", Scalar.I32, windows.words * block.pixels, noalias=False
        )
        self.gather = Im2colGather(self.b, windows, x, self.lines, block.pixels, 0)

    def all_channels(self, pixels: list[Expr]) -> None:
        channels_per_block = self.tile.channels
        packed_channels(
            self.b, self.channels, channels_per_block, channels_per_block // 2 * self.windows.words,
            functools.partial(self._block, self.rows(pixels)),
        )

    def _block(self, rows: list[Expr], channel: Expr, start: Expr, count: int) -> None:
        """Emits ``count`` channels from ``channel`` on, whose weights begin at ``start``, of all
        pixels."""
        b, finish = self.b, self.finish
        channels = [add(channel, const(i)) for i in range(count)]
        first = [finish.start(one) for one in channels]
        sums = [
            [b.local(f"sum_p{p}_c{c}", one) for c, one in enumerate(first)]
            for p in range(len(rows))
        ]
        in_steps(
            b, self.windows.words, self.tile.step, functools.partial(self._words, sums, start)
        )
        for i, one in enumerate(channels):
            with b.named(f"c{i}"):
                factors = finish.factors(one)
            for p, (row, line) in enumerate(zip(rows, sums, strict=True)):
                with b.named(f"p{p}_c{i}"):
                    b.store(self.output, add(row, one), finish.result(line[i], one, factors))

    def _words(self, sums: list[list[Var]], start: Expr, first: Expr, count: int) -> None:
        """Emits ``count`` words of the lines from ``first`` on, times those of all channels."""
        for place in range(count):
            with self.b.named(f"at{place}"):
                self._word(sums, start, add(first, const(place)))

    def _word(self, sums: list[list[Var]], start: Expr, word: Expr) -> None:
        b, pixels_per_block = self.b, self.pixels_per_block
        channels_per_block = len(sums[0])
        pairs = -(-channels_per_block // 2)
        xs = [
            b.let(
                f"values_p{p}", load(self.lines, add(mul(word, const(pixels_per_block)), const(p)))
            )
            for p in range(pixels_per_block)
        ]
        for pair in range(pairs):
            at = add(start, mul(word, const(pairs)), const(pair))
            both = b.let(f"weights_c{2 * pair}", load(self.weights, at))
            for half in range(min(2, channels_per_block - 2 * pair)):
                name = "arm_sxtb16" if half == 0 else "arm_sxtb16_ror8"
                w = b.let(f"weight_c{2 * pair + half}", call(name, both, type_=Scalar.I32))
                for x, line in zip(xs, sums, strict=True):
                    total = line[2 * pair + half]
                    product = "arm_smlad" if total.type is Scalar.I32 else "arm_smlald"
                    b.assign(total, call(product, w, x, total, type_=total.type))
