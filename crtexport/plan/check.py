"""Proves a plan by running it with names instead of numbers.

Shares no code and no idea with the planner: each byte of each buffer remembers which tensor's
value it holds, each node checks that what it reads is still there, then overwrites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Elementwise, Reshape
from crtexport.ir.variables import accesses
from crtexport.plan.model import Placement, Plan, Space


class PlanError(Exception):
    """A plan would compute something else than its graph: a fault of the planner."""


@dataclass(frozen=True)
class _Range:
    """Bytes ``start`` to ``end`` (exclusive) of a buffer."""

    space: Space
    index: int
    start: int
    end: int

    def overlaps(self, other: _Range) -> bool:
        same = (self.space, self.index) == (other.space, other.index)
        return same and max(self.start, other.start) < min(self.end, other.end)

    def __str__(self) -> str:
        where = self.space.value if self.space in (Space.WORKSPACE, Space.STATE) else (
            f"{self.space.value} {self.index}"
        )
        return f"bytes {self.start} to {self.end} of {where}"


@dataclass(frozen=True)
class _Piece:
    """A stretch of a buffer that holds part of a value, which begins at byte ``base``."""

    start: int
    end: int
    value: int
    base: int


@dataclass
class _Memory:
    """What every buffer holds."""

    pieces: dict[tuple[Space, int], list[_Piece]] = field(default_factory=dict)

    def write(self, at: _Range, value: int) -> None:
        """Bytes of ``at`` become those of ``value``; what was there is cut or gone."""
        kept = []
        for piece in self.pieces.get((at.space, at.index), []):
            if piece.start < at.start:
                kept.append(
                    _Piece(piece.start, min(piece.end, at.start), piece.value, piece.base)
                )
            if piece.end > at.end:
                kept.append(_Piece(max(piece.start, at.end), piece.end, piece.value, piece.base))
        if at.start < at.end:
            kept.append(_Piece(at.start, at.end, value, at.start))
        self.pieces[at.space, at.index] = sorted(kept, key=lambda p: p.start)

    def stranger(self, at: _Range, value: int) -> tuple[int, int, int | None] | None:
        """The first bytes of ``at`` that don't hold ``value``: (start, end, what they hold)."""
        position = at.start
        for piece in self.pieces.get((at.space, at.index), []):
            if piece.end <= position or piece.start >= at.end:
                continue
            if piece.start > position:
                return position, piece.start, None
            if piece.value != value or piece.base != at.start:
                return position, min(piece.end, at.end), piece.value
            position = piece.end
        return None if position >= at.end else (position, at.end, None)


def check(graph: Graph, plan: Plan) -> None:
    """Raises PlanError, naming the tensors and bytes, unless ``plan`` computes ``graph``.

    Proven: every step reads whole and unharmed values; only workspace and outputs are written;
    a node's output overlaps its inputs only where the step says so and the operator allows it;
    offsets are aligned and inside; every graph output is complete at the end.
    """
    _Simulation(graph, plan).run()


class _Simulation:
    """One run of a plan."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph, self.plan = graph, plan
        self.memory = _Memory()
        # A view has the value of what it views: the same bytes under another name.
        self.value = list(range(len(graph.tensors)))

    def fail(self, problem: str) -> NoReturn:
        raise PlanError(f"{self.graph.source or self.graph.name!r}: {problem}")

    def name(self, tensor: int) -> str:
        return f"tensor {tensor} {self.graph.tensors[tensor].name!r}"

    def run(self) -> None:
        self._check_frame()
        for index, tensor in enumerate(self.graph.inputs):
            nbytes = self.graph.type(tensor).nbytes
            self.memory.write(_Range(Space.INPUT, index, 0, nbytes), tensor)
        for variable in self.graph.variables:
            self.memory.write(self.place(variable), variable)
        self._take_views()
        for step in self.plan.steps:
            self._step(self.graph.nodes[step.node], step.in_place)
        self._check_results()

    def _check_frame(self) -> None:
        alignment = self.plan.alignment
        if alignment < 1 or alignment & (alignment - 1):
            self.fail(f"alignment {alignment} is no power of two")
        if len(self.plan.placements) != len(self.graph.tensors):
            self.fail("the plan has another number of tensors than the graph")
        kept = sum(self.graph.type(t).nbytes for t in self.graph.variables)
        if self.plan.state_size < kept:
            self.fail(f"{self.plan.state_size} bytes of state, but {kept} are kept")
        seen: set[int] = set()
        for step in self.plan.steps:
            if not 0 <= step.node < len(self.graph.nodes):
                self.fail(f"there is no node {step.node}")
            if step.node in seen:
                self.fail(f"{self.graph.nodes[step.node]} runs twice")
            seen.add(step.node)
        order = tuple(step.node for step in self.plan.steps)
        everything = tuple(range(len(self.graph.nodes)))
        if accesses(self.graph, order) != accesses(self.graph, everything):
            self.fail("variables are read or written in another order than the graph's")

    def _take_views(self) -> None:
        """Nodes without a step must be reshapes that move nothing."""
        running = {step.node for step in self.plan.steps}
        for number, node in enumerate(self.graph.nodes):
            if number in running:
                continue
            if not isinstance(node.op, Reshape):
                self.fail(f"{node} never runs")
            source, target = self.graph.required(node, 0), node.outputs[0]
            if self.graph.tensors[source].variable is not None:
                self.fail(f"{node} is a view of a variable, which may change")
            if self.place(source) != self.place(target):
                self.fail(f"{node} never runs, but {self._both(source, target)}")
            self.value[target] = self.value[source]

    # -- places

    def place(self, tensor: int) -> _Range:
        """Where a tensor lives, checked against the buffer."""
        home = self.plan.placements[tensor]
        if home is None:
            self.fail(f"{self.name(tensor)} is used but has no place")
        index = 0 if home.space in (Space.WORKSPACE, Space.STATE) else home.index
        found = _Range(
            home.space, index, home.offset, home.offset + self.graph.type(tensor).nbytes
        )
        capacity = self._capacity(home)
        if capacity is None:
            self.fail(f"{self.name(tensor)} lives in {found}, which doesn't exist")
        if not 0 <= found.start <= found.end <= capacity:
            self.fail(f"{self.name(tensor)} takes {found}, which has {capacity}")
        if home.offset % self.plan.alignment:
            self.fail(
                f"{self.name(tensor)} takes {found}, not aligned to {self.plan.alignment}"
            )
        return found

    def _capacity(self, home: Placement) -> int | None:
        match home.space:
            case Space.WORKSPACE:
                return self.plan.workspace_size
            case Space.STATE:
                return self.plan.state_size
            case Space.INPUT:
                return self._size_of(self.graph.inputs, home.index)
            case Space.OUTPUT:
                return self._size_of(self.graph.outputs, home.index)
            case Space.CONSTANT:
                exists = 0 <= home.index < len(self.graph.tensors)
                constant = self.graph.constant(home.index) if exists else None
                return constant.nbytes if constant is not None else None

    def _size_of(self, tensors: Sequence[int], index: int) -> int | None:
        inside = 0 <= index < len(tensors)
        return self.graph.type(tensors[index]).nbytes if inside else None

    # -- values

    def _read(self, reader: str, tensor: int) -> None:
        """The tensor's bytes must all hold its value."""
        if self.graph.constant(tensor) is not None and self.plan.placements[tensor] is None:
            return
        at = self.place(tensor)
        value = self.value[tensor]
        if at.space is Space.CONSTANT:
            if at.index != value or at.start:
                self.fail(f"{reader} reads {self.name(tensor)} from {self.name(at.index)}")
            return
        found = self.memory.stranger(at, value)
        if found is None:
            return
        start, end, holder = found
        held = "nothing yet" if holder is None else self.name(holder)
        self.fail(
            f"{reader} reads {self.name(tensor)} ({at}), but bytes {start} to {end} "
            f"hold {held}"
        )

    # -- steps

    def _step(self, node: Node, in_place: tuple[tuple[int, int], ...]) -> None:
        for tensor in node.inputs:
            if tensor is not None:
                self._read(str(node), tensor)
        for tensor in self.graph.written(node):
            at = self.place(tensor)
            if at.space is not Space.STATE:
                self.fail(f"{node} keeps {self.name(tensor)} in {at}")
            self.memory.write(at, self.value[tensor])
        for position, tensor in enumerate(node.outputs):
            at = self.place(tensor)
            if at.space not in (Space.WORKSPACE, Space.OUTPUT):
                self.fail(f"{node} writes {self.name(tensor)} to {at}")
            self._check_overlaps(node, position, at, in_place)
        for tensor in node.outputs:
            self.memory.write(self.place(tensor), self.value[tensor])
        for tensor in node.outputs:
            self._read(f"{node}, when done,", tensor)

    def _check_overlaps(
        self, node: Node, position: int, at: _Range, in_place: tuple[tuple[int, int], ...]
    ) -> None:
        output = node.outputs[position]
        for number, tensor in enumerate(node.inputs):
            if tensor is None or self.plan.placements[tensor] is None:
                continue
            source = self.place(tensor)
            declared = (position, number) in in_place
            if not source.overlaps(at):
                if declared and source != at:
                    self.fail(f"{node} says in place, but {self._both(tensor, output)}")
                continue
            if not declared:
                self.fail(f"{node} overwrites what it reads: {self._both(tensor, output)}")
            if source != at or not self._elementwise(node, tensor, output):
                self.fail(f"{node} can't work in place: {self._both(tensor, output)}")

    def _both(self, source: int, target: int) -> str:
        return (
            f"{self.name(source)} is {self.place(source)}, "
            f"{self.name(target)} {self.place(target)}"
        )

    def _elementwise(self, node: Node, source: int, target: int) -> bool:
        """Whether element i of the output depends on no other element of this input."""
        before, after = self.graph.type(source), self.graph.type(target)
        return (
            isinstance(node.op, Elementwise)
            and before.elements == after.elements
            and before.dtype.itemsize == after.dtype.itemsize
        )

    def _check_results(self) -> None:
        for variable in self.graph.variables:
            self._read("the next run", variable)
        for index, tensor in enumerate(self.graph.outputs):
            at = self.place(tensor)
            if (at.space, at.index, at.start) != (Space.OUTPUT, index, 0):
                self.fail(f"graph output {index}, {self.name(tensor)}, ends in {at}")
            self._read(f"the caller of output {index}", tensor)
