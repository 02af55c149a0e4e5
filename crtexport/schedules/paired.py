"""int8 sums on Armv7E-M with two output channels in each word of weights.

A half word holds 256 * c1 + c0, the weights of two channels for one input value. SMLAD of such a
word with two input values adds 256 * sum1 + sum0 modulo 2**32 without unpacking anything; SMLAD
of what SXTB16 leaves of it adds sum0 alone. At the end their difference is 256 * sum1, which is
exact as long as sum1 has 24 bits: known while exporting. So two channels times two values cost one
load, one SXTB16 and two SMLAD, and weights stay one byte each in flash.

Input values are widened once for all channels (:mod:`crtexport.schedules.patches`), two pixels at
a time where there are as many, which then share each load of weights.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtexport.ir.types import DType
from crtexport.kernels.build import (
    KernelBuilder,
    add,
    call,
    const,
    i32,
    load,
    mul,
    shr,
    wrap_sub,
)
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.registry import Context, Lowered
from crtexport.kernels.sums import stored_weights
from crtexport.schedules.candidates import Candidate
from crtexport.schedules.covering import pixels_with_last_again
from crtexport.schedules.geometry import Layer, Windows
from crtexport.schedules.patches import MOST_LEFT, Gather
from crtexport.schedules.scaling import Channel, Scaling

STEPS = (2, 4, 8, 16)
"""How many words of a line may be multiplied in one go; all of them are another choice."""
LIKELY = {(1, 1): 4, (1, 2): 2, (2, 1): 64}
"""Pixels and pairs of channels whose sums leave registers for what they are made of, and the most
words for which that is so: compilers load all weights of one pixel's words before they use them."""
MOST_WHOLE = 64
"""Longer lines are never multiplied in one go."""
_REACH = 128
"""Largest magnitude of an input value."""


@dataclass(frozen=True)
class Block:
    """``pixels`` x ``pairs`` of channels, whose sums are in registers; ``step`` words of a line are
    multiplied in one go."""

    pixels: int
    pairs: int
    step: int

    @property
    def name(self) -> str:
        """What it is called among the candidates of a node."""
        return f"paired {self.pixels}x{2 * self.pairs}, {self.step} words"


def candidates(context: Context) -> list[Candidate]:
    """Forms of a node that keeps its operator's rules, in pairs of channels, if it can be."""
    layer = Layer.of(context, DType.INT8, group=4)
    if layer is None:
        return []
    windows = layer.windows
    scaling = Scaling.of(context, layer.sums, layer.op.activation)
    if scaling is None or len(windows.left) > MOST_LEFT:
        return []
    halves = halves_of(stored_weights(context, 0).astype(np.int64), windows.pairs())
    if halves is None:
        return []
    return [
        Candidate(
            block.name,
            functools.partial(_lower, layer, scaling, halves, block),
            rare=block.pixels < min(windows.pixels, 2)
            or block.step > LIKELY.get((block.pixels, block.pairs), 0),
        )
        for block in _blocks(windows, halves.channels)
    ]


def _blocks(windows: Windows, channels: int) -> list[Block]:
    """Those that there is work for, the usual one first."""
    steps = {step for step in STEPS if 2 * step <= windows.words}
    if windows.words <= MOST_WHOLE or not steps:
        steps.add(windows.words)
    sizes = [(1, 2), (1, 1), (1, 4)] if windows.pixels == 1 else [(2, 1), (1, 2), (2, 2), (4, 1)]
    usual = 2 if windows.pixels == 1 else 4
    return [
        Block(pixels, pairs, step) for pixels, pairs in sizes
        for step in sorted(steps, key=lambda step: (step != usual, step))
        if pixels <= windows.pixels and (pairs == 1 or 2 * pairs <= channels)
    ]


def _lower(layer: Layer, scaling: Scaling, halves: Halves, block: Block) -> Lowered:
    packed, windows, lowering = pack(halves, block.pairs), layer.windows, layer.begin()
    x = lowering.input(0, "input")
    weights = lowering.derived("weights", Scalar.I32, packed.words)
    scaling.begin(lowering)
    # Lines that a store to the output might change are loaded anew for each block of channels;
    # compilers would keep them on the stack instead.
    output = lowering.output(noalias=False)
    lines = lowering.scratch("lines", Scalar.I32, windows.words * block.pixels, noalias=False)
    gather = Gather(lowering.b, windows, x, lines, block.pixels, layer.sums.zero_point)
    _Products(
        lowering.b, windows, (weights, lines, output), scaling, packed, block
    ).emit(gather)
    return lowering.finish()


# ---- weights


@dataclass(frozen=True, eq=False)
class Packed:
    """Weights as words, in blocks of channels one after the other.

    Each block has its words of the first place of a line, then those of the second, and so on.
    ``pairs``: pairs of channels of a block, for ``blocks`` of them; then ``single`` pairs, and at
    last, if ``lone``, one channel in halves of its own.
    """

    words: npt.NDArray[np.int32]
    pairs: int
    blocks: int
    single: int
    lone: bool


@dataclass(frozen=True, eq=False)
class Halves:
    """Weights as words: ``joined`` of pairs of channels, [pairs][words of a line]; ``lone`` of the
    last channel, where it is left over."""

    joined: npt.NDArray[np.int32]
    lone: npt.NDArray[np.int32] | None

    @property
    def channels(self) -> int:
        return 2 * len(self.joined) + (self.lone is not None)


def halves_of(weights: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> Halves | None:
    """channels x taps in the order of ``places`` (words x 2 taps, -1 for none); None if two
    channels don't fit one word, or their sums 24 bits."""
    channels = len(weights)
    padded = np.concatenate([weights, np.zeros((channels, 1), np.int64)], axis=1)
    line = padded[:, places]
    even, odd = line[: channels - channels % 2 : 2], line[1::2]
    halves = 256 * odd + even
    if np.abs(odd).sum(axis=(1, 2)).max(initial=0) * _REACH >= 1 << 23:
        return None
    if halves.min(initial=0) < -(1 << 15) or halves.max(initial=0) >= 1 << 15:
        return None
    return Halves(_words(halves), _words(line[-1]) if channels % 2 else None)


def pack(halves: Halves, pairs: int) -> Packed:
    """In blocks of ``pairs`` pairs of channels."""
    joined = halves.joined
    blocks = len(joined) // pairs
    inner = joined[: blocks * pairs].reshape(blocks, pairs, joined.shape[1]).transpose(0, 2, 1)
    parts = [inner.reshape(-1), joined[blocks * pairs :].reshape(-1)]
    if halves.lone is not None:
        parts.append(halves.lone)
    return Packed(
        np.concatenate(parts), pairs, blocks, len(joined) - blocks * pairs,
        halves.lone is not None,
    )


def _words(halves: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    low, high = halves[..., 0] & 0xFFFF, halves[..., 1] & 0xFFFF
    return (low | high << 16).astype(np.uint32).view(np.int32)


# ---- products


@dataclass(frozen=True)
class _Sums:
    """Of two channels: ``both`` is 256 * second + first; or ``first`` is that of one alone."""

    first: Var
    both: Var | None


class _Products:
    """Covers pixels x channels with blocks."""

    def __init__(
        self, b: KernelBuilder, windows: Windows, buffers: tuple[Buffer, Buffer, Buffer],
        scaling: Scaling, packed: Packed, block: Block,
    ) -> None:
        self.b, self.windows, self.scaling, self.packed = b, windows, scaling, packed
        self.weights, self.lines, self.output = buffers
        self.together, self.step = block.pixels, block.step
        self.channels = 2 * (packed.pairs * packed.blocks + packed.single) + packed.lone

    def emit(self, gather: Gather) -> None:
        """All pixels, ``together`` at a time."""
        b = self.b
        with pixels_with_last_again(b, self.windows.pixels, self.together) as pixel:
            gather.emit(pixel)
            rows = [
                b.let("row", mul(pixel(const(i)), const(self.channels)))
                for i in range(self.together)
            ]
            self._all_channels(rows)

    def _all_channels(self, rows: list[Expr]) -> None:
        b, packed, words = self.b, self.packed, self.windows.words
        wide = 2 * packed.pairs
        if packed.blocks:
            with b.loop("block", packed.blocks) as block:
                start = b.let("first", mul(block, const(packed.pairs * words)))
                self._block(rows, mul(block, const(wide)), packed.pairs, start)
        done = packed.blocks * packed.pairs
        if packed.single:
            with b.loop("pair", packed.single) as pair:
                number = add(const(done), pair)
                self._block(rows, mul(number, const(2)), 1, mul(number, const(words)))
        if packed.lone:
            done += packed.single
            self._block(rows, const(2 * done), 0, const(done * words))

    def _block(self, rows: list[Expr], channel: Expr, pairs: int, start: Expr) -> None:
        """``pairs`` pairs of channels from ``channel`` on, or one alone, of all pixels."""
        b = self.b
        sums = [
            [
                _Sums(b.local("sum", i32(0)), b.local("both", i32(0)) if pairs else None)
                for _ in range(max(pairs, 1))
            ]
            for _ in rows
        ]
        words, step = self.windows.words, self.step
        if words >= step:
            with b.loop("step", words // step, unroll=1) as number:
                self._words(sums, start, mul(number, const(step)), step)
        if words % step:
            self._words(sums, start, const(words - words % step), words % step)
        for pair in range(max(pairs, 1)):
            self._finish(rows, add(channel, const(2 * pair)), [line[pair] for line in sums])

    def _words(self, sums: list[list[_Sums]], start: Expr, word: Expr, count: int) -> None:
        """``count`` words of the lines from ``word`` on, times those of all channels."""
        b, pairs = self.b, len(sums[0])
        at = add(start, mul(word, const(pairs)))
        weights = [
            b.let("weights", load(self.weights, add(at, const(i)))) for i in range(count * pairs)
        ]
        for place in range(count):
            first = add(mul(word, const(self.together)), const(place * self.together))
            xs = [
                b.let("values", load(self.lines, add(first, const(i))))
                for i in range(self.together)
            ]
            for pair in range(pairs):
                w = weights[place * pairs + pair]
                single = w
                if sums[0][pair].both is not None:
                    single = b.let("single", call("arm_sxtb16", w, type_=Scalar.I32))
                for x, line in zip(xs, sums, strict=True):
                    both = line[pair].both
                    if both is not None:
                        b.assign(both, _smlad(w, x, both))
                    b.assign(line[pair].first, _smlad(single, x, line[pair].first))

    def _finish(self, rows: list[Expr], channel: Expr, sums: list[_Sums]) -> None:
        """Scales and stores a pair of channels of all pixels."""
        constants = self.scaling.channel(channel)
        for row, one in zip(rows, sums, strict=True):
            whole = self.scaling.whole(one.first, constants)
            self._store(row, channel, whole, constants)
        if sums[0].both is None:
            return
        constants = self.scaling.channel(add(channel, const(1)))
        for row, one in zip(rows, sums, strict=True):
            if one.both is not None:
                apart = shr(wrap_sub(one.both, one.first), i32(7))
                self._store(
                    row, add(channel, const(1)), add(apart, constants.bias), constants
                )

    def _store(self, row: Expr, channel: Expr, whole: Expr, constants: Channel) -> None:
        value = self.scaling.result(self.b.let("whole", whole), constants)
        self.b.store(self.output, add(row, channel), value)


def _smlad(a: Expr, b: Expr, total: Expr) -> Expr:
    return call("arm_smlad", a, b, total, type_=Scalar.I32)
