"""Exchanges registers so that more instructions have an encoding of 16 bits.

These have three bits for a register, so that they reach the lower eight only. Functions are placed
without regard to it; all registers of a function are exchanged alike, which changes nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

from msgspec.structs import replace

from crtexport.kir.assembly.armv7em.allocate import NUMBERS, Placed
from crtexport.kir.assembly.armv7em.instructions import STACK, Argument, Instruction, Register
from crtexport.kir.assembly.armv7em.text import short, spelled
from crtexport.kir.assembly.encode import encode
from crtexport.kir.assembly.frame import IN_REGISTERS

_LOW = 8
_MOVE = 3
"""Instructions of 32 bits that one more at each call is worth: that copies an argument."""


def renumbered(placed: Placed, arguments: Iterable[Argument]) -> Placed:
    """Returns the same function with other numbers for its registers, and no more of them."""
    given = {placed.lasting[a.register] for a in arguments if a.register in placed.lasting}
    wanted = _wanted(placed)
    in_registers = len(given) <= IN_REGISTERS  # where calls put them; else few of them are
    for number in given if in_registers else ():
        wanted[1 << number] += _MOVE
    used = sorted({n for block in placed.numbers.values() for n in block.values()})
    low = _lowest(wanted, used)
    # Arguments first: the first numbers are where calls put them.
    order = sorted(used, key=lambda n: (not low >> n & 1, n not in given, n))
    free = [n for n in NUMBERS if n in used]
    if not in_registers:
        order = sorted(used, key=lambda n: (not low >> n & 1, n))
    new = dict(zip(order, free, strict=True))
    return replace(
        placed,
        numbers={
            block: {register: new[n] for register, n in numbers.items()}
            for block, numbers in placed.numbers.items()
        },
        lasting={register: new.get(n, n) for register, n in placed.lasting.items()},
    )


def _lowest(wanted: Counter[int], used: list[int]) -> int:
    """Returns the set of low registers with which the most instructions are short, as bits; sets
    are found by exchanging two as long as that is better."""

    def short_with(low: int) -> int:
        return sum(count for needed, count in wanted.items() if not needed & ~low)

    low = sum(1 << n for n in used[:_LOW])
    best = short_with(low)
    better = True
    while better:
        better = False
        for inside, outside in product(used, used):
            if low >> inside & 1 and not low >> outside & 1:
                other = low ^ 1 << inside ^ 1 << outside
                count = short_with(other)
                if count > best:
                    low, best, better = other, count, True
    return low


def _wanted(placed: Placed) -> Counter[int]:
    """Returns which registers have to be low for instructions to be short, as bits, and how many
    these are."""
    found: Counter[int] = Counter()
    known: dict[str, bool] = {}
    for block, body in placed.bodies.items():
        numbers = placed.numbers[block]
        for one in body:
            here = dict.fromkeys(numbers[r] for r in _registers(one))
            names = {number: place for place, number in enumerate(here)}
            line = spelled(one, {r: names[numbers[r]] for r in _registers(one)})
            if line not in known:
                known[line] = "\n" not in line and len(encode((short(line),))) == 2
            if known[line]:
                found[sum(1 << number for number in here)] += 1
    return found


def _registers(one: Instruction) -> Iterator[Register]:
    return (r for r in (*one.writes, *one.wanted) if r is not STACK)
