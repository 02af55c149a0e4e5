"""Proof that the iterations of loops are independent of each other in scratch memory."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from crtexport.kir.analysis.access_trace import Event, Replay, happenings
from crtexport.kir.analysis.integer_values import Ints
from crtexport.kir.language import Const, Kernel

LIMIT = 1 << 24
"""Most elements, counted anew in every iteration, that are looked at."""
_NEVER = np.iinfo(np.int64).max

Loops = tuple[tuple[str, int], ...]


def iterations_independent(kernel: Kernel, buffers: Iterable[str], loops: Loops) -> bool:
    """Returns whether the iterations of ``loops``, a kernel's outermost ones as (name, extent), can
    run in any order.

    True where everything that an iteration reads of ``buffers`` was stored before in the same
    iteration, is stored only outside of the loops, or always holds the same constant. False for
    what can't be followed.
    """
    looked_at = tuple(buffers)
    events = Replay(kernel, looked_at).events
    if events is None:
        return False
    names = [name for name, _ in loops]
    for buffer in looked_at:
        mine = [e for e in events if e.buffer.name == buffer]
        inside = [e for e in mine if [loop.name for loop in e.loops[: len(names)]] == names]
        around = [e for e in mine if e not in inside]
        if any(e.loops and e.loops[0].name == names[0] for e in around):
            return False
        if not _fresh(inside, around, math.prod(extent for _, extent in loops), loops):
            return False
    return True


def _fresh(inside: list[Event], around: list[Event], count: int, loops: Loops) -> bool:
    """As :func:`iterations_independent`, for the accesses to one buffer inside of the loops and
    around them."""
    if not inside:
        return True
    size = inside[0].buffer.size
    if size * count > LIMIT:
        return False
    stored = np.full(count * size, _NEVER, np.int64)
    touched = np.zeros(size, np.bool_)
    for event in inside:
        if not event.stores:
            continue
        if not event.followed:
            return False
        for address, time, at in happenings(event, latest=False, keep=[n for n, _ in loops]):
            touched[address] = True
            if event.certain:
                np.minimum.at(stored, _iteration(at, loops) * size + address, time)
    touched &= ~_constant([*around, *inside], around, size)
    for event in inside:
        if event.stores:
            continue
        if not event.followed:
            return False
        for address, time, at in happenings(event, latest=False, keep=[n for n, _ in loops]):
            when = stored[_iteration(at, loops) * size + address]
            if (touched[address] & (when >= time)).any():
                return False
    return not any(touched[a].any() for e in around if not e.stores for a in _elements(e))


def _constant(events: list[Event], around: list[Event], size: int) -> npt.NDArray[np.bool_]:
    """Returns the elements that are stored outside of the loops, and that no store gives another
    value."""
    values = np.full(size, np.nan)
    covered = np.zeros(size, np.bool_)
    same = np.ones(size, np.bool_)
    for event in (e for e in events if e.stores):
        value = float(event.value.value) if isinstance(event.value, Const) else np.nan
        for address in _elements(event):
            known = np.isnan(values[address]) | (values[address] == value)
            same[address] &= known & (not np.isnan(value))
            values[address] = value
            if event in around and event.certain:
                covered[address] = True
    return covered & same


def _iteration(at: dict[str, Ints], loops: Loops) -> Ints:
    """Returns the number of an iteration, computed from the values of its loop variables."""
    number = np.zeros(1, np.int64)
    for name, extent in loops:
        number = number * extent + at[name]
    return number


def _elements(event: Event) -> Iterable[Ints]:
    return (address for address, _, _ in happenings(event, latest=False))
