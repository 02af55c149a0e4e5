"""int8 depthwise convolutions on MVE: sixteen channels, or pixels times channels, at once.

VMULLB and VMULLT give products of 16 bits. As many of them are summed in 16 bits as the weights
allow, which are known; then the sums are widened.
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
    load_vector,
    min_,
    mul,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.padded_row_ring import Ring, geometry
from crtexport.schedules.mve import depthwise16 as mve_depthwise16
from crtexport.schedules.mve.requantize import BYTES, LANES, Scaler, Sums, vector

MOST_TAPS = 32
"""Windows up to this size are written out tap by tap."""
_SMALL_SUM = 32767 // 128
"""The largest sum of magnitudes of weights whose products with int8 values fit 16 bits."""

Int8s = npt.NDArray[np.int8]


def lower(context: Context, op: DepthwiseConv2D) -> Lowered | None:
    """A depthwise convolution that keeps its operator's rules; None where this is no way."""
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
        fits = self.channels < BYTES and BYTES % self.channels == 0 and window.stride[1] == 1
        source = lowering.input(0, "input")
        self.ring = Ring(lowering, source, window, min(self.channels, BYTES), sums.zero_in)
        self.pixels = min(BYTES // self.channels, self.ring.width) if fits else 1
        self.groups = _groups(taps)
        lanes = self._lanes()
        order = [tap for group in self.groups for tap in group]
        self.packed = lowering.derived(
            "packed", Scalar.I8, _packed(taps[order], lanes),
            "for each vector of channels: the weights of each tap",
        )
        self.scaler = Scaler(lowering, sums, _across(lanes))
        self.output = lowering.output()

    def _lanes(self) -> npt.NDArray[np.int64]:
        """int64[blocks, 16]: the channel of each lane; -1 is none."""
        if self.channels < BYTES:
            line = np.full(BYTES, -1)
            line[: self.pixels * self.channels] = np.tile(np.arange(self.channels), self.pixels)
            return line[None]
        starts = np.minimum(np.arange(self.ring.blocks) * BYTES, self.channels - BYTES)
        lanes: npt.NDArray[np.int64] = starts[:, None] + np.arange(BYTES)
        return lanes

    def emit(self) -> None:
        b, y = self.b, self.window.y
        width = self.ring.width
        with self.ring.walk() as part:
            line = b.let("line", mul(part.pixel(self.window), const(y[3])))
            with b.loop("channels", self.ring.blocks) as block:
                starts = self.ring.starts(block, part)
                first = b.let("first", self.ring.channel(block))
                with b.loop("column", -(-width // self.pixels)) as column:
                    ox = mul(column, const(self.pixels))
                    if width % self.pixels:
                        ox = b.let("ox", min_(ox, const(width - self.pixels)))
                    result = self.scaler.sixteen(
                        self._sums(starts, block, ox), mul(block, const(LANES))
                    )
                    at = add(line, mul(ox, const(y[3])), first)
                    count = min(BYTES, self.pixels * self.channels)
                    b.store_vector(self.output, at, result, count)

    def _sums(self, starts: list[Expr], block: Expr, ox: Expr) -> list[Expr]:
        """Four vectors of sums: channels 0 4 8 12, 1 5 9 13 …"""
        b, window, cell = self.b, self.window, self.ring.cell
        sums: list[Expr] = []
        number = 0
        base = b.let("w", mul(block, const(BYTES * sum(map(len, self.groups)))))
        columns = mul(ox, const(window.stride[1] * cell))
        for g, group in enumerate(self.groups):
            halves: dict[str, Expr] = {}
            for tap in group:
                ky, kx = divmod(tap, window.kernel[1])
                at = add(starts[ky], columns, const(kx * window.dilation[1] * cell))
                x = b.let(f"values_tap{tap}", load_vector(self.ring.rows, at, Scalar.I8X16))
                index = add(base, const(number * BYTES))
                w = b.let(f"weights_tap{tap}", load_vector(self.packed, index, Scalar.I8X16))
                for letter in "bt":
                    product = call(f"mve_mull{letter}_s8", x, w, type_=Scalar.I16X8)
                    if letter in halves:
                        product = call(
                            "mve_add_s16", halves[letter], product, type_=Scalar.I16X8
                        )
                    halves[letter] = b.let(f"products_{letter}_tap{tap}", product)
                number += 1
            wide = [
                vector(f"movl{half}_s16", halves[letter]) for half in "bt" for letter in "bt"
            ]
            if sums:
                wide = [vector("add_s32", s, more) for s, more in zip(sums, wide, strict=True)]
            sums = [b.let(f"sums_g{g}_v{v}", value) for v, value in enumerate(wide)]
        return sums


def _groups(taps: Int8s) -> list[list[int]]:
    """Taps (int8[taps, channels]) whose products can be summed in 16 bits, as few groups as a
    first fit finds. Where those are as many as pairs, these are pairs of neighbours, so that layers
    with other weights have the same code."""
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
    """int8[blocks, taps, 16]"""
    chosen = np.where(lanes[:, None, :] < 0, 0, taps[:, np.maximum(lanes, 0)].swapaxes(0, 1))
    return chosen.astype(np.int8)


def _across(lanes: npt.NDArray[np.int64]) -> list[int]:
    """The channels of each of the four vectors of sums of every block."""
    order: list[int] = lanes.reshape(-1, LANES, LANES).swapaxes(1, 2).reshape(-1).tolist()
    return order
