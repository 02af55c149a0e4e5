"""Puts the instructions of a loop's iteration in an order in which iterations overlap.

A modulo schedule: every so many cycles, the interval, another iteration begins, in the same order.
The last instructions of an iteration, its tail, run between the first ones of the next; they are
given their places first, as early as may be, then the others as early as what is left lets them.
Loads get a place just before what reads their value.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from crtexport.kir.assembly.mve.attempt import Manner, OutlineDependences, Slot
from crtexport.kir.assembly.mve.body import NONE, Body
from crtexport.kir.assembly.mve.instructions import Bank
from crtexport.kir.assembly.mve.lags import Lag
from crtexport.kir.assembly.mve.outline import Outline, ordered, outline

_OUTLINES = 256
"""Outlines whose schedules are remembered."""


class Schedule(Struct):
    """``slots`` repeat after ``interval`` cycles."""

    interval: int
    slots: list[Slot]


def tail_of(body: Body, moving: Mapping[int, bool]) -> int:
    """Returns the number of the first instruction behind all that take nothing but values that are
    loaded; ``moving``: by loaded values, whether iterations load different ones."""
    last = 0
    for number, op in enumerate(body.ops):
        vectors = [arg for arg in op.args if arg in body.loads or arg in body.dups]
        others = [arg for arg in op.args if arg != NONE and arg not in vectors]
        fresh = any(moving.get(arg) for arg in vectors)
        if fresh and all(body.banks[arg] is not Bank.VECTOR for arg in others):
            last = number + 1
    return last


class Scheduler:
    """``first``: the number of the first instruction of the tail; ``kept``: values that registers
    hold all the time; ``lags``: the tail's pointers. ``late``: the tail's stores come behind all
    loads of the other iteration."""

    def __init__(
        self, body: Body, first: int, kept: Collection[int] = (), lags: Sequence[Lag] = (), *,
        late: bool = False,
    ) -> None:
        self._order, self._tail = order = ordered(body, first, late=late)
        self._plan = _plan(outline(body, order, kept, lags, late=late))

    @property
    def bound(self) -> int:
        """Returns an interval that is surely needed."""
        return self._plan.bound

    def attempt(self, interval: int, manner: Manner) -> Schedule | float:
        """Returns a schedule with this interval; where none is found, which part of all
        instructions has a time."""
        found = self._plan.attempt(interval, manner)
        if isinstance(found, float):
            return found
        steps = zip(found.steps, self._order, self._tail, strict=True)
        return Schedule(interval, [*(Slot(*step) for step in steps), *found.others])


@functools.lru_cache(_OUTLINES)
def _plan(outline: Outline) -> OutlineDependences:
    """Loops of other numbers share what was tried for their outline."""
    return OutlineDependences(outline)
