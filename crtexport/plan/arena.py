"""Offsets for blocks of bytes, given the distances between two blocks that are banned.

Tries greedy placement in several orders, then branch and bound, unless a few of the blocks alone
turn out to need as much as the best placement. Effort is counted in constraints that were looked
at, never in seconds, so that the same blocks always get the same offsets.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from crtexport.plan.live_blocks import LiveBlocks

_ATTEMPTS = 16  # greedy placements per order to begin with
_GREEDY_EFFORT = 1_500_000
_SWAP_EFFORT = 6_000_000  # changes of order take, looking at blocks, all together
_SEARCH_EFFORT = 200_000
_PART_EFFORT = 20_000  # to find out whether some blocks need as much as all
_PARTS_EFFORT = 60_000
_NEIGHBOURS = 6  # the number of blocks needed one after the other that are placed alone


class Ban(Struct, frozen=True):
    """Block ``second`` may not begin more than ``low`` and less than ``high`` bytes after
    ``first``."""

    first: int
    second: int
    low: int
    high: int


class Arena(Struct, frozen=True):
    """Blocks by their sizes in bytes, the bans between them, and a lower bound of any placement.

    ``times`` is when each block is first needed; placement in that order is tried, too.
    """

    sizes: tuple[int, ...]
    bans: tuple[Ban, ...]
    times: tuple[int, ...]
    bound: int = 0

    def only(self, blocks: Sequence[int]) -> Arena:
        """Returns the arena of only these blocks, given in rising order, without a bound."""
        numbers = {block: number for number, block in enumerate(blocks)}
        bans = tuple(
            Ban(numbers[b.first], numbers[b.second], b.low, b.high)
            for b in self.bans if b.first in numbers and b.second in numbers
        )
        return Arena(
            tuple(self.sizes[i] for i in blocks), bans, tuple(self.times[i] for i in blocks)
        )


def place(arena: Arena | LiveBlocks, alignment: int, *, swaps: int = 0) -> tuple[int, ...]:
    """Returns the offset of each block, a multiple of ``alignment``.

    The placement is never worse than greedy placement by size, and optimal if the search ends
    before its limit of effort. ``swaps`` is the number of changes of the order that are tried
    before the search.
    """
    if isinstance(arena, LiveBlocks):
        return arena.place(alignment)
    solver = _Solver(arena, alignment)
    solver.greedy()
    solver.reorder(swaps)
    solver.search()
    return solver.best


def fill(
    arena: Arena | LiveBlocks, order: Sequence[int], capacity: int | None, alignment: int
) -> dict[int, int]:
    """Returns offsets for blocks in an order, each the lowest that is free; blocks that would end
    beyond ``capacity`` are left out."""
    if isinstance(arena, LiveBlocks):
        return arena.fill(order, capacity, alignment)
    solver = _Solver(arena, alignment)
    offsets: list[int | None] = [None] * len(arena.sizes)
    for block in order:
        lowest = solver.lowest(block, offsets, 0)
        if capacity is None or lowest + arena.sizes[block] <= capacity:
            offsets[block] = lowest
    return {block: at for block, at in enumerate(offsets) if at is not None}


def extent(sizes: Sequence[int], offsets: Sequence[int]) -> int:
    """Returns the bytes from 0 to the end of the last block."""
    return max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)


class _Solver:
    def __init__(self, arena: Arena, alignment: int) -> None:
        self.arena = arena
        self.sizes = arena.sizes
        self.times = arena.times
        # Some block ends the arena and begins at a multiple of the alignment.
        self.bound = min(
            (s + max(0, -(-(arena.bound - s) // alignment)) * alignment for s in arena.sizes),
            default=0,
        )
        self.alignment = alignment
        count = len(arena.sizes)
        # For each block: another block, and the bounds between which this one may not begin after
        # it.
        self.near: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
        for ban in arena.bans:
            self.near[ban.second].append((ban.first, ban.low, ban.high))
            self.near[ban.first].append((ban.second, -ban.high, -ban.low))
        self.others = [{other for other, _, _ in near} for near in self.near]
        self.weights = [len(near) + 1 for near in self.near]  # effort of looking at a block
        self.largest = max(self.sizes, default=0)
        self.best: tuple[int, ...] = ()
        self.least = 0
        self.effort = 0
        self.limit = 0  # of effort

    # -- greedy

    def greedy(self) -> None:
        """Keeps the best placement of several orders; blocks that end beyond the bound come first
        in the next order."""
        everything = range(len(self.sizes))
        orders = [
            sorted(everything, key=lambda i: (-self.sizes[i], self.times[i], i)),
            sorted(everything, key=lambda i: (self.times[i], -self.sizes[i], i)),
            sorted(everything, key=lambda i: (-self.times[i], -self.sizes[i], i)),
            sorted(everything, key=lambda i: (-self._contended(i), -self.sizes[i], i)),
            # First tensors that reuse each other's bytes along a chain, then smaller ones around
            # them.
            *(
                sorted(everything, key=lambda i: (
                    self._small(i, part), sign * self.times[i], -self.sizes[i], i
                ))
                for part in (8, 4) for sign in (-1, 1)
            ),
        ]
        for number, first in enumerate(orders):
            order = first
            offsets = self._in_order(order)
            if not number or extent(self.sizes, offsets) < self.least:
                self._keep(offsets)
            tried = {tuple(order)}
            for _ in range(_ATTEMPTS):
                if self.least <= self.bound or self.effort > _GREEDY_EFFORT:
                    return
                top = extent(self.sizes, offsets)
                order = sorted(order, key=lambda i: offsets[i] + self.sizes[i] < top)
                if tuple(order) in tried:
                    break  # all further orders were tried before
                tried.add(tuple(order))
                offsets = self._in_order(order)
                if extent(self.sizes, offsets) < self.least:
                    self._keep(offsets)

    def _small(self, block: int, part: int) -> bool:
        """Returns whether a block is smaller than a fraction of the largest."""
        return self.sizes[block] * part < self.largest

    def _contended(self, block: int) -> int:
        """Returns the bytes of a block and of all blocks that it may not overlap."""
        return self.sizes[block] + sum(self.sizes[other] for other in self.others[block])

    def _keep(self, offsets: Sequence[int]) -> None:
        self.best = tuple(offsets)
        self.least = extent(self.sizes, offsets)

    def _in_order(self, order: Iterable[int]) -> list[int]:
        offsets: list[int | None] = [None] * len(self.sizes)
        for i in order:
            offsets[i] = self.lowest(i, offsets, 0)
        return [o for o in offsets if o is not None]

    def lowest(self, block: int, offsets: Sequence[int | None], start: int) -> int:
        """Returns the lowest offset from ``start`` on that no placed block bans."""
        banned = []
        for other, low, high in self.near[block]:
            base = offsets[other]
            if base is not None and base + high > start:
                banned.append((base + low, base + high))
        self.effort += self.weights[block]
        banned.sort()
        offset = start
        for low, high in banned:
            if offset <= low:
                break
            if offset < high:
                offset = -(-high // self.alignment) * self.alignment
        return offset

    def reorder(self, times: int) -> None:
        """Tries orders that differ by one block, and keeps each that isn't worse."""
        order = sorted(range(len(self.sizes)), key=lambda i: (self.best[i], i))
        least = extent(self.sizes, self._in_order(order))
        # The generator whose sequence no version of Python changes.
        draw = random.Random(0).random  # noqa: S311 - nothing secret
        for _ in range(min(times, _SWAP_EFFORT // max(sum(self.weights), 1) + 1)):
            if self.least <= self.bound:
                return
            changed = order.copy()
            block = changed.pop(int(draw() * len(changed)))
            changed.insert(int(draw() * (len(changed) + 1)), block)
            offsets = self._in_order(changed)
            found = extent(self.sizes, offsets)
            if found <= least:
                order, least = changed, found
            if found < self.least:
                self._keep(offsets)

    # -- branch and bound

    def search(self) -> None:
        """Searches for a better placement if the bound allows one."""
        if self.least > self.bound and not self._stuck():
            self._explore(_SEARCH_EFFORT)

    def _explore(self, limit: int) -> None:
        """Places blocks by rising offset in all orders that could still be better than the best."""
        count = len(self.sizes)
        self.effort, self.limit = 0, limit
        self._branch([None] * count, 0, list(range(count)), frozenset(), [0] * count)

    def _stuck(self) -> bool:
        """Returns whether some of the blocks need as much as the best placement of all."""
        effort = 0
        for blocks in self._parts():
            part = self._part(blocks)
            part._explore(_PART_EFFORT)
            if part.least == self.least and part.effort <= part.limit:
                return True
            effort += part.effort
            if effort > _PARTS_EFFORT:
                break
        return False

    def _parts(self) -> Iterator[Sequence[int]]:
        """Yields groups of blocks that may need much memory: large ones, ones that are needed one
        after the other, and large ones with one more."""
        everything = range(len(self.sizes))
        large = [i for i in everything if not self._small(i, 2)]
        yield large
        row = sorted(everything, key=lambda i: (self.times[i], -self.sizes[i], i))
        yield from (row[at : at + _NEIGHBOURS] for at in range(len(row) - _NEIGHBOURS + 1))
        for other in sorted(everything, key=lambda i: (-self.sizes[i], i))[len(large) :]:
            yield [*large, other]

    def _part(self, blocks: Sequence[int]) -> _Solver:
        """Returns a solver for some of the blocks; if these need as much as the best placement of
        all, that placement is optimal."""
        numbers = {block: number for number, block in enumerate(blocks)}
        solver = _Solver(Arena(
            tuple(self.sizes[block] for block in blocks),
            tuple(
                Ban(number, numbers[other], -high, -low)
                for block, number in numbers.items() for other, low, high in self.near[block]
                if numbers.get(other, -1) > number
            ),
            tuple(self.times[block] for block in blocks),
        ), self.alignment)
        solver.least, solver.bound = self.least, self.least - 1
        return solver

    def _branch(
        self, offsets: list[int | None], level: int, remaining: list[int], near: Collection[int],
        least_offsets: list[int],
    ) -> None:
        """Places the blocks of ``remaining``, in the order of their numbers.

        The last block was placed at ``level`` and restricts the blocks of ``near``;
        ``least_offsets`` has the lowest offset of each block without it. Only blocks in ``near``
        and those that would begin below ``level`` are affected by it.
        """
        if not remaining:
            found = [o for o in offsets if o is not None]
            if extent(self.sizes, found) < self.least:
                self._keep(found)
            return
        sizes, least, lowest = self.sizes, self.least, least_offsets.copy()
        for i in remaining:
            if i in near or least_offsets[i] < level:
                lowest[i] = self.lowest(i, offsets, level)
            else:
                self.effort += self.weights[i]
            if lowest[i] + sizes[i] >= least:
                return
        for at, _, i in sorted([(lowest[i], -sizes[i], i) for i in remaining]):
            if self.least <= self.bound or self.effort > self.limit:
                return
            if at + sizes[i] >= self.least:
                continue
            offsets[i] = at
            remaining.remove(i)
            self._branch(offsets, at, remaining, self.others[i], lowest)
            insort(remaining, i)
            offsets[i] = None
