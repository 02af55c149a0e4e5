"""Rows in pieces of a vector, and weights in the order in which those are multiplied."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from crtexport.lowering.weight_packing import Array, ByteLanes, Packing
from crtexport.schedules.mve.requantize import LANES

EIGHT = 8
"""Units whose results are narrowed together."""
NARROW = 8
"""Lanes of a vector of int8 values that are widened when they are loaded: for what is left."""


class Chunk(Struct, frozen=True):
    """``lanes`` values from ``position`` on, the first ``count`` of which may be read. Those from
    ``begin`` to ``end`` are multiplied; all others have weights of 0."""

    position: int
    lanes: int
    count: int
    begin: int
    end: int


def chunks_of(depth: int, lanes: int, *, padded: bool) -> tuple[Chunk, ...]:
    """Returns the chunks of ``depth`` values, whole ones of ``lanes`` first. ``padded``: whatever
    is behind them may be read."""
    whole = [Chunk(i, lanes, lanes, i, i + lanes) for i in range(0, depth - lanes + 1, lanes)]
    done = lanes * len(whole)
    rest = depth - done
    if not rest:
        return tuple(whole)
    narrow = lanes > NARROW
    if padded:
        size = NARROW if narrow and rest <= NARROW else lanes
        return (*whole, Chunk(done, size, size, done, depth))
    if narrow and depth >= NARROW:
        if rest <= NARROW:
            return (*whole, Chunk(depth - NARROW, NARROW, NARROW, done, depth))
        if not whole:
            return (
                Chunk(0, NARROW, NARROW, 0, NARROW),
                Chunk(depth - NARROW, NARROW, NARROW, NARROW, depth),
            )
    if whole:
        return (*whole, Chunk(depth - lanes, lanes, lanes, done, depth))
    return (Chunk(0, lanes, depth, 0, depth),)


class Chunks(Packing, frozen=True):
    """int8[units, depth] as [block of units][part][chunk][unit of the part][lane].

    ``segments``: the depth of each, one behind the other, and whether it is padded. Blocks have
    ``units``, of which ``units_at_once`` are multiplied at the same time; units of zeros fill one.
    Of eight units even ones come first. Of each four, two together are 0 and 2, then 1 and 3.
    Chunks of every other part are in the reverse order: values that registers still have are wanted
    first. ``lanes``: those of a whole chunk.
    """

    segments: tuple[tuple[int, bool], ...]
    units: int
    units_at_once: int
    lanes: int

    @property
    def block(self) -> int:
        return self.units

    @property
    def byte_lanes(self) -> ByteLanes:
        return ByteLanes()

    @property
    def chunks(self) -> list[tuple[Chunk, ...]]:
        """Chunks of each segment."""
        return [chunks_of(depth, self.lanes, padded=padded) for depth, padded in self.segments]

    @property
    def all_chunks(self) -> list[Chunk]:
        """Chunks of all segments."""
        return [chunk for chunks in self.chunks for chunk in chunks]

    @property
    def size(self) -> int:
        """Returns the bytes of a unit."""
        return sum(chunk.lanes for chunk in self.all_chunks)

    def nbytes(self, rows: int, columns: int) -> int:
        del columns
        return -(-rows // self.units) * self.units * self.size

    @property
    def _order(self) -> list[int]:
        """Returns the units of a block as they are multiplied."""
        eights = range(0, self.units, EIGHT) if self.units >= EIGHT else (0,)
        some = range(min(self.units, EIGHT))
        order = [
            first + unit for first in eights
            for unit in ((*some[::2], *some[1::2]) if len(some) == EIGHT else some)
        ]
        if self.units_at_once != 2:
            return order
        return [order[i + j] for i in range(0, self.units, LANES) for j in (0, 2, 1, 3)]

    def __call__(self, weights: Array) -> Array:
        blocks = -(-len(weights) // self.units)
        full = np.zeros((blocks * self.units, weights.shape[1]), np.int8)
        full[: len(weights)] = weights
        ordered = full.reshape(blocks, self.units, -1)[:, self._order]
        cells = ordered.reshape(blocks, self.units // self.units_at_once, self.units_at_once, -1)
        found, first = [], 0
        for (depth, _), chunks in zip(self.segments, self.chunks, strict=True):
            for chunk in chunks:
                part = np.zeros((*cells.shape[:3], chunk.lanes), np.int8)
                part[..., chunk.begin - chunk.position : chunk.end - chunk.position] = (
                    cells[..., first + chunk.begin : first + chunk.end]
                )
                found.append(part.reshape(*cells.shape[:2], -1))
            first += depth
        packed = np.concatenate(found, axis=2)
        packed[:, 1::2] = np.concatenate(found[::-1], axis=2)[:, 1::2]
        return packed
