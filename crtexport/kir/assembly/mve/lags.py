"""Pointers of a loop's tail, which is an iteration behind.

In the first pass there is no iteration before: its tail loads and stores what belongs to the first
one, in vain, and the next pass does it again. So such a pointer stays where it is once. Either it
follows another register, which is an iteration ahead; or it moves by what a further register, which
pointers share, holds: 0 at first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from crtexport.kir.assembly.mve.addresses import Place
from crtexport.kir.assembly.mve.body import MveOp, UnsupportedLoopError
from crtexport.kir.assembly.mve.instructions import VectorAccess

LARGEST = 65535
"""The largest step that one instruction puts into a register."""
BYTE = 255
"""The largest step that a short instruction adds."""
MOST_ADDED = 2
"""Instructions that move a pointer, rather than a register more."""
FOLLOWS = -1
"""In place of a register with the step: the pointer follows another one."""


class Lag(Struct, frozen=True):
    """A pointer that begins ``start`` bytes from its base, for ``places``. ``temporary``: the
    register whose value, times the sum of two to the powers of ``shifts``, is its step."""

    place: Place  # one of them
    start: int
    places: frozenset[Place]
    low: bool
    temporary: int = FOLLOWS
    shifts: tuple[int, ...] = ()

    @property
    def follows(self) -> bool:
        """Returns whether it follows another register."""
        return self.temporary == FOLLOWS

    @property
    def short(self) -> bool:
        """Returns whether a short instruction moves what it follows, beside the one that copies
        it."""
        return 0 <= self.place.step <= BYTE

    @property
    def unit(self) -> int:
        """Returns what the register with the step holds."""
        return self.place.step // sum(1 << shift for shift in self.shifts)

    @property
    def instructions(self) -> int:
        """Returns how many cycles it takes to move it."""
        return (1 if self.short else 2) if self.follows else len(self.shifts)


def lags_of(
    tail: Sequence[MveOp], loads: Iterable[tuple[Place, VectorAccess]], *, follow: bool
) -> list[Lag]:
    """Returns the pointers for what the instructions of a tail store, and for ``loads`` in it,
    whose addresses move; ``follow``: each follows another register. Raises UnsupportedLoopError
    where a step is too long."""
    found: dict[tuple[int, int, int], dict[Place, VectorAccess]] = {}
    stores = [(op.place, op.form) for op in tail if op.place is not None]
    for place, access in (*loads, *stores):
        if place.moves and isinstance(access, VectorAccess):
            found.setdefault(place.group, {})[place] = access
    steps = {} if follow else _divided({step for _, step, _ in found})
    lags: list[Lag] = []
    for (_, step, _), places in found.items():
        if not (0 <= step <= LARGEST):
            raise UnsupportedLoopError("a step that is too long")
        waiting = sorted(places, key=lambda place: place.offset)
        while waiting:
            first = waiting[0]
            reach = min(places[place].reach for place in waiting)
            size = max(places[place].size for place in waiting)
            furthest = first.offset + 2 * (reach // size * size)
            together = [place for place in waiting if place.offset <= furthest]
            middle = (together[-1].offset - first.offset) // 2 // size * size
            lags.append(Lag(
                first, first.offset + middle, frozenset(together),
                any(places[place].low for place in together), *steps.get(step, ()),
            ))
            waiting = waiting[len(together) :]
    return lags


def _divided(steps: set[int]) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Returns by steps the number of a register and the powers of two by which its value is
    added."""
    found: dict[int, tuple[int, tuple[int, ...]]] = {}
    registers: list[int] = []
    if 0 in steps:
        raise UnsupportedLoopError("a pointer that moves with the loop around")
    for step in sorted(steps):
        for number, unit in enumerate(registers):
            times = step // unit
            shifts = tuple(shift for shift in range(16) if times >> shift & 1)
            if step == times * unit and len(shifts) <= MOST_ADDED:
                found[step] = number, shifts
                break
        else:
            found[step] = len(registers), (0,)
            registers.append(step)
    return found
