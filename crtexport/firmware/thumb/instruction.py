"""A decoded instruction."""

from __future__ import annotations

import enum

from msgspec import Struct

SP, LR, PC = 13, 14, 15
FLOAT = 32
"""The number of the first register for floats."""


class OpClass(enum.Enum):
    """Kinds of instructions that differ in their timing."""

    __hash__ = object.__hash__

    SIMPLE = enum.auto()
    LOAD = enum.auto()
    STORE = enum.auto()
    MULTIPLY = enum.auto()
    ACCUMULATE = enum.auto()
    LONG_MULTIPLY = enum.auto()
    LONG_ACCUMULATE = enum.auto()
    DIVIDE = enum.auto()
    BRANCH = enum.auto()
    TABLE_BRANCH = enum.auto()
    IT = enum.auto()
    FLOAT = enum.auto()
    FLOAT_ACCUMULATE = enum.auto()
    FLOAT_DIVIDE = enum.auto()
    TWO_MOVES = enum.auto()
    SHIFT = enum.auto()  # or work on parts of words


class Decoded(Struct, frozen=True):
    """An instruction of ``size`` bytes.

    ``reads`` and ``writes`` are the numbers of registers; ``base`` are those that are read for an
    address. ``added`` is the accumulator to which a product is added. ``count`` is the number of
    registers that a load or store of several (LDM, STM, PUSH, POP) transfers, else 0. ``updates``:
    it changes its base register. ``indexed``: its address is the sum of two registers. ``shifted``:
    it shifts an operand before it uses that. ``slow``: it does so, but not to the left, or it works
    on several parts of a word. ``saturates``: its result is the nearest number of some bits."""

    size: int
    kind: OpClass = OpClass.SIMPLE
    writes: frozenset[int] = frozenset()
    reads: frozenset[int] = frozenset()
    base: frozenset[int] = frozenset()
    added: frozenset[int] = frozenset()
    count: int = 0
    updates: bool = False
    indexed: bool = False
    shifted: bool = False
    slow: bool = False
    saturates: bool = False

    @property
    def accesses(self) -> bool:
        """Returns whether it is a load or a store."""
        return self.kind in (OpClass.LOAD, OpClass.STORE)

    @property
    def single(self) -> bool:
        """Returns whether it is a load or a store of one register."""
        return self.accesses and not self.count

    @property
    def may_branch(self) -> bool:
        """Returns whether another instruction than the next one may be executed after it."""
        return self.kind in (OpClass.BRANCH, OpClass.TABLE_BRANCH) or (
            self.kind is OpClass.LOAD and PC in self.writes
        )


def registers(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def listed(bits: int) -> frozenset[int]:
    """Returns the registers of a register list, a bit for each."""
    return frozenset(number for number in range(16) if bits >> number & 1)
