"""Counts the iterations of innermost loops in sums that have bits to spare.

Where registers are few, what ends a loop is on the stack: each iteration loads it and compares. A
sum that is known to have b bits in a register of 32 can count instead. It begins with 2**b less for
each of the n iterations, and with 2**(b - 1) more, so that it is negative until the last iteration
has added 2**b; the 2**(b - 1) are taken away behind the loop::

    ldr  r, [sp, #8]                            @ (2 * n - 1) << (b - 1)
    sub  sum, sum, r
    1:   ...                                    @ adds products to it
    adds sum, sum, #1 << b
    bmi  1b
    sub  sum, sum, #1 << (b - 1)

An addition takes a cycle, where the load and the comparison take three. What the sum begins with
is an argument, as the end was, so that layers share a function whatever n is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir.assembly.armv7em.allocate import NUMBERS, Liveness, Placed, loaded
from crtexport.kir.assembly.armv7em.instructions import (
    STACK,
    Argument,
    Block,
    Instruction,
    Kind,
    Loop,
    Node,
    Register,
    added,
    parts,
)
from crtexport.kir.builder import const
from crtexport.kir.language import Const

_LEAST = 2
"""Iterations from which on it takes no more cycles."""


def counted_in_sums(
    nodes: list[Node], placed: Placed, live: Liveness, arguments: Iterable[Argument]
) -> tuple[Placed, tuple[Argument, ...]]:
    """Returns the function of ``nodes`` in which sums count wherever the end of a loop would be
    loaded from the stack, and its arguments. Its cycles are those of before."""
    function = _Counting(placed, live)
    for one in _between_blocks(nodes):
        function.count(one)
    return function.placed(), (*arguments, *function.arguments)


class _InnerLoop(Struct, frozen=True):
    """A loop that is one block, ``inner``, between two others."""

    before: Block
    loop: Loop
    inner: Block
    behind: Block

    @property
    def times(self) -> int:
        """Returns how often it is repeated; 0 where that isn't known."""
        return int(self.loop.extent.value) if isinstance(self.loop.extent, Const) else 0


def _between_blocks(nodes: list[Node]) -> Iterator[_InnerLoop]:
    for number, node in enumerate(nodes):
        for part in parts(node):
            yield from _between_blocks(part.body)
        if not isinstance(node, Loop) or len(node.body) != 1 or not 0 < number < len(nodes) - 1:
            continue
        before, inner, behind = nodes[number - 1], node.body[0], nodes[number + 1]
        if isinstance(before, Block) and isinstance(inner, Block) and isinstance(behind, Block):
            yield _InnerLoop(before, node, inner, behind)


class _Counting:
    """A function whose loops are changed one by one."""

    def __init__(self, placed: Placed, live: Liveness) -> None:
        self.old, self.live = placed, live
        self.bodies, self.numbers = dict(placed.bodies), dict(placed.numbers)
        self.negative: list[Loop] = []
        self.starts: dict[int, Register] = {}

    @property
    def arguments(self) -> list[Argument]:
        """Returns the arguments that are new."""
        return [Argument(one, "", const(value)) for value, one in self.starts.items()]

    def placed(self) -> Placed:
        """Returns the function as it is now."""
        slots = [one for one in (*self.old.slots, *self.starts.values()) if self._is_accessed(one)]
        return replace(
            self.old, bodies=self.bodies, numbers=self.numbers, slots=slots,
            negative=frozenset(self.negative),
        )

    def _is_accessed(self, register: Register) -> bool:
        return any(_is_on_stack(one, register) for body in self.bodies.values() for one in body)

    def count(self, one: _InnerLoop) -> None:
        """Lets a sum count a loop's iterations, if the end is on the stack and one can."""
        body = self.bodies[one.inner]
        place = next((n for n, each in enumerate(body) if _is_on_stack(each, one.loop.end)), None)
        if place is None or one.times < _LEAST or _reading(body[place], body) != [body[-1]]:
            return
        sums = (
            register for register in _sums(body)
            if register in self.old.lasting and one.times <= 1 << 31 - register.bits
        )
        total, free = next(sums, None), self._free(one)
        if total is None or not free:
            return
        step = Instruction(f"adds {{w}}, {{0}}, #{1 << total.bits}", (total,), (total,))
        self.bodies[one.inner] = [*body[:place], *body[place + 1 : -1], step]
        half = 1 << total.bits - 1
        self._begin(one.before, total, (2 * one.times - 1) * half, free)
        self.bodies[one.behind] = [added(total, -half), *self.bodies[one.behind]]
        self.numbers[one.behind] = self._with(one.behind, total, self.old.lasting[total])
        self.negative.append(one.loop)

    def _free(self, one: _InnerLoop) -> list[int]:
        """Returns the registers with nothing in them when a loop begins."""
        live = (self.old.lasting.get(register) for register in self.live.before[one.inner])
        taken = set(live)
        return [number for number in NUMBERS if number not in taken]

    def _begin(self, block: Block, total: Register, less: int, free: list[int]) -> None:
        """Makes a sum begin with ``less`` less, behind the block before its loop."""
        body, numbers = self.bodies[block], self.numbers[block]
        start = self.starts.setdefault(less, Register("start"))
        own = Register("start")
        # Loads that follow one another take less time.
        loads = [number for number, one in enumerate(body) if one.kind is Kind.LOAD]
        place = loads[-1] + 1 if loads else len(body)
        used = {
            numbers[r] for one in body[place:] for r in (*one.wanted, *one.writes) if r is not STACK
        }
        unused = [number for number in free if number not in used]
        if not unused:
            place, unused = len(body), free
        less_start = Instruction("sub {w}, {0}, {1}", (total,), (total, own))
        self.bodies[block] = [*body[:place], loaded(own, start), *body[place:], less_start]
        self.numbers[block] = {
            **self._with(block, total, self.old.lasting[total]), own: unused[0]
        }

    def _with(self, block: Block, register: Register, number: int) -> dict[Register, int]:
        return {**self.numbers[block], register: number}


def _is_on_stack(one: Instruction, register: Register | None) -> bool:
    """Returns whether an instruction accesses the place on the stack of ``register``."""
    return one.memory is not None and one.memory.base is STACK and one.memory.place is register


def _reading(load: Instruction, body: list[Instruction]) -> list[Instruction]:
    """Returns the instructions that read what is loaded."""
    return [each for each in body if any(register in load.writes for register in each.wanted)]


def _sums(body: list[Instruction]) -> Iterator[Register]:
    """Yields the registers with few bits to which instructions add products, and which they do
    nothing else with: what is complete first comes first, since it needn't be waited for."""
    last: dict[Register, int] = {}
    other: set[Register] = set()
    for number, one in enumerate(body):
        for register in {*one.wanted, *one.writes}:
            adds = one.adds is register and one.writes == (register,)
            if adds and register.bits < 32 and one.wanted.count(register) == 1:
                last[register] = number
            else:
                other.add(register)
    yield from sorted(last.keys() - other, key=last.__getitem__)
