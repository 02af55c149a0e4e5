"""Convolutions of int8 values with rows of three taps on x86-64, by Winograd's F(4, 3).

Four pixels beside each other, a tile, see six cells of a row. Transformed, cells and taps are six
parts each, whose products make 24 times the four sums: 6 products instead of 12. That is exact:
parts fit into 16 bits, sums wrap, and 24 divides what is left in the end.

The cells of a tile are transformed once, and their parts kept for as long as windows see them. For
every block of output channels, products are then summed in registers.

The matrices: S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, Fast
Algorithms for Convolutional Neural Networks, 2015, with the points 0, 1, -1, 2, -2 and infinity.
"""

from __future__ import annotations

import numpy as np

from crtexport.ir.ops import Conv2D
from crtexport.ir.types import DType
from crtexport.kernels.build import (
    add,
    call,
    clamp,
    const,
    flat_index,
    ge,
    i32,
    load_vector,
    load_word,
    min_,
    mul,
)
from crtexport.kernels.ir import Expr, Scalar, Var
from crtexport.kernels.packing import Array, Packing, by_blocks
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.kernels.sums import IntegerSums
from crtexport.schedules.geometry import Walk, Windows, windows_of
from crtexport.schedules.lanes_finish import IntegerFinish, scales
from crtexport.schedules.x86_bands import MOST
from crtexport.schedules.x86_dense import divided
from crtexport.schedules.x86_machine import Machine

PIXELS, TAPS = 4, 3
PARTS = PIXELS + TAPS - 1
_SCALE = 24
_TAPS = np.array(
    [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], np.int32
)
"""What taps are multiplied by: parts x taps."""
_LANES = Scalar.I16X8
_VECTORS = 2
_WORTH = 0.7
"""The most products, of those that windows need, that are left where blocks of pixels overlap."""
_WEIGHTS = 1 << 20
"""Bytes of transformed weights of a layer, four for each one, that are few enough."""


def lower(context: Context, machine: Machine) -> Lowered | None:
    """A node that keeps its operator's rules; None where it isn't such a one or gains nothing."""
    if machine.dots or not isinstance(context.node.op, Conv2D):
        return None
    if (context.input(0).dtype, context.input(1).dtype) != (DType.INT8, DType.INT8):
        return None
    windows = windows_of(context)
    if windows is None or not _gains(windows, context.output().shape[3], machine):
        return None
    sums = IntegerSums.of(context, 0)
    # What is left of 24 times a sum, divided by 3, must not wrap.
    exact = int(sums.magnitudes.max()) * 128 * (_SCALE // 3) < 1 << 31
    if sums.weight_zero or not scales(sums, machine) or not exact:
        return None
    lowering = Lowering("conv2d", context)
    _Work(lowering, machine, windows, sums).emit()
    return lowering.finish()


def _gains(windows: Windows, channels: int, machine: Machine) -> bool:
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
    """Weights (channels x taps) of windows of ``rows`` rows as 16-bit parts in the order that they
    are met: blocks of channels, rows, pairs of input channels, parts, lanes, the pair. The last
    block has only the vectors it needs, channels of zeros in the last one."""

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


def tiles_together(windows: Windows, most: int) -> int:
    """How many tiles follow each other for a block of channels: as many as ``most`` bytes of parts
    allow, if any, of those that divide a row, or rows that divide the image."""
    across, high = -(-windows.y[2] // PIXELS), windows.y[1]
    tile = PARTS * windows.x[3] * Scalar.I16.itemsize
    again = (windows.kernel[0] - 1) * across
    found = [n for n in range(1, across) if across % n == 0]
    found += [n * across for n in range(1, high + 1) if high % n == 0]
    return max(n for n in found if n == 1 or (again + n) * tile <= most)


class _Work:
    """Goes through all pixels and channels.

    Tiles of four pixels are numbered along rows, those of the rows of the image that are seen
    alike. ``together`` are transformed and then summed for; the parts of those that windows of
    later rows see, too, stay where they are, in a ring.
    """

    def __init__(
        self, lowering: Lowering, machine: Machine, windows: Windows, sums: IntegerSums
    ) -> None:
        self.b, self.machine, self.windows = lowering.b, machine, windows
        self.walk = Walk(self.b, windows)
        self.channels, self.depth = len(sums.folded), windows.x[3]
        self.x = lowering.input(0, "input")
        self.weights = lowering.packed(
            "weights", Scalar.I16, Transformed(windows.kernel[0], machine.lanes), self.channels,
            align=16,
        )
        self.finish = IntegerFinish(lowering, machine, sums)
        self.output = lowering.output()
        self.zero = const(sums.zero_point, Scalar.I8)
        self.across = -(-windows.y[2] // PIXELS)
        self.together = tiles_together(windows, MOST)
        self.again = (windows.kernel[0] - 1) * self.across
        self.kept = self.again + self.together
        self.tile = PARTS * self.depth
        self.parts = lowering.scratch("parts", Scalar.I16, self.kept * self.tile)
        self.cells = lowering.scratch("cells", Scalar.I8, self.tile)

    def emit(self) -> None:
        """All pixels."""
        b, (images, high, _) = self.b, self.windows.y
        before = -(-self.again // self.together)
        with (
            b.loop("n", images) as n,
            b.loop("some", before + high * self.across // self.together) as some,
        ):
            first = mul(some, const(self.together))
            with b.loop("new", self.together) as new:
                missing = before * self.together - self.again
                tile = b.let("tile", add(first, new, const(-missing)))
                with b.if_(ge(tile, const(0)) if missing else None):
                    self._see(n, tile)
            with b.if_(ge(some, const(before)) if before else None):
                self._channels(n, b.let("first", add(first, const(-before * self.together))))

    def _where(self, tile: Expr, rows: int) -> tuple[Expr, Expr]:
        """Row, of so many, and column of a tile; the last one of a row begins earlier where it
        would not be full."""
        b, wide = self.b, self.windows.y[2]
        row, number = divided(b, tile, self.across, self.across - 1)
        column = mul(number, const(PIXELS))
        if wide % PIXELS:
            column = b.let("column", min_(column, const(wide - PIXELS)))
        return b.let("row", clamp(row, 0, rows - 1)), column

    def _place(self, tile: Expr) -> Expr:
        """Where the parts of a tile lie."""
        return mul(divided(self.b, tile, self.kept, self.kept - 1)[1], const(self.tile))

    def _see(self, n: Expr, tile: Expr) -> None:
        """Makes the parts of a tile of what is seen, of all its channels."""
        b, windows, depth = self.b, self.windows, self.depth
        row, column = self._where(tile, windows.y[1] + windows.kernel[0] - 1)
        y = b.let("y", add(row, const(-windows.before[0])))
        with b.loop("copied", PARTS) as copied:
            x = b.let("x", add(column, copied, const(-windows.before[1])))
            target = mul(copied, const(depth))
            with b.if_(self.walk.in_image(y, x)):
                self._copy(self.walk.index(n, y, x), target)
            with b.else_(), b.loop("fill", depth) as fill:
                b.store(self.cells, add(target, fill), self.zero)
        place = b.let("place", self._place(tile))
        with b.loop("eight", depth // _LANES.lanes) as eight:
            channel = mul(eight, const(_LANES.lanes))
            cells = [
                b.let("cell", load_vector(self.cells, add(channel, const(i * depth)), _LANES))
                for i in range(PARTS)
            ]
            for i, part in enumerate(self._parts(cells)):
                b.store_vector(self.parts, add(place, channel, const(i * depth)), part)

    def _copy(self, source: Expr, target: Expr) -> None:
        """A cell; its channels are eights."""
        b, lanes = self.b, _LANES.lanes
        with b.loop("chunk", self.depth // lanes) as chunk:
            at = mul(chunk, const(lanes))
            b.store_vector(
                self.cells, add(target, at), load_vector(self.x, add(source, at), _LANES)
            )

    def _parts(self, d: list[Expr]) -> list[Expr]:
        """The six parts of six cells."""
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

    def _channels(self, n: Expr, first: Expr) -> None:
        """All output channels of the tiles from ``first`` on."""
        lanes = self.machine.lanes
        wide = _VECTORS * lanes
        size = self.windows.kernel[0] * self.tile
        whole = self.channels // wide
        with self.b.loop("block", whole) as block:
            weights = mul(block, const(wide * size))
            self._pixels(n, first, mul(block, const(wide)), [lanes] * _VECTORS, weights)
        left = self.channels - whole * wide
        if left:
            counts = [min(lanes, left - at) for at in range(0, left, lanes)]
            self._pixels(n, first, const(whole * wide), counts, const(whole * wide * size))

    def _pixels(
        self, n: Expr, first: Expr, channel: Expr, counts: list[int], weights: Expr
    ) -> None:
        """Those of all tiles together, for a vector of channels for each of ``counts``, of which
        that many lanes are stored."""
        b, machine, windows = self.b, self.machine, self.windows
        channels = [add(channel, const(i * machine.lanes)) for i in range(len(counts))]
        with b.loop("tiles", self.together) as number:
            tile = b.let("tile", add(first, number))
            y, column = self._where(tile, windows.y[1])
            pixel = b.let("pixel", flat_index(
                [n, y, column, const(0)], (*windows.y, self.channels)
            ))
            sums = [
                [b.local("sum", machine.int_everywhere(0)) for _ in counts] for _ in range(PARTS)
            ]
            with b.loop("down", windows.kernel[0]) as ky:
                seen = b.let("seen", add(tile, mul(ky, const(self.across))))
                size = PARTS * len(counts) * machine.pairs.lanes
                before = add(weights, mul(ky, const(self.depth // 2 * size)))
                self._products(sums, b.let("place", self._place(seen)), before, size)
            for i, (at, count) in enumerate(zip(channels, counts, strict=True)):
                totals = self._totals([line[i] for line in sums], self.finish.start(at))
                for j, total in enumerate(totals):
                    index = add(pixel, const(j * self.channels), at)
                    self.finish.store(self.output, index, total, at, count)

    def _products(self, sums: list[list[Var]], at: Expr, before: Expr, size: int) -> None:
        """Adds those of a row of taps, whose ``size`` weights for each pair of input channels begin
        ``before``."""
        b, machine = self.b, self.machine
        together = 4 if machine.lanes == 4 else 1
        with b.loop("step", self.depth // 2 // together, unroll=1) as step:
            for part, line in enumerate(sums):
                start = add(at, mul(step, const(2 * together)), const(part * self.depth))
                whole: Expr | None = None
                if together > 1:
                    whole = b.let("pairs", load_vector(self.parts, start, _LANES))
                for i in range(together):
                    if whole is None:
                        pair = machine.spread_pair(load_word(self.parts, start))
                    else:
                        pair = machine.spread_one(whole, i)
                    pair = b.let("x", pair)
                    for j, total in enumerate(line):
                        w = load_vector(self.weights, add(
                            before, mul(step, const(together * size)),
                            const(i * size + (part * len(line) + j) * machine.pairs.lanes),
                        ), machine.pairs)
                        b.assign(total, machine.of_ints(
                            "add", total, machine.of_ints("madd", pair, w)
                        ))

    def _totals(self, m: list[Var], bias: Expr) -> list[Expr]:
        """The sums of four pixels from those of the parts."""
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
