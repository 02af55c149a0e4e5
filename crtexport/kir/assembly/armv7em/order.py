"""Orders the instructions of a block so that few registers and cycles are enough.

Loads one behind the other take a cycle each, lone ones two. So as many as there are registers for
are put together, those first whose values are used first; then follows what uses the values up,
and only when that is done the next loads.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Sequence
from copy import copy
from itertools import product
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir.assembly.armv7em.instructions import (
    STACK,
    ConstantRegister,
    Instruction,
    Kind,
    MemoryOperand,
    Register,
    constant,
)
from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.armv7em.timing import cycles, in_any_order, least_cycles

_MOST_FREE = 4
"""The most registers that loads leave to what uses the values; which number is best is tried."""
_ALWAYS = 1 << 20
"""More readers than a value has."""


class Ordered(Struct, frozen=True):
    """Instructions in their order, and the cycles that they take behind a branch."""

    body: list[Instruction]
    cycles: int


class BlockFacts(Struct, frozen=True):
    """Of a block: accesses of two buffers that are ``apart`` never meet; values of ``needed``
    registers are read behind it; ``tail``: the numbers of instructions that come last, in their
    order, but for what stores their results."""

    apart: Collection[frozenset[str]]
    needed: Collection[Register]
    tail: Sequence[int] = ()


def ordered(graph: DependenceGraph, room: int) -> Ordered | None:
    """Returns the best order that is found in which ``room`` registers are enough; None if none
    is.

    Products and what follows them, as their requantization, may want different preferences: those
    that are best for all are tried first, then the best for the products with others for the rest.
    """
    best: Ordered | None = None
    products: _Run | None = None
    reserving = (True, False) if graph.begin_sums else (False,)
    for free in range(_MOST_FREE + 1):
        better = False
        for eager, reserves in product((True, False), reserving):
            run = _Run(graph, room, _Preference(free, eager, reserves))
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
    if products is not None:
        for free, eager in product(range(_MOST_FREE + 1), (True, False)):
            run = products.copy()
            run.preference = _Preference(free, eager)
            best = run.result(best.cycles if best is not None else inf) or best
    return best


class DependenceGraph:
    """The instructions of a block, what must come before what, and the values that they read and
    write.

    Values are numbered: a register that is written several times holds one after the other.
    """

    def __init__(self, body: Sequence[Instruction], facts: BlockFacts, features: Features) -> None:
        self.body, self.features = body, features
        self.least = [least_cycles(one, features) for one in body]
        self.shortest = in_any_order(body, features)
        count = len(body)
        self.after: list[set[int]] = [set() for _ in range(count)]
        self.reads: list[tuple[int, ...]] = []
        self.writes: list[tuple[int, ...]] = []
        self.constants: list[tuple[int, ...]] = []
        self.readers: list[list[int]] = []  # of each value
        self.given: list[int] = []  # values that are there before
        self._facts = facts
        self._current: dict[Register, int] = {}
        self._writer: dict[int, int] = {}
        for number, one in enumerate(body):
            self._add(number, one)
        # How many instructions use a value up.
        kept = [self._value_in(register) for register in facts.needed]
        self.users = [len(readers) for readers in self.readers]
        for value in kept:
            self.users[value] += _ALWAYS
        self._order_memory()
        for place, last in enumerate(facts.tail):
            for number in set(range(count)) - self.after[last] - set(facts.tail[place:]):
                self.after[number].add(last)
        self.waits = [0] * count
        for targets in self.after:
            for target in targets:
                self.waits[target] += 1
        self.first_use = [
            min((self.readers[value][0] for value in writes if self.readers[value]), default=number)
            for number, writes in enumerate(self.writes)
        ]
        self.asked = Counter(value for values in self.constants for value in values)
        # Registers more that are taken behind an instruction.
        self.more = [
            len(writes) - sum(self.users[value] == 1 for value in reads)
            for reads, writes in zip(self.reads, self.writes, strict=True)
        ]
        self.live = sum(self.users[value] > 0 for value in self.given)
        sums = {one.adds for one in body if one.adds is not None}
        self.products = sum(one.adds is not None for one in body)
        # What makes the values that the first products are added to.
        self.begin_sums = frozenset(
            number for number, one in enumerate(body)
            if one.adds is None and one.kind is not Kind.LOAD and not sums.isdisjoint(one.writes)
        )

    def _value_in(self, register: Register) -> int:
        if register not in self._current:
            self._current[register] = self._new()
            self.given.append(self._current[register])
        return self._current[register]

    def _new(self) -> int:
        self.readers.append([])
        return len(self.readers) - 1

    def _add(self, number: int, instruction: Instruction) -> None:
        wanted = dict.fromkeys(
            r for r in instruction.wanted if not isinstance(r, ConstantRegister) and r is not STACK
        )
        reads = tuple(self._value_in(register) for register in wanted)
        for value in reads:
            if value in self._writer:
                self.after[self._writer[value]].add(number)
            self.readers[value].append(number)
        self.constants.append(tuple(dict.fromkeys(
            r.value for r in instruction.reads if isinstance(r, ConstantRegister)
        )))
        writes = []
        for register in instruction.writes:
            old = self._current.get(register)
            if old is not None:
                before = [*self.readers[old], *([self._writer[old]] if old in self._writer else [])]
                for other in before:
                    if other != number:
                        self.after[other].add(number)
            value = self._current[register] = self._new()
            self._writer[value] = number
            writes.append(value)
        self.reads.append(reads)
        self.writes.append(tuple(writes))

    def _order_memory(self) -> None:
        stores: list[int] = []
        loads: list[int] = []
        for number, one in enumerate(self.body):
            memory = one.memory
            if memory is None:
                continue
            others = stores + loads if one.kind is Kind.STORE else stores
            for other in others:
                theirs = self.body[other].memory
                if theirs is not None and self._meet(memory, theirs):
                    self.after[other].add(number)
            (stores if one.kind is Kind.STORE else loads).append(number)

    def _meet(self, a: MemoryOperand, b: MemoryOperand) -> bool:
        """Returns whether two accesses may be of the same bytes."""
        if a.buffer != b.buffer:
            return frozenset((a.buffer, b.buffer)) not in self._facts.apart
        if a.place != b.place:
            return True
        return a.distance < b.distance + b.size and b.distance < a.distance + a.size


class _Preference(Struct, frozen=True):
    """``free`` registers are left to what isn't a load; ``eager``: what takes a register more comes
    before loads; ``reserves``: loads leave registers to all sums that haven't begun."""

    free: int
    eager: bool
    reserves: bool = False


class _Run:
    """One way through a graph, as ``preference`` says."""

    def __init__(self, graph: DependenceGraph, room: int, preference: _Preference) -> None:
        self.graph, self.room, self.preference = graph, room, preference
        self.products = graph.products  # that aren't added yet
        self.sums = len(graph.begin_sums)  # that haven't begun
        self.body: list[Instruction] = []
        self.took = 0
        self.left = sum(graph.least)  # cycles that the others take at least
        self.waits, self.users, self.more = list(graph.waits), list(graph.users), list(graph.more)
        self.done = [False] * len(graph.body)
        self.made: dict[int, Register] = {}  # constants in registers
        self.asked = dict(graph.asked)
        self.live = graph.live
        self.ready: list[int] = []
        self.loads: list[tuple[int, int]] = []
        for number, waits in enumerate(self.waits):
            if not waits:
                self._offer(number)

    def _offer(self, number: int) -> None:
        if self.graph.body[number].kind is Kind.LOAD:
            insort(self.loads, (self.graph.first_use[number], number))
        else:
            insort(self.ready, number)

    def copy(self) -> _Run:
        """Returns a run that goes on from here, too."""
        other = copy(self)
        other.body, other.waits, other.users = list(self.body), list(self.waits), list(self.users)
        other.more, other.done, other.ready = list(self.more), list(self.done), list(self.ready)
        other.made, other.asked = dict(self.made), dict(self.asked)
        other.loads = list(self.loads)
        return other

    def adds_products(self, limit: float) -> bool:
        """Goes on until all products are added. Returns False where :meth:`result` is None."""
        while self.products:
            if not self._step(limit):
                return False
        return True

    def result(self, limit: float) -> Ordered | None:
        """Returns the order; None if there aren't enough registers this way, or it takes ``limit``
        cycles or more."""
        while self.loads or self.ready:
            if self.took + self.left >= limit or not self._step(limit):
                return None
        return Ordered(self.body, self.took) if self.took < limit else None

    def _step(self, limit: float) -> bool:
        """Puts an instruction behind the others; returns whether there was a way."""
        constants = self.graph.constants
        number = self._next()
        if number is None or self.took >= limit:
            return False
        for value in constants[number]:
            if value not in self.made and not self._make(value, constants[number]):
                return False
        if not self._spare(self.more[number], constants[number]):
            return False
        self._emit(number)
        return True

    def _next(self) -> int | None:
        """Returns the number of the instruction that comes next; None where none may."""
        last = self.body[-1] if self.body else None
        may_load = self._may_load()
        if may_load and last is not None and last.kind is Kind.LOAD:
            return self.loads[0][1]
        late = larger = None
        for number in self.ready:
            if self.more[number] > 0:
                if larger is None and self._fits(number):
                    larger = number
            elif last is None or not self._waits_for(number, last):
                return number
            elif late is None:
                late = number
        if late is not None:
            return late
        if larger is not None and (self.preference.eager or not may_load):
            return larger
        return self.loads[0][1] if self.loads else None

    def _waits_for(self, number: int, previous: Instruction) -> bool:
        """Returns whether an instruction takes longer behind ``previous``, or would on some cores.
        """
        if not previous.writes:
            return False
        one = self.graph.body[number]
        if one.memory is not None and one.memory.base in previous.writes:
            return True
        if previous.kind is Kind.SIMPLE:
            return False
        return any(r in previous.writes and r is not one.adds for r in one.reads)

    def _may_load(self) -> bool:
        if not self.loads:
            return False
        preference = self.preference
        taken = self.live + len(self.made) + (self.sums if preference.reserves else 0)
        return taken + preference.free < self.room or self.more[self.loads[0][1]] <= 0

    def _fits(self, number: int) -> bool:
        missing = sum(value not in self.made for value in self.graph.constants[number])
        return self.live + self.more[number] + missing <= self.room

    def _spare(self, more: int, needed: Sequence[int]) -> bool:
        """Makes room for ``more`` registers, by forgetting constants that aren't ``needed``."""
        while self.live + len(self.made) + more > self.room:
            other = next((value for value in self.made if value not in needed), None)
            if other is None:
                # The instruction may be the last that wants one, whose register it can have.
                return self.live + len(self.made) + more <= self.room + sum(
                    self.asked[value] == 1 for value in needed
                )
            del self.made[other]
        return True

    def _make(self, value: int, needed: Sequence[int]) -> bool:
        """Puts a constant into a register."""
        if not self._spare(1, needed):
            return False
        register = Register("constant")
        self._append(constant(register, value))
        self.made[value] = register
        return True

    def _append(self, instruction: Instruction) -> None:
        previous = self.body[-1] if self.body else None
        self.took += cycles(instruction, previous, self.graph.features)
        self.body.append(instruction)

    def _emit(self, number: int) -> None:
        graph, one, users = self.graph, self.graph.body[number], self.users
        self.live += self.more[number]
        self.done[number] = True
        for value in graph.reads[number]:
            users[value] -= 1
            if users[value] == 1:  # another one uses it up now
                last = next(reader for reader in graph.readers[value] if not self.done[reader])
                self.more[last] -= 1
        if graph.constants[number]:
            reads = tuple(
                self.made[r.value] if isinstance(r, ConstantRegister) else r for r in one.reads
            )
            one = replace(one, reads=reads)
            for value in graph.constants[number]:
                self.asked[value] -= 1
                if not self.asked[value]:
                    del self.made[value]
        for value in graph.writes[number]:
            if not users[value]:
                self.live -= 1
        self._append(one)
        self.left -= graph.least[number]
        self.sums -= number in graph.begin_sums
        self.products -= one.adds is not None
        if one.kind is Kind.LOAD:
            self.loads.remove((graph.first_use[number], number))
        else:
            self.ready.remove(number)
        for target in graph.after[number]:
            self.waits[target] -= 1
            if not self.waits[target]:
                self._offer(target)
