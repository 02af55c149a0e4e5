"""Simulated memory that records which value each byte holds, for the checkers of plans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import replace

from crtexport.plan.model import Space

NOTHING = -1
"""The value of bytes that hold no value."""
KEPT = -2
"""The value of bytes that are needed again in the next run."""


class Range(Struct, frozen=True):
    """Bytes ``start`` to ``end`` (exclusive) of a buffer."""

    space: Space
    index: int
    start: int
    end: int

    def overlaps(self, other: Range) -> bool:
        same = (self.space, self.index) == (other.space, other.index)
        return same and max(self.start, other.start) < min(self.end, other.end)

    def __str__(self) -> str:
        single = self.space is Space.STATE or (self.space is Space.WORKSPACE and not self.index)
        where = self.space.value if single else (
            f"{self.space.value} {self.index}"
        )
        return f"bytes {self.start} to {self.end} of {where}"


class Piece(Struct, frozen=True):
    """A range of a buffer, or of a tensor, that holds part of a value.

    ``base`` is where the value's first byte is, or would be.
    """

    start: int
    end: int
    value: int
    base: int


def _touching(pieces: list[Piece], at: Range) -> tuple[int, int]:
    """Returns the indices (first, end) of the pieces of a buffer that overlap ``at``."""
    low = bisect_right(pieces, at.start, key=attrgetter("end"))
    return low, max(low, bisect_left(pieces, at.end, key=attrgetter("start")))


class Contents(Struct):
    """The content of every buffer: pieces that don't overlap, sorted by their bytes."""

    pieces: dict[tuple[Space, int], list[Piece]] = field(default_factory=dict)

    def write(self, at: Range, value: int) -> None:
        """Writes a value that begins at the start of ``at`` to those bytes; all others keep theirs.
        """
        pieces = self.pieces.setdefault((at.space, at.index), [])
        low, high = _touching(pieces, at)
        kept = []
        for piece in pieces[low:high]:
            if piece.start < at.start:
                kept.append(Piece(piece.start, at.start, piece.value, piece.base))
        if at.start < at.end:
            kept.append(Piece(at.start, at.end, value, at.start))
        for piece in pieces[low:high]:
            if piece.end > at.end:
                kept.append(Piece(at.end, piece.end, piece.value, piece.base))
        pieces[low:high] = kept

    def stranger(self, at: Range, value: int, base: int) -> tuple[int, int, int | None] | None:
        """Returns the first bytes of ``at`` that don't belong to ``value``, as (start, end, value
        that they hold); None if all belong to it.

        ``base`` is the position in the buffer of byte 0 of the value.
        """
        position = at.start
        pieces = self.pieces.get((at.space, at.index), [])
        low, high = _touching(pieces, at)
        for piece in pieces[low:high]:
            if piece.start > position:
                return position, piece.start, None
            if piece.value != value or piece.base != base:
                return position, min(piece.end, at.end), piece.value
            position = piece.end
        return None if position >= at.end else (position, at.end, None)

    def at(self, at: Range) -> int | None:
        """Returns the value of the first byte of ``at``; None if it holds none."""
        pieces = self.pieces.get((at.space, at.index), [])
        low, high = _touching(pieces, replace(at, end=at.start + 1))
        return next((
            piece.value for piece in pieces[low:high] if piece.start <= at.start < piece.end
        ), None)
