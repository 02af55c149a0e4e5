"""Blocks of rows and units of a matrix product on MVE, and the cycles that each is likely to take.

What a Cortex-M55 does in a cycle is known (:mod:`crtexport.kir.assembly.mve`), and so is how many
general registers a loop wants: the estimate here orders the ways, and the first whose loop becomes
machine code is the usual one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from crtexport.schedules.mve.chunks import chunks_of
from crtexport.schedules.mve.requantize import LANES, Sums

MOST_ROWS = 3
"""Rows for which, times two units, there are accumulators."""
MOST_LONG_ROWS = 2
"""The same of 64 bits."""
MOST_IN_PLACE = 2
"""Rows where results may overwrite values: further ones are as much memory more."""
ALONE = (3, 4)
"""Chunks of a row with which it is as fast alone."""
MEMORY = 1.1
"""Cycles that one row rather takes than several, which have to be read before their longer results
overwrite values: that takes memory."""
EIGHT = 8
"""Units whose results are narrowed together."""
MOST_UNITS = 32
"""Units times rows of one iteration."""
WRITTEN_OUT = 160
"""Products of a block of rows and units that are written out, whatever they take."""
MOST_WRITTEN_OUT = 320
"""Such products of a layer whose weights take many times as much."""
WEIGHTS = 16
"""Times as many bytes as the code of products that are written out, each with a load."""
ENTRY = 48
"""Cycles of a loop's beginning and end."""
AROUND = 14
"""Cycles of an iteration of the loop around it, where that is machine code, too."""


class MveTile(Struct, frozen=True):
    """``rows`` share the weights that are loaded for ``units``. ``inner``: the loop whose
    iterations overlap, over units or over rows; without ``machine`` code none do, and products are
    a loop."""

    rows: int
    units: int
    inner: str
    machine: bool = True

    @property
    def name(self) -> str:
        """Returns the name among the candidates of a node."""
        kind = f"{self.inner} inside" if self.machine else "compiled"
        return f"{self.rows} rows, {self.units} units, {kind}"

    @property
    def units_at_once(self) -> int:
        """Returns the units that are multiplied at the same time."""
        return LANES if self.rows == 1 else 2

    @property
    def stored(self) -> int:
        """Returns the units of a row whose results are stored together."""
        return min(self.units, EIGHT)

    @property
    def lanes(self) -> list[int]:
        """Returns the unit of each lane of the sums of a block: of eight, those of the first vector
        are even, so that narrowing puts them in order."""
        if self.units < EIGHT:
            return list(range(self.units))
        return [
            first + unit for first in range(0, self.units, EIGHT)
            for unit in (*range(0, EIGHT, 2), *range(1, EIGHT, 2))
        ]


def tiles(
    rows: int, segments: Sequence[tuple[int, bool]], sums: Sums, *, apart: bool
) -> list[MveTile]:
    """Returns how ``rows`` of ``segments`` (depths, and whether they are padded) may be multiplied,
    what is likely to take the fewest cycles first. ``apart``: results never overwrite values, so
    that these may be read again after all of a block of units are stored."""
    chunks = sum(
        len(chunks_of(depth, sums.vector.lanes, padded=padded)) for depth, padded in segments
    )
    most = MOST_LONG_ROWS if sums.long else MOST_ROWS if apart else MOST_IN_PLACE
    if not apart and chunks in ALONE:
        most = 1
    most = min(rows, most)
    sizes = [LANES]
    if sums.vector.lanes == 2 * EIGHT and not sums.long:
        sizes += [EIGHT, *range(2 * EIGHT, MOST_UNITS + 1, EIGHT)]
    found = [
        MveTile(high, units, inner)
        for high in range(1, most + 1) for units in sizes for inner in ("units", "rows")
        if units <= EIGHT or (units == sums.channels and inner == "rows")
        if inner == "units" or (rows > 1 and (apart or units == sums.channels))
        if written_out(high * units * chunks, sums.channels * chunks * sums.vector.lanes)
        if high < MOST_ROWS or units <= LANES  # else there are more vectors than registers
        if high * units <= MOST_UNITS
    ]
    grows = not apart and sums.channels > sum(depth for depth, _ in segments)

    def cost(tile: MveTile) -> float:
        return _cycles(tile, rows, chunks, sums) * (MEMORY if grows and tile.rows > 1 else 1)

    found.sort(key=cost)
    # As many rows at once as the best one has: results can overwrite as much then.
    usual = found[0].rows if found else 2
    compiled = sorted({min(rows, 2), 1}, key=lambda high: (high != usual, -high))
    return [*found, *(MveTile(high, LANES, "units", machine=False) for high in compiled)]


def written_out(products: int, weights: int) -> bool:
    """Returns whether as many products of a block are written out, where so many bytes of weights
    are read."""
    few = products <= WRITTEN_OUT
    return few or (products <= MOST_WRITTEN_OUT and 8 * products * WEIGHTS <= weights)


def _cycles(tile: MveTile, rows: int, chunks: int, sums: Sums) -> float:
    """Returns the cycles that ``rows`` times all units are likely to take."""
    high, units = tile.rows, sums.channels
    whole, rest = divmod(units, tile.units)
    blocks = whole * _interval(tile, chunks, sums)
    last = (_interval(tile, chunks, sums) + ENTRY) if rest else 0
    if tile.inner == "units":
        entry = AROUND if rows % high == 0 and not rest else ENTRY
        return -(-rows // high) * (blocks + (entry if whole else 0) + last)
    runs = 1 if rows % high == 0 else 2
    return runs * (-(-rows // (high * runs)) * (blocks + last) + whole * ENTRY)


def _interval(tile: MveTile, chunks: int, sums: Sums) -> int:
    """Returns the cycles of a block of rows and units."""
    high, vectors = tile.rows, tile.units // LANES
    multiply = tile.units * high * chunks + high * vectors
    memory = tile.units * chunks + vectors * sums.columns + tile.units // tile.stored * high
    if sums.common is not None:
        multiply += high * vectors
        # Every other part begins with the values that the last one ended with.
        memory += high * (tile.units // tile.units_at_once * (chunks - 1) + 1)
        memory += vectors * (high - 1)  # addends are overwritten
        integer = high * vectors * 2 + high * vectors * (3 if tile.units >= EIGHT else 4) // 2
    else:
        memory += tile.units // tile.units_at_once * high * chunks
        narrow = 2 if tile.units >= EIGHT else 3
        integer = high * vectors * (3 + narrow + sums.integer_steps - 1)
    busy = max(2 * multiply, 2 * memory, 2 * integer)
    crowded = 1.05 if high * vectors > 2 else 1.02
    return round(max(busy * 1.04, (multiply + memory + integer + 3) * crowded))
