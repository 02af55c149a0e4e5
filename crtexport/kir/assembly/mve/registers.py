"""Registers for the values of a loop whose iterations overlap.

A value lives from the time that makes it to the last that reads it, over the end of the interval
where the next pass does; time is a circle. Registers for arcs of a circle are found by trying, with
a limit: where the circle is full, an interval that is a little longer has room.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

STEPS = 4000
"""Assignments that are tried."""


class Arc(Struct, frozen=True):
    """A value's life: ``begin`` < the interval, ``end`` later. ``key`` tells it from others."""

    begin: int
    end: int
    key: int


def live_counts(arcs: Sequence[Arc], interval: int) -> list[int]:
    """Returns how many arcs there are at each time."""
    change = [0] * (interval + 1)
    for arc in arcs:
        whole, rest = divmod(arc.end - arc.begin, interval)
        change[0] += whole
        end = arc.begin + rest
        change[arc.begin] += 1
        change[min(end, interval)] -= 1
        if end > interval:
            change[0] += 1
            change[end - interval] -= 1
    counts, total = [], 0
    for step in change[:-1]:
        total += step
        counts.append(total)
    return counts


def assign(arcs: Sequence[Arc], interval: int, registers: int) -> dict[int, int] | None:
    """Returns a register, from 0 on, for each arc's key, so that arcs with the same one don't meet;
    None if that isn't found with so many ``registers``."""
    if any(arc.end - arc.begin > interval for arc in arcs):
        return None
    counts = live_counts(arcs, interval)
    if max(counts, default=0) > registers:
        return None
    cut = counts.index(min(counts)) if counts else 0
    moved = sorted(
        (Arc((a.begin - cut) % interval, (a.begin - cut) % interval + a.end - a.begin, a.key)
         for a in arcs), key=lambda arc: (arc.begin, arc.end, arc.key),
    )
    crossing = [arc for arc in moved if arc.end > interval]
    found = {arc.key: register for register, arc in enumerate(crossing)}
    free = [0] * registers
    limit = [interval] * registers
    for register, arc in enumerate(crossing):
        free[register], limit[register] = arc.end - interval, arc.begin
    linear = [arc for arc in moved if arc.end <= interval]
    return found if _fill(linear, free, limit, found) else None


def _fill(arcs: Sequence[Arc], free: list[int], limit: list[int], assigned: dict[int, int]) -> bool:
    """Gives each of ``arcs``, in order of their beginnings, a register that is free from ``free``
    on and wanted from ``limit`` on; the tightest first, others where that leads nowhere."""
    chosen: list[tuple[int, int]] = []  # register and when it had been free
    choices: list[list[int]] = []
    steps = 0
    while len(chosen) < len(arcs):
        arc = arcs[len(chosen)]
        if len(choices) == len(chosen):
            fits = [r for r in range(len(free)) if free[r] <= arc.begin and arc.end <= limit[r]]
            fits.sort(key=lambda r: (limit[r] - arc.end, -free[r]))
            alike = {(free[r], limit[r]): r for r in reversed(fits)}
            choices.append([r for r in reversed(fits) if alike[free[r], limit[r]] == r])
        steps += 1
        if steps > STEPS:
            return False
        if choices[-1]:
            register = choices[-1].pop()
            chosen.append((register, free[register]))
            free[register] = arc.end
            assigned[arc.key] = register
            continue
        choices.pop()
        if not chosen:
            return False
        register, free_before = chosen.pop()
        free[register] = free_before
    return True
