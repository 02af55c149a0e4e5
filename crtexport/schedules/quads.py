"""int8 sums on Armv7-M and Armv8-M Mainline without DSP instructions: two pixels by two channels.

MLA takes words, so input values are widened to words once for all channels, those of two pixels
side by side (:mod:`crtexport.schedules.patches`): LDRD loads both. With two channels, that makes a
load and two loads of weights for four MLA.
"""

from __future__ import annotations

import functools

from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.ir.types import DType
from crtexport.kernels.build import KernelBuilder, add, cast, const, i32, load, min_, mul
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.kernels.sums import IntegerSums
from crtexport.schedules.candidates import Candidate
from crtexport.schedules.patches import Gather, Windows, windows_of
from crtexport.schedules.scaling import Scaling

TOGETHER = 2
"""Pixels whose lines lie interleaved."""
WIDE = 2
"""Channels of a block."""
STEPS = (4, 8, 16)
"""How many words of a line may be multiplied in one go."""
_USUAL = {"balanced": 8, "speed": 16}
_FEW_CHANNELS = 4
"""Fewer channels don't pay for gathering."""


def candidates(context: Context, optimize: str) -> list[Candidate]:
    """Forms of a node that keeps its operator's rules, in such blocks; none where it can't be or
    isn't worth it. ``optimize`` is balanced or speed."""
    op = context.node.op
    if not isinstance(op, Conv2D | FullyConnected):
        return []
    if context.input(0).dtype is not DType.INT8 or context.input(1).dtype is not DType.INT8:
        return []
    windows = windows_of(context, group=1)
    if windows is None or windows.pixels < TOGETHER or not windows.taps:
        return []
    sums = IntegerSums.of(context, 0, fully_connected=isinstance(op, FullyConnected))
    scaling = Scaling.of(context, sums, op.activation, dsp=False)
    if sums.weight_zero or scaling is None or len(sums.folded) < _FEW_CHANNELS:
        return []
    usual = _USUAL[optimize]
    return [
        Candidate(
            f"quads, {step} words",
            functools.partial(_lower, context, windows, sums, scaling, step), rare=step != usual,
        )
        for step in sorted(STEPS, key=lambda step: step != usual)
    ]


def _lower(
    context: Context, windows: Windows, sums: IntegerSums, scaling: Scaling, step: int
) -> Lowered:
    dense = isinstance(context.node.op, FullyConnected)
    lowering = Lowering("fully_connected" if dense else "conv2d", context)
    x, weights = lowering.input(0, "input"), lowering.input(1, "weights")
    scaling.begin(lowering)
    # Lines that a store to the output might change are loaded anew for each block of channels;
    # compilers would keep them on the stack instead.
    output = lowering.output(noalias=False)
    lines = lowering.scratch("lines", Scalar.I32, windows.words * TOGETHER, noalias=False)
    gather = Gather(lowering.b, windows, x, lines, TOGETHER, sums.zero_point)
    products = _Products(lowering.b, windows, (weights, lines, output), scaling, step)
    products.emit(gather, len(sums.folded))
    return lowering.finish()


class _Products:
    """Covers pixels x channels with blocks."""

    def __init__(
        self, b: KernelBuilder, windows: Windows, buffers: tuple[Buffer, Buffer, Buffer],
        scaling: Scaling, step: int,
    ) -> None:
        self.b, self.windows, self.scaling, self.step = b, windows, scaling, step
        self.weights, self.lines, self.output = buffers

    def emit(self, gather: Gather, channels: int) -> None:
        """All pixels, two at a time; where one is left over, it is done twice."""
        b, count = self.b, self.windows.pixels
        with b.loop("pixels", -(-count // TOGETHER)) as number:
            first = mul(number, const(TOGETHER))

            def pixel(line: Expr) -> Expr:
                at = add(first, line)
                return min_(at, const(count - 1)) if count % TOGETHER else at

            gather.emit(pixel)
            rows = [
                b.let("row", mul(pixel(const(i)), const(channels))) for i in range(TOGETHER)
            ]
            with b.loop("block", channels // WIDE) as block:
                self._block(rows, mul(block, const(WIDE)), WIDE)
            for left in range(channels - channels % WIDE, channels):
                self._block(rows, const(left), 1)

    def _block(self, rows: list[Expr], channel: Expr, wide: int) -> None:
        """``wide`` channels from ``channel`` on, of all pixels."""
        b, words = self.b, self.windows.words
        sums = [[b.local("sum", i32(0)) for _ in rows] for _ in range(wide)]
        start = b.let("first", mul(channel, const(words)))
        if words >= self.step:
            with b.loop("step", words // self.step, unroll=1) as number:
                self._words(sums, start, mul(number, const(self.step)), self.step)
        if words % self.step:
            self._words(sums, start, const(words - words % self.step), words % self.step)
        for i, line in enumerate(sums):
            at = add(channel, const(i))
            constants = self.scaling.channel(at)
            for row, total in zip(rows, line, strict=True):
                doubled = b.let("doubled", self.scaling.doubled(total, constants))
                b.store(self.output, add(row, at), self.scaling.result(doubled, constants))

    def _words(self, sums: list[list[Var]], start: Expr, word: Expr, count: int) -> None:
        """``count`` words of the lines from ``word`` on, times those of all channels."""
        b, words = self.b, self.windows.words
        for place in range(count):
            first = add(mul(word, const(TOGETHER)), const(place * TOGETHER))
            xs = [b.let("value", load(self.lines, add(first, const(i)))) for i in range(TOGETHER)]
            for i, line in enumerate(sums):
                at = add(start, word, const(i * words + place))
                w = b.let("weight", cast(load(self.weights, at), Scalar.I32))
                for x, total in zip(xs, line, strict=True):
                    b.assign(total, add(total, mul(x, w)))
