"""The dependences of the instructions of a block, on which their order depends: which come before
others, the values that they read and write, and the cycles that they take.

No registers, offsets or numbers are left in that, so that blocks of many layers have the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from crtexport.kir.assembly.armv7em.instructions import (
    STACK,
    ConstantRegister,
    Instruction,
    Kind,
    MemoryOperand,
    Register,
    constant,
)
from crtexport.kir.assembly.armv7em.issue import Issue, issue_of
from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.armv7em.timing import least_cycles


class BlockFacts(Struct, frozen=True):
    """Of a block: accesses of two buffers that are ``apart`` never meet; values of ``needed``
    registers are wanted behind it; ``tail``: the numbers of instructions that come last, in their
    order, but for what stores their results."""

    apart: Collection[frozenset[str]]
    needed: Collection[Register]
    tail: Sequence[int] = ()


class DependenceStep(Struct, frozen=True, cache_hash=True):
    """An instruction: the numbers of the values that it ``reads``, ``writes``, and reads ``late``:
    all but addresses and the sum that a product is added to; ``constants`` that it reads from
    registers, and the instructions that come ``before`` others because of this one (``after``).

    ``base`` is the value that is the address of its access of memory, None where there is none or
    no instruction writes it; ``advanced``: the value that it makes of that, if it does, which is
    there at once. ``sums``: it makes a value that products are added to. ``issue``: how it begins
    by the processor's rules, if it has any.
    """

    kind: Kind
    least: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    late: tuple[int, ...]
    constants: tuple[int, ...]
    after: tuple[int, ...]
    accesses: bool
    base: int | None
    advanced: int | None
    product: bool
    sums: bool
    issue: Issue | None = None

    def cycles_behind(self, previous: DependenceStep | None) -> int:
        """Returns the cycles of the instruction behind another one; None for a branch, or for what
        makes a constant."""
        if previous is None:
            return 2 if self.kind is Kind.LOAD else self.least
        late = self._base_is_late(previous)
        if self.kind is Kind.LOAD:
            took = 1 if previous.kind is Kind.LOAD and not late else 2
        else:
            took = self.least
        return took + (late and not previous.accesses)

    def waits_for(self, previous: DependenceStep) -> bool:
        """Returns whether the instruction takes longer behind another one, or would on some
        cores."""
        if self._base_is_late(previous):
            return True
        return previous.kind is not Kind.SIMPLE and any(
            value in previous.writes for value in self.late
        )

    def _base_is_late(self, previous: DependenceStep) -> bool:
        return self.base in previous.writes and self.base != previous.advanced


class Dependences(Struct, frozen=True, cache_hash=True):
    """The ``steps`` of a block, in an order that is valid. Values are numbered: a register that is
    written several times holds one after the other. ``given`` are there before the block, ``kept``
    wanted behind it, of ``values`` in all; ``constants`` are the cycles to make each."""

    steps: tuple[DependenceStep, ...]
    values: int
    given: tuple[int, ...]
    kept: tuple[int, ...]
    constants: tuple[int, ...]


def dependences(
    body: Sequence[Instruction], facts: BlockFacts, features: Features
) -> tuple[Dependences, tuple[int, ...]]:
    """Returns the dependences of a block, and the constants that its instructions read, by their
    numbers."""
    found = _Finder(body, facts)
    made = (constant(STACK, value) for value in found.constants)
    known = Dependences(
        tuple(found.step(number, features) for number in range(len(body))), len(found.readers),
        tuple(found.given), found.kept, tuple(least_cycles(one, features) for one in made),
    )
    return known, tuple(found.constants)


class _Finder:
    """Looks at instructions in an order that is valid."""

    def __init__(self, body: Sequence[Instruction], facts: BlockFacts) -> None:
        self.constants: dict[int, int] = {}  # their numbers
        self.readers: list[list[int]] = []  # of each value
        self.given: list[int] = []
        self._body, self._facts = body, facts
        self._after: list[set[int]] = [set() for _ in body]
        self._reads: list[dict[Register, int]] = []
        self._writes: list[tuple[int, ...]] = []
        self._wanted: dict[int, tuple[int, ...]] = {}  # constants
        self._current: dict[Register, int] = {}
        self._writer: dict[int, int] = {}
        for number, one in enumerate(body):
            self._add(number, one)
        self.kept = tuple(self._value_in(register) for register in facts.needed)
        self._order_memory()
        for place, last in enumerate(facts.tail):
            for number in set(range(len(body))) - self._after[last] - set(facts.tail[place:]):
                self._after[number].add(last)
        self._sums = {one.adds for one in body if one.adds is not None}

    def step(self, number: int, features: Features) -> DependenceStep:
        """Returns one of the instructions."""
        one, reads = self._body[number], self._reads[number]
        base = advanced = None
        if one.memory is not None:
            base = reads.get(one.memory.base)
            written = dict(zip(one.writes, self._writes[number], strict=True))
            advanced = written.get(one.memory.base)
        return DependenceStep(
            kind=one.kind, least=least_cycles(one, features), reads=tuple(reads.values()),
            writes=self._writes[number],
            late=tuple([reads[r] for r in one.reads if r in reads and r is not one.adds]),
            constants=self._wanted.get(number, ()),
            after=tuple(sorted(self._after[number])), accesses=one.memory is not None,
            base=base, advanced=advanced,
            product=one.adds is not None,
            sums=one.adds is None and one.kind is not Kind.LOAD and (
                not self._sums.isdisjoint(one.writes)
            ),
            issue=issue_of(one, reads, features.rules) if features.rules else None,
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
        reads: dict[Register, int] = {}
        for register in instruction.wanted:
            if isinstance(register, ConstantRegister):
                value = self.constants.setdefault(register.value, len(self.constants))
                if value not in self._wanted.get(number, ()):
                    self._wanted[number] = *self._wanted.get(number, ()), value
            elif register is not STACK:
                reads[register] = self._value_in(register)
        for value in reads.values():
            if value in self._writer:
                self._after[self._writer[value]].add(number)
            self.readers[value].append(number)
        writes = []
        for register in instruction.writes:
            old = self._current.get(register)
            if old is not None:
                before = [*self.readers[old], *([self._writer[old]] if old in self._writer else [])]
                for other in before:
                    if other != number:
                        self._after[other].add(number)
            value = self._current[register] = self._new()
            self._writer[value] = number
            writes.append(value)
        self._reads.append(reads)
        self._writes.append(tuple(writes))

    def _order_memory(self) -> None:
        stores: list[int] = []
        loads: list[int] = []
        for number, one in enumerate(self._body):
            memory = one.memory
            if memory is None:
                continue
            others = stores + loads if one.kind is Kind.STORE else stores
            for other in others:
                theirs = self._body[other].memory
                if theirs is not None and self._meet(memory, theirs):
                    self._after[other].add(number)
            (stores if one.kind is Kind.STORE else loads).append(number)

    def _meet(self, a: MemoryOperand, b: MemoryOperand) -> bool:
        """Returns whether two accesses may be of the same bytes."""
        if a.buffer != b.buffer:
            return frozenset((a.buffer, b.buffer)) not in self._facts.apart
        if a.place != b.place:
            return True
        return a.distance < b.distance + b.size and b.distance < a.distance + a.size
