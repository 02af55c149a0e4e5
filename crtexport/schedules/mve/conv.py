"""Convolutions of integers on MVE: products of what the window sees with all filters.

A line of the window is contiguous in memory, so it is multiplied where it lies. Where such lines
would leave most of a vector empty they are first put one after the other.
"""

from __future__ import annotations

import functools

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.ops import Conv2D
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import add, const, load_vector, mul
from crtexport.kir.language import Buffer, Expr
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.padded_row_ring import Ring, geometry
from crtexport.schedules.common.row_products import RowSegment, rows_of_windows
from crtexport.schedules.mve.dense import MveProducts, tile_candidates
from crtexport.schedules.mve.requantize import Sums
from crtexport.schedules.mve.tiles import MveTile, tiles


def candidates(context: Context, op: Conv2D) -> list[Candidate]:
    """Returns the variants of a convolution that keeps its operator's rules; none where this is no
    way."""
    x, w, y = context.input(0).shape, context.input(1).shape, context.output().shape
    if w[3] != x[3] or 0 in (*x, *w, *y):
        return []
    sums = Sums.of(context, 0)
    if sums is None:
        return []
    runs = _Runs.of(geometry(context, op), sums.vector.lanes)
    found = tiles(y[2], [(depth, True) for depth in runs.depths], sums, apart=True)
    return tile_candidates(found, functools.partial(_lower, context, sums, runs))


def _lower(context: Context, sums: Sums, runs: _Runs, block: MveTile) -> Lowered:
    lowering = Lowering("conv2d", context)
    _Conv(lowering, sums, runs, block).emit()
    return lowering.finish()


class _Runs(Struct, frozen=True):
    """``parts``: the stretches of neighbouring values that a window sees, (row of the window, first
    tap, taps). ``gathered``: they are put one after the other."""

    window: WindowGeometry
    parts: tuple[tuple[int, int, int], ...]
    gathered: bool

    @staticmethod
    def of(window: WindowGeometry, lanes: int) -> _Runs:
        rows, columns = window.kernel
        close = window.dilation[1] == 1
        parts = tuple(
            (ky, kx, columns if close else 1)
            for ky in range(rows) for kx in (range(1) if close else range(columns))
        )
        run = parts[0][2] * window.x[3]
        apart = len(parts) * -(-run // lanes)
        return _Runs(window, parts, apart > -(-rows * columns * window.x[3] // lanes) + 1)

    @property
    def run(self) -> int:
        """Returns the values of a stretch."""
        return self.parts[0][2] * self.window.x[3]

    @property
    def depths(self) -> list[int]:
        """Returns the values of what is multiplied without a break."""
        run = self.run
        return [len(self.parts) * run] if self.gathered else [run] * len(self.parts)


class _Conv:
    def __init__(self, lowering: Lowering, sums: Sums, runs: _Runs, block: MveTile) -> None:
        self.b, self.window, self.runs = lowering.b, runs.window, runs
        self.channels = self.window.x[3]
        source = lowering.input(0, "input")
        self.ring = Ring(lowering, source, self.window, self.channels, sums.zero_in)
        block = replace(block, rows=min(block.rows, self.ring.width))
        self.high = block.rows
        self.patch: Buffer | None = None
        if runs.gathered:
            lanes = sums.vector.lanes
            self.patch_size = (-(-sum(runs.depths) // lanes) + 1) * lanes
            self.patch = lowering.scratch("patch", source.dtype, self.high * self.patch_size)
        segments = [(depth, True) for depth in runs.depths]
        self.product = MveProducts(lowering, sums, segments, block)
        self.output = lowering.output()

    def emit(self) -> None:
        with rows_of_windows(self.ring, "x") as (starts, pixels_from):

            def rows_from(first: Expr, count: int) -> tuple[list[RowSegment], list[Expr]]:
                pixels, targets = pixels_from(first, count)
                return self._segments(starts, pixels), targets

            self.product.emit(rows_from, self.ring.width, self.output)

    def _segments(self, starts: list[Expr], pixels: list[Expr]) -> list[RowSegment]:
        """Emits the products for some pixels of a row."""
        window = self.window
        columns = [mul(pixel, const(window.stride[1] * self.channels)) for pixel in pixels]

        def begin(ky: int, kx: int, column: Expr) -> Expr:
            offset = const(kx * window.dilation[1] * self.channels)
            return self.b.let(f"x_ky{ky}_kx{kx}", add(starts[ky], column, offset))

        runs = self.runs
        if self.patch is None:
            return [
                RowSegment(
                    self.ring.rows, tuple(begin(ky, kx, column) for column in columns),
                    taps * self.channels, padded=True,
                )
                for ky, kx, taps in runs.parts
            ]
        b, run = self.b, runs.run
        places = tuple(const(i * self.patch_size) for i in range(self.high))
        for place, column in zip(places, columns, strict=True):
            for number, (ky, kx, _) in enumerate(runs.parts):
                source = begin(ky, kx, column)
                # What a chunk has too much, the next run overwrites.
                vector = self.ring.vector
                for chunk in range(0, run, vector.lanes):
                    value = load_vector(self.ring.rows, add(source, const(chunk)), vector)
                    b.store_vector(self.patch, add(place, const(number * run + chunk)), value)
        return [RowSegment(self.patch, places, sum(runs.depths), padded=True)]
