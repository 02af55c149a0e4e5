"""Memory whose bytes remember the values that they hold, for the checkers of plans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import replace

from crtexport.plan.model import Space

NOTHING = -1
"""The value of bytes that hold none."""


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
    """A stretch of a buffer, or of a tensor, that holds part of a value.

    ``base`` is where the value's first byte is, or would be.
    """

    start: int
    end: int
    value: int
    base: int


def _touching(pieces: list[Piece], at: Range) -> tuple[int, int]:
    """From which to which (exclusive) pieces of a buffer have bytes of ``at``."""
    low = bisect_right(pieces, at.start, key=attrgetter("end"))
    return low, max(low, bisect_left(pieces, at.end, key=attrgetter("start")))


class Contents(Struct):
    """The content of every buffer: pieces that don't overlap, in the order of their bytes."""

    pieces: dict[tuple[Space, int], list[Piece]] = field(default_factory=dict)

    def write(self, at: Range, value: int) -> None:
        """Bytes of ``at`` become those of ``value``, which begins there; the rest stays."""
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
        """The first bytes of ``at`` that aren't those of ``value``: (start, end, what they hold).

        ``base``: where in the buffer byte 0 of the value belongs.
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
        """Returns the value that the first byte of ``at`` holds; None if there is none."""
        pieces = self.pieces.get((at.space, at.index), [])
        low, high = _touching(pieces, replace(at, end=at.start + 1))
        return next((
            piece.value for piece in pieces[low:high] if piece.start <= at.start < piece.end
        ), None)
