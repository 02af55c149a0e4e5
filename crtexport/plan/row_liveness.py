"""The bytes of a cascade's rings and scratch that are live at each of its steps, and the distances
between two blocks at which live bytes would overlap.

Only the rows of a ring that are still to be read are live; the other bytes may be used by other
rings or by scratch. A kernel may also write over rows that it reads for the last time, at distances
that its accesses allow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.lowering.facts import Freedom
from crtexport.lowering.lowered_graph import LoweredRows
from crtexport.lowering.rows.schedule import Compute, RowPlace, RowSchedule

Interval = tuple[int, int]
"""First byte, or slot, and end (exclusive)."""
Bans = tuple[Interval, ...]
"""Banned distances from one block to another, as bounds (both exclusive)."""
Flags = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


class Needed(Struct, frozen=True):
    """Bytes ``starts`` to ``ends`` (exclusive) of a block are live at each step; none where they
    are equal."""

    starts: _Numbers
    ends: _Numbers

    @property
    def live(self) -> Flags:
        """Returns for each step whether any bytes are live."""
        return np.asarray(self.ends > self.starts, np.bool_)

    def at(self, step: int) -> Interval:
        """Returns the live bytes at a step; none after the last."""
        inside = step < len(self.starts)
        return (int(self.starts[step]), int(self.ends[step])) if inside else (0, 0)


def needed_rows(schedule: RowSchedule, row_sizes: Mapping[int, int]) -> dict[int, Needed]:
    """Returns the live bytes of each ring, from the first row to the last one; ``row_sizes`` are
    bytes of a row."""
    last_reads = _last_reads(schedule)
    rings = {tensor: _LiveRing(len(schedule.steps)) for tensor in schedule.capacity}
    for number, step in enumerate(schedule.steps):
        if step.write.slot is not None:
            rings[step.write.tensor].written(number, step.write, step.write.slot)
        places = (step.write, *step.reads)
        for tensor in {p.tensor for p in places if p is not None and p.slot is not None}:
            rings[tensor].drop(number, last_reads.get(tensor, {}))
    return {tensor: ring.finish(row_sizes[tensor]) for tensor, ring in rings.items()}


def _last_reads(schedule: RowSchedule) -> dict[int, dict[int, int]]:
    """Returns, for each ring, the last step that reads each of its rows."""
    found: dict[int, dict[int, int]] = {}
    for number, step in enumerate(schedule.steps):
        for place in step.reads:
            if place is not None and place.slot is not None:
                rows = range(place.row, place.row + place.rows)
                found.setdefault(place.tensor, {}).update(dict.fromkeys(rows, number))
    return found


class _LiveRing:
    """The live slots of a ring, recorded from step to step."""

    def __init__(self, steps: int) -> None:
        self._bounds = np.zeros((2, steps), np.int64)
        self._slots: dict[int, int] = {}  # by row
        self._since, self._now = 0, (0, 0)

    def written(self, step: int, place: RowPlace, slot: int) -> None:
        """Records that a step writes rows; the rows that it reads stay live in this step."""
        before = self._now
        self._slots |= {place.row + number: slot + number for number in range(place.rows)}
        first, end = self._span()
        if before[0] < before[1]:
            first, end = min(first, before[0]), max(end, before[1])
        self._become(step, (first, end))

    def drop(self, step: int, last_reads: Mapping[int, int]) -> None:
        """Records, after a step, that only rows that later steps read stay live."""
        self._slots = {
            row: slot for row, slot in self._slots.items() if last_reads.get(row, -1) > step
        }
        self._become(step + 1, self._span())

    def _span(self) -> Interval:
        slots = self._slots.values()
        return (min(slots), max(slots) + 1) if slots else (0, 0)

    def _become(self, step: int, span: Interval) -> None:
        self._bounds[:, self._since : step] = np.array([self._now]).T
        self._since, self._now = step, span

    def finish(self, row_size: int) -> Needed:
        """Returns the live bytes, for rows of ``row_size`` bytes."""
        self._become(self._bounds.shape[1], (0, 0))
        starts, ends = self._bounds * row_size
        return Needed(starts, ends)


def when_running(schedule: RowSchedule, work: object, size: int) -> Needed:
    """Returns when ``size`` bytes of scratch are live: in the steps that do ``work``."""
    runs = np.array([step.work == work for step in schedule.steps])
    return Needed(np.zeros(len(runs), np.int64), np.where(runs, size, 0))


class Meeting(Struct, frozen=True):
    """A step whose kernel reads rows of one ring and writes rows of another; ``freedom`` has the
    distances at which the written rows may lie over the read ones."""

    step: int
    read: RowPlace
    write: RowPlace
    freedom: Freedom


def meetings(rows: LoweredRows) -> dict[tuple[int, int], list[Meeting]]:
    """Returns the steps whose kernels may write over rows that they read, by the tensors (read,
    written)."""
    numbers = {work: number for number, work in enumerate(rows.bands.works)}
    found: dict[tuple[int, int], list[Meeting]] = {}
    for number, step in enumerate(rows.bands.schedule.steps):
        if not isinstance(step.work, Compute) or step.write.slot is None:
            continue
        read = [place.tensor for place in step.reads if place is not None]
        facts = rows.lowered.nodes[numbers[step.work]].facts
        for position, place in enumerate(step.reads):
            freedom = facts.forward.get((0, position))
            if place is None or place.slot is None or freedom is None:
                continue
            if read.count(place.tensor) == 1:
                meeting = Meeting(number, place, step.write, freedom)
                found.setdefault((place.tensor, step.write.tensor), []).append(meeting)
    return found


def bans(
    first: Needed, second: Needed, meetings_: Iterable[Meeting] = (),
    row_sizes: tuple[int, int] = (1, 1),
) -> Bans:
    """Returns the banned distances from one block to another.

    At these, bytes that are live at the same step overlap, or, at steps that read rows of ``first``
    and write rows of ``second``, rows are overwritten before they are read. ``row_sizes``: bytes of
    a row of each.
    """
    live = first.live & second.live
    intervals: set[Interval] = set()
    known: set[object] = set()
    for meeting in meetings_:
        live[meeting.step] = False
        written = _bytes(meeting.write, row_sizes[1])
        key = (
            first.at(meeting.step), first.at(meeting.step + 1), second.at(meeting.step),
            meeting.read.slot, written, meeting.freedom,
        )
        if key not in known:
            known.add(key)
            intervals.update(_while_meeting(first, second, meeting, row_sizes))
    lows, highs = first.starts - second.ends, first.ends - second.starts
    pairs = np.stack([lows, highs])[:, live]
    # Most steps are like the one before, so that few are left to sort.
    new = np.ones(pairs.shape[1], np.bool_)
    new[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)
    pairs = pairs[:, new]
    intervals.update((low, high) for low, high in np.unique(pairs, axis=1).T.tolist())
    return joined(intervals)


def _while_meeting(
    first: Needed, second: Needed, meeting: Meeting, row_sizes: tuple[int, int]
) -> Iterator[Interval]:
    """Yields the banned distances for one meeting: those at which written rows lie over rows that
    are read later, or over rows of this step's input where the kernel doesn't allow it, or at which
    earlier rows of the written tensor lie over any row of the read one."""
    step, written = meeting.step, _bytes(meeting.write, row_sizes[1])
    yield from _touching(first.at(step), (second.at(step)[0], written[0]))
    yield from _touching(first.at(step + 1), written)
    shift = _bytes(meeting.read, row_sizes[0])[0] - written[0]
    for low, high in meeting.freedom.bans():
        yield low + shift, high + shift


def _bytes(place: RowPlace, row_size: int) -> Interval:
    slot = place.slot or 0
    return slot * row_size, (slot + place.rows) * row_size


def _touching(first: Interval, second: Interval) -> Iterator[Interval]:
    if first[0] < first[1] and second[0] < second[1]:
        yield first[0] - second[1], first[1] - second[0]


def joined(intervals: Collection[Interval]) -> Bans:
    """Returns open intervals of whole numbers, with overlapping ones merged."""
    found: list[Interval] = []
    for low, high in sorted(intervals):
        if high - low < 2:
            continue
        if found and low < found[-1][1] - 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)
