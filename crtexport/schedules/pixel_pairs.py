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

from msgspec.structs import replace

from crtexport.ir.types import DType
from crtexport.kernels.build import (
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
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.registry import Context, Lowered
from crtexport.schedules.candidates import Candidate
from crtexport.schedules.covering import in_steps, pixels_with_last_again
from crtexport.schedules.geometry import Layer, Windows
from crtexport.schedules.patches import Gather, Totals
from crtexport.schedules.quads import FEW_CHANNELS, LIFT, MOST_TAPS, Lifted
from crtexport.schedules.scaling import Means, Scales, Scaling
from crtexport.schedules.scaling_short import ScalingShort

_BLOCKS = ((2, 8), (4, 16), (2, 16))
"""How many pixels may go together, and how many values of their lines are multiplied in one go, the
usual one first."""
_HALF = i32(16)


def candidates(context: Context) -> list[Candidate]:
    """Forms of a node that keeps its operator's rules, by such words; none where it can't be or
    isn't worth it."""
    layer = Layer.of(context, DType.INT8, group=1)
    if layer is None or layer.windows.pixels < 2:
        return []
    if layer.channels < FEW_CHANNELS or layer.windows.taps > MOST_TAPS:
        return []
    scaling = _scaling(layer)
    if scaling is None:
        return []
    return [
        Candidate(
            f"pairs, {together} pixels, {step} words",
            functools.partial(_lower, layer, scaling, together, step),
            objects=True,  # gcc 12 sums up many products at once, and spills them
        )
        for together, step in _BLOCKS if together <= layer.windows.pixels
    ]


def _scaling(layer: Layer) -> Scales | None:
    """What scales sums from which 128 times those of weights haven't been taken."""
    totals = LIFT * layer.context.sums(1, 0)[0]
    activation = layer.op.activation
    short = ScalingShort.of(layer.context, layer.sums, activation, -totals)
    sums = replace(layer.sums, folded=layer.sums.folded - totals)
    return short or Scaling.of(layer.context, sums, activation, Means.PIECES)


def _lower(layer: Layer, scaling: Scales, together: int, step: int) -> Lowered:
    windows, lowering = layer.windows, layer.begin()
    x = lowering.input(0, "input")
    weights = lowering.packed("weights", Scalar.U8, Lifted(1), layer.channels)
    scaling.begin(lowering)
    # What a store to the output might change is loaded anew for each channel; compilers would keep
    # it on the stack instead.
    output = lowering.output(noalias=False)
    lines = lowering.scratch(
        "lines", Scalar.I16, windows.words * together, noalias=False, align=4
    )
    starts = lowering.scratch("starts", Scalar.I32, together, noalias=False)
    gather = Gather(
        lowering.b, windows, x, lines, together, layer.sums.zero_point,
        Totals(starts, 0, -LIFT), LIFT,
    )
    products = _Products(
        lowering.b, windows, (weights, lines, starts, output), scaling, together, step
    )
    products.emit(gather, layer.channels)
    return lowering.finish()


class _Products:
    """Sums of blocks of pixels, channel by channel."""

    def __init__(
        self, b: KernelBuilder, windows: Windows,
        buffers: tuple[Buffer, Buffer, Buffer, Buffer], scaling: Scales, together: int, step: int,
    ) -> None:
        self.b, self.windows, self.scaling = b, windows, scaling
        self.together, self.step = together, step
        self.weights, self.lines, self.starts, self.output = buffers

    def emit(self, gather: Gather, channels: int) -> None:
        b = self.b
        with pixels_with_last_again(b, self.windows.pixels, self.together) as pixel:
            gather.emit(pixel)
            rows = [
                b.let("row", mul(pixel(const(i)), const(channels))) for i in range(self.together)
            ]
            with b.loop("channel", channels) as channel:
                totals = self._totals(channel)
                constants = self.scaling.values(channel)
                for row, total in zip(rows, totals, strict=True):
                    result = self.scaling.finished(total, constants)
                    b.store(self.output, add(row, channel), result)

    def _totals(self, channel: Expr) -> list[Expr]:
        """The sums of all pixels."""
        b, words = self.b, self.windows.words
        sums: list[tuple[Var, Var]] = []
        for first in range(0, self.together, 2):
            low, high = (b.let("start", load(self.starts, const(first + i))) for i in range(2))
            both = wrap_add(low, shl(high, _HALF))
            sums.append((b.local("both", both), b.local("second", high)))
        start = b.let("first", mul(channel, const(words)))
        in_steps(b, words, self.step, functools.partial(self._words, sums, start))
        return [total for both, second in sums for total in self._apart(both, second)]

    def _words(
        self, sums: list[tuple[Var, Var]], start: Expr, word: Expr, count: int
    ) -> None:
        """``count`` values of the lines from ``word`` on, times those of a channel."""
        b = self.b
        for place in range(count):
            at = add(start, word, const(place))
            weight = b.let("weight", cast(load(self.weights, at), Scalar.U32))
            for number, (both, second) in enumerate(sums):
                pair = add(
                    mul(word, const(self.together)), const(place * self.together + 2 * number)
                )
                values = cast(load_word(self.lines, pair), Scalar.U32)
                products = b.let("products", mul(values, weight))
                b.assign(both, wrap_add(both, cast(products, Scalar.I32)))
                upper = shr(products, const(16, Scalar.U32))
                b.assign(second, add(second, cast(upper, Scalar.I32)))

    def _apart(self, both: Var, second: Var) -> tuple[Expr, Expr]:
        return self.b.let("total", wrap_sub(both, shl(second, _HALF))), second
