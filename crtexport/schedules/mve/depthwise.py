"""int8 depthwise convolutions on MVE: eight channels, or pixels times channels, at once.

Values and weights are widened when they are loaded, so that products have 16 bits. As many of them
are summed in 16 bits as the weights allow, which are known; then the sums are widened. Sixteen
channels, with VMULLB and VMULLT, take fewer loads, but more vectors at once than there are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    call,
    const,
    i32,
    load_vector,
    min_,
    mul,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.padded_row_ring import Ring, geometry
from crtexport.schedules.common.row_products import halves
from crtexport.schedules.mve import depthwise16 as mve_depthwise16
from crtexport.schedules.mve.requantize import BYTES, Scaler, Sums, vector

MOST_TAPS = 32
"""Windows up to this size are written out tap by tap."""
MOST_CHANNELS = 120
"""Channels of a row in a ring that stay side by side: offsets reach three taps of them."""
EIGHT = 8
"""Channels that are multiplied together."""
_UNSIGNED = 1 << 15
"""Makes a number of 16 bits with a sign one without."""
_SMALL_SUM = 32767 // 128
"""The largest sum of magnitudes of weights whose products with int8 values fit 16 bits."""

Int8s = npt.NDArray[np.int8]


def lower(context: Context, op: DepthwiseConv2D) -> Lowered | None:
    """Returns a depthwise convolution that keeps its operator's rules; None where this is no
    way."""
    w = context.input(1).shape
    if op.depth_multiplier != 1 or w[1] * w[2] > MOST_TAPS or 0 in (
        *context.input(0).shape, *w, *context.output().shape
    ):
        return None
    sums = Sums.of(context, 3)
    if sums is None or sums.long:
        return None
    if sums.vector is Scalar.I16X8:
        return mve_depthwise16.lower(context, op, sums)
    lowering = Lowering("depthwise_conv2d", context)
    _MveDepthwise(lowering, sums, geometry(context, op), context.values(1).astype(np.int8)).emit()
    return lowering.finish()


class _MveDepthwise:
    def __init__(
        self, lowering: Lowering, sums: Sums, window: WindowGeometry, weights: Int8s
    ) -> None:
        self.b: KernelBuilder = lowering.b
        self.window, self.channels = window, window.x[3]
        taps = weights.reshape(-1, self.channels)
        # Few channels: lanes are neighbouring pixels, whose windows are neighbours as well.
        fits = self.channels < EIGHT and EIGHT % self.channels == 0 and window.stride[1] == 1
        source = lowering.input(0, "input")
        cell = self.channels if self.channels <= MOST_CHANNELS else BYTES
        exact = cell % EIGHT == 0
        self.ring = Ring(lowering, source, window, cell, sums.zero_in, exact=exact)
        self.pixels = min(EIGHT // self.channels, self.ring.width) if fits else 1
        self.groups = _groups(taps)
        lanes = self._lanes()
        order = [tap for group in self.groups for tap in group]
        self.packed = lowering.derived(
            "packed", Scalar.I8, _packed(taps[order], lanes),
            f"for each {EIGHT} channels: the weights of each tap",
        )
        across = lanes.reshape(-1, EIGHT // 2, 2).swapaxes(1, 2).reshape(-1).tolist()
        self.scaler = Scaler(lowering, sums, across, -_UNSIGNED * len(self.groups))
        self.output = lowering.output()

    def _lanes(self) -> npt.NDArray[np.int64]:
        """Returns int64[parts, 8]: the channel of each lane; -1 is none."""
        if self.channels < EIGHT:
            line = np.full(EIGHT, -1)
            line[: self.pixels * self.channels] = np.tile(np.arange(self.channels), self.pixels)
            return line[None]
        if self.ring.blocks == 1:
            parts = np.arange(-(-self.channels // EIGHT))
            starts = np.minimum(parts * EIGHT, self.channels - EIGHT)
        else:
            blocks = np.minimum(np.arange(self.ring.blocks) * BYTES, self.channels - BYTES)
            starts = (blocks[:, None] + np.array([0, EIGHT])).reshape(-1)
        lanes: npt.NDArray[np.int64] = starts[:, None] + np.arange(EIGHT)
        return lanes

    def emit(self) -> None:
        b, y, ring = self.b, self.window.y, self.ring
        with ring.walk() as line:
            first = b.let("line", mul(line.pixel(self.window), const(y[3])))
            if ring.blocks > 1:
                with b.loop("block", ring.blocks) as block:
                    starts = ring.starts(block, line)
                    channel = b.let("channel", ring.channel(block))
                    for half in range(2):
                        with b.named(f"half{half}"):
                            number = add(mul(block, const(2)), const(half))
                            self._columns(
                                starts, add(first, channel), number, const(half * EIGHT)
                            )
                return
            starts = ring.starts(const(0), line)
            parts = -(-self.channels // EIGHT)
            if parts > ring.width and self.channels % EIGHT == 0:
                with (
                    b.loop("column", ring.width, assembled=ring.width > 1) as column,
                    b.loop("channels", parts, assembled=True) as part,
                ):
                    self._results(starts, first, part, mul(part, const(EIGHT)), column)
                return
            with b.loop("channels", parts, assembled=parts > 1) as part:
                channel = mul(part, const(EIGHT))
                if self.channels % EIGHT and parts > 1:
                    channel = min_(channel, const(self.channels - EIGHT))
                self._columns(starts, first, part, b.let("channel", channel))

    def _columns(self, starts: list[Expr], line: Expr, part: Expr, channel: Expr) -> None:
        """Emits all pixels of a row, of the channels of a part."""
        halves(self.b, self.ring.width, self.pixels, lambda column: self._results(
            starts, line, part, channel, column
        ))

    def _results(
        self, starts: list[Expr], line: Expr, part: Expr, channel: Expr, column: Expr
    ) -> None:
        """``line``: the index of the first result of the row; ``channel``: the first one, in a cell
        of the ring."""
        words, odd = self._sums(starts, part, channel, column)
        result = self.scaler.eight(words, odd, mul(part, const(2)), joined=True)
        at = add(line, mul(column, const(self.window.y[3])), channel)
        self.b.store_vector(self.output, at, result, min(EIGHT, self.pixels * self.channels))

    def _sums(
        self, starts: list[Expr], part: Expr, channel: Expr, column: Expr
    ) -> tuple[Expr, Expr]:
        """Returns two vectors of sums: of even channels, with those of odd ones in the upper
        halves, too; and of odd ones. Each is ``_UNSIGNED`` too large for each group: products are
        summed as numbers of 16 bits without a sign, so that neighbours can be added as words."""
        b, window, cell = self.b, self.window, self.ring.cell
        total: Expr | None = None
        odd: Expr = const(0)
        base = b.let("w", mul(part, const(EIGHT * sum(map(len, self.groups)))))
        columns = mul(column, const(window.stride[1] * cell))
        number = 0
        for g, group in enumerate(self.groups):
            products: Expr = const(0)
            for i, tap in enumerate(group):
                ky, kx = divmod(tap, window.kernel[1])
                at = add(starts[ky], channel, columns, const(kx * window.dilation[1] * cell))
                x = b.let(f"values_tap{tap}", load_vector(self.ring.rows, at, Scalar.I16X8))
                index = add(base, const(number * EIGHT))
                w = b.let(f"weights_tap{tap}", load_vector(self.packed, index, Scalar.I16X8))
                product = call("mve_mul_s16", x, w, type_=Scalar.I16X8)
                if i == 0:
                    product = call("mve_mlas_s16", x, w, i32(_UNSIGNED), type_=Scalar.I16X8)
                else:
                    product = call("mve_add_s16", products, product, type_=Scalar.I16X8)
                products = b.let(f"products_tap{tap}", product)
                number += 1
            words = b.let(f"words_g{g}", vector("words_s16", products))
            upper = vector("upper_s32", words)
            if total is not None:
                words, upper = vector("add_s32", total, words), vector("add_s32", odd, upper)
            total, odd = b.let(f"total_g{g}", words), b.let(f"odd_g{g}", upper)
        if total is None:
            raise ValueError("a window without taps has no sums")
        return total, odd


def _groups(taps: Int8s) -> list[list[int]]:
    """Returns the taps (int8[taps, channels]) whose products can be summed in 16 bits, as few
    groups as a first fit finds. Where those are as many as pairs, these are pairs of neighbours, so
    that layers with other weights have the same code."""
    sizes = np.abs(taps.astype(np.int64))
    pairs = [list(range(first, min(first + 2, len(taps)))) for first in range(0, len(taps), 2)]
    fitting = _first_fit(sizes)
    fit = all(sizes[pair].sum(axis=0).max() <= _SMALL_SUM for pair in pairs)
    return pairs if fit and len(fitting) == len(pairs) else fitting


def _first_fit(sizes: npt.NDArray[np.int64]) -> list[list[int]]:
    groups: list[list[int]] = []
    totals: list[npt.NDArray[np.int64]] = []
    for tap in np.argsort(-sizes.sum(axis=1), kind="stable").tolist():
        for number, total in enumerate(totals):
            if (total + sizes[tap]).max() <= _SMALL_SUM:
                groups[number].append(tap)
                totals[number] = total + sizes[tap]
                break
        else:
            groups.append([tap])
            totals.append(sizes[tap])
    return [sorted(group) for group in groups]


def _packed(taps: Int8s, lanes: npt.NDArray[np.int64]) -> Int8s:
    """Returns int8[parts, taps, 8]"""
    chosen = np.where(lanes[:, None, :] < 0, 0, taps[:, np.maximum(lanes, 0)].swapaxes(0, 1))
    return chosen.astype(np.int8)
