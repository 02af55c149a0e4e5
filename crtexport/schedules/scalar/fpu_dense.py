"""float32 convolutions and fully connected layers on Cortex-M with a floating-point unit.

Sums of a few pixels times a few channels stay in registers; each step loads a value of each pixel
and a weight of each channel, and adds their products. What the windows of these
pixels see is gathered once for all channels, unless it lies in the input as it is needed. Weights
are packed while exporting in the order in which they are met. Weights of int8 stay that: their
scale comes last.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.kir.builder import KernelBuilder, add, call, cast, clamp, const, f32, load, mul
from crtexport.kir.intrinsics.in_order import product_in_order, sum_in_order, value_in_order
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.lowering.weight_packing import BlockPacking
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.conv_geometry import Windows, windows_of
from crtexport.schedules.common.float_layers import Numbers
from crtexport.schedules.common.im2col_lines import Im2colGather
from crtexport.schedules.common.loop_tiling import packed_channels
from crtexport.schedules.scalar.blocked_products import BlockedProducts

CHANNELS = {1: 8, 2: 8, 3: 6, 4: 4, 5: 4, 6: 4}
"""Channels that share values, by the pixels that go together and share weights."""
USUAL = 5
"""Most pixels that usually go together: with more, gcc runs out of the 32 registers."""
_UNROLL = 4
"""Most steps that are written one after the other in a loop."""
_APART = 2
"""Products that are computed before the first one of them is added."""


def candidates(
    context: Context, op: Conv2D | FullyConnected, *, fused: bool
) -> list[Candidate]:
    """Returns the variants of a layer of floats that keeps its operator's rules; none where this is
    no way. ``fused`` as for :func:`add_products`."""
    windows = windows_of(context, group=1)
    if windows is None:
        return []
    counts = [count for count in CHANNELS if count <= windows.pixels]
    usual = min(
        (count for count in counts if count <= USUAL),
        # Instructions for a channel: what loads and multiplies, for all blocks of pixels.
        key=lambda count: -(-windows.pixels // count) * (
            1 + (1 if fused else 2) * count + count / CHANNELS[count]
        ),
    )
    return [
        Candidate(
            f"{count} pixels", functools.partial(_lower, context, op, windows, count, fused),
            rare=count != usual,
        )
        for count in sorted(counts, key=lambda count: count != usual)
    ]


def _lower(
    context: Context, op: Conv2D | FullyConnected, windows: Windows, pixels_per_block: int,
    fused: bool,
) -> Lowered:
    name = (
        "fully_connected" if isinstance(op, FullyConnected)
        else "pointwise_conv2d" if windows.pointwise else "conv2d"
    )
    lowering = Lowering(name, context)
    products = _FpuProducts(lowering, windows, op, pixels_per_block, fused)
    products.emit(products.gather)
    return lowering.finish()


def add_products(
    b: KernelBuilder, products: Sequence[tuple[Var, Expr, Expr]], *, fused: bool
) -> None:
    """Adds to each sum, none of which is there twice, the product of the two factors beside it:
    with one rounding (``fused``), or with two, as the reference does.

    Apart, a product and its sum take a cycle each where fused they take three, unless one waits for
    the other: so two products are computed before the first of them is added.
    """
    if fused:
        for total, x, w in products:
            b.assign(total, call("fma_f32", x, w, total, type_=Scalar.F32))
        return
    for first in range(0, len(products), _APART):
        some = products[first : first + _APART]
        found = [b.let("product", product_in_order(x, w)) for _, x, w in some]
        for (total, _, _), product in zip(some, found, strict=True):
            b.assign(total, sum_in_order(total, product))


class FpuEpilogue:
    """Prologue and epilogue of the sums of a channel: bias, scale, activation."""

    def __init__(self, lowering: Lowering, numbers: Numbers) -> None:
        self.b = lowering.b
        self._range = float_range(numbers.activation)
        self._bias: Buffer | None = None
        if lowering.context.has(2):
            self._bias = lowering.input(2, "bias")
        self._scales: Buffer | None = None
        if numbers.scales is not None:
            # One for all lies in memory, too, so that layers of one shape can have one kernel.
            self._alike = bool((numbers.scales == numbers.scales[0]).all())
            stored = numbers.scales[:1] if self._alike else numbers.scales
            self._scales = lowering.derived(
                "scales", Scalar.F32, stored,
                "for all output channels: scale of the weights" if self._alike
                else "for each output channel: scale of its weights",
            )

    def start(self, channel: Expr) -> Expr:
        """Returns the sum of ``channel`` (index) before the first product."""
        if self._bias is None or self._scales is not None:
            return f32(0.0)
        return self.b.let("start", load(self._bias, channel))

    def result(self, total: Expr, channel: Expr) -> Expr:
        """Returns the value of a sum."""
        if self._scales is not None:
            total = mul(total, load(self._scales, const(0) if self._alike else channel))
            if self._bias is not None:
                total = add(total, load(self._bias, channel))
            total = self.b.let("real", total)
        return clamp(total, *self._range)


class _FpuProducts(BlockedProducts):
    """Values of pixels times weights of channels."""

    overlapping = True

    def __init__(
        self, lowering: Lowering, windows: Windows, op: Conv2D | FullyConnected,
        pixels_per_block: int, fused: bool,
    ) -> None:
        self._fused = fused
        numbers = Numbers.of(lowering.context, op, 0)
        super().__init__(lowering.b, windows, numbers.channels, pixels_per_block)
        self.channels_per_block = CHANNELS[pixels_per_block]
        self.x = lowering.input(0, "input")
        stored = lowering.context.input(1).dtype
        self.weights = lowering.packed(
            "weights", SCALAR_OF[stored], BlockPacking(self.channels_per_block, stored.itemsize),
            self.channels
        )
        self.finish = FpuEpilogue(lowering, numbers)
        # Values that a store to the output might change are loaded anew for each block of
        # channels; compilers would keep them on the stack instead.
        self.output = lowering.output(noalias=False)
        self.gather: Im2colGather | None = None
        if not windows.pointwise:
            lines = lowering.scratch(
                "lines", Scalar.F32, windows.taps * self.pixels_per_block, noalias=False
            )
            self.gather = Im2colGather(self.b, windows, self.x, lines, self.pixels_per_block, 0)

    def all_channels(self, pixels: list[Expr]) -> None:
        b, taps = self.b, self.windows.taps
        starts = [b.let(f"line_p{p}", mul(pixel, const(taps))) for p, pixel in enumerate(pixels)]
        packed_channels(
            b, self.channels, self.channels_per_block, self.channels_per_block * taps,
            functools.partial(self._block, starts, self.rows(pixels)),
        )

    def _block(
        self, starts: list[Expr], rows: list[Expr], channel: Expr, at: Expr, count: int
    ) -> None:
        """Emits ``count`` channels from ``channel`` on, whose weights begin at ``at``, of all
        pixels."""
        b = self.b
        channels = [add(channel, const(i)) for i in range(count)]
        first = [self.finish.start(one) for one in channels]
        sums = [
            [b.local(f"sum_p{p}_c{c}", one) for c, one in enumerate(first)]
            for p in range(len(rows))
        ]
        taps = self.windows.taps
        unroll = next(n for n in range(_UNROLL, 0, -1) if taps % n == 0)
        with b.loop("tap", taps, unroll=unroll) as tap:
            weights = [
                self._let(f"weight_c{i}", self._weight(add(at, mul(tap, const(count)), const(i))))
                for i in range(count)
            ]
            values = [
                self._let(f"value_p{i}", self._value(start, tap, i))
                for i, start in enumerate(starts)
            ]
            for x, line in zip(values, sums, strict=True):
                products = [(total, x, w) for total, w in zip(line, weights, strict=True)]
                add_products(b, products, fused=self._fused)
        for row, line in zip(rows, sums, strict=True):
            for one, total in zip(channels, line, strict=True):
                b.store(self.output, add(row, one), self.finish.result(total, one))

    def _let(self, name: str, value: Expr) -> Expr:
        """A value that is there before the first product is computed, so that loads stand one
        behind the other."""
        return self.b.let(name, value if self._fused else value_in_order(value))

    def _weight(self, index: Expr) -> Expr:
        stored = load(self.weights, index)
        if stored.type.is_float:
            return stored
        return cast(cast(stored, Scalar.I32), Scalar.F32)

    def _value(self, start: Expr, tap: Expr, line: int) -> Expr:
        if self.gather is None:
            return load(self.x, add(start, tap))
        return load(self.gather.lines, add(mul(tap, const(self.pixels_per_block)), const(line)))
