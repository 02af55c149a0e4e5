"""int8 sums of one pixel where products have 32 bits: four channels in a word of weights.

On Cortex-M3 MLA takes two cycles, and MUL one. A word holds the weights of four channels for one
input value, each plus 128. What a mask leaves of it are the weights of two channels in two halves;
their products with a value, which has 128 added to it, too, fit 16 bits each. So the word of both
products is summed up as it is, wrapping, and its upper half once more, which gives the sum of the
second channel; that, times 2**16, taken from the first, leaves the sum of the first channel. For
four products that is a load, two masks, and six instructions of one cycle each.

With x + 128 = u and w + 128 = v the sum of x * w is that of u * v less 128 times that of u, which
all sums begin with, less 128 times that of w, which is a channel's own and part of its bias.
"""

from __future__ import annotations

import functools

from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
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
from crtexport.schedules.common.loop_tiling import in_steps
from crtexport.schedules.scalar.int8_epilogue import int8_epilogue
from crtexport.schedules.scalar.register_blocks import LIFT, MOST_TAPS, Lifted
from crtexport.schedules.scalar.requantize_int8 import RequantMethod, ScalarEpilogue

_CHANNELS = 4
"""Output channels whose weights a word has."""
_STEPS = (4, 8, 2)
"""Values that are multiplied in one go, the usual number first."""
_HALF = i32(16)
_MASK = const(0x00FF00FF, Scalar.U32)


def candidates(context: Context) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, by such words; none where it
    can't be or isn't worth it."""
    layer = IntegerSumLayer.of(context, DType.INT8, group=1)
    if layer is None or layer.windows.pixels != 1 or not layer.windows.pointwise:
        return []
    if layer.channels < _CHANNELS or layer.windows.taps > MOST_TAPS:
        return []
    totals = LIFT * context.sums(1, 0)[0]
    scaling = int8_epilogue(
        context, layer.sums, layer.op.activation, RequantMethod.MUL64, totals
    )
    if scaling is None:
        return []
    return [
        Candidate(
            f"words of four channels, {step} values",
            functools.partial(_lower, layer, scaling, step),
        )
        for step in _STEPS
    ]


def _lower(layer: IntegerSumLayer, scaling: ScalarEpilogue, step: int) -> Lowered:
    lowering = layer.begin()
    x = lowering.input(0, "input")
    weights = lowering.packed("weights", Scalar.U8, Lifted(_CHANNELS), layer.channels, align=4)
    scaling.begin(lowering)
    output = lowering.output()
    _ChannelQuads(lowering.b, layer, (x, weights, output), scaling, step).emit()
    return lowering.finish()


class _ChannelQuads:
    """Values times words, four channels at a time."""

    def __init__(
        self, b: KernelBuilder, layer: IntegerSumLayer, buffers: tuple[Buffer, Buffer, Buffer],
        scaling: ScalarEpilogue, step: int,
    ) -> None:
        self.b, self.taps, self.channels = b, layer.windows.taps, layer.channels
        self.x, self.weights, self.output = buffers
        self.scaling, self.step = scaling, step

    def emit(self) -> None:
        """Emits all channels."""
        b = self.b
        with b.loop("channels", 1, assembled=True):
            start = self._start()
            whole, rest = divmod(self.channels, _CHANNELS)
            with b.loop("block", whole) as block:
                first = mul(block, const(_CHANNELS))
                self._finish(first, self._sums_of_words(start, first))
            if rest:
                first = const(whole * _CHANNELS)
                self._finish(first, self._sums_of_bytes(start, first, rest))

    def _start(self) -> Expr:
        """Returns what sums begin with."""
        b = self.b
        total = b.local("lifted", i32(self.taps * LIFT))

        def values(first: Expr, count: int) -> None:
            for place in range(count):
                value = cast(load(self.x, add(first, const(place))), Scalar.I32)
                b.assign(total, add(total, value))

        in_steps(b, self.taps, self.step, values)
        return b.let("start", mul(total, i32(-LIFT)))

    def _value(self, tap: Expr, place: int) -> Expr:
        """Returns an input value plus 128, as U32."""
        value = add(cast(load(self.x, add(tap, const(place))), Scalar.I32), i32(LIFT))
        return cast(self.b.let(f"value{place}", value), Scalar.U32)

    def _sums_of_words(self, start: Expr, channel: Expr) -> list[Expr]:
        """Returns the sums of four channels."""
        b = self.b
        both_start = b.let("start_both", wrap_add(start, shl(start, _HALF)))
        # Channels 0 and 2, and 1 and 3.
        sums = [
            (b.local(f"both_c{c}", both_start), b.local(f"sum_c{c + 2}", start)) for c in range(2)
        ]
        begin = b.let("first", mul(channel, const(self.taps)))
        in_steps(b, self.taps, self.step, functools.partial(self._words, sums, begin))
        apart = [(b.let("total", wrap_sub(both, shl(upper, _HALF))), upper) for both, upper in sums]
        return [apart[0][0], apart[1][0], apart[0][1], apart[1][1]]

    def _words(self, sums: list[tuple[Var, Var]], begin: Expr, tap: Expr, count: int) -> None:
        """Emits ``count`` values from ``tap`` on, times words."""
        b = self.b
        for place in range(count):
            at = add(begin, mul(tap, const(_CHANNELS)), const(place * _CHANNELS))
            word = cast(b.let(f"weights{place}", load_word(self.weights, at)), Scalar.U32)
            value = self._value(tap, place)
            pairs = and_(word, _MASK), and_(_MASK, shr(word, const(8, Scalar.U32)))
            for c, (pair, (both, upper)) in enumerate(zip(pairs, sums, strict=True)):
                weights = b.let(f"weights{place}_c{c}", pair)
                products = b.let(f"products{place}_c{c}", mul(weights, value))
                b.assign(both, wrap_add(both, cast(products, Scalar.I32)))
                b.assign(upper, add(upper, cast(shr(products, const(16, Scalar.U32)), Scalar.I32)))

    def _sums_of_bytes(self, start: Expr, channel: Expr, count: int) -> list[Expr]:
        """Returns the sums of ``count`` channels, fewer than a word has."""
        b = self.b
        sums = [b.local(f"sum_c{c}", start) for c in range(count)]
        begin = b.let("first", mul(channel, const(self.taps)))

        def values(tap: Expr, taps: int) -> None:
            for place in range(taps):
                value = cast(self._value(tap, place), Scalar.I32)
                for c, total in enumerate(sums):
                    at = add(begin, mul(tap, const(count)), const(place * count + c))
                    weight = cast(load(self.weights, at), Scalar.I32)
                    b.assign(total, add(total, mul(value, weight)))

        in_steps(b, self.taps, self.step, values)
        return [*sums]

    def _finish(self, first: Expr, totals: list[Expr]) -> None:
        """Scales and stores neighbouring channels."""
        b = self.b
        for c, total in enumerate(totals):
            channel = add(first, const(c))
            with b.named(f"c{c}"):
                constants = self.scaling.values(channel)
                b.store(self.output, channel, self.scaling.finished(total, constants))
