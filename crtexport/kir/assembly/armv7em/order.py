"""Orders the instructions of a block so that few registers and cycles are enough.

Loads one behind the other take a cycle each, lone ones two. So as many as there are registers for
are put together, those first whose values are used first; then follows what uses the values up,
and only when that is done the next loads.
"""

from __future__ import annotations

import functools
from bisect import insort
from collections import Counter
from collections.abc import Sequence
from copy import copy
from itertools import product
from math import inf

from msgspec import Struct

from crtexport.kir.assembly.armv7em.dependences import Dependences, DependenceStep
from crtexport.kir.assembly.armv7em.instructions import Kind

_MOST_FREE = 4
"""The most registers that loads leave to what uses the values; which number is best is tried."""
_ALWAYS = 1 << 20
"""More readers than a value has."""
BLOCKS = 512
"""Blocks whose orders are remembered: layers of a network are alike."""


class Order(Struct, frozen=True):
    """``places``: the numbers of instructions in their order; ``~number`` makes a constant.
    ``cycles``: what they take behind a branch."""

    places: tuple[int, ...]
    cycles: int


@functools.lru_cache(BLOCKS)
def best_order(block: Dependences, room: int) -> Order | None:
    """Returns the best order that is found in which ``room`` registers are enough; None if none
    is.

    Products and what follows them, as their requantization, may need different preferences: those
    that are best for all are tried first, then the best for the products with others for the rest.
    """
    graph = graph_of(block)
    best: Order | None = None
    products: Run | None = None
    reserving = (True, False) if graph.begin_sums else (False,)
    runs: list[Run] = []
    for free in range(_MOST_FREE + 1):
        better = False
        for eager, reserves in product((True, False), reserving):
            preference = Preference(free, eager, reserves)
            if any(run.decides_as(preference) for run in runs):
                continue
            run = Run(graph, room, preference)
            runs.append(run)
            limit = best.cycles if best is not None else inf
            if graph.products and run.adds_products(limit) and (
                products is None or run.took < products.took
            ):
                products = run.copy()
            found = run.result(limit)
            if found is not None:
                if found.cycles == graph.shortest:
                    return found
                best, better, reserving = found, True, (reserves,)
        if best is not None and not better:
            break
    return best if products is None else _continued(products, best)


def _continued(products: Run, best: Order | None) -> Order | None:
    """Returns the best order that begins as ``products``, or ``best`` if none is better."""
    runs: list[Run] = []
    for free, eager in product(range(_MOST_FREE + 1), (True, False)):
        preference = Preference(free, eager)
        if any(run.decides_as(preference) for run in runs):
            continue
        run = products.copy()
        run.preference = preference
        runs.append(run)
        best = run.result(best.cycles if best is not None else inf) or best
    return best


@functools.lru_cache(BLOCKS)
def graph_of(block: Dependences) -> BlockGraph:
    return BlockGraph(block)


class BlockGraph:
    """The dependences of a block, and what follows from them before anything is ordered."""

    def __init__(self, block: Dependences) -> None:
        self.block, self.steps = block, block.steps
        steps = self.steps
        self.constants = block.constants
        self.readers: list[list[int]] = [[] for _ in range(block.values)]
        for number, one in enumerate(steps):
            for value in one.reads:
                self.readers[value].append(number)
        # How many instructions use a value up.
        self.users = [len(readers) for readers in self.readers]
        for value in block.kept:
            self.users[value] += _ALWAYS
        self.waits = [0] * len(steps)
        for one in steps:
            for target in one.after:
                self.waits[target] += 1
        self.first_use = [
            min((self.readers[v][0] for v in one.writes if self.readers[v]), default=number)
            for number, one in enumerate(steps)
        ]
        self.asked = Counter(value for one in steps for value in one.constants)
        # Registers more that are taken behind an instruction.
        self.more = [
            len(one.writes) - sum(self.users[value] == 1 for value in one.reads) for one in steps
        ]
        self.live = sum(self.users[value] > 0 for value in block.given)
        self.products = sum(one.product for one in steps)
        self.begin_sums = sum(one.sums for one in steps)
        self.least = sum(one.least for one in steps)
        # Whatever the order is, the first load has none before it.
        self.shortest = self.least + any(one.kind is Kind.LOAD for one in steps)


class Preference(Struct, frozen=True):
    """``free`` registers are left to what isn't a load; ``eager``: what takes a register more comes
    before loads; ``reserves``: loads leave registers to all sums that haven't begun."""

    free: int
    eager: bool
    reserves: bool = False

    def loads(self, spare: int, sums: int) -> bool:
        """Returns whether there may be a load where so many registers are ``spare`` and so many
        ``sums`` haven't begun."""
        return self.free + (sums if self.reserves else 0) < spare


class Run:
    """One way through a graph, as ``preference`` says."""

    def __init__(self, graph: BlockGraph, room: int, preference: Preference) -> None:
        self.graph, self.room, self.preference = graph, room, preference
        self.products = graph.products  # that aren't added yet
        self.sums = graph.begin_sums  # that haven't begun
        self.places: list[int] = []
        self.last: DependenceStep | None = None  # None for a constant, too
        self.took = 0
        self.left = graph.least  # cycles that the others take at least
        self.waits, self.users, self.more = list(graph.waits), list(graph.users), list(graph.more)
        self.done = [False] * len(graph.steps)
        self.made: dict[int, None] = {}  # constants in registers
        self.asked = dict(graph.asked)
        self.live = graph.live
        self.ready: list[int] = []
        self.loads: list[tuple[int, int]] = []
        # Where the preference decided: registers that were spare, and sums.
        self.decided: set[tuple[int, int]] = set()
        self.was_eager = False
        for number, waits in enumerate(self.waits):
            if not waits:
                self._offer(number)

    def _offer(self, number: int) -> None:
        if self.graph.steps[number].kind is Kind.LOAD:
            insort(self.loads, (self.graph.first_use[number], number))
        else:
            insort(self.ready, number)

    def copy(self) -> Run:
        """Returns a run that goes on from here, too, and hasn't decided anything."""
        other = copy(self)
        other.places, other.waits, other.users = (
            list(self.places), list(self.waits), list(self.users)
        )
        other.more, other.done, other.ready = list(self.more), list(self.done), list(self.ready)
        other.made, other.asked = dict(self.made), dict(self.asked)
        other.loads, other.decided, other.was_eager = list(self.loads), set(), False
        return other

    def decides_as(self, preference: Preference) -> bool:
        """Returns whether this run is that of another preference as well."""
        own = self.preference
        return (own.eager == preference.eager or not self.was_eager) and all(
            own.loads(*where) == preference.loads(*where) for where in self.decided
        )

    def adds_products(self, limit: float) -> bool:
        """Goes on until all products are added. Returns False where :meth:`result` is None."""
        while self.products:
            if not self._step(limit):
                return False
        return True

    def result(self, limit: float) -> Order | None:
        """Returns the order; None if there aren't enough registers this way, or it takes ``limit``
        cycles or more."""
        while self.loads or self.ready:
            if self.took + self.left >= limit or not self._step(limit):
                return None
        return Order(tuple(self.places), self.took) if self.took < limit else None

    def _step(self, limit: float) -> bool:
        """Puts an instruction behind the others; returns whether there was a way."""
        number = self._next()
        if number is None or self.took >= limit:
            return False
        constants = self.graph.steps[number].constants
        for value in constants:
            if value not in self.made and not self._make(value, constants):
                return False
        if not self._spare(self.more[number], constants):
            return False
        self._emit(number)
        return True

    def _next(self) -> int | None:
        """Returns the number of the instruction that comes next; None where none may."""
        last = self.last
        may_load = self._may_load()
        if may_load and last is not None and last.kind is Kind.LOAD:
            return self._load_behind(last)
        late = larger = None
        for number in self.ready:
            if self.more[number] > 0:
                if larger is None and self._fits(number):
                    larger = number
            elif last is None or not self.graph.steps[number].waits_for(last):
                return number
            elif late is None:
                late = number
        if late is not None:
            return late
        if larger is not None:
            self.was_eager |= may_load
            if self.preference.eager or not may_load:
                return larger
        return self.loads[0][1] if self.loads else None

    def _load_behind(self, last: DependenceStep) -> int:
        """Returns the number of the next load; where its address is what the ``last`` one loads,
        rather of one behind it."""
        first = self.loads[0][1]
        for _, number in self.loads:
            if not self.graph.steps[number].waits_for(last) and (
                self.more[number] <= self.more[first]
            ):
                return number
        return first

    def _may_load(self) -> bool:
        if not self.loads:
            return False
        if self.more[self.loads[0][1]] <= 0:
            return True
        spare = self.room - self.live - len(self.made)
        where = spare, self.sums
        self.decided.add(where)
        if not self.preference.loads(*where):
            return False
        return spare > 1 or bool(self.made) or self._goes_on_behind(self.loads[0][1])

    def _goes_on_behind(self, load: int) -> bool:
        """Returns whether there is a next instruction where ``load`` takes the last register."""
        more, waits = self.more, self.waits
        enabled = (n for n in self.graph.steps[load].after if waits[n] == 1)
        return any(more[n] <= 0 for n in (*self.ready, *enabled))

    def _fits(self, number: int) -> bool:
        missing = sum(value not in self.made for value in self.graph.steps[number].constants)
        return self.live + self.more[number] + missing <= self.room

    def _spare(self, more: int, needed: Sequence[int]) -> bool:
        """Makes room for ``more`` registers, by forgetting constants that aren't ``needed``."""
        while self.live + len(self.made) + more > self.room:
            other = next((value for value in self.made if value not in needed), None)
            if other is None:
                # The instruction may be the last that reads one, whose register it can have.
                return self.live + len(self.made) + more <= self.room + sum(
                    self.asked[value] == 1 for value in needed
                )
            del self.made[other]
        return True

    def _make(self, value: int, needed: Sequence[int]) -> bool:
        """Puts a constant into a register."""
        if not self._spare(1, needed):
            return False
        self.places.append(~value)
        self.made[value] = None
        self._pass_constant(self.graph.constants[value])
        return True

    def _pass_constant(self, cycles: int) -> None:
        """Counts the cycles that it takes to make a constant."""
        self.took += cycles
        self.last = None

    def _pass(self, one: DependenceStep) -> None:
        """Counts the cycles of an instruction."""
        self.took += one.cycles_behind(self.last)
        self.left -= one.least
        self.last = one

    def _emit(self, number: int) -> None:
        graph, one, users = self.graph, self.graph.steps[number], self.users
        self.live += self.more[number]
        self.done[number] = True
        for value in one.reads:
            users[value] -= 1
            if users[value] == 1:  # another one uses it up now
                last = next(reader for reader in graph.readers[value] if not self.done[reader])
                self.more[last] -= 1
        for value in one.constants:
            self.asked[value] -= 1
            if not self.asked[value]:
                del self.made[value]
        for value in one.writes:
            if not users[value]:
                self.live -= 1
        self.places.append(number)
        self._pass(one)
        self.sums -= one.sums
        self.products -= one.product
        if one.kind is Kind.LOAD:
            self.loads.remove((graph.first_use[number], number))
        else:
            self.ready.remove(number)
        for target in one.after:
            self.waits[target] -= 1
            if not self.waits[target]:
                self._offer(target)
