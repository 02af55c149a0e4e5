"""Cycles of instructions on processors whose results take longer than their instructions, or that
begin two at once, with memories that never wait.

Instructions begin in their order, if each finds its unit free and its operands there. Arm publishes
no table of that for these processors.

* Cortex-M7, two in a cycle: by LLVM's scheduling model (ARMScheduleM7.td) and measurements on an
  STM32H743 (jnk0le/random-asm), where they differ what takes longer. Products begin one a cycle,
  not beside a store; one load, because two would have to read an even and an odd word; one
  instruction that shifts or works on parts of words, as the first of two. What is shifted is wanted
  a cycle earlier, and an address, but one that a load or store has advanced. Loads, products and
  saturations have their result after two cycles.
* Cortex-M33, one in a cycle: by measurements on an RP2350 (slothy-optimizer, cortex_m33.py). Loads,
  products, what adds or packs parts of words, and what shifts an operand other than to the left,
  have their result after two cycles. Of extensions and saturations nothing was published: two.

On both, what a product is added to is wanted a cycle later.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from crtexport.kir.assembly.armv7em.instructions import Instruction, Kind, Register

_DIVISION = 6
_PLAIN = {"add", "adds", "sub", "subs", "rsb", "and", "orr", "eor", "bic", "mov", "mvn", "cmp"}
_LEFT, _RIGHT = ("lsl #",), ("lsr #", "asr #", "ror #")
_SATURATE = frozenset(("ssat", "usat"))
_HALVES = frozenset(("sxtb16", "uxtb16", "pkhbt", "pkhtb", "sadd16", "ssub16"))


class IssueRules(Struct, frozen=True):
    """``per_cycle``: instructions that begin in a cycle; ``taken``: cycles of a branch that is
    taken. ``early``: addresses and operands that are shifted are wanted a cycle before others, and
    what is stored a cycle later. Results of ``slow`` instructions take two cycles, and with
    ``slow_shifts`` those of others that shift an operand, but not to the left."""

    per_cycle: int
    taken: int
    early: bool
    slow: frozenset[str]
    slow_shifts: bool


CORTEX_M7 = IssueRules(per_cycle=2, taken=1, early=True, slow=_SATURATE, slow_shifts=False)
CORTEX_M33 = IssueRules(
    per_cycle=1, taken=3, early=False, slow=_SATURATE | _HALVES, slow_shifts=True
)
_RULES = {
    "cortex-m7": CORTEX_M7, "cortex-m33": CORTEX_M33, "cortex-m35p": CORTEX_M33,
    "star-mc1": CORTEX_M33,
}


def rules_of(cpu: str) -> IssueRules | None:
    """Returns the rules of the processor that compilers call ``cpu``; None where it isn't one of
    these."""
    return _RULES.get(cpu)


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
            plain = name in _PLAIN and not _shifts(operands, _LEFT + _RIGHT)
            # A constant in two instructions has no operands that would be shifted.
            return Unit.ARITHMETIC if plain or name == "movw" else Unit.SHIFT
        case _:
            return Unit.MULTIPLY


def _shifts(text: str, shifts: Sequence[str]) -> bool:
    return any(shift in text for shift in shifts)


class Operands(Struct, frozen=True):
    """The values that an instruction ``reads``, among them that of an address (``base``) and what a
    product is ``added`` to; ``shifted``: it shifts some of them."""

    reads: frozenset[int]
    base: frozenset[int]
    added: frozenset[int]
    shifted: bool


def issue(
    unit: Unit, latency: int, count: int, operands: Operands, rules: IssueRules
) -> Issue:
    """Returns how an instruction begins that has these operands."""
    early = late = frozenset[int]()
    if rules.early:
        early = operands.reads if operands.shifted else operands.base
        if unit is Unit.STORE:
            late = operands.reads - early
    return Issue(unit, latency, count, early, late | operands.added)


def latency(unit: Unit, *, divides: bool, slow: bool) -> int:
    """Returns the cycles after which the result of an instruction is there; ``slow``: it is none of
    the fast ones of its unit."""
    if divides:
        return _DIVISION
    return 2 if slow or unit in (Unit.LOAD, Unit.MULTIPLY) else 1


def issue_of(instruction: Instruction, reads: dict[Register, int], rules: IssueRules) -> Issue:
    """Returns how an instruction begins that reads these values."""
    unit, text, memory = unit_of(instruction), instruction.text, instruction.memory
    slow = text.partition(" ")[0] in rules.slow or (rules.slow_shifts and _shifts(text, _RIGHT))
    operands = Operands(
        frozenset(reads.values()), _values(reads, None if memory is None else memory.base),
        _values(reads, instruction.adds), _shifts(text, _LEFT + _RIGHT),
    )
    took = latency(unit, divides=instruction.kind is Kind.DIVIDE, slow=slow)
    return issue(unit, took, instruction.count, operands, rules)


def _values(reads: dict[Register, int], register: Register | None) -> frozenset[int]:
    """Returns the value of a register, if it is one of those that are read."""
    return frozenset() if register not in reads else frozenset((reads[register],))


def at_least(body: Sequence[Instruction], loads: int, rules: IssueRules) -> int:
    """Returns cycles that instructions, and some ``loads``, take in whichever order."""
    units = Counter({Unit.LOAD: loads})
    units.update(unit_of(one) for one in body)
    lines = loads + sum(one.count for one in body)
    return max(-(-lines // rules.per_cycle), *(
        units[unit] for unit in Unit if unit is not Unit.ARITHMETIC
    ))


class Pipeline:
    """Instructions that begin one after the other: ``cycle`` is that of the last.

    ``in_order``: they finish in their order, too, so that nothing begins in a cycle behind a
    product.
    """

    def __init__(self, values: int, rules: IssueRules, *, in_order: bool = False) -> None:
        self.cycle, self._per_cycle, self._in_order = 0, rules.per_cycle, in_order
        self._begun = 0  # in this cycle
        self._busy: set[Unit] = set()
        self._there = [-1] * values  # when each value is: what is given, long ago

    @property
    def took(self) -> int:
        """Returns the cycles in which instructions have begun."""
        return self.cycle + 1

    def earliest(self, issue: Issue, reads: Iterable[int]) -> int:
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
        if self._begun + issue.count > self._per_cycle and self._begun:
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
        self, issue: Issue, reads: Iterable[int], writes: Iterable[int], advanced: int | None
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
        full = self._begun and self._begun + count > self._per_cycle
        self._begin(self.cycle + bool(full), count)

    def _begin(self, at: int, count: int) -> None:
        if at > self.cycle:
            self.cycle, self._begun, self._busy = at, 0, set()
        # Those for which there is no room go on in the cycles behind.
        more = (self._begun + count - 1) // self._per_cycle
        self.cycle += more
        self._begun += count - self._per_cycle * more
