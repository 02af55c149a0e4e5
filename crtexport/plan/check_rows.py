"""Proves the plan of a cascade by running its steps with names of rows instead of numbers.

As :mod:`crtexport.plan.check` it shares no code and no idea with what makes schedules and plans:
which rows a row needs is worked out from the operators here, each byte of memory remembers the row
that it holds, and each step must read the rows that it needs and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.lowering.rows.bands import Bands
from crtexport.lowering.rows.schedule import (
    Compute,
    Fetch,
    Fill,
    Ready,
    RowMove,
    RowPlace,
    RowStep,
)
from crtexport.plan.memory import NOTHING, Contents, Range
from crtexport.plan.model import RowPlan


class RowProof(Protocol):
    """The facts that can be proven about the kernels of a cascade's bands."""

    def scratch_of(self, band: int) -> int:
        """Returns the bytes that a kernel needs besides its rows."""

    def harmless(self, band: int, position: int, distance: int) -> bool:
        """Returns whether what a kernel writes may begin ``distance`` bytes after its input
        ``position``, though they overlap."""


class RowsError(Exception):
    """A cascade would compute something else than its parts."""


class CascadeMemory(Struct, frozen=True):
    """The memory of a cascade: its ``scratch``, and the places of its inputs and outputs."""

    scratch: Range
    places: Mapping[int, Range]


def check_rows(
    graph: Graph, node: Node, bands: Bands, plan: RowPlan, alignment: int, proof: RowProof,
    frame: CascadeMemory,
) -> None:
    """Raises RowsError unless the steps of a cascade compute its parts.

    Proven: each row of a part's output is computed once, by that part's operator with that part's
    constants, from the rows that it needs, which are whole and unharmed; rows of padding are what
    the operator takes the padding for; all is written to the scratch, apart from what is read, or
    to the cascade's outputs, which are complete at the end.
    """
    run = _Replay(graph, node, bands, plan, proof, frame)
    run.check_frame(alignment)
    for step in bands.schedule.steps:
        run.step(step)
    run.check_results()


class _Held(Struct, frozen=True):
    """The row ``row`` of ``tensor``; ``value``: what a row of padding is full of."""

    tensor: int
    row: int
    value: float | None = None


class _Replay:
    def __init__(
        self, graph: Graph, node: Node, bands: Bands, plan: RowPlan, proof: RowProof,
        frame: CascadeMemory,
    ) -> None:
        self.graph, self.node, self.bands, self.plan, self.proof = graph, node, bands, plan, proof
        self.frame = frame
        self.memory = Contents()
        self.names: dict[_Held, int] = {}
        self.held: list[_Held] = []
        self.done: set[tuple[int, int]] = set()
        self.numbers = {work: number for number, work in enumerate(bands.works)}
        self.summed = 0
        self.fed = isinstance(node.op, ops.Cascade) and node.op.fed
        self.hop = node.op.hop if isinstance(node.op, ops.Cascade) else 0
        self.fetched = -1
        self.steps = 0
        self.results: list[tuple[int, int, int]] = []  # first rows, steps, rows of the input
        for tensor in dict.fromkeys(node.inputs):
            if tensor is not None and tensor in frame.places:
                rows = [_Held(tensor, row) for row in range(graph.type(tensor).shape[1])]
                self._write(RowPlace(tensor, 0, None, len(rows)), rows)

    def fail(self, problem: str) -> NoReturn:
        raise RowsError(f"{self.node}: {problem}")

    def check_frame(self, alignment: int) -> None:
        count = len(self.bands.graph.nodes)
        if len(self.plan.scratch) != count or len(self.plan.in_place) != count:
            self.fail("the plan is for other bands")
        for tensor, offset in self.plan.rings.items():
            if offset % self.graph.type(tensor).dtype.itemsize:
                self.fail(f"rows of {self.name(tensor)} aren't aligned")
        if any(offset % alignment for offset in self.plan.scratch):
            self.fail("the scratch of a kernel isn't aligned")
        for band, work in enumerate(self.bands.works):
            if isinstance(work, Compute):
                part = self.node.parts[work.part]
                self._check_band(part, self.bands.graph.nodes[band], work)

    def _check_band(self, part: Node, band: Node, work: Compute) -> None:
        """A band computes what its part computes, but for the padding above and below."""
        expected = part.op
        if isinstance(expected, ops.Conv2D | ops.DepthwiseConv2D | ops.Pool2D):
            expected = replace(expected, padding=replace(expected.padding, top=0, bottom=0))
        if isinstance(expected, ops.TransposeConv2D | ops.ResizeNearestNeighbor):
            expected = replace(expected, size=(work.rows, expected.size[1]))
        if isinstance(expected, ops.Pad):
            expected = ops.Pad((expected.paddings[0], (0, 0), *expected.paddings[2:]))
        if isinstance(expected, ops.Slice):
            size = (expected.size[0], work.rows, *expected.size[2:])
            expected = ops.Slice(
                (expected.begin[0], 0, *expected.begin[2:]), size, expected.stride, size
            )
        sums = isinstance(expected, ops.ChannelSums)
        if band.op != expected or len(band.inputs) != len(part.inputs) + work.more or (
            work.more and not sums
        ):
            self.fail(f"{part} runs as {band.op}")
        for given, of_band in zip(part.inputs, band.inputs, strict=False):
            if (given is None) != (of_band is None):
                self.fail(f"{part} has other inputs")
            if given is None or of_band is None:
                continue
            if self.graph.constant(given) is not self.bands.graph.constant(of_band):
                self.fail(f"{part} has other constants")
            if self.graph.type(given).quant != self.bands.graph.type(of_band).quant:
                self.fail(f"{part} reads other scales")
        found, whole = self.bands.graph.type(band.outputs[0]), self.graph.type(part.outputs[0])
        rows = 1 if sums else work.rows
        if found != replace(whole, shape=(whole.shape[0], rows, *whole.shape[2:])):
            self.fail(f"{part} gives {found}, not {rows} rows of {whole}")

    # -- steps

    def step(self, step: RowStep) -> None:
        """Runs one step."""
        self.steps += 1
        match step.work:
            case Compute(part, rows) if isinstance(self.node.parts[part].op, ops.ChannelSums):
                self._sum(step, self.node.parts[part], rows)
            case Compute(part, rows):
                self._compute(step, self.node.parts[part], rows)
            case Fill(tensor, value):
                height = self.graph.type(tensor).shape[1]
                if step.write.tensor != tensor or 0 <= step.write.row < height:
                    self.fail(f"row {step.write.row} of {self.name(tensor)} is no padding")
                self._write(step.write, [_Held(tensor, step.write.row, value)])
            case Fetch(tensor):
                (source,) = step.reads
                same = source == RowPlace(tensor, step.write.row, None)
                if not same or tensor not in self.node.inputs or step.write.tensor != tensor:
                    self.fail(f"a row of {self.name(tensor)} comes from somewhere else")
                self._inside(tensor, step.write.row)
                if self.fed and step.write.row <= self.fetched:
                    self.fail(f"row {step.write.row} of {self.name(tensor)} is gone")
                self.fetched = step.write.row
                self._write(step.write, [_Held(tensor, step.write.row)])
            case RowMove(tensor, rows):
                self._move(step, tensor, rows)
            case Ready(tensor):
                self._ready(step, tensor)

    def _ready(self, step: RowStep, tensor: int) -> None:
        """A further result is made of rows where the output lies, some further on than the last."""
        (place,), count = step.reads, self.graph.type(tensor).shape[1]
        if place is None or (tensor,) != self.node.outputs or place.rows != count:
            self.fail(f"a result isn't made of {self.name(tensor)}")
        if len(self.results) > 1 and (
            place.row - self.results[-1][0] != self.results[-1][0] - self.results[-2][0]
        ):
            self.fail("results are made of rows at different distances")
        at = self._read(place, [_Held(tensor, place.row + number) for number in range(count)])
        if self.frame.places.get(tensor) != at:
            self.fail(f"{self.name(tensor)} doesn't lie where its reader looks for it")
        self.results.append((place.row, self.steps, self.fetched + 1))

    def _compute(self, step: RowStep, part: Node, count: int) -> None:
        row = step.write.row
        (made,) = part.outputs
        if step.write.tensor != made or step.write.rows != count:
            self.fail(f"{part} writes {self.name(step.write.tensor)}")
        rows = range(row, row + count)
        for number in rows:
            self._inside(made, number)
            self._once(made, number)
        read: list[tuple[int, Range]] = []
        for position, tensor in enumerate(part.inputs):
            place = step.reads[position] if position < len(step.reads) else None
            constant = tensor is None or self.graph.constant(tensor) is not None
            if constant != (place is None):
                self.fail(f"{part} doesn't read its input {position}")
            if tensor is not None and place is not None:
                at = self._check_window(part, step, position, tensor, place, rows)
                read.append((position, at))
        self._check_apart(part, step, read)
        self._write(step.write, [_Held(made, number) for number in rows])

    def _check_apart(
        self, part: Node, step: RowStep, read: Sequence[tuple[int, Range]]
    ) -> None:
        """A kernel writes to its scratch and output, and harms nothing that it still reads."""
        band = self.numbers[step.work]
        begin = self.plan.scratch[band]
        used = self._range(begin, begin + self.proof.scratch_of(band))
        target = self._bytes(step.write)
        for position, at in read:
            if used.overlaps(at):
                self.fail(f"the scratch of {part} lies over what it reads, {at}")
            if target.overlaps(at) and not (
                (0, position) in self.plan.in_place[band]
                and self.proof.harmless(band, position, target.start - at.start)
            ):
                self.fail(f"{part} overwrites what it reads, {at}")
        if target.overlaps(used):
            self.fail(f"the scratch of {part} lies over its result")
        self.memory.write(used, NOTHING)

    def _sum(self, step: RowStep, part: Node, count: int) -> None:
        """Sums of further rows: each row counts once, on top of all before it."""
        (made,), source = part.outputs, self.graph.required(part, 0)
        rows = range(self.summed, self.summed + count)
        sums = RowPlace(made, 0, None)
        if step.write != sums or list(step.reads[1:]) != ([sums] if self.summed else []):
            self.fail(f"{part} doesn't add to its sums")
        place = step.reads[0]
        if place is None or not rows:
            self.fail(f"{part} reads nothing")
        read = [(0, self._check_window(part, step, 0, source, place, rows))]
        if self.summed:
            read.append((1, self._read(sums, [_Held(made, -self.summed)])))
        self._check_apart(part, step, read)
        self.summed = rows.stop
        complete = self.summed == self.graph.type(source).shape[1]
        self._write(sums, [_Held(made, 0 if complete else -self.summed)])

    def _check_window(
        self, part: Node, step: RowStep, position: int, tensor: int, place: RowPlace, rows: range
    ) -> Range:
        """Checks that the rows that a part reads are those that it needs. Returns where they
        lie."""
        band = self.numbers[step.work]
        first, one, padding = _window(self.graph, part, position, rows[0])
        last, _, _ = _window(self.graph, part, position, rows[-1])
        size = last + one - first
        if (place.tensor, place.row, place.rows) != (tensor, first, size):
            self.fail(f"{part} reads other rows than those for row {rows[0]}")
        given = self.graph.required(self.bands.graph.nodes[band], position)
        shape = self.graph.type(tensor).shape
        if self.bands.graph.type(given).shape != (shape[0], size, *shape[2:]):
            self.fail(f"{part} reads windows of another shape")
        wanted = [
            _Held(tensor, r, None if 0 <= r < self._rows(tensor) else padding)
            for r in range(first, first + size)
        ]
        return self._read(place, wanted)

    def _move(self, step: RowStep, tensor: int, rows: int) -> None:
        (source,) = step.reads
        target = step.write
        if source is None or source.slot is None or target.slot is None:
            self.fail(f"what moves of {self.name(tensor)} isn't kept")
        if not (source.tensor == target.tensor == tensor and source.rows == target.rows == rows
                and source.row == target.row):
            self.fail(f"rows of {self.name(tensor)} become others")
        size = self._row(tensor)
        holders = [self._holder(tensor, source.slot + number) for number in range(rows)]
        if [h.row for h in holders] != list(range(source.row, source.row + rows)):
            self.fail(f"rows of {self.name(tensor)} that move aren't there")
        distance = (target.slot - source.slot) * size
        band = self.numbers[step.work]
        if abs(distance) < rows * size and not (
            (0, 0) in self.plan.in_place[band] and self.proof.harmless(band, 0, distance)
        ):
            self.fail(f"rows of {self.name(tensor)} are overwritten while they move")
        self._write(target, holders)

    # -- rows

    def name(self, tensor: int) -> str:
        return f"tensor {tensor} {self.graph.tensors[tensor].name!r}"

    def _row(self, tensor: int) -> int:
        type_ = self.graph.type(tensor)
        return type_.nbytes // type_.shape[1]

    def _rows(self, tensor: int) -> float:
        """Returns the number of rows of a tensor; infinite where results go on."""
        return math.inf if self.hop else self.graph.type(tensor).shape[1]

    def _inside(self, tensor: int, row: int) -> None:
        if not 0 <= row < self._rows(tensor):
            self.fail(f"{self.name(tensor)} has no row {row}")

    def _once(self, tensor: int, row: int) -> None:
        if (tensor, row) in self.done:
            self.fail(f"row {row} of {self.name(tensor)} is made twice")
        self.done.add((tensor, row))

    def _range(self, start: int, end: int) -> Range:
        """Returns some bytes of the scratch."""
        scratch = self.frame.scratch
        if not 0 <= start <= end <= min(self.plan.size, scratch.end - scratch.start):
            self.fail(f"bytes {start} to {end} aren't in its scratch of {self.plan.size}")
        return replace(scratch, start=scratch.start + start, end=scratch.start + end)

    def _bytes(self, place: RowPlace, *, reading: bool = False) -> Range:
        """Returns the bytes of rows in a ring or in a whole tensor; of one that is given row by
        row, no kernel reads but the copies of rows."""
        size = self._row(place.tensor)
        if place.slot is not None:
            if place.tensor not in self.plan.rings:
                self.fail(f"nothing is kept of {self.name(place.tensor)}")
            start = self.plan.rings[place.tensor] + place.slot * size
            return self._range(start, start + place.rows * size)
        whole = self.frame.places.get(place.tensor)
        if whole is None or (self.fed and reading and place.tensor in self.node.inputs):
            self.fail(f"{self.name(place.tensor)} isn't there as a whole")
        for row in (place.row, place.row + place.rows - 1):
            self._inside(place.tensor, row)
        start = whole.start + place.row * size
        return replace(whole, start=start, end=start + place.rows * size)

    def _number(self, holder: _Held) -> int:
        if holder not in self.names:
            self.names[holder] = len(self.held)
            self.held.append(holder)
        return self.names[holder]

    def _holder(self, tensor: int, slot: int) -> _Held:
        """Returns the row of a tensor that a place holds as a whole."""
        at = self._bytes(RowPlace(tensor, 0, slot))
        number = self.memory.at(at)
        held = self.held[number] if number is not None and number != NOTHING else None
        if held is None or held.tensor != tensor or (
            self.memory.stranger(at, self._number(held), at.start) is not None
        ):
            self.fail(f"place {slot} of {self.name(tensor)} holds no row of it")
        return held

    def _read(self, place: RowPlace, rows: Sequence[_Held]) -> Range:
        """Returns the bytes of a place, which must hold these rows."""
        at, size = self._bytes(place, reading=True), self._row(place.tensor)
        for number, held in enumerate(rows):
            start = at.start + number * size
            part = replace(at, start=start, end=start + size)
            if self.memory.stranger(part, self._number(held), start) is not None:
                self.fail(f"row {held.row} of {self.name(place.tensor)} isn't in {part}")
        return at

    def _write(self, place: RowPlace, rows: Sequence[_Held]) -> None:
        at, size = self._bytes(place), self._row(place.tensor)
        for number, held in enumerate(rows):
            start = at.start + number * size
            self.memory.write(
                replace(at, start=start, end=start + size), self._number(held)
            )

    def _check_further(self) -> None:
        """The steps for the two results before the last differ in the numbers of rows only, by as
        much for all rows of a tensor. What they read is what was written before, in this or the
        last cycle, so that the same steps go on making results."""
        if len(self.results) < 4:
            self.fail("there are too few results to go on from")
        (_, begin, first), (_, middle, second), (_, end, third) = self.results[-4:-1]
        if self.graph.type(self.graph.required(self.node, 0)).shape[1] < self.results[0][2]:
            self.fail("the first result takes more rows than there are")
        if {second - first, third - second} != {self.hop}:
            self.fail(f"a further result doesn't take {self.hop} rows")
        steps = self.bands.schedule.steps
        one, other = _relative(steps[begin:middle]), _relative(steps[middle:end])
        if one[0] != other[0]:
            self.fail("further results take other steps")
        distances = {
            (tensor, later - row)
            for (tensor, row), (_, later) in zip(one[1], other[1], strict=True)
        }
        if len(distances) != len({tensor for tensor, _ in distances}):
            self.fail("further results are made of rows at different distances")

    def check_results(self) -> None:
        """Each output is there as a whole; a further result takes the same steps as the last."""
        if self.hop:
            self._check_further()
            return
        for tensor in self.node.outputs:
            rows = [_Held(tensor, row) for row in range(self.graph.type(tensor).shape[1])]
            self._read(RowPlace(tensor, 0, None, len(rows)), rows)


def _relative(
    steps: Sequence[RowStep],
) -> tuple[list[object], list[tuple[int, int]]]:
    """Steps but for the numbers of their rows, and these, by tensor."""
    found: list[object] = []
    rows: list[tuple[int, int]] = []
    for step in steps:
        places = [*step.reads, step.write]
        rows += [(place.tensor, place.row) for place in places if place is not None]
        found.append((step.work, [
            None if place is None else (
                place.tensor, None if isinstance(step.work, Fetch) else place.slot, place.rows
            ) for place in places
        ]))
    return found, rows


def _window(graph: Graph, part: Node, position: int, row: int) -> tuple[int, int, float]:
    """Returns the first row of an input that row ``row`` of the output needs, how many there are,
    and what those that aren't there are full of."""
    source = graph.type(graph.required(part, position))
    zero = 0.0 if source.quant is None else float(source.quant.zero_point[0])
    match part.op:
        case ops.Conv2D() | ops.DepthwiseConv2D():
            taps = graph.type(graph.required(part, 1)).shape[1]
            reach = (taps - 1) * part.op.dilation[0]
            return row * part.op.stride[0] - part.op.padding.top, reach + 1, zero
        case ops.TransposeConv2D():
            # Row i of the input reaches the rows i * stride - crop of the output and the taps - 1
            # behind it; where that is more than a stride, several rows meet in one.
            taps = graph.type(graph.required(part, 1)).shape[1]
            first = -(-(row + part.op.crop[0] - taps + 1) // part.op.stride[0])
            last = (row + part.op.crop[0]) // part.op.stride[0]
            return first, last - first + 1, zero
        case ops.ResizeNearestNeighbor():
            # With whole factors, wherever the centers of pixels lie.
            return row * source.shape[1] // part.op.size[0], 1, zero
        case ops.Slice():
            return part.op.begin[1] + row * part.op.stride[1], 1, zero
        case ops.Pad():
            return row - part.op.paddings[1][0], 1, zero
        case ops.Pool2D():
            lowest = (
                -3.4028234663852886e38 if source.dtype.is_float else float(source.dtype.limits[0])
            )
            return row * part.op.stride[0] - part.op.padding.top, part.op.window[0], lowest
        case _:
            return row, 1, zero
