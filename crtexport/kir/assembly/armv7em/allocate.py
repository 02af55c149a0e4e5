"""Gives values registers, or places on the stack.

What lives from one block to another is in a register of its own or on the stack, from where the
blocks that use it load it. It goes to the stack where that takes the fewest cycles: what isn't used
in innermost loops. Values of one block get what is left.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir.assembly.armv7em.dependences import BlockFacts, Dependences, dependences
from crtexport.kir.assembly.armv7em.instructions import (
    COPY,
    STACK,
    Block,
    Branch,
    ConstantRegister,
    Instruction,
    Kind,
    Loop,
    MemoryOperand,
    Node,
    Register,
    UnsupportedError,
    constant,
)
from crtexport.kir.assembly.armv7em.issue import IssueRules
from crtexport.kir.assembly.armv7em.list_order import order_by
from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.armv7em.timing import in_any_order, taken
from crtexport.kir.language import Const

NUMBERS = (*range(13), 14)
"""Registers that may be used: all but the stack's and the program's."""
_ROOM = len(NUMBERS)
_LIKELY_EXTENT = 16.0
"""Iterations of a loop whose extent isn't known."""
_LIKELY = 0.75
"""The part of the time that a condition holds: most say that something lies in an image."""
_FEWER = 4
"""Registers that a block may do without where values don't fit beside lasting ones, and one."""
_LONG = 1 << 20
_TRIES = 3
"""Values that are put on the stack although that isn't needed, until nothing gets better."""


class Placed(Struct, frozen=True):
    """``bodies``: the instructions of each block in their order; ``numbers``: those of registers in
    each block; ``slots``: places on the stack, ``cycles``: of a run. ``negative``: loops that are
    repeated while what they compute last is negative."""

    bodies: dict[Block, list[Instruction]]
    numbers: dict[Block, dict[Register, int]]
    lasting: dict[Register, int]
    slots: list[Register]
    cycles: float
    negative: frozenset[Loop] = frozenset()


class Ordered(Struct, frozen=True):
    """Instructions in their order, and the cycles that they take behind a branch."""

    body: list[Instruction]
    cycles: int


class _Unordered(Struct):
    """Instructions of a block, what their order depends on, and the constants that they read."""

    body: list[Instruction]
    known: Dependences
    constants: tuple[int, ...]
    rules: IssueRules | None

    def ordered(self, room: int) -> Ordered | None:
        """Returns the instructions in the best order that is found in which ``room`` registers are
        enough; None if none is."""
        order = order_by(self.known, room, self.rules)
        if order is None:
            return None
        made: dict[int, Register] = {}
        result = []
        for number in order.places:
            if number < 0:
                value = self.constants[~number]
                made[value] = Register("constant")
                result.append(constant(made[value], value))
                continue
            one = self.body[number]
            if self.known.steps[number].constants:
                one = replace(one, reads=tuple(
                    made[r.value] if isinstance(r, ConstantRegister) else r for r in one.reads
                ))
            result.append(one)
        return Ordered(result, order.cycles)


class Liveness:
    """The values that each block is given and leaves to others."""

    def __init__(self, nodes: list[Node], features: Features) -> None:
        self.nodes, self.features = nodes, features
        self.before: dict[Block, set[Register]] = {}
        self.after: dict[Block, set[Register]] = {}
        self.times: dict[Block, float] = {}
        self.branches = 0.0  # that are taken
        self._count(nodes, 1)
        self._body(nodes, set())
        self.lasting = list(dict.fromkeys(
            register for block in self.before
            for register in (*_ordered(self.before[block]), *_ordered(self.after[block]))
        ))

    def _count(self, nodes: list[Node], times: float) -> None:
        for node in nodes:
            match node:
                case Block():
                    self.times[node] = times
                case Loop(extent=extent):
                    again = float(extent.value) if isinstance(extent, Const) else _LIKELY_EXTENT
                    self.branches += times * again
                    self._count(node.body, times * again)
                case Branch():
                    # One branch if the condition holds, behind that side; one if it doesn't.
                    self.branches += times
                    self._count(node.then.body, times * _LIKELY)
                    self._count(node.other.body, times * (1 - _LIKELY))

    def _body(self, nodes: list[Node], after: set[Register]) -> set[Register]:
        """Returns what is live before ``nodes``, if ``after`` is behind them."""
        for node in reversed(nodes):
            match node:
                case Loop():
                    after = self._body(node.body, after | self._body(node.body, after))
                case Branch():
                    after = self._body(node.then.body, after) | self._body(node.other.body, after)
                case Block():
                    self.after[node] = after
                    after = set(after)
                    for one in reversed((*node.body, *node.tail)):
                        after = (after - set(one.writes)) | set(_variables(one))
                    self.before[node] = after
        return after


def _ordered(registers: Iterable[Register]) -> list[Register]:
    return sorted(registers, key=lambda one: one.number)


def _variables(instruction: Instruction) -> Iterator[Register]:
    return (r for r in instruction.wanted if not isinstance(r, ConstantRegister) and r is not STACK)


class _Accesses(Struct):
    """Of a block: all its instructions, and the registers that they read and write."""

    body: list[Instruction]
    reads: frozenset[Register]
    writes: frozenset[Register]

    @classmethod
    def of(cls, block: Block) -> _Accesses:
        body = [*block.body, *block.tail]
        return cls(
            body, frozenset(r for one in body for r in one.wanted),
            frozenset(r for one in body for r in one.writes),
        )


class Allocation:
    """Looks for the values that are best on the stack."""

    def __init__(
        self, nodes: list[Node], features: Features, apart: Collection[frozenset[str]]
    ) -> None:
        self.live = Liveness(nodes, features)
        self.features, self.apart = features, apart
        times = self.live.times
        self._accesses = {block: _Accesses.of(block) for block in times}
        self._hottest_first = sorted(times.items(), key=lambda one: -one[1])
        # What a block has to load if it is on the stack.
        self._loads = {
            block: self.live.before[block]
            & {r for one in accesses.body if one.text != COPY for r in _variables(one)}
            - accesses.writes
            for block, accesses in self._accesses.items()
        }
        self._least: dict[tuple[Block, int], int] = {}
        self._unordered: dict[object, _Unordered] = {}
        self._known: dict[object, Ordered | None] = {}

    def result(self) -> Placed:
        """Raises UnsupportedError where there aren't enough registers."""
        stack: list[Register] = []
        best: Placed | None = None
        tried = 0
        costs = {one: self._cost(one) for one in self.live.lasting}
        waiting = sorted(costs, key=lambda one: (costs[one], one.number))
        while tried <= _TRIES:
            found = self._placed(stack, best.cycles if best is not None else inf)
            if found is not None and (best is None or found.cycles < best.cycles):
                best, tried = found, 0
            elif best is not None:
                tried += 1
            if not waiting or (best is not None and costs[waiting[0]] > best.cycles / 8):
                break
            stack = [*stack, waiting.pop(0)]
        if best is None:
            raise UnsupportedError("there are too few registers")
        return best

    def _cost(self, register: Register) -> float:
        """Returns the cycles of loading a value wherever it is used, and of storing it where it
        changes."""
        cost = 0.0
        for block, times in self.live.times.items():
            accesses = self._accesses[block]
            cost += times * (1.5 * (register in accesses.reads) + (register in accesses.writes))
        return cost

    def _placed(self, stack: list[Register], limit: float) -> Placed | None:
        """Returns the blocks in order if ``stack`` is there; None if that leaves too few registers
        or takes ``limit`` cycles or more."""
        bodies, numbers = {}, {}
        total = taken(self.features) * self.live.branches
        lasting = self._colored([one for one in self.live.lasting if one not in stack])
        if lasting is None:
            return None
        there = set(stack)
        least = {
            block: times * self._in_any_order(block, len(self._loads[block] & there))
            for block, times in self._hottest_first
        }
        left = math.fsum(least.values())
        for block, times in self._hottest_first:
            if total + left >= limit:
                return None
            left -= least[block]
            for fewer in range(_FEWER):
                found = self._order(block, stack, fewer)
                if found is not None and total + times * found.cycles >= limit:
                    return None
                own = self._numbered(block, found.body, lasting) if found is not None else None
                if found is None or own is not None:
                    break
            if found is None or own is None:
                return None
            bodies[block], numbers[block] = found.body, own
            total += times * found.cycles
        return Placed(bodies, numbers, lasting, stack, total)

    # ---- blocks

    def _in_any_order(self, block: Block, loads: int) -> int:
        key = block, loads
        if key not in self._least:
            self._least[key] = in_any_order(self._accesses[block].body, loads, self.features)
        return self._least[key]

    def _order(self, block: Block, stack: list[Register], fewer: int) -> Ordered | None:
        """Returns a block in order; ``fewer``: registers that aren't used."""
        accesses = self._accesses[block]
        used = accesses.reads | accesses.writes
        before, after = self.live.before[block], self.live.after[block]
        needed = [one for one in _ordered(after & used) if one not in stack]
        room = _ROOM - fewer - sum(one not in stack for one in before & after - used)
        here = block, tuple(one for one in stack if one in used)
        if here not in self._unordered:
            changed, tail = self._loaded(block, frozenset(stack))
            found = dependences(changed, BlockFacts(self.apart, needed, tail), self.features)
            self._unordered[here] = _Unordered(changed, *found, self.features.rules)
        key = here, room
        if key not in self._known:
            self._known[key] = self._unordered[here].ordered(room)
        return self._known[key]

    def _loaded(
        self, block: Block, stack: Collection[Register]
    ) -> tuple[list[Instruction], list[int]]:
        """Returns a block that loads what is on the stack before it uses that, and stores what it
        changes; and where its tail is then."""
        here: dict[Register, Register] = {}
        changed: dict[Register, Register] = {}
        result: list[Instruction] = []
        tail: list[int] = []
        for one in self._accesses[block].body:
            copied = one.reads[0] if one.text == COPY else None
            if copied in stack and copied not in here and one.writes[0] not in stack:
                result.append(loaded(one.writes[0], one.reads[0]))
                continue
            for register in _variables(one):
                if register in stack and register not in here:
                    own = here[register] = Register(register.name)
                    result.append(loaded(own, register))
            for register in one.writes:
                if register in stack:
                    changed[register] = here.setdefault(register, Register(register.name))
            if one in block.tail:
                tail.append(len(result))
            result.append(_renamed(one, here))
        for register, own in changed.items():
            if register in self.live.after[block]:
                result.append(Instruction(
                    "str {0}, [{base}, #{at}]", (), (own,), Kind.STORE, _slot(register)
                ))
        return result, tail

    # ---- registers

    def _colored(self, registers: list[Register]) -> dict[Register, int] | None:
        """Returns numbers for registers, different ones for those that are in a block together;
        None if there are too few."""
        live = self.live
        together: dict[Register, set[Register]] = {one: set() for one in registers}
        for block in live.times:
            present = live.before[block] | live.after[block] | self._accesses[block].writes
            for one in registers:
                if one in present:
                    together[one] |= present
        numbers: dict[Register, int] = {}
        for one in registers:
            taken = {numbers[other] for other in together[one] if other in numbers}
            free = [number for number in NUMBERS if number not in taken]
            if not free:
                return None
            numbers[one] = free[0]
        return numbers

    def _numbered(
        self, block: Block, body: list[Instruction], lasting: Mapping[Register, int]
    ) -> dict[Register, int] | None:
        """Returns numbers for all registers of a block in order; None if there are too few."""
        before = {one for one in self.live.before[block] if one in lasting}
        after = {one for one in self.live.after[block] if one in lasting}
        live = _Spans(body, before, after)
        busy: dict[int, list[tuple[int, int]]] = {number: [] for number in NUMBERS}
        numbers: dict[Register, int] = {}
        for register, number in lasting.items():
            spans = live.spans.get(register, [])
            busy[number] += spans
            if spans:
                numbers[register] = number
        others = [one for one in live.spans if one not in lasting]
        for register in sorted(others, key=lambda one: live.spans[one][0]):
            begin, end = live.spans[register][0][0], live.spans[register][-1][1]
            gap, number = _best_fit(busy, begin, end)
            if gap == inf:
                return None
            busy[number].append((begin, end))
            numbers[register] = number
        return numbers


def _best_fit(
    busy: Mapping[int, list[tuple[int, int]]], begin: int, end: int
) -> tuple[float, int]:
    """Returns the shortest gap (see :func:`_gap`) and the first register with it."""
    best = inf, NUMBERS[0]
    for number in NUMBERS:
        found = _gap(busy[number], begin, end), number
        if found < best:
            best = found
            if not best[0]:
                break
    return best


def _gap(busy: Iterable[tuple[int, int]], begin: int, end: int) -> float:
    """Returns how long a register has nothing to do behind a value that is in it from ``begin`` to
    ``end``; infinite where it isn't free then."""
    gap = _LONG
    for first, last in busy:
        if first >= end:
            gap = min(gap, first - end)
        elif last > begin:
            return inf
    return gap


class _Spans:
    """From which instruction to which each register of a block is taken: from one that writes it to
    the last that reads it."""

    def __init__(
        self, body: list[Instruction], live_in: set[Register], live_out: set[Register]
    ) -> None:
        self.spans: dict[Register, list[tuple[int, int]]] = {}
        open_: dict[Register, tuple[int, int]] = dict.fromkeys(live_in, (-1, -1))
        for number, one in enumerate(body):
            for register in _variables(one):
                begin, _ = open_.get(register, (-1, -1))
                open_[register] = begin, number
            for register in one.writes:
                if register in open_:
                    begin, end = open_[register]
                    if end == number:  # read and written: it goes on
                        open_[register] = begin, number
                        continue
                    self._close(register, open_[register])
                open_[register] = number, number
        for register, (begin, end) in open_.items():
            last = len(body) + 1 if register in live_out else end
            self._close(register, (begin, last))

    def _close(self, register: Register, span: tuple[int, int]) -> None:
        begin, end = span
        if end > begin or begin >= 0:
            self.spans.setdefault(register, []).append((begin, max(end, begin + 1)))


def loaded(own: Register, register: Register) -> Instruction:
    """Returns what loads into ``own`` the value of ``register``, which is on the stack."""
    return Instruction("ldr {w}, [{base}, #{at}]", (own,), (), Kind.LOAD, _slot(register))


def _slot(register: Register) -> MemoryOperand:
    return MemoryOperand("", register, 0, STACK, 0, 4)


def _renamed(instruction: Instruction, names: Mapping[Register, Register]) -> Instruction:
    if not any(r in names for r in (*instruction.wanted, *instruction.writes)):
        return instruction
    memory = instruction.memory
    if memory is not None and memory.base in names:
        memory = replace(memory, base=names[memory.base])
    return replace(
        instruction, writes=tuple(names.get(r, r) for r in instruction.writes),
        reads=tuple(names.get(r, r) for r in instruction.reads), memory=memory,
        adds=None if instruction.adds is None else names.get(instruction.adds, instruction.adds),
    )
