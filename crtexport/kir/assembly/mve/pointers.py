"""Registers that point to memory: how far off accesses are, and which of them move the register.

Offsets in instructions are short. An access may leave its own address in the register (the form
with "!"), from where the next ones are reached: so one register walks over a table, and over rows
of an image. At the end of a pass it is where the next pass begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from crtexport.kir.assembly.mve.instructions import VectorAccess

MOST = 4
"""Registers for places of one base."""
FAR = 4095
"""Bytes that one instruction adds to a register."""


class Visit(Struct, frozen=True):
    """An access to the bytes at ``offset``, in the order of a pass; ``key`` tells it from others.
    """

    offset: int
    access: VectorAccess
    key: int


class Address(Struct, frozen=True):
    """The place of a visit's bytes: from ``pointer``, ``distance`` away; ``moves``: the pointer is
    there afterwards."""

    pointer: int
    distance: int
    moves: bool = False


class Walk(Struct, frozen=True):
    """A pointer's ``start`` (bytes from the base), the address of each visit, and what is ``added``
    to the pointer at the end of a pass."""

    start: int
    addresses: dict[int, Address]
    added: int = 0


def walks(visits: Sequence[Visit], step: int) -> list[Walk] | None:
    """Returns as few pointers as reach all ``visits`` of a pass, in their order, and are ``step``
    bytes further after it; None if there are too many. Pointers are numbered from 0 on."""
    offsets = sorted({visit.offset for visit in visits})
    gaps = sorted(range(1, len(offsets)), key=lambda i: (offsets[i - 1] - offsets[i], i))
    for count in range(1, min(MOST, len(offsets)) + 1):
        bounds = sorted(gaps[: count - 1])
        parts = [
            set(offsets[first:last])
            for first, last in zip([0, *bounds], [*bounds, len(offsets)], strict=True)
        ]
        found = [
            _walk([v for v in visits if v.offset in part], step, number)
            for number, part in enumerate(parts)
        ]
        if all(walk is not None for walk in found):
            return [walk for walk in found if walk is not None]
    return None


def follow(visits: Sequence[Visit], start: int, pointer: int) -> Walk | None:
    """Returns how some visits are reached from a pointer at ``start``, wherever it then is."""
    return _from(visits, start, None, pointer)


def _walk(visits: Sequence[Visit], step: int, pointer: int) -> Walk | None:
    """Returns the addresses of one pointer for all ``visits``; None if one isn't enough."""
    if step == 0:
        low = min(visit.offset for visit in visits)
        high = max(visit.offset for visit in visits)
        for start in dict.fromkeys(((low + high) // 8 * 4, low, high)):
            if found := _from(visits, start, -1, pointer):
                return found
    for last in reversed(range(len(visits))):
        found = _from(visits, visits[last].offset - step, last, pointer)
        if found is not None:
            return found
    if step and abs(step) <= FAR and (found := _walk(visits, 0, pointer)):
        return Walk(found.start, found.addresses, step)
    return None


def _from(
    visits: Sequence[Visit], start: int, last_move: int | None, pointer: int
) -> Walk | None:
    """Returns a walk from ``start`` on, None if there is none. ``last_move``: the visit that moves
    the pointer last; None: whichever must."""
    at, addresses = start, dict[int, Address]()
    for number, visit in enumerate(visits):
        if not _reaches(at, visit):
            return None
        moves = number == last_move
        if not moves and (last_move is None or number < last_move) and number + 1 < len(visits):
            following = visits[number + 1]
            moves = not _reaches(at, following) and _reaches(visit.offset, following)
        distance = visit.offset - at
        if moves:
            at = visit.offset
        addresses[visit.key] = Address(pointer, distance, moves and distance != 0)
    return Walk(start, addresses)


def _reaches(at: int, visit: Visit) -> bool:
    distance = visit.offset - at
    return abs(distance) <= visit.access.reach and distance % visit.access.size == 0
