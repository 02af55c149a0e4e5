"""Distances between rows that a step reads and those that it writes.

A kernel may write over rows that nobody reads after it, at distances that its accesses allow; and
rows of one tensor may lie where there is room for rows of another that aren't there yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from crtexport.lowering.lowered_graph import LoweredRows
from crtexport.lowering.rows.schedule import Compute, RowStep

Bans = tuple[tuple[int, int], ...]
"""Distances from one block to another that do harm: each between two bounds."""
_Slots = tuple[int, ...]


def row_bans(
    rows: LoweredRows, sizes: Mapping[int, int], ends: Mapping[tuple[int, int], int]
) -> dict[tuple[int, int], Bans]:
    """Returns the distances that do harm between the rows of two tensors, for each (read, written)
    by one kernel, where any of what it reads dies with it.

    ``sizes`` are bytes of a row, ``ends`` the last steps that read rows.
    """
    pairs = {
        pair for number, step in enumerate(rows.bands.schedule.steps)
        for pair in _dying(step, number, ends)
    }
    found: dict[tuple[int, int], set[tuple[int, int]]] = {pair: set() for pair in pairs}
    seen: set[tuple[tuple[int, int], _Slots, _Slots, object]] = set()
    for number, step, slots in _states(rows, ends):
        for pair in pairs:
            read, written = pair
            if not slots.get(read) or not slots.get(written):
                continue
            special = _meeting(step, number, ends, pair)
            first = tuple(sorted(slots[read].values()))
            second = tuple(sorted(slots[written].values()))
            key = pair, first, second, (step.work, special)
            if key not in seen:
                seen.add(key)
                found[pair].update(_harm(rows, step, special, first, second, sizes, pair))
    return {pair: _joined(bans) for pair, bans in found.items()}


def _dying(
    step: RowStep, number: int, ends: Mapping[tuple[int, int], int]
) -> Iterator[tuple[int, int]]:
    """Yields (read, written) of tensors that a kernel could compute in place."""
    if not isinstance(step.work, Compute) or step.write.slot is None:
        return
    for given in step.reads:
        if given is not None and given.slot is not None and any(
            ends[given.tensor, row] == number for row in range(given.row, given.row + given.rows)
        ):
            yield given.tensor, step.write.tensor


_States = Mapping[int, dict[int, int]]
"""For each tensor the places of its rows that are still needed, by row."""


def _states(
    rows: LoweredRows, ends: Mapping[tuple[int, int], int]
) -> Iterator[tuple[int, RowStep, _States]]:
    """Yields each step with the rows that are needed while it runs, those that it writes, too."""
    slots: dict[int, dict[int, int]] = {}
    for number, step in enumerate(rows.bands.schedule.steps):
        place = step.write
        if place.slot is not None:
            kept = slots.setdefault(place.tensor, {})
            for offset in range(place.rows):
                kept[place.row + offset] = place.slot + offset
        yield number, step, slots
        for tensor in {place.tensor, *(g.tensor for g in step.reads if g is not None)}:
            slots[tensor] = {
                row: slot for row, slot in slots.get(tensor, {}).items()
                if ends.get((tensor, row), -1) > number
            }


def _meeting(
    step: RowStep, number: int, ends: Mapping[tuple[int, int], int], pair: tuple[int, int]
) -> tuple[int, int, int, bool] | None:
    """The (input's position, its place, the output's place, whether all of the window dies) of a
    step that reads the one tensor and writes the other."""
    if not isinstance(step.work, Compute) or step.write.tensor != pair[1]:
        return None
    for position, given in enumerate(step.reads):
        if given is not None and given.tensor == pair[0] and given.slot is not None:
            dies = all(
                ends[given.tensor, row] == number
                for row in range(given.row, given.row + given.rows)
            )
            return position, given.slot, step.write.slot or 0, dies
    return None


def _harm(
    rows: LoweredRows, step: RowStep, special: tuple[int, int, int, bool] | None, first: _Slots,
    second: _Slots, sizes: Mapping[int, int], pair: tuple[int, int],
) -> Iterator[tuple[int, int]]:
    """Yields the distances from one block to the other at which rows that are needed meet."""
    one, other = sizes[pair[0]], sizes[pair[1]]
    written = range(0)
    if special is not None and special[3]:
        position, read_at, write_at, _ = special
        band = rows.bands.works.index(step.work)
        freedom = rows.lowered.nodes[band].facts.forward.get((0, position))
        if freedom is not None:
            written = range(write_at, write_at + step.write.rows)
            shift = read_at * one - write_at * other
            for low, high in freedom.bans():
                yield low + shift, high + shift
    window = step.reads[special[0]] if special is not None else None
    read = range(window.slot or 0, (window.slot or 0) + window.rows) if window else range(0)
    for slot in first:
        for place in second:
            if slot in read and place in written:
                continue
            shift = slot * one - place * other
            yield shift - other, shift + one


def _joined(bans: set[tuple[int, int]]) -> Bans:
    """Open intervals of whole numbers, with those that overlap as one."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(bans):
        if high - low < 2:
            continue
        if found and low < found[-1][1] - 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)
