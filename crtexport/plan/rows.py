"""Places the rows that a cascade keeps, and the scratch of the kernels that compute them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph
from crtexport.lowering.lowered_graph import LoweredRows
from crtexport.lowering.rows.schedule import Compute, Move, RowPlace, RowSchedule
from crtexport.lowering.rows.windows import of_rows
from crtexport.plan.arena import Arena, Ban, extent, place
from crtexport.plan.model import RowPlan
from crtexport.plan.row_overlaps import row_bans

_Flags = npt.NDArray[np.bool_]


def row_bytes(graph: Graph, tensor: int) -> int:
    """Returns the bytes of a row of an image."""
    return of_rows(graph.type(tensor), 1).nbytes


def row_plan(graph: Graph, rows: LoweredRows, alignment: int) -> RowPlan:
    """Returns where the rows lie that a cascade keeps of the tensors of ``graph``.

    Rows of two tensors share bytes where those of one are no longer needed when those of the other
    are written, or while a kernel allows that; so does the scratch of kernels.
    """
    schedule = rows.bands.schedule
    tensors = tuple(schedule.capacity)
    scratch = [node.lowered.scratch for node in rows.lowered.nodes]
    needing = [number for number, size in enumerate(scratch) if size]
    live = np.hstack([_kept(schedule, tensors), _running(rows, needing)])
    sizes = (
        *(row_bytes(graph, tensor) * schedule.capacity[tensor] for tensor in tensors),
        *(scratch[number] for number in needing),
    )
    close = row_bans(rows, {t: row_bytes(graph, t) for t in tensors}, row_ends(schedule))
    together = live.T.astype(np.int64) @ live
    bans: list[Ban] = []
    for first, second in np.argwhere(np.triu(together, 1)).tolist():
        pair = (tensors[first], tensors[second]) if second < len(tensors) else (-1, -1)
        if pair in close:
            bans += (Ban(first, second, low, high) for low, high in close[pair])
        elif pair[::-1] in close:
            bans += (Ban(second, first, low, high) for low, high in close[pair[::-1]])
        else:
            bans.append(Ban(first, second, -sizes[second], sizes[first]))
    times = tuple(int(np.argmax(column)) for column in live.T)
    offsets = place(Arena(sizes, tuple(bans), times), alignment)
    of_scratch = dict(zip(needing, offsets[len(tensors) :], strict=True))
    rings = dict(zip(tensors, offsets, strict=False))
    return RowPlan(
        rings, dict(schedule.capacity),
        tuple(of_scratch.get(number, 0) for number in range(len(scratch))),
        extent(sizes, offsets), tuple(_in_place(graph, rows, rings)),
    )


def _kept(schedule: RowSchedule, tensors: tuple[int, ...]) -> _Flags:
    """For each step and tensor, whether rows of it are needed then."""
    columns = {tensor: number for number, tensor in enumerate(tensors)}
    live = np.zeros((len(schedule.steps), len(tensors)), np.bool_)
    ends = row_ends(schedule)
    seen: set[tuple[int, int]] = set()
    for number, step in enumerate(schedule.steps):
        for row in rows_of_place(step.write):
            if step.write.slot is not None and row not in seen:
                seen.add(row)
                live[number : ends.get(row, number) + 1, columns[step.write.tensor]] = True
    return live


def row_ends(schedule: RowSchedule) -> dict[tuple[int, int], int]:
    """For each (tensor, row) that is kept the last step that reads it."""
    return {
        row: number for number, step in enumerate(schedule.steps)
        for given in step.reads if given is not None and given.slot is not None
        for row in rows_of_place(given)
    }


def rows_of_place(place_: RowPlace) -> Iterator[tuple[int, int]]:
    """Yields (tensor, row) of the rows of a place."""
    for row in range(place_.row, place_.row + place_.rows):
        yield place_.tensor, row


def _running(rows: LoweredRows, needing: list[int]) -> _Flags:
    """For each step and node of the bands with scratch, whether that runs then."""
    numbers = {work: number for number, work in enumerate(rows.bands.works)}
    runs = np.array([numbers[step.work] for step in rows.bands.schedule.steps])
    return np.asarray(runs[:, None] == np.array(needing, np.int64)[None, :], np.bool_)


def _in_place(
    graph: Graph, rows: LoweredRows, rings: Mapping[int, int]
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields for each node of the bands its inputs that its output ever shares bytes with."""
    found: dict[object, set[tuple[int, int]]] = {}

    def extent_of(at: RowPlace) -> tuple[int, int]:
        size = row_bytes(graph, at.tensor)
        start = rings[at.tensor] + (at.slot or 0) * size
        return start, start + at.rows * size

    for step in rows.bands.schedule.steps:
        for position, given in enumerate(step.reads):
            if given is None or given.slot is None or step.write.slot is None:
                continue
            first, second = extent_of(given), extent_of(step.write)
            if max(first[0], second[0]) < min(first[1], second[1]):
                found.setdefault(step.work, set()).add((0, position))
    for work in rows.bands.works:
        match work:
            case Move():
                yield ((0, 0),)
            case Compute(more=True):
                yield ((0, 1),)
            case _:
                yield tuple(sorted(found.get(work, ())))
