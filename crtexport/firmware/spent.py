"""Instructions, cycles and misses of caches that a part of a program takes."""

from __future__ import annotations

from msgspec import Struct


class Cycles(Struct, frozen=True):
    """The least, the likeliest and the most, all with memories that never wait."""

    low: int
    mid: int
    high: int

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def __sub__(self, other: Cycles) -> Cycles:
        return Cycles(self.low - other.low, self.mid - other.mid, self.high - other.high)


class Misses(Struct, frozen=True):
    """Lines that were read from flash: of code, those of them that follow the one before, which a
    flash may have prefetched; of data."""

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
    """``cycles`` and ``misses`` are None where they aren't known."""

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
