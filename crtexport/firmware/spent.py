"""Instructions, cycles and cache misses of a part of a program."""

from __future__ import annotations

from msgspec import Struct


class Cycles(Struct, frozen=True):
    """Cycles by the processor's timing model, with memories without wait states: the lower bound,
    the likeliest number and the upper bound."""

    low: int
    mid: int
    high: int

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def __sub__(self, other: Cycles) -> Cycles:
        return Cycles(self.low - other.low, self.mid - other.mid, self.high - other.high)


class Misses(Struct, frozen=True):
    """Lines of a cache that were read from flash. ``code`` are lines of instructions; ``following``
    are those of them that follow the line read before, so that flash may have prefetched them;
    ``data`` are lines of data."""

    code: int
    following: int
    data: int

    def __add__(self, other: Misses) -> Misses:
        return Misses(
            self.code + other.code, self.following + other.following, self.data + other.data
        )

    def __sub__(self, other: Misses) -> Misses:
        return Misses(
            self.code - other.code, self.following - other.following, self.data - other.data
        )


class Spent(Struct, frozen=True):
    """The costs of a part of a program; ``cycles`` and ``misses`` are None if they aren't known."""

    instructions: int
    cycles: Cycles | None = None
    misses: Misses | None = None

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.instructions + other.instructions,
            self.cycles + other.cycles if self.cycles and other.cycles else None,
            self.misses + other.misses if self.misses and other.misses else None,
        )

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            self.instructions - other.instructions,
            self.cycles - other.cycles if self.cycles and other.cycles else None,
            self.misses - other.misses if self.misses and other.misses else None,
        )
