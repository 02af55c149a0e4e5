"""Long lists of calls as loops: calls that come again and again, with addresses that move by the
same number of bytes each time, become the body of a loop. So do parts of a list that repeat
in a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact.model import (
    Arg,
    InputArg,
    OutputArg,
    Repeat,
    RowRepeat,
    StateArg,
    StatementOf,
    WorkspaceArg,
)

_LONGEST = 512
"""Most calls in the body of a loop that is looked for."""
_PARTS = 64
"""Most parts of a list after which they come again."""

C = TypeVar("C")
_Moving = InputArg | OutputArg | WorkspaceArg | StateArg
_Numbers = npt.NDArray[np.int64]
Offsets = tuple[int, ...]


class Addressed(Struct, Generic[C], frozen=True):
    """A call as one of a list. Calls of equal ``kind`` differ in their ``args`` only."""

    call: C
    kind: Hashable
    args: tuple[Arg, ...]

    @property
    def but_offsets(self) -> Hashable:
        """Returns all that must be equal in calls that differ in their offsets only."""
        return self.kind, tuple(
            replace(arg, offset=0) if isinstance(arg, _Moving) else arg
            for arg in self.args
        )


class _Item(Struct, Generic[C], frozen=True):
    """A call in the loops that were found around it, which make it ``runs`` times: ``steps`` has,
    for each of them, how many bytes each argument moves with each run."""

    call: Addressed[C]
    steps: tuple[Offsets, ...] = ()
    runs: int = 1


WithArgs: TypeAlias = Callable[[C, tuple[Arg, ...], int], C]
"""Returns a call with other arguments, which is made so many times."""


def looped(calls: Sequence[Addressed[C]], with_args: WithArgs[C]) -> tuple[StatementOf[C], ...]:
    """Returns statements that make ``calls`` in their order, with the same addresses."""
    return _looped([_Item(call) for call in calls], with_args)


def row_repeats(
    parts: Sequence[Sequence[Addressed[C]]], with_args: WithArgs[C]
) -> tuple[RowRepeat[C], ...]:
    """Returns ``parts`` of a list of calls, with those once that come again and again."""
    start, period, times = _best_turns(parts) if parts else (0, 0, 0)
    end = start + period * times
    if sum(map(len, parts[start + period : end])) < _CALLS_FOR_A_TURN:
        plain = tuple(looped(part, with_args) for part in parts)
        return (RowRepeat(plain),) if plain else ()
    steady = tuple(
        _looped([
            _Item(call, (_difference(_Item(call), _Item(later)),), times)
            for call, later in zip(parts[number], parts[number + period], strict=True)
        ], with_args)
        for number in range(start, start + period)
    )
    return (
        *row_repeats(parts[:start], with_args), RowRepeat(steady, times),
        *row_repeats(parts[end:], with_args),
    )


_CALLS_FOR_A_TURN = 3
"""Fewer calls are no more code than finding out which iteration it is."""


def _best_turns(parts: Sequence[Sequence[Addressed[C]]]) -> tuple[int, int, int]:
    """Returns the (start, length, times) of the parts that come again most often."""
    kinds: dict[Hashable, int] = {}
    numbers = np.array([
        kinds.setdefault(tuple(call.but_offsets for call in part), len(kinds)) for part in parts
    ])
    found = [[getattr(arg, "offset", 0) for call in part for arg in call.args] for part in parts]
    width = max(map(len, found), default=0)
    offsets = np.array([[*each, *[0] * (width - len(each))] for each in found], np.int64)
    best, most = (0, 0, 0), 0
    for period in range(1, min(_PARTS, len(parts) // 2) + 1):
        start, times = _longest(numbers, offsets.reshape(len(parts), width), period)
        if period * (times - 1) > most:
            most, best = period * (times - 1), (start, period, times)
    return best


def _looped(items: Sequence[_Item[C]], with_args: WithArgs[C]) -> tuple[StatementOf[C], ...]:
    found = _best(items)
    if found is None:
        return tuple(with_args(item.call.call, _moving(item), item.runs) for item in items)
    start, period, times = found
    end = start + period * times
    body = [
        replace(
            item, steps=(*item.steps, _difference(item, items[start + period + number])),
            runs=item.runs * times,
        )
        for number, item in enumerate(items[start : start + period])
    ]
    return (
        *_looped(items[:start], with_args),
        Repeat(times, _looped(body, with_args)),
        *_looped(items[end:], with_args),
    )


def _best(items: Sequence[_Item[C]]) -> tuple[int, int, int] | None:
    """Returns the (start, length, times) of the repetition that saves most calls; None if there is
    none."""
    count = len(items)
    if count < 2:
        return None
    kinds: dict[Hashable, int] = {}
    numbers = np.array([
        kinds.setdefault((item.call.but_offsets, item.steps), len(kinds)) for item in items
    ])
    width = max(len(item.call.args) for item in items)
    offsets = np.array([_offsets(item.call.args, width) for item in items], np.int64)
    best: tuple[int, int, int] | None = None
    most = 0
    for period in range(1, min(_LONGEST, count // 2) + 1):
        start, times = _longest(numbers, offsets, period)
        saved = period * (times - 1)
        if saved > most:
            most, best = saved, (start, period, times)
    return best


def _longest(numbers: _Numbers, offsets: _Numbers, period: int) -> tuple[int, int]:
    """Returns the start and times of what comes most often with a period."""
    same = numbers[period:] == numbers[:-period]
    moved = offsets[period:] - offsets[:-period]
    steady = np.ones(len(moved), np.bool_)
    steady[period:] = (moved[period:] == moved[:-period]).all(axis=1)
    ends = _next_false(same)
    unsteady = _next_false(steady)
    starts = np.arange(len(same))
    behind = np.minimum(starts + period, len(same))
    runs = np.minimum(ends[starts], unsteady[behind]) - starts
    times = np.maximum(runs, 0) // period + 1
    start = int(np.argmax(times))
    return start, int(times[start])


def _next_false(flags: npt.NDArray[np.bool_]) -> _Numbers:
    """For each position, and the end, the first from there on where ``flags`` are false."""
    places = np.append(np.where(flags, len(flags), np.arange(len(flags))), len(flags))
    return np.asarray(np.minimum.accumulate(places[::-1])[::-1], np.int64)


def _offsets(args: Sequence[Arg], width: int) -> Offsets:
    found = [getattr(arg, "offset", 0) for arg in args]
    return (*found, *(0 for _ in range(width - len(found))))


def _difference(item: _Item[C], other: _Item[C]) -> Offsets:
    first, second = item.call.args, other.call.args
    return tuple(
        b - a for a, b in zip(
            _offsets(first, len(first)), _offsets(second, len(second)), strict=True
        )
    )


def _moving(item: _Item[C]) -> tuple[Arg, ...]:
    """Returns the arguments of a call with what they move by in each loop around it."""
    found: list[Arg] = []
    for number, arg in enumerate(item.call.args):
        steps = tuple(step[number] for step in item.steps)
        moves = any(steps) and isinstance(arg, _Moving)
        found.append(replace(arg, steps=steps) if moves else arg)
    return tuple(found)
