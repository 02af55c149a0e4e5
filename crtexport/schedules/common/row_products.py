"""Products of a matrix of rows with weights, in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from crtexport.kir.builder import KernelBuilder, add, const, min_, mul
from crtexport.kir.language import Buffer, Expr
from crtexport.schedules.common.padded_row_ring import Ring, RingRows


class RowSegment(Struct, frozen=True):
    """Neighbouring values of each row of the left matrix. ``starts``: the index of the first one in
    each row. ``padded``: arbitrary values fill up the last chunk, and are multiplied by weights of
    0."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    depth: int
    padded: bool = False


Rowwise = Callable[[Expr, int], tuple[list[RowSegment], list[Expr]]]
"""Given the first of some rows and how many they are, emits where they begin: returns what is
multiplied, and the indices of the first unit's results."""


@contextmanager
def lines_of(
    b: KernelBuilder, rows: RingRows, x: Buffer, shape: tuple[int, int]
) -> Iterator[Rowwise]:
    """Goes through the lines of ``rows`` of ``x``; ``shape``: units and depth."""
    units, depth = shape
    (lines, count), steps = rows.counts, rows.steps
    with b.loop("line", lines) as line:

        def rows_from(first: Expr, high: int) -> tuple[list[RowSegment], list[Expr]]:
            pixels = [add(first, const(i)) for i in range(high)]
            begin = mul(line, const(steps[0]))
            starts = tuple(
                b.let(f"x_r{r}", add(begin, mul(row, const(steps[1]))))
                for r, row in enumerate(pixels)
            )
            done = mul(line, const(count))
            targets = [
                b.let(f"y_r{r}", mul(add(done, row), const(units))) for r, row in enumerate(pixels)
            ]
            return [RowSegment(x, starts, depth)], targets

        yield rows_from


def multiply_rows(
    b: KernelBuilder, rows: RingRows, x: Buffer, shape: tuple[int, int], high: int,
    emit: Callable[[list[RowSegment], list[Expr]], None],
) -> None:
    """Goes through all ``rows`` of ``x``, ``high`` at a time; ``shape``: units and depth.

    ``emit`` is given what is multiplied, and the indices of the first unit's results.
    """
    with lines_of(b, rows, x, shape) as rows_from:
        cover(b, rows.counts[1], high, lambda first: emit(*rows_from(first, high)))


Windows = Callable[[Expr, int], tuple[list[Expr], list[Expr]]]
"""Given the first of some pixels of a row and how many they are, returns their columns, and the
indices of their first results."""


@contextmanager
def rows_of_windows(ring: Ring, letter: str) -> Iterator[tuple[list[Expr], Windows]]:
    """Goes through the rows of the output. Yields where the rows of their windows start, and what
    names pixels, by names that begin with ``letter``."""
    b = ring.b
    with ring.walk() as part:
        line = b.let("line", part.pixel(ring.window))

        def pixels_from(first: Expr, count: int) -> tuple[list[Expr], list[Expr]]:
            pixels = [add(first, const(i)) for i in range(count)]
            return pixels, [
                b.let(f"y_{letter}{i}", mul(add(line, pixel), const(ring.window.y[3])))
                for i, pixel in enumerate(pixels)
            ]

        yield ring.starts(const(0), part), pixels_from


def multiply_windows(
    ring: Ring, count: int, letter: str,
    emit: Callable[[list[Expr], list[Expr], list[Expr]], None],
) -> None:
    """Goes through all pixels of the output, ``count`` of a row at a time.

    ``emit`` is given where the rows of their windows start, the pixels' columns, and the indices
    of their first results, whose names begin with ``letter``.
    """
    with rows_of_windows(ring, letter) as (starts, pixels_from):
        cover(ring.b, ring.width, count, lambda first: emit(starts, *pixels_from(first, count)))


def halves(b: KernelBuilder, rows: int, high: int, emit: Callable[[Expr], None]) -> None:
    """As :func:`cover`, with a loop whose iterations overlap and whose rows are all as far apart:
    where blocks don't fill ``rows``, it runs twice, and the second half overlaps the first."""
    count = 1 if rows % high == 0 else 2
    blocks = -(-rows // (high * count))
    with b.loop("half", count) as half:
        begin = b.let("begin", mul(half, const(rows - blocks * high)))
        with b.loop("rows", blocks, assembled=True) as block:
            emit(b.let("row", add(begin, mul(block, const(high)))))


def cover(
    b: KernelBuilder, rows: int, high: int, emit: Callable[[Expr], None], *,
    assembled: bool = False,
) -> None:
    """Calls ``emit(first)`` for blocks of ``high`` rows; the last one may overlap that before.
    ``assembled``: asks for a loop of machine code, where none does."""
    several = rows % high == 0 and rows > high
    with b.loop("rows", -(-rows // high), assembled=assembled and several) as block:
        first = mul(block, const(high))
        if rows % high:
            first = min_(first, const(rows - high))
        emit(b.let("row", first))
