"""The order in which a cascade computes rows, and the rows that it keeps.

Each row of a result asks for the rows that it needs, these for theirs, and so on up to the inputs.
So each row of each tensor is computed once, as late as can be, and kept until its last reader has
read it. The rows of a tensor that are kept lie one behind the other in memory of their own, its
ring: when that is full, those that are still needed move to its beginning. They move when further
rows are asked for, before the rows upstream of them are computed: until then the beginning of the
ring is free for rows of other tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, ChannelSums
from crtexport.lowering.rows.windows import (
    Number,
    RowWindow,
    paddings,
    row_windows,
    rows_of,
    rows_together,
)


class Compute(Struct, frozen=True):
    """Part ``part`` of the cascade computes ``rows`` rows of its output; or it sums so many rows of
    its input, ``more`` than it has summed before."""

    part: int
    rows: int = 1
    more: bool = False


class Fill(Struct, frozen=True):
    """A row of padding above or below ``tensor`` is filled with ``value``."""

    tensor: int
    value: Number


class Fetch(Struct, frozen=True):
    """A row of the input ``tensor`` is copied into its ring."""

    tensor: int


class RowMove(Struct, frozen=True):
    """``rows`` rows of ``tensor`` that are still needed move to the beginning of its ring."""

    tensor: int
    rows: int


class Ready(Struct, frozen=True):
    """The rows of ``tensor`` are there that a result is made of: nothing is computed."""

    tensor: int


Work: TypeAlias = Compute | Fill | Fetch | RowMove | Ready


class RowPlace(Struct, frozen=True):
    """``rows`` rows of ``tensor`` from ``row`` on: in its ring from place ``slot`` on, or, where
    that is None, in the whole tensor."""

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
    """``steps`` in their order; ``capacity``: the rows that each ring has room for, by tensor."""

    steps: tuple[RowStep, ...]
    capacity: Mapping[int, int]


def row_schedule(
    graph: Graph, node: Node, heights: Sequence[int], most: int | None = None
) -> RowSchedule | None:
    """Returns the schedule of a cascade whose parts compute so many rows at once; None where they
    can't be computed row by row. ``most``: only what the first rows of each result take, so
    many."""
    geometry = _Geometry.of(graph, node, heights)
    if geometry is None:
        return None
    demand = _Demand(geometry)
    demand.run(most)
    return _placed(geometry, demand.events)


def band_heights(graph: Graph, node: Node, heights: Sequence[int]) -> list[Counter[int]] | None:
    """Returns how often each part of a cascade computes so many rows at once; None where they can't
    be computed row by row."""
    geometry = _Geometry.of(graph, node, heights)
    if geometry is None:
        return None
    found = []
    for number, part in enumerate(node.parts):
        counts: Counter[int] = Counter()
        row, rows = 0, rows_of(graph.type(_passed(part)))
        while row < rows:
            height = geometry.height(number, row)
            counts[height] += 1
            row += height
        found.append(counts)
    return found


class _Read(Struct, frozen=True):
    """``rows`` rows of ``tensor`` from ``first`` on, in its ring or in the ``whole`` tensor."""

    tensor: int
    first: int
    rows: int
    whole: bool

    @property
    def end(self) -> int:
        return self.first + self.rows


class _Event(Struct, frozen=True):
    """``rows`` rows that are written from ``row`` on, and what is read for them. They were asked
    for before event ``asked``."""

    work: Compute | Fill | Fetch | Ready
    tensor: int
    row: int
    asked: int
    rows: int = 1
    reads: tuple[_Read | None, ...] = ()


class _Geometry(Struct, frozen=True):
    """``windows`` of each part by position, ``made_by``: the part that computes each tensor,
    ``fills``: of tensors with padding above or below, what that is full of.

    Parts compute ``heights`` rows at once, but above the first row at which a band begins
    (``phases``, modulo heights) and below the last: there ``units``, or with ``rests`` all that are
    left.
    """

    graph: Graph
    node: Node
    heights: Sequence[int]
    units: Sequence[int]
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
        fills = _fills(graph, node, windows)
        if fills is None or any(tensor in fills for tensor in node.outputs):
            return None
        units = [rows_together(known) for known in windows]
        rows = [height * unit for height, unit in zip(heights, units, strict=True)]
        phases = _phases(graph, node, rows, windows)
        return cls(graph, node, rows, units, phases, tuple(windows), made_by, fills)

    def height(self, part: int, row: int) -> int:
        """Returns how many rows a part computes, or sums, at once from ``row`` on."""
        height, phase = self.heights[part], self.phases[part]
        left = self.rows(_passed(self.node.parts[part])) - row
        if row < phase:
            return min(phase - row, left) if self.rests else self.units[part]
        if left >= height and (row - phase) % height == 0:
            return height
        return left if self.rests and left < height else self.units[part]

    def rows(self, tensor: int) -> int:
        """Returns how many rows a tensor has; where there are further results, no end is known."""
        return _NEVER if self.hop else rows_of(self.graph.type(tensor))

    @property
    def rests(self) -> bool:
        """Returns True if rows above and below bands are computed at once."""
        return isinstance(self.node.op, Cascade) and self.node.op.rests

    @property
    def hop(self) -> int:
        return self.node.op.hop if isinstance(self.node.op, Cascade) else 0

    def reads(self, part: int, row: int, rows: int) -> tuple[_Read | None, ...]:
        """Returns what a part reads for so many rows of its output."""
        return tuple(
            self._read(tensor, window, row, rows)
            if tensor is not None and (window := self.windows[part].get(position)) else None
            for position, tensor in enumerate(self.node.parts[part].inputs)
        )

    def _read(self, tensor: int, window: RowWindow, row: int, rows: int) -> _Read:
        """Returns the rows that a window reads. Those of inputs and outputs of the cascade are read
        where they lie, but with padding; so are those that come one after the other."""
        first, size = window.first(row), window.covered(rows)
        whole = (
            first >= 0 and first + size <= self.rows(tensor)
            and (tensor in self.whole_outputs or (not self.fed and tensor in self.node.inputs))
        )
        return _Read(tensor, first, size, whole)

    @property
    def fed(self) -> bool:
        """Returns True if rows of the input come one after the other."""
        return isinstance(self.node.op, Cascade) and self.node.op.fed

    @property
    def whole_outputs(self) -> tuple[int, ...]:
        """Returns the outputs that aren't the rows of a ring."""
        return () if self.hop else self.node.outputs


def _passed(part: Node) -> int:
    """Returns the tensor whose rows a part goes through: its result, or what it sums."""
    (result,) = part.outputs
    return (part.inputs[0] or 0) if isinstance(part.op, ChannelSums) else result


def _fills(
    graph: Graph, node: Node, windows: Sequence[Mapping[int, RowWindow]]
) -> dict[int, Number] | None:
    """Returns what rows of padding are full of, by tensor; None where two readers of a tensor see
    other padding around it."""
    fills: dict[int, Number] = {}
    for part, known in zip(node.parts, windows, strict=True):
        for tensor, value in paddings(graph, part, known).items():
            if fills.setdefault(tensor, value) != value:
                return None
    return fills


def fed_source(graph: Graph, node: Node) -> int:
    """Returns the input of a cascade whose rows are given one after the other."""
    return next(t for t in node.inputs if t is not None and graph.constant(t) is None)


def row_rates(graph: Graph, parts: Sequence[Node], hop: int) -> dict[int, int]:
    """Returns how many rows further rows of the input make, by tensor; those without a whole number
    are left out."""
    rates: dict[int, int] = {}
    for part in parts:
        windows = row_windows(graph, part) or {}
        found = set()
        for position, window in windows.items():
            given = rates.setdefault(graph.required(part, position), hop)
            made, rest = divmod(given * window.made, window.stride)
            found.add(made if not rest else 0)
        if len(found) == 1 and (rate := found.pop()):
            rates[part.outputs[0]] = rate
        else:
            rates[part.outputs[0]] = 0
    return {tensor: rate for tensor, rate in rates.items() if rate}


def _phases(
    graph: Graph, node: Node, heights: Sequence[int], windows: Sequence[Mapping[int, RowWindow]]
) -> tuple[int, ...]:
    """Returns for each part the rows that the first band of its reader waits for, modulo its
    height: where bands end there, no row is kept for the next band but those that it reads, too."""
    first_rows: dict[int, int] = {}
    found = []
    for number in reversed(range(len(node.parts))):
        part, height = node.parts[number], heights[number]
        together = rows_together(windows[number])
        phase = -(-first_rows.get(part.outputs[0], 0) // together) * together % height
        found.append(phase)
        for position, window in windows[number].items():
            tensor = graph.required(part, position)
            first_rows.setdefault(tensor, window.first(phase) + window.covered(height))
    return tuple(reversed(found))


class _Demand:
    """Makes ``events``: what is computed, filled and fetched, in its order.

    ``following``: the first row of each tensor that isn't there yet."""

    def __init__(self, geometry: _Geometry) -> None:
        self._geometry = geometry
        self.events: list[_Event] = []
        self._following = _beginnings(geometry)
        self._waiting: dict[tuple[int, int], _Event] = {}

    def run(self, most: int | None) -> None:
        """Makes the rows of all results; of each as many as ``most``, if that isn't None."""
        geometry, parts = self._geometry, self._geometry.node.parts
        if geometry.hop:
            self._stream(geometry)
            return
        sums = isinstance(parts[-1].op, ChannelSums)
        if sums:
            self._sum(len(parts) - 1, parts[-1], most)
        others = [t for t in geometry.node.outputs if not (sums and t in parts[-1].outputs)]
        while left := [t for t in others if self._following[t] < self._wanted(t, most)]:
            # Results grow alike, as far as one can without the others.
            tensor = min(left, key=lambda t: self._following[t] / geometry.rows(t))
            self._make(_Read(tensor, self._following[tensor], 1, whole=False))

    def _stream(self, geometry: _Geometry) -> None:
        """Makes the rows of several results: each is made of as many rows as the output has, the
        next one of some that are further on."""
        (tensor,) = geometry.node.outputs
        count = rows_of(geometry.graph.type(tensor))
        per_hop = row_rates(geometry.graph, geometry.node.parts, geometry.hop)[tensor]
        source = fed_source(geometry.graph, geometry.node)
        given = rows_of(geometry.graph.type(source))
        for number in range(_RESULTS):
            window = _Read(tensor, number * per_hop, count, whole=False)
            self._make(window)
            # Rows that this result does without can be those of the next one.
            first = self._following[source]
            self._make(_Read(source, first, given + number * geometry.hop - first, whole=False))
            self.events.append(_Event(
                Ready(tensor), tensor, window.first, len(self.events), 0, (window,)
            ))

    def _wanted(self, tensor: int, most: int | None) -> int:
        rows = self._geometry.rows(tensor)
        return rows if most is None else min(rows, most)

    def _sum(self, number: int, part: Node, most: int | None) -> None:
        """Makes the rows that a last part sums, and the sums."""
        geometry = self._geometry
        source, (result,) = geometry.graph.required(part, 0), part.outputs
        row = 0
        while row < self._wanted(source, most):
            rows = geometry.height(number, row)
            reads = geometry.reads(number, row, rows)
            asked = len(self.events)
            if (missing := self._missing(reads)) is not None:
                self._make(missing)
            before = (_Read(result, 0, 1, whole=True),) if row else ()
            work = Compute(number, rows, more=row > 0)
            self.events.append(_Event(work, result, 0, asked, reads=(*reads, *before)))
            row += rows

    def _make(self, wish: _Read) -> None:
        """Makes rows of a tensor, and all that they need."""
        stack = [wish]  # the latest wish last
        while stack:
            wish = stack[-1]
            at = self._following[wish.tensor]
            if wish.tensor not in self._geometry.made_by:
                at = max(at, wish.first)
            if at >= wish.end:
                stack.pop()
                continue
            event = self._waiting.pop((wish.tensor, at), None) or self._event(wish.tensor, at)
            missing = self._missing(event.reads)
            if missing is not None:
                self._waiting[wish.tensor, at] = event
                stack.append(missing)
                continue
            self.events.append(event)
            self._following[wish.tensor] = at + event.rows

    def _event(self, tensor: int, row: int) -> _Event:
        """Returns what makes a row, and further ones with it; it is asked for now."""
        geometry, asked = self._geometry, len(self.events)
        maker = geometry.made_by.get(tensor)
        if not 0 <= row < geometry.rows(tensor):
            return _Event(Fill(tensor, geometry.fills[tensor]), tensor, row, asked)
        if maker is None:
            return _Event(Fetch(tensor), tensor, row, asked)
        height = geometry.height(maker, row)
        reads = geometry.reads(maker, row, height)
        return _Event(Compute(maker, height), tensor, row, asked, height, reads)

    def _missing(self, reads: Sequence[_Read | None]) -> _Read | None:
        """Returns the first of what is read that isn't there yet."""
        given = self._geometry.node.inputs
        return next((
            read for read in reads
            if read is not None and self._following[read.tensor] < read.end
            and not (read.whole and read.tensor in given)
        ), None)


def _beginnings(geometry: _Geometry) -> dict[int, int]:
    """Returns the first row of each tensor that is needed."""
    found = dict.fromkeys(geometry.node.outputs, 0)
    for part, windows in reversed([*zip(geometry.node.parts, geometry.windows, strict=True)]):
        begin = max(found.get(part.outputs[0], 0), 0)
        for position, window in windows.items():
            tensor = geometry.graph.required(part, position)
            first = window.first(begin)
            if tensor not in geometry.fills:
                first = max(first, 0)
            found[tensor] = min(found.get(tensor, first), first)
    return found


class _Ring(Struct):
    """The ring of a tensor while the schedule is made: row ``base`` lies in place 0, ``end`` is the
    first that isn't there yet."""

    base: int
    end: int


def _placed(geometry: _Geometry, events: Sequence[_Event]) -> RowSchedule:
    """Returns the schedule with places for the rows that are kept."""
    needed = _needed(events)
    kept = [event.tensor not in geometry.whole_outputs for event in events]
    capacity: dict[int, int] = {}
    for number, event in enumerate(events):
        if kept[number]:
            rows = event.row + event.rows - min(needed[number], event.row)
            capacity[event.tensor] = max(capacity.get(event.tensor, 1), rows)
    rings: dict[int, _Ring] = {}
    steps: list[RowStep] = []
    moves: dict[int, list[RowStep]] = {}
    for number, event in enumerate(events):
        reads: tuple[RowPlace | None, ...] = tuple(
            None if read is None else RowPlace(
                read.tensor, read.first,
                None if read.whole else read.first - rings[read.tensor].base, read.rows,
            )
            for read in event.reads
        )
        if isinstance(event.work, Fetch):
            reads = (RowPlace(event.tensor, event.row, None),)
        slot = None
        if isinstance(event.work, Ready):
            slot = reads[0].slot if reads[0] is not None else None
        elif kept[number]:
            ring = rings.setdefault(event.tensor, _Ring(event.row, event.row))
            if event.row > ring.end:  # rows between are read where they lie
                ring.base = ring.end = event.row
            if event.row + event.rows - ring.base > capacity[event.tensor]:
                found = _moved(event, ring, min(needed[number], event.row))
                moves.setdefault(event.asked, []).extend(found)
            slot = event.row - ring.base
            ring.end = event.row + event.rows
        write = RowPlace(event.tensor, event.row, slot, event.rows)
        steps.append(RowStep(event.work, reads, write))
    ordered: list[RowStep] = []
    for number, step in enumerate(steps):
        # What was asked for first is downstream of the others: its rows make room for theirs.
        ordered += (*reversed(moves.get(number, ())), step)
    return RowSchedule(tuple(ordered), capacity)


def _moved(event: _Event, ring: _Ring, base: int) -> Iterator[RowStep]:
    """Yields the move that makes room for rows, unless no row is needed any more."""
    kept = ring.end - base
    if kept > 0:
        yield RowStep(
            RowMove(event.tensor, kept), (RowPlace(event.tensor, base, base - ring.base, kept),),
            RowPlace(event.tensor, base, 0, kept),
        )
    ring.base = base


_NEVER = 1 << 62
_RESULTS = 6
"""Results of a stream: before the last but one, all is as it is before each further one."""


def _needed(events: Sequence[_Event]) -> list[int]:
    """Returns for each event the first row of the tensor that it writes which later events read."""
    least: dict[int, int] = {}
    found = []
    for event in reversed(events):
        found.append(least.get(event.tensor, _NEVER))
        for read in event.reads:
            if read is not None and not read.whole:
                least[read.tensor] = min(least.get(read.tensor, _NEVER), read.first)
    return found[::-1]
