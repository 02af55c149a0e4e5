"""Convolutions of int8 values with rows of three taps on x86-64, by Winograd's F(4, 3).

Four neighbouring pixels, a tile, cover six cells of a row. The transforms of cells and of taps have
six parts each, whose products give 24 times the four sums: 6 products instead of 12. That is exact:
parts fit 16 bits, sums wrap, and the final result is divided by 24. The cells of a tile are
transformed once, and their parts are kept while windows need them. For every block of output
channels, products are then summed in registers.

The matrices: S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, Fast
Algorithms for Convolutional Neural Networks, 2015, with the points 0, 1, -1, 2, -2 and infinity.
"""

from __future__ import annotations

import numpy as np

from crtexport.ir.ops import Conv2D
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    call,
    const,
    flat_index,
    ge,
    i32,
    load_vector,
    load_word,
    min_,
    mul,
    sub,
)
from crtexport.kir.language import Expr, Scalar, Var
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.lowering.weight_packing import Array, Packing, by_blocks
from crtexport.schedules.common.conv_geometry import Windows, WindowWalk, windows_of
from crtexport.schedules.common.loop_tiling import VectorBlocks
from crtexport.schedules.x86.dense import divided
from crtexport.schedules.x86.machine import X86Machine
from crtexport.schedules.x86.requantize import finish_of, scales

PIXELS, TAPS = 4, 3
PARTS = PIXELS + TAPS - 1
_SCALE = 24
_TAPS = np.array(
    [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], np.int32
)
"""Factors of taps: parts x taps."""
_LANES = Scalar.I16X8
MOST = 4 << 10
"""Bytes of parts, little enough to find room beside tensors; more only where windows need them."""
_VECTORS = 2
_WORTH = 0.7
"""The most products, of those that windows need, that are left where blocks of pixels overlap."""
_WEIGHTS = 1 << 20
"""Bytes of transformed weights of a layer, four for each one, that are few enough."""


def lower(context: Context, machine: X86Machine) -> Lowered | None:
    """Returns a kernel for a node that keeps its operator's rules; None for nodes that it isn't
    for, or where it saves nothing."""
    if machine.dots or not isinstance(context.node.op, Conv2D):
        return None
    if (context.input(0).dtype, context.input(1).dtype) != (DType.INT8, DType.INT8):
        return None
    windows, machine = windows_of(context), machine.fitting(context.output().shape[3])
    if windows is None or not _gains(windows, context.output().shape[3], machine):
        return None
    sums = IntegerSums.of(context, 0)
    # What is left of 24 times a sum, divided by 3, must not wrap.
    exact = int(sums.magnitudes.max()) * 128 * (_SCALE // 3) < 1 << 31
    if sums.weight_zero or not scales(sums, machine) or not exact:
        return None
    lowering = Lowering("conv2d", context)
    _WinogradWork(lowering, machine, windows, sums).emit()
    return lowering.finish()


def _gains(windows: Windows, channels: int, machine: X86Machine) -> bool:
    if windows.stride != (1, 1) or windows.dilation != (1, 1) or windows.kernel[1] != TAPS:
        return False
    depth, wide = windows.x[3], windows.y[2]
    if not windows.pixels or not depth or depth % _LANES.lanes or channels < machine.lanes:
        return False
    blocks = -(-wide // PIXELS)
    products, needed = blocks * PARTS, wide * TAPS
    return (
        wide >= PIXELS and products <= _WORTH * needed
        and windows.y[0] * windows.y[1] * blocks >= 8
        and channels * windows.kernel[0] * depth * PARTS * 2 <= _WEIGHTS
    )


class Transformed(Packing, frozen=True):
    """Packs weights (channels x taps) of windows of ``rows`` rows as 16-bit parts in the order in
    which they are read: blocks of channels, rows, pairs of input channels, parts, lanes, the pair.
    The last block has only the vectors that it needs, padded with zeros."""

    rows: int
    lanes: int

    @property
    def block(self) -> int:
        return _VECTORS * self.lanes

    def nbytes(self, rows: int, columns: int) -> int:
        return -(-rows // self.lanes) * self.lanes * (columns // TAPS) * PARTS * 2

    def __call__(self, weights: Array) -> Array:
        depth = weights.shape[1] // (self.rows * TAPS)
        taps = weights.reshape(-1, self.rows, TAPS, depth).astype(np.int32)
        parts = np.einsum("pt,crtd->crdp", _TAPS, taps).astype(np.int16)
        pairs = parts.reshape(len(weights), self.rows, depth // 2, 2, PARTS).swapaxes(3, 4)
        # A pair moves as one number.
        joined = np.ascontiguousarray(pairs).reshape(len(weights), -1).view(np.uint32)
        filled = np.pad(joined, ((0, -len(weights) % self.lanes), (0, 0)))
        return by_blocks(filled, self.block)


def tiles_per_block(windows: Windows, most: int) -> tuple[int, int]:
    """Returns the number of rows, and of tiles in each, that are computed for a block of channels
    at a time: as many as ``most`` bytes of parts allow, but at least one; a part of a row, or whole
    rows."""
    across, high = -(-windows.y[2] // PIXELS), windows.y[1]
    tile = PARTS * windows.x[3] * Scalar.I16.itemsize
    again = (windows.kernel[0] - 1) * across
    found = [(1, n) for n in range(1, across) if across % n == 0]
    found += [(n, across) for n in range(1, high + 1) if high % n == 0]
    fitting = [(rows, n) for rows, n in found if (again + rows * n) * tile <= most]
    return fitting[-1] if fitting else found[0]


class _WinogradWork:
    """Emits the loops over all pixels and channels.

    ``tiles`` of ``rows`` rows are transformed, then their products are summed. Parts that windows
    of later rows need, too, stay where they are, in a ring buffer of all tiles.
    """

    def __init__(
        self, lowering: Lowering, machine: X86Machine, windows: Windows, sums: IntegerSums
    ) -> None:
        self.b, self.machine, self.windows = lowering.b, machine, windows
        self.walk = WindowWalk(self.b, windows)
        self.channels, self.depth = len(sums.folded), windows.x[3]
        self.x = lowering.input(0, "input")
        self.vectors = VectorBlocks.at_most(_VECTORS, self.channels, machine.lanes)
        self.weights = lowering.packed(
            "weights", Scalar.I16, Transformed(windows.kernel[0], machine.lanes), self.channels,
            row_multiple=self.vectors.whole, align=machine.nbytes,
        )
        self.finish = finish_of(lowering, machine, sums)
        self.output = lowering.output()
        self.zero = const(sums.zero_point, Scalar.I8)
        self.across = -(-windows.y[2] // PIXELS)
        self.rows, self.tiles = tiles_per_block(windows, MOST)
        self.above = windows.kernel[0] - 1
        self.kept = self.above * self.across + self.rows * self.tiles
        self.tile = PARTS * self.depth
        self.parts = lowering.scratch("parts", Scalar.I16, self.kept * self.tile)
        self.cells = lowering.scratch("cells", Scalar.I8, self.tile)

    def emit(self) -> None:
        """Emits all pixels."""
        b, (images, high, _), rows = self.b, self.windows.y, self.rows
        bands_above = -(-self.above // rows)
        missing = bands_above * rows - self.above
        with (
            b.loop("n", images) as n,
            b.loop("band", bands_above + high // rows) as band,
            b.loop("some", self.across // self.tiles) as part,
        ):
            left = mul(part, const(self.tiles))
            with b.loop("down", rows) as down, b.loop("new", self.tiles) as new:
                row = b.let("seen_row", add(mul(band, const(rows)), down, const(-missing)))
                with b.if_(ge(row, const(0)) if missing else None):
                    self._see(n, row, add(left, new))
            with b.if_(ge(band, const(bands_above)) if bands_above else None):
                first = mul(sub(band, const(bands_above)), const(rows))
                self._channels(n, b.let("first", first), left)

    def _column(self, tile: Expr) -> Expr:
        """Returns the first column of a tile; the last tile of a row begins earlier where it
        wouldn't be full."""
        wide, column = self.windows.y[2], mul(tile, const(PIXELS))
        if wide % PIXELS:
            column = self.b.let("column", min_(column, const(wide - PIXELS)))
        return column

    def _place(self, row: Expr, tile: Expr) -> Expr:
        """Returns the position of the parts of a tile of an input row, in units of eight elements.
        """
        number = add(mul(row, const(self.across)), tile)
        size = const(self.tile // _LANES.lanes)
        return self.b.let("place", mul(divided(self.b, number, self.kept, self.kept - 1)[1], size))

    def _see(self, n: Expr, row: Expr, tile: Expr) -> None:
        """Transforms a tile of an input row, in all its channels."""
        b, windows, depth = self.b, self.windows, self.depth
        column = self._column(tile)
        y = b.let("y", add(row, const(-windows.pad_before[0])))
        with b.loop("copied", PARTS) as copied:
            x = b.let("x", add(column, copied, const(-windows.pad_before[1])))
            target = mul(copied, const(depth))
            with b.if_(self.walk.in_image(y, x)):
                self._copy(self.walk.index(n, y, x), target)
            with b.else_(), b.loop("fill", depth) as fill:
                b.store(self.cells, add(target, fill), self.zero)
        place = self._place(row, tile)
        with b.loop("eight", depth // _LANES.lanes) as eight:
            channel = mul(eight, const(_LANES.lanes))
            cells = [
                b.let(f"cell_{i}", load_vector(self.cells, add(channel, const(i * depth)), _LANES))
                for i in range(PARTS)
            ]
            start = b.let("start", mul(add(place, eight), const(_LANES.lanes)))
            for i, part in enumerate(self._parts(cells)):
                b.store_vector(self.parts, add(start, const(i * depth)), part)

    def _copy(self, source: Expr, target: Expr) -> None:
        """Copies a cell, eight channels at a time."""
        b, lanes = self.b, _LANES.lanes
        with b.loop("chunk", self.depth // lanes) as chunk:
            at = mul(chunk, const(lanes))
            b.store_vector(
                self.cells, add(target, at), load_vector(self.x, add(source, at), _LANES)
            )

    def _parts(self, d: list[Expr]) -> list[Expr]:
        """Returns the six parts of six cells."""
        def of(operation: str, x: Expr, y: Expr) -> Expr:
            return self.b.let("part", call(f"x86_{operation}16_8", x, y, type_=_LANES))

        def times(factor: int, x: Expr) -> Expr:
            return of("mul", x, call("x86_dup16_8", i32(factor), type_=_LANES))

        even, odd = of("sub", d[4], d[2]), of("sub", d[3], d[1])
        a, b = of("sub", d[4], times(4, d[2])), of("sub", d[3], times(4, d[1]))
        twice = of("add", odd, odd)
        return [
            of("add", times(4, of("sub", d[0], d[2])), even),
            of("add", a, b), of("sub", a, b), of("add", even, twice), of("sub", even, twice),
            of("sub", of("sub", d[5], d[3]), times(4, odd)),
        ]

    def _channels(self, n: Expr, first: Expr, first_tile: Expr) -> None:
        """Emits all output channels of the tiles from ``first_tile`` on in the rows of pixels from
        ``first`` on."""
        b = self.b
        lanes = self.vectors.count * self.machine.lanes
        size = const(self.windows.kernel[0] * self.tile * lanes // _LANES.lanes)
        with (
            self.vectors.each(b) as (block, channel),
            b.loop("oy", self.rows) as oy, b.loop("tile", self.tiles) as tile,
        ):
            self._pixels(n, add(first, oy), add(first_tile, tile), channel, mul(block, size))

    def _pixels(self, n: Expr, y: Expr, tile: Expr, channel: Expr, weights: Expr) -> None:
        """Emits the pixels of a tile, for the block of channels from ``channel`` on."""
        b, machine, windows = self.b, self.machine, self.windows
        starts = self.vectors.starts()
        pixel = b.let("pixel", flat_index(
            [n, y, self._column(tile), const(0)], (*windows.y, self.channels)
        ))
        sums = [
            [
                b.local(f"sum_part{part}_v{v}", machine.int_everywhere(0))
                for v in range(len(starts))
            ]
            for part in range(PARTS)
        ]
        with b.loop("ky", windows.kernel[0]) as ky:
            steps = self.depth // 2 * len(starts) * machine.pairs.lanes * PARTS // _LANES.lanes
            before = b.let("before", add(weights, mul(ky, const(steps))))
            self._products(sums, self._place(add(y, ky), tile), before, len(starts))
        totals = [
            self._totals([line[i] for line in sums], self.finish.start(add(channel, const(start))))
            for i, start in enumerate(starts)
        ]
        rows = [add(pixel, const(j * self.channels)) for j in range(PIXELS)]
        lines = list(zip(*totals, strict=True))
        self.finish.store_block(self.output, rows, lines, channel, self.vectors)

    def _products(self, sums: list[list[Var]], place: Expr, weights_at: Expr, vectors: int) -> None:
        """Adds the products of a row of taps. Its parts begin at ``place``, its weights at
        ``weights_at``, both in units of eight elements."""
        b, machine, lanes = self.b, self.machine, _LANES.lanes
        size = PARTS * vectors * machine.pairs.lanes
        with b.loop("step", self.depth // 2, unroll=1) as step:
            start = b.let("start", add(mul(place, const(lanes)), mul(step, const(2))))
            first = b.let("first", add(weights_at, mul(step, const(size // lanes))))
            for part, line in enumerate(sums):
                word = load_word(self.parts, add(start, const(part * self.depth)))
                x = b.let(f"x_part{part}", machine.spread_pair(word))
                for i, total in enumerate(line):
                    offset = (part * vectors + i) * machine.pairs.lanes
                    w = load_vector(
                        self.weights, add(mul(first, const(lanes)), const(offset)), machine.pairs
                    )
                    b.assign(total, machine.of_ints("add", total, machine.of_ints("madd", x, w)))

    def _totals(self, m: list[Var], bias: Expr) -> list[Expr]:
        """Returns the sums of four pixels, computed from those of the parts."""
        machine = self.machine

        def of(operation: str, x: Expr, y: Expr) -> Expr:
            return self.b.let("of_parts", machine.of_ints(operation, x, y))

        def plus(x: Expr, y: Expr, factor: int = 1) -> Expr:
            if factor != 1:
                y = of("mul", y, machine.int_everywhere(factor))
            return of("add", x, y)

        s, t = plus(m[1], m[2]), plus(m[3], m[4])
        d, u = of("sub", m[1], m[2]), of("sub", m[3], m[4])
        found = [
            plus(plus(m[0], s), t), plus(d, u, 2), plus(s, t, 4), plus(plus(d, u, 8), m[5])
        ]
        return [of("add", machine.of_ints("part24", total), bias) for total in found]
