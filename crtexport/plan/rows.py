"""Places the rows that a cascade keeps, and the scratch of the kernels that compute them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from crtexport.ir.graph import Graph, Node
from crtexport.lowering.facts import Freedom
from crtexport.lowering.lowered_graph import LoweredRows
from crtexport.lowering.rows.schedule import Compute, RowMove, RowPlace, RowSchedule, RowStep
from crtexport.lowering.rows.windows import of_rows
from crtexport.plan.arena import Arena, Ban, extent, place
from crtexport.plan.live_bytes import live_bytes
from crtexport.plan.model import RowPlan
from crtexport.plan.row_liveness import Meeting, Needed, bans, meetings, needed_rows, when_running

_SWAPS = 1500
"""The number of changed orders in which rings and scratch are placed."""


def row_bytes(graph: Graph, tensor: int) -> int:
    """Returns the bytes of a row of an image."""
    return of_rows(graph.type(tensor), 1).nbytes


def row_plan(graph: Graph, rows: LoweredRows, alignment: int) -> RowPlan:
    """Returns the offsets of the rings of tensors of ``graph``, and of the scratch of kernels.

    Blocks may share bytes that aren't live at the same step.
    """
    schedule, works = rows.bands.schedule, rows.bands.works
    tensors = tuple(schedule.capacity)
    row_sizes = {tensor: row_bytes(graph, tensor) for tensor in tensors}
    scratch = [node.lowered.scratch for node in rows.lowered.nodes]
    running = [number for number, size in enumerate(scratch) if size]
    needed = [
        *needed_rows(schedule, row_sizes).values(),
        *(when_running(schedule, works[number], scratch[number]) for number in running),
    ]
    sizes = (
        *(row_sizes[tensor] * schedule.capacity[tensor] for tensor in tensors),
        *(scratch[number] for number in running),
    )
    times = tuple(int(np.argmax(one.live)) for one in needed)
    found = tuple(_bans(rows, tensors, row_sizes, needed))
    facts = {work: node.facts for work, node in zip(works, rows.lowered.nodes, strict=True)}
    bound = live_bytes(schedule, row_sizes, facts.__getitem__).peak
    offsets = place(Arena(sizes, found, times, bound), alignment, swaps=_SWAPS)
    rings = dict(zip(tensors, offsets, strict=False))
    of_scratch = dict(zip(running, offsets[len(tensors) :], strict=True))
    return RowPlan(
        rings, dict(schedule.capacity),
        tuple(of_scratch.get(number, 0) for number in range(len(scratch))),
        extent(sizes, offsets), tuple(_in_place(graph, rows, rings)),
    )


def _bans(
    rows: LoweredRows, tensors: Sequence[int], row_sizes: Mapping[int, int],
    needed: Sequence[Needed],
) -> Iterator[Ban]:
    """Yields the bans between each two blocks: the rings of ``tensors``, then scratch."""
    met = meetings(rows)
    for first, second in itertools.combinations(range(len(needed)), 2):
        if first >= len(tensors):
            return  # no two kernels run at once
        steps: Sequence[Meeting] = ()
        one, other, sizes = first, second, (1, 1)
        if second < len(tensors):
            if (tensors[second], tensors[first]) in met:
                one, other = second, first
            pair = tensors[one], tensors[other]
            steps, sizes = met.get(pair, ()), (row_sizes[pair[0]], row_sizes[pair[1]])
        for low, high in bans(needed[one], needed[other], steps, sizes):
            yield Ban(one, other, low, high)


def _in_place(
    graph: Graph, rows: LoweredRows, rings: Mapping[int, int]
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields, for each node of the bands, the inputs with which its output shares bytes at any
    step."""
    in_place: dict[object, set[tuple[int, int]]] = {}

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
                in_place.setdefault(step.work, set()).add((0, position))
    for work in rows.bands.works:
        match work:
            case RowMove():
                yield ((0, 0),)
            case Compute(more=True):
                yield ((0, 1),)
            case _:
                yield tuple(sorted(in_place.get(work, ())))


def whole_freedoms(
    graph: Graph, node: Node, schedule: RowSchedule
) -> dict[tuple[int, int], Freedom]:
    """Returns the distances by which an output of a cascade may begin before an input, by (output
    position, input position): its rows may lie over rows of the input that are not read any more.
    """
    freedoms = {}
    steps = schedule.steps
    for position, source in enumerate(node.inputs):
        if source is None or graph.constant(source) is not None:
            continue
        size = row_bytes(graph, source)
        left = _first_rows(steps, source, graph.type(source).shape[1])
        for number, output in enumerate(node.outputs):
            step_size = row_bytes(graph, output)
            before = min(
                row * size - (step.write.row + step.write.rows) * step_size
                for row, step in zip(left, steps, strict=True)
                if step.write.tensor == output and step.write.slot is None
            )
            freedoms[number, position] = Freedom(before, graph.type(source).nbytes)
    return freedoms


def _first_rows(steps: Sequence[RowStep], tensor: int, rows: int) -> list[int]:
    """Returns, for each step, the first row of an input that it or a later step reads; after the
    last read, ``rows``."""
    found, first = [], rows
    for step in reversed(steps):
        read = (p for p in step.reads if p is not None and p.tensor == tensor and p.slot is None)
        first = min((first, *(place.row for place in read)))
        found.append(first)
    return found[::-1]
