"""Cycles of instructions on Cortex-M7, which issues two at once, with memories that never wait.

Instructions begin in their order, up to two in a cycle, if each finds its unit free and its
operands there. Arm publishes no table of that; these are the rules of LLVM's scheduling model
(ARMScheduleM7.td) and of measurements on an STM32H743 (jnk0le/random-asm), where they differ those
that take longer:

* Products begin one a cycle, not beside a store; what is to be added is wanted a cycle later.
* Instructions that shift, or work on parts of words, begin one a cycle, and what they shift is
  wanted a cycle earlier. So is an address, but one that a load or store has advanced.
* Of loads one begins in a cycle: two would have to read an even and an odd word.
* Loads, products and saturations have their result after two cycles, the others after one.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from crtexport.kir.assembly.armv7em.instructions import Instruction, Kind, Register

PER_CYCLE = 2
"""Instructions that begin in a cycle."""
TAKEN = 1
"""Cycles of a branch that is taken, as predicted."""
_DIVISION = 6
_PLAIN = {"add", "adds", "sub", "subs", "rsb", "and", "orr", "eor", "bic", "mov", "mvn", "cmp"}
_SHIFTS = ("lsl #", "lsr #", "asr #", "ror #")


class Unit(enum.Enum):
    """A part of the processor that an instruction takes for a cycle."""

    __hash__ = object.__hash__

    ARITHMETIC = "sums and copies"
    SHIFT = "what shifts, or works on parts of a word"
    MULTIPLY = "products"
    LOAD = "loads"
    STORE = "stores"
    FLOAT = "floats"

    @property
    def count(self) -> int:
        """Returns how many of it there are."""
        return 2 if self is Unit.ARITHMETIC else 1


class Issue(Struct, frozen=True, cache_hash=True):
    """The way in which an instruction begins: ``count`` in lines, in ``unit``; its result is there
    after ``latency`` cycles. ``early`` and ``late``: values that it wants a cycle before, or after.
    """

    unit: Unit
    latency: int
    count: int
    early: frozenset[int]
    late: frozenset[int]


def unit_of(instruction: Instruction) -> Unit:
    """Returns the unit that an instruction takes."""
    match instruction.kind:
        case Kind.LOAD:
            return Unit.LOAD
        case Kind.STORE:
            return Unit.STORE
        case Kind.SIMPLE:
            name, _, operands = instruction.text.partition(" ")
            plain = name in _PLAIN and not any(shift in operands for shift in _SHIFTS)
            # A constant in two instructions has no operands that would be shifted.
            return Unit.ARITHMETIC if plain or name == "movw" else Unit.SHIFT
        case _:
            return Unit.MULTIPLY


def issue_of(instruction: Instruction, reads: dict[Register, int]) -> Issue:
    """Returns how an instruction begins that reads these values."""
    unit = unit_of(instruction)
    early, late = set(), set()
    if instruction.memory is not None and instruction.memory.base in reads:
        early.add(reads[instruction.memory.base])
    if any(shift in instruction.text for shift in _SHIFTS):
        early.update(reads.values())
    if instruction.adds in reads:
        late.add(reads[instruction.adds])
    if unit is Unit.STORE:
        late.update(set(reads.values()) - early)
    slow = unit in (Unit.LOAD, Unit.MULTIPLY) or "sat " in instruction.text
    latency = _DIVISION if instruction.kind is Kind.DIVIDE else 2 if slow else 1
    return Issue(unit, latency, instruction.count, frozenset(early), frozenset(late))


def at_least(body: Sequence[Instruction], loads: int = 0) -> int:
    """Returns cycles that instructions, and some ``loads``, take in whichever order."""
    units = Counter({Unit.LOAD: loads})
    units.update(unit_of(one) for one in body)
    lines = loads + sum(one.count for one in body)
    return max(-(-lines // PER_CYCLE), *(
        units[unit] for unit in Unit if unit is not Unit.ARITHMETIC
    ))


class Pipeline:
    """Instructions that begin one after the other: ``cycle`` is that of the last.

    ``in_order``: they finish in their order, too, so that nothing begins in a cycle behind a
    product.
    """

    def __init__(self, values: int, *, in_order: bool = False) -> None:
        self.cycle, self._in_order = 0, in_order
        self._begun = 0  # in this cycle
        self._busy: set[Unit] = set()
        self._there = [-1] * values  # when each value is: what is given, long ago

    @property
    def took(self) -> int:
        """Returns the cycles in which instructions have begun."""
        return self.cycle + 1

    def earliest(self, issue: Issue, reads: Sequence[int]) -> int:
        """Returns the cycle in which an instruction that reads these values could begin now."""
        cycle, there = self.cycle, self._there
        wanted = cycle
        for value in reads:
            at = there[value]
            if at >= wanted:
                at += (value in issue.early) - (value in issue.late)
                wanted = max(wanted, at)
        if wanted > cycle or self._fits(issue):
            return wanted
        return cycle + 1

    def _fits(self, issue: Issue) -> bool:
        if self._begun + issue.count > PER_CYCLE and self._begun:
            return False
        unit, busy = issue.unit, self._busy
        if unit is Unit.MULTIPLY and Unit.STORE in busy:
            return False
        if unit is Unit.STORE and Unit.MULTIPLY in busy:
            return False
        if unit is Unit.SHIFT and self._begun:
            return False
        if self._in_order and Unit.MULTIPLY in busy:
            return False
        return unit is Unit.ARITHMETIC or unit not in busy

    def begin(
        self, issue: Issue, reads: Sequence[int], writes: Sequence[int], advanced: int | None
    ) -> None:
        """Lets an instruction begin as early as it can; ``advanced``: the one of the values that it
        writes that is an address, which the next access can have."""
        at = self.earliest(issue, reads)
        self._begin(at, issue.count)
        self._busy.add(issue.unit)
        for value in writes:
            self._there[value] = self.cycle + (0 if value == advanced else issue.latency)

    def begin_constant(self, count: int) -> None:
        """Lets the ``count`` instructions begin that make a constant."""
        full = self._begun and self._begun + count > PER_CYCLE
        self._begin(self.cycle + bool(full), count)

    def _begin(self, at: int, count: int) -> None:
        if at > self.cycle:
            self.cycle, self._begun, self._busy = at, 0, set()
        # More than two go on in the cycles behind.
        more = max(0, self._begun + count - 1) // PER_CYCLE
        self.cycle += more
        self._begun += count - PER_CYCLE * more
