"""Offsets for very many blocks that are needed at the same time.

A list of all pairs that must not overlap would grow with the square of the number of blocks. Here
each block is compared with all blocks that are already placed, at once, when it gets its offset,
and no result is kept: memory grows linearly. Placement is greedy, in a few orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

_EFFORT = 12_000_000
"""The number of comparisons after which no further order is tried; about a second."""
_SETUP = 2000  # comparisons that take as long as preparing one comparison with all parts
_ATTEMPTS = 4  # placements per order to begin with

Bans = tuple[tuple[int, int], ...]


class Part(Struct, frozen=True):
    """Bytes of a block: ``start`` is relative to the block; they are live from step ``first`` to
    ``last``, both inclusive."""

    block: int
    start: int
    size: int
    first: int
    last: int


class LiveBlocks(Struct, frozen=True):
    """Blocks by their sizes in bytes, and the parts of them that are live for some steps.

    Parts of two blocks that are live at the same time may not overlap, unless ``special`` has the
    pair (numbers of parts): then it has the bounds of distances at which the second may not begin
    after the first. ``times`` is when each block is first needed, ``bound`` a lower bound of any
    placement.
    """

    sizes: tuple[int, ...]
    parts: tuple[Part, ...]
    special: Mapping[tuple[int, int], Bans]
    times: tuple[int, ...]
    bound: int = 0

    def place(self, alignment: int) -> tuple[int, ...]:
        """Returns the offset of each block: the best of greedy placements in several orders."""
        bound = min(
            (s + max(0, -(-(self.bound - s) // alignment)) * alignment for s in self.sizes),
            default=0,
        )
        best: tuple[int, ...] = ()
        least, effort = 0, 0
        for first in self._orders():
            order = first
            for attempt in range(_ATTEMPTS):
                if (attempt or best) and (least <= bound or effort > _EFFORT):
                    return best
                places = _Places(self, alignment)
                found = places.all(order)
                effort += places.effort
                top = max((at + self.sizes[block] for block, at in found.items()), default=0)
                if not best or top < least:
                    best, least = tuple(found[block] for block in range(len(self.sizes))), top
                order = sorted(order, key=lambda i, found=found, top=top: (  # type: ignore[misc]
                    found[i] + self.sizes[i] < top
                ))
        return best

    def fill(
        self, order: Sequence[int], capacity: int | None, alignment: int
    ) -> dict[int, int]:
        """Returns offsets for blocks in an order, each the lowest that is free; blocks that would
        end beyond ``capacity`` are left out."""
        places = _Places(self, alignment)
        return places.all(order, capacity)

    def only(self, blocks: Sequence[int]) -> LiveBlocks:
        """Returns only these blocks, given in rising order, without a bound."""
        numbers = {block: number for number, block in enumerate(blocks)}
        kept = [number for number, part in enumerate(self.parts) if part.block in numbers]
        renamed = {part: number for number, part in enumerate(kept)}
        parts = tuple(
            Part(numbers[p.block], p.start, p.size, p.first, p.last)
            for p in (self.parts[number] for number in kept)
        )
        special = {
            (renamed[first], renamed[second]): bans
            for (first, second), bans in self.special.items()
            if first in renamed and second in renamed
        }
        return LiveBlocks(
            tuple(self.sizes[i] for i in blocks), parts, special,
            tuple(self.times[i] for i in blocks),
        )

    def _orders(self) -> Iterator[list[int]]:
        everything = range(len(self.sizes))
        yield sorted(everything, key=lambda i: (-self.sizes[i], self.times[i], i))
        yield sorted(everything, key=lambda i: (self.times[i], -self.sizes[i], i))
        yield sorted(everything, key=lambda i: (-self.times[i], -self.sizes[i], i))


_Numbers = npt.NDArray[np.int64]


class _Places:
    """The offsets of blocks while they are placed one after the other."""

    def __init__(self, blocks: LiveBlocks, alignment: int) -> None:
        self._blocks, self._alignment = blocks, alignment
        self._parts: list[list[int]] = [[] for _ in blocks.sizes]
        for number, part in enumerate(blocks.parts):
            self._parts[part.block].append(number)
        self._near: dict[int, list[tuple[int, Bans]]] = {}
        for (first, second), bans in blocks.special.items():
            turned = tuple((-high, -low) for low, high in bans)
            self._near.setdefault(second, []).append((first, bans))
            self._near.setdefault(first, []).append((second, turned))
        # Start, end and lifetime of placed parts, in the order of their placement.
        self._placed = np.zeros((4, len(blocks.parts)), np.int64)
        self._count = 0
        self._slots: dict[int, int] = {}
        self.effort = 0

    def all(self, order: Sequence[int], capacity: int | None = None) -> dict[int, int]:
        """Returns the lowest free offset for each block, in this order; blocks that would end
        beyond ``capacity`` have none."""
        found = {}
        for block in order:
            at = self._lowest(block)
            if capacity is None or at + self._blocks.sizes[block] <= capacity:
                self._take(block, at)
                found[block] = at
        return found

    def _take(self, block: int, at: int) -> None:
        for number in self._parts[block]:
            part = self._blocks.parts[number]
            start = at + part.start
            self._placed[:, self._count] = start, start + part.size, part.first, part.last
            self._slots[number] = self._count
            self._count += 1

    def _lowest(self, block: int) -> int:
        banned = [self._banned(number) for number in self._parts[block]]
        if not banned:
            return 0
        lows, highs = (np.concatenate(side) for side in zip(*banned, strict=True))
        if not len(lows):
            return 0
        lows, reached = _rising(lows, highs)
        # Candidates: the first multiple of the alignment after each banned range and all that begin
        # below it.
        behind = np.maximum(-(-reached // self._alignment) * self._alignment, 0)
        before = np.concatenate((np.zeros(1, np.int64), behind[:-1]))
        free = np.flatnonzero(before <= lows)
        return int(before[free[0]] if len(free) else behind[-1])

    def _banned(self, number: int) -> tuple[_Numbers, _Numbers]:
        """Returns the offsets that a part bans for its block, as bounds."""
        part, near = self._blocks.parts[number], self._near.get(number, ())
        starts, ends, first, last = self._placed[:, : self._count]
        meet = (first <= part.last) & (last >= part.first)
        self.effort += self._count + _SETUP
        extra: list[tuple[int, int]] = []
        for other, bans in near:
            slot = self._slots.get(other)
            if slot is not None:
                meet[slot] = False
                base = int(starts[slot]) - part.start
                extra += [(base + low, base + high) for low, high in bans]
        lows, highs = starts[meet] - (part.start + part.size), ends[meet] - part.start
        if extra:
            more = np.array(extra, np.int64)
            lows, highs = np.concatenate((lows, more[:, 0])), np.concatenate((highs, more[:, 1]))
        return _joined(lows, highs)


def _rising(lows: _Numbers, highs: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Returns the lower bounds sorted, and for each the highest upper bound up to it."""
    order = np.argsort(lows, kind="stable")
    return lows[order], np.maximum.accumulate(highs[order])


def _joined(lows: _Numbers, highs: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Returns the same ranges, with overlapping ones merged."""
    if not len(lows):
        return lows, highs
    lows, reached = _rising(lows, highs)
    apart = np.flatnonzero(reached[:-1] <= lows[1:])
    return (
        lows[np.concatenate((np.zeros(1, np.int64), apart + 1))],
        reached[np.concatenate((apart, np.array([len(lows) - 1])))],
    )
