"""The order in which the rows of a cascade are computed, and those of them that are kept.

Each row of the result asks for the rows that it needs, these for theirs, and so on down to the
inputs. So each row of each tensor is computed once, as late as can be, and kept until its last
reader has read it. The rows of a tensor that are kept lie one behind the other in a window of
memory; where that is full, the rows that are still needed move to its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import ChannelSums
from crtexport.lowering.rows.windows import Number, RowWindow, row_windows, rows_of, rows_together


class Compute(Struct, frozen=True):
    """Part ``part`` of the cascade computes ``rows`` rows of its output, or sums so many rows of
    its input: ``more`` of them."""

    part: int
    rows: int = 1
    more: bool = False


class Fill(Struct, frozen=True):
    """A row of ``tensor`` that isn't there is filled with ``value``."""

    tensor: int
    value: Number


class Fetch(Struct, frozen=True):
    """A row of the input ``tensor`` is copied to those that are kept."""

    tensor: int


class Move(Struct, frozen=True):
    """``rows`` rows of ``tensor`` that are still needed move to the beginning of its memory."""

    tensor: int
    rows: int


Work: TypeAlias = Compute | Fill | Fetch | Move


class RowPlace(Struct, frozen=True):
    """``rows`` rows of ``tensor`` from ``row`` on: those that are kept from place ``slot`` on, or,
    where that is None, those of the whole tensor."""

    tensor: int
    row: int
    slot: int | None
    rows: int = 1


class RowStep(Struct, frozen=True):
    """One call: ``reads`` are the places of what it reads, by position, None for constants."""

    work: Work
    reads: tuple[RowPlace | None, ...]
    write: RowPlace


class RowSchedule(Struct, frozen=True):
    """``steps`` in their order; ``capacity``: how many rows there is room for of each tensor of
    which any are kept."""

    steps: tuple[RowStep, ...]
    capacity: Mapping[int, int]


Window: TypeAlias = tuple[int, int, bool]
"""Rows that are read: the first one, how many, and whether of the whole tensor."""


class _Event(Struct, frozen=True):
    """``rows`` rows that are written from ``row`` on, with the windows that are read for them."""

    work: Compute | Fill | Fetch
    tensor: int
    row: int
    rows: int = 1
    reads: tuple[Window | None, ...] = ()


def row_schedule(graph: Graph, node: Node, heights: Sequence[int]) -> RowSchedule | None:
    """Returns the schedule of a cascade whose parts compute so many rows at once; None where they
    can't be computed row by row."""
    geometry = _Geometry.of(graph, node, heights)
    return None if geometry is None else _placed(geometry, tuple(_events(geometry)))


class _Geometry(Struct, frozen=True):
    """``windows`` of each part by position, ``made_by``: the part that computes each tensor,
    ``fills``: of tensors with rows around them, what these are full of.

    ``heights`` are the rows that parts compute at once; the first time a part computes so many that
    each last row is the last that its reader waits for: ``phases``, modulo heights.
    """

    graph: Graph
    node: Node
    heights: Sequence[int]
    phases: Sequence[int]
    windows: tuple[dict[int, RowWindow], ...]
    made_by: Mapping[int, int]
    fills: Mapping[int, Number]

    @classmethod
    def of(cls, graph: Graph, node: Node, heights: Sequence[int]) -> _Geometry | None:
        windows = [found for part in node.parts if (found := row_windows(graph, part)) is not None]
        if len(windows) < len(node.parts) or len(heights) != len(node.parts):
            return None
        made_by = {part.outputs[0]: number for number, part in enumerate(node.parts)}
        fills: dict[int, Number] = {}
        for part, known in zip(node.parts, windows, strict=True):
            positions = rows_of(graph.type(part.outputs[0]))
            for position, window in known.items():
                tensor = graph.required(part, position)
                if not window.sticks_out(rows_of(graph.type(tensor)), positions):
                    continue
                if fills.setdefault(tensor, window.fill) != window.fill:
                    return None  # two readers see other rows around it
        rows = [h * rows_together(known) for h, known in zip(heights, windows, strict=True)]
        phases = _phases(graph, node, rows, windows)
        geometry = cls(graph, node, rows, phases, tuple(windows), made_by, fills)
        return None if any(map(geometry.inside, node.outputs)) else geometry

    def height(self, part: int, row: int) -> int:
        """Returns how many rows a part computes from ``row`` on."""
        height = self.heights[part]
        left = self.rows(self.node.parts[part].outputs[0]) - row
        return min(height - (row - self.phases[part]) % height, left)

    def inside(self, tensor: int) -> bool:
        """Returns whether a part reads a tensor."""
        return any(tensor in part.inputs for part in self.node.parts)

    def rows(self, tensor: int) -> int:
        return rows_of(self.graph.type(tensor))

    def reads(self, part: int, row: int, rows: int) -> tuple[Window | None, ...]:
        """The windows of a part's inputs for so many rows of its output."""
        return tuple(
            self._window(tensor, window, row, rows)
            if tensor is not None and (window := self.windows[part].get(position)) else None
            for position, tensor in enumerate(self.node.parts[part].inputs)
        )

    def _window(self, tensor: int, window: RowWindow, row: int, rows: int) -> Window:
        """Rows of an input of the cascade are read where they lie, unless some aren't there."""
        first, size = window.first(row), window.covered(rows)
        there = first >= 0 and first + size <= self.rows(tensor)
        return first, size, there and tensor not in self.made_by


def _phases(
    graph: Graph, node: Node, heights: Sequence[int], windows: Sequence[Mapping[int, RowWindow]]
) -> tuple[int, ...]:
    """For each part the rows after which a reader can go on, modulo its height."""
    wanted: dict[int, int] = {}
    found = []
    for number in reversed(range(len(node.parts))):
        part, height = node.parts[number], heights[number]
        together = rows_together(windows[number])
        phase = -(-wanted.get(part.outputs[0], 0) // together) * together % height
        found.append(phase)
        for position, window in windows[number].items():
            tensor = graph.required(part, position)
            wanted.setdefault(tensor, window.first(phase) + window.covered(height))
    return tuple(reversed(found))


def _events(geometry: _Geometry) -> Iterator[_Event]:
    """Yields what is computed, filled and fetched, in its order."""
    following = _beginnings(geometry)
    (result,) = geometry.node.outputs
    last, number = geometry.node.parts[-1], len(geometry.node.parts) - 1
    if not isinstance(last.op, ChannelSums):
        while following[result] < geometry.rows(result):
            yield from _wanted(geometry, following, (result, following[result], 1))
        return
    source = geometry.graph.required(last, 0)
    for row in range(0, geometry.rows(source), geometry.heights[-1]):
        rows = min(geometry.heights[-1], geometry.rows(source) - row)
        reads = geometry.reads(number, row, rows)
        missing = _missing(last, reads, following)
        if missing is not None:
            yield from _wanted(geometry, following, missing)
        before: tuple[Window, ...] = ((0, 1, True),) if row else ()
        yield _Event(Compute(number, rows, more=row > 0), result, 0, 1, (*reads, *before))


def _wanted(
    geometry: _Geometry, following: dict[int, int], wish: tuple[int, int, int]
) -> Iterator[_Event]:
    """Yields what makes rows: of a tensor, from one on, so many. ``following``: the first row of
    each tensor that isn't there yet."""
    stack = [wish]  # the latest wish last
    while stack:
        tensor, first, rows = stack[-1]
        maker = geometry.made_by.get(tensor)
        at = following[tensor] if maker is not None else max(following[tensor], first)
        if at >= first + rows:
            stack.pop()
            continue
        if not 0 <= at < geometry.rows(tensor):
            event = _Event(Fill(tensor, geometry.fills[tensor]), tensor, at)
        elif maker is None:
            event = _Event(Fetch(tensor), tensor, at)
        else:
            height = geometry.height(maker, at)
            reads = geometry.reads(maker, at, height)
            missing = _missing(geometry.node.parts[maker], reads, following)
            if missing is not None:
                stack.append(missing)
                continue
            event = _Event(Compute(maker, height), tensor, at, height, reads)
        yield event
        following[tensor] = at + event.rows


def _beginnings(geometry: _Geometry) -> dict[int, int]:
    """The first row that any part sees of each tensor."""
    found = dict.fromkeys(geometry.node.outputs, 0)
    for part, windows in zip(geometry.node.parts, geometry.windows, strict=True):
        for position, window in windows.items():
            tensor = geometry.graph.required(part, position)
            before = -window.before if tensor in geometry.fills else 0
            found[tensor] = min(found.get(tensor, 0), before)
    return found


def _missing(
    part: Node, reads: Sequence[Window | None], following: Mapping[int, int]
) -> tuple[int, int, int] | None:
    """The first input of a part of which rows are missing, and the rows that it needs."""
    for tensor, read in zip(part.inputs, reads, strict=True):
        if tensor is not None and read is not None:
            first, rows, whole = read
            if not whole and following[tensor] < first + rows:
                return tensor, first, rows
    return None


class _Ring(Struct):
    """The rows of a tensor that are kept while the schedule is made: ``base`` lies in place 0,
    ``end`` is the first that isn't there yet."""

    base: int
    end: int


def _placed(geometry: _Geometry, events: Sequence[_Event]) -> RowSchedule:
    """Returns the schedule with places for the rows that are kept."""
    needed = _needed(geometry, events)
    kept = [event.tensor not in geometry.node.outputs for event in events]
    capacity: dict[int, int] = {}
    for number, event in enumerate(events):
        if kept[number]:
            rows = event.row + event.rows - min(needed[number], event.row)
            capacity[event.tensor] = max(capacity.get(event.tensor, 1), rows)
    rings: dict[int, _Ring] = {}
    steps: list[RowStep] = []
    for number, event in enumerate(events):
        reads = tuple(
            None if read is None or tensor is None else RowPlace(
                tensor, read[0], None if read[2] else read[0] - rings[tensor].base, read[1],
            )
            for tensor, read in zip(_inputs(geometry, event), event.reads, strict=True)
        )
        if isinstance(event.work, Fetch):
            reads = (RowPlace(event.tensor, event.row, None),)
        slot = None
        if kept[number]:
            ring = rings.setdefault(event.tensor, _Ring(event.row, event.row))
            if event.row > ring.end:  # rows between are read where they lie
                ring.base = ring.end = event.row
            if event.row + event.rows - ring.base > capacity[event.tensor]:
                steps += _moved(event, ring, min(needed[number], event.row))
            slot = event.row - ring.base
            ring.end = event.row + event.rows
        steps.append(
            RowStep(event.work, reads, RowPlace(event.tensor, event.row, slot, event.rows))
        )
    return RowSchedule(tuple(_early(steps)), capacity)


def _early(steps: Sequence[RowStep]) -> list[RowStep]:
    """Rows move as soon as the last step before that reads or writes any of their tensor: other
    rows may lie in the room that this makes."""
    touched: dict[int, int] = {}
    keys = []
    for number, step in enumerate(steps):
        moves = isinstance(step.work, Move)
        keys.append((touched.get(step.write.tensor, number), 1) if moves else (number, 0))
        for place in (*step.reads, step.write):
            if place is not None and place.slot is not None:
                touched[place.tensor] = keys[-1][0]
    return [steps[number] for number in sorted(range(len(steps)), key=lambda n: (*keys[n], n))]


def _inputs(geometry: _Geometry, event: _Event) -> tuple[int | None, ...]:
    match event.work:
        case Compute(part, more=more):
            inputs = geometry.node.parts[part].inputs
            return (*inputs, event.tensor) if more else inputs
        case _:
            return ()


def _moved(event: _Event, ring: _Ring, base: int) -> Iterator[RowStep]:
    """Yields the move that makes room for rows, unless no row is needed any more."""
    kept = ring.end - base
    if kept > 0:
        yield RowStep(
            Move(event.tensor, kept), (RowPlace(event.tensor, base, base - ring.base, kept),),
            RowPlace(event.tensor, base, 0, kept),
        )
    ring.base = base


_NEVER = 1 << 62


def _needed(geometry: _Geometry, events: Sequence[_Event]) -> list[int]:
    """For each event the first row of the tensor that it writes which later events read."""
    least: dict[int, int] = {}
    found = []
    for event in reversed(events):
        found.append(least.get(event.tensor, _NEVER))
        for tensor, read in zip(_inputs(geometry, event), event.reads, strict=True):
            if tensor is not None and read is not None and not read[2]:
                least[tensor] = min(least.get(tensor, _NEVER), read[0])
    return found[::-1]
