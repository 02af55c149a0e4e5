"""Products of a matrix of rows with weights, in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from crtexport.kir.builder import KernelBuilder, add, const, min_, mul
from crtexport.kir.language import Buffer, Expr
from crtexport.schedules.common.padded_row_ring import Ring, RingRows


class Segment(Struct, frozen=True):
    """Neighbouring values of each row of the left matrix. ``starts``: the index of the first one in
    each row. ``padded``: arbitrary values fill up the last chunk, and are multiplied by weights of
    0."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    depth: int
    padded: bool = False


def multiply_rows(
    b: KernelBuilder, rows: RingRows, x: Buffer, shape: tuple[int, int], high: int,
    emit: Callable[[list[Segment], list[Expr]], None],
) -> None:
    """Loops over all ``rows`` of ``x``, ``high`` at a time; ``shape``: units and depth. ``emit`` is
    called with the segments to multiply, and the indices of the first unit's results."""
    units, depth = shape
    (lines, count), steps = rows.counts, rows.steps
    with b.loop("line", lines) as line:

        def part(first: Expr) -> None:
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
            emit([Segment(x, starts, depth)], targets)

        cover(b, count, high, part)


def multiply_windows(
    ring: Ring, count: int, letter: str,
    emit: Callable[[list[Expr], list[Expr], list[Expr]], None],
) -> None:
    """Loops over all pixels of the output, ``count`` of a row at a time. ``emit`` is called with
    the first cells of the rows in their windows, the pixels' columns, and the indices of their
    first results, whose names begin with ``letter``."""
    b = ring.b
    with ring.walk() as part:
        line = b.let("line", part.pixel(ring.window))
        starts = ring.starts(const(0), part)

        def block(first: Expr) -> None:
            pixels = [add(first, const(i)) for i in range(count)]
            targets = [
                b.let(f"y_{letter}{i}", mul(add(line, pixel), const(ring.window.y[3])))
                for i, pixel in enumerate(pixels)
            ]
            emit(starts, pixels, targets)

        cover(b, ring.width, count, block)


def cover(b: KernelBuilder, rows: int, high: int, emit: Callable[[Expr], None]) -> None:
    """Calls ``emit(first)`` for blocks of ``high`` rows; the last one may overlap the one before
    it."""
    with b.loop("rows", -(-rows // high)) as block:
        first = mul(block, const(high))
        if rows % high:
            first = min_(first, const(rows - high))
        emit(b.let("row", first))
