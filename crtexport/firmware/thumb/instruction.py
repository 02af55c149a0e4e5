"""A decoded instruction."""

from __future__ import annotations

import enum

from msgspec import Struct

SP, LR, PC = 13, 14, 15
FLOAT = 32
"""The number of the first register for floats."""


class Kind(enum.Enum):
    """Kinds of instructions that take differently long."""

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


class Decoded(Struct, frozen=True):
    """``reads`` and ``writes``: numbers of registers; those of an address are ``base`` as well.
    ``added``: the register to which a product is added. ``count``: registers that a load or store
    of several moves, 0 of one; ``updates``: it changes its base; ``indexed``: its address is a sum
    of two registers."""

    size: int
    kind: Kind = Kind.SIMPLE
    writes: frozenset[int] = frozenset()
    reads: frozenset[int] = frozenset()
    base: frozenset[int] = frozenset()
    added: frozenset[int] = frozenset()
    count: int = 0
    updates: bool = False
    indexed: bool = False

    @property
    def accesses(self) -> bool:
        """Returns whether it is a load or a store."""
        return self.kind in (Kind.LOAD, Kind.STORE)

    @property
    def single(self) -> bool:
        """Returns whether it is one of one register."""
        return self.accesses and not self.count

    @property
    def may_branch(self) -> bool:
        """Returns whether something else than the next instruction may follow."""
        return self.kind in (Kind.BRANCH, Kind.TABLE_BRANCH) or (
            self.kind is Kind.LOAD and PC in self.writes
        )


def registers(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def listed(bits: int) -> frozenset[int]:
    """The registers of a list."""
    return frozenset(number for number in range(16) if bits >> number & 1)
