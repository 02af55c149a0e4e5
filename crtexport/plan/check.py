"""Proves a plan by running it with names instead of numbers.

Shares no code and no idea with the planner: each byte of each buffer remembers which tensor's
value it holds, each node checks that what it reads is still there, then overwrites. Where a node
overwrites its own input, or doesn't run because it only copies, a proof about its kernel decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, EthosU, Foreign, Reshape, While
from crtexport.ir.variables import accesses
from crtexport.lowering.facts import ByteMove
from crtexport.lowering.rows.bands import Bands
from crtexport.plan.check_rows import CascadeMemory, RowProof, RowsError, check_rows
from crtexport.plan.memory import KEPT, NOTHING, Contents, Piece, Range
from crtexport.plan.model import Inner, Placement, Plan, ScratchRange, Space, Step


class PlanError(Exception):
    """A plan would compute something else than its graph: a fault of the planner."""


class KernelProof(Protocol):
    """The facts that can be proven about the kernels of a plan."""

    def harmless(self, step: Step, output: int, position: int, distance: int) -> bool:
        """Returns whether output ``output`` of a step may begin ``distance`` bytes after its input
        ``position`` though they overlap: no byte is overwritten before its last read."""

    def moves(self, number: int) -> tuple[ByteMove, ...] | None:
        """Returns all that node ``number`` does, as copies; None if it does anything else."""

    def scratch(self, step: Step) -> int:
        """Returns the bytes that the kernel of a step needs besides its tensors."""

    def inner(self, node: int, graph: int) -> KernelProof:
        """Returns the proofs for one of the graphs that a node runs."""

    def rows(self, node: int) -> tuple[Bands, RowProof] | None:
        """Returns the work of a cascade on rows, and what can be proven about its kernels; None for
        a node without."""


def check(graph: Graph, plan: Plan, proof: KernelProof | None = None) -> None:
    """Raises PlanError, naming the tensors and bytes, unless ``plan`` computes ``graph``.

    Proven: every step reads whole and unharmed values; only workspace and outputs are written;
    a node's output overlaps its inputs only where the step says so and ``proof`` says that this
    does no harm (never without one); offsets are aligned to their elements and inside; every graph
    output is complete at the end.
    """
    _Simulation(graph, plan, proof).run()


def _goes_on(node: Node) -> bool:
    """Returns whether a node computes with rows that it kept in the run before."""
    return isinstance(node.op, Cascade) and node.op.hop > 0


class _Simulation:
    """One run of a plan."""

    def __init__(self, graph: Graph, plan: Plan, proof: KernelProof | None) -> None:
        self.graph, self.plan, self.proof = graph, plan, proof
        self.memory = Contents()
        # What each tensor holds. A view has bytes of what it views: the same under another name.
        self.contents: list[tuple[Piece, ...]] = [
            (Piece(0, tensor.type.nbytes, number, 0),)
            for number, tensor in enumerate(graph.tensors)
        ]

    def fail(self, problem: str) -> NoReturn:
        raise PlanError(f"{self.graph.source or self.graph.name!r}: {problem}")

    def name(self, tensor: int) -> str:
        return f"tensor {tensor} {self.graph.tensors[tensor].name!r}"

    def run(self) -> None:
        self._check_frame()
        variables = set(self.graph.variables)
        for index, tensor in enumerate(self.graph.inputs):
            if tensor in variables:  # lent by the graph around this one
                continue
            self._check_given(index, tensor)
            self.memory.write(self.place(tensor), tensor)
        for variable in self.graph.variables:
            self.memory.write(self.place(variable), variable)
        self._take_views()
        for step in self.plan.steps:
            self._step(step)
        self._check_results()

    def _check_given(self, index: int, tensor: int) -> None:
        """A graph input lies where its writer will put it."""
        home = self.plan.placements[tensor]
        if home is None:
            self.fail(f"{self.name(tensor)} is a graph input but has no place")
        inside = self.plan.io_in_workspace and home.space is Space.WORKSPACE
        usual = Space.OUTPUT if index in self.plan.shared else Space.INPUT
        if not inside and home != Placement(usual, index):
            self.fail(f"graph input {index}, {self.name(tensor)}, lies in {self.place(tensor)}")
        for other in self.graph.inputs[:index]:
            lent = self.graph.tensors[other].variable is not None
            if not lent and self.place(other).overlaps(self.place(tensor)):
                self.fail(f"two graph inputs overlap: {self._both(other, tensor)}")

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
        """Nodes without a step must only copy, to where the copies already are."""
        running = {step.node for step in self.plan.steps}
        for number, node in enumerate(self.graph.nodes):
            if number in running:
                continue
            moves = self._moves(number)
            if moves is None:
                self.fail(f"{node} never runs")
            for move in moves:
                source = self.graph.required(node, move.input)
                target = node.outputs[move.output]
                if self.graph.tensors[source].variable is not None:
                    self.fail(f"{node} is a view of a variable, which may change")
                before, after = self.place(source), self.place(target)
                same = (before.space, before.index) == (after.space, after.index)
                if not same or before.start + move.source != after.start + move.target:
                    self.fail(f"{node} never runs, but {self._both(source, target)}")
            for output, target in enumerate(node.outputs):
                self.contents[target] = self._assembled(node, output, moves)

    def _moves(self, number: int) -> tuple[ByteMove, ...] | None:
        node = self.graph.nodes[number]
        if isinstance(node.op, Reshape):
            return (ByteMove(0, 0, 0, 0, self.graph.type(node.outputs[0]).nbytes),)
        return self.proof.moves(number) if self.proof is not None else None

    def _assembled(self, node: Node, output: int, moves: tuple[ByteMove, ...]) -> tuple[Piece, ...]:
        """Returns the content of a view, piece by piece; all of it must have a source."""
        pieces: list[Piece] = []
        for move in sorted(moves, key=lambda m: m.target):
            if move.output != output:
                continue
            shift = move.target - move.source
            for piece in self.contents[self.graph.required(node, move.input)]:
                start = max(piece.start, move.source)
                end = min(piece.end, move.source + move.nbytes)
                if start < end:
                    pieces.append(
                        Piece(start + shift, end + shift, piece.value, piece.base + shift)
                    )
        held = sum(p.end - p.start for p in pieces)
        if held != self.graph.type(node.outputs[output]).nbytes:
            self.fail(f"{node} never runs, but nothing gives all of its output {output}")
        return tuple(pieces)

    # -- places

    def place(self, tensor: int) -> Range:
        """Returns the bytes of a tensor, checked against the buffer."""
        home = self.plan.placements[tensor]
        if home is None:
            self.fail(f"{self.name(tensor)} is used but has no place")
        index = 0 if home.space is Space.STATE else home.index
        found = Range(
            home.space, index, home.offset, home.offset + self.graph.type(tensor).nbytes
        )
        capacity = self._capacity(home)
        if capacity is None:
            self.fail(f"{self.name(tensor)} lives in {found}, which doesn't exist")
        if not 0 <= found.start <= found.end <= capacity:
            self.fail(f"{self.name(tensor)} takes {found}, which has {capacity}")
        item = self.graph.type(tensor).dtype.itemsize
        if home.offset % item or (item > self.plan.alignment):
            self.fail(f"{self.name(tensor)} takes {found}, not aligned to {item}")
        return found

    def _capacity(self, home: Placement) -> int | None:
        match home.space:
            case Space.WORKSPACE:
                exists = 0 <= home.index < len(self.plan.pools)
                return self.plan.pools[home.index] if exists else None
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
        for piece in self.contents[tensor]:
            part = Range(at.space, at.index, at.start + piece.start, at.start + piece.end)
            base = at.start + piece.base
            if at.space is Space.CONSTANT:
                if (at.index, 0) != (piece.value, base):
                    self.fail(f"{reader} reads {self.name(tensor)} from {self.name(at.index)}")
                continue
            found = self.memory.stranger(part, piece.value, base)
            if found is None:
                continue
            start, end, holder = found
            held = "nothing yet" if holder is None else (
                "scratch" if holder == NOTHING else self.name(holder)
            )
            self.fail(
                f"{reader} reads {self.name(tensor)} ({at}), but bytes {start} to {end} "
                f"hold {held}"
            )

    # -- steps

    def _step(self, step: Step) -> None:
        node = self.graph.nodes[step.node]
        for tensor in node.inputs:
            if tensor is not None:
                self._read(str(node), tensor)
        self._use_scratch(step)
        if isinstance(node.op, EthosU):
            self._check_arena(step, node, node.op)
        for tensor in self.graph.written(node):
            at = self.place(tensor)
            if at.space is not Space.STATE:
                self.fail(f"{node} keeps {self.name(tensor)} in {at}")
            self.memory.write(at, tensor)
        for position, tensor in enumerate(node.outputs):
            at = self.place(tensor)
            if at.space not in (Space.WORKSPACE, Space.OUTPUT):
                self.fail(f"{node} writes {self.name(tensor)} to {at}")
            # An Ethos-U orders its reads and writes itself; those of a cascade are proven by rows.
            if not isinstance(node.op, Cascade | EthosU):
                self._check_overlaps(step, position, at)
        for tensor in node.outputs:
            self.memory.write(self.place(tensor), tensor)
        for tensor in node.outputs:
            self._read(f"{node}, when done,", tensor)

    def _use_scratch(self, step: Step) -> None:
        """Checks that the scratch of a kernel exists, apart from its tensors, and overwrites it."""
        node = self.graph.nodes[step.node]
        if step.inner or node.graphs:
            needed = self._check_inner(step)
        elif isinstance(node.op, Cascade):
            needed = self._check_rows(step)
        elif isinstance(node.op, EthosU):
            needed = node.op.scratch
        elif isinstance(node.op, Foreign):
            needed = 0
        else:
            needed = self.proof.scratch(step) if self.proof is not None else 0
        given = step.scratch.nbytes if step.scratch is not None else 0
        if given < needed:
            self.fail(f"{node} needs {needed} bytes of scratch, but has {given}")
        if step.scratch is None:
            return
        first, pool = step.scratch.offset, step.scratch.pool
        at = Range(Space.WORKSPACE, pool, first, first + given)
        capacity = self._capacity(Placement(Space.WORKSPACE, pool))
        if capacity is None:
            self.fail(f"the scratch of {node} takes {at}, which doesn't exist")
        if not 0 <= at.start <= at.end <= capacity:
            self.fail(f"the scratch of {node} takes {at}, which has {capacity}")
        if first % self.plan.alignment:
            self.fail(f"the scratch of {node} takes {at}, not aligned to {self.plan.alignment}")
        for tensor in (*node.inputs, *node.outputs):
            if tensor is None or self.plan.placements[tensor] is None:
                continue
            inside = isinstance(node.op, EthosU) or (_goes_on(node) and tensor in node.outputs)
            if self.place(tensor).overlaps(at) and not inside:
                self.fail(f"the scratch of {node} takes {at}, where {self.name(tensor)} lies")
        self.memory.write(at, KEPT if _goes_on(node) else NOTHING)

    def _check_rows(self, step: Step) -> int:
        """Proves the plan of a cascade's rows; the bytes of scratch that these need."""
        node = self.graph.nodes[step.node]
        known = self.proof.rows(step.node) if self.proof is not None else None
        if known is None or step.rows is None:
            self.fail(f"{node} has no rows")
        bands, proof = known
        given = step.scratch or ScratchRange(0, 0)
        frame = CascadeMemory(
            Range(Space.WORKSPACE, given.pool, given.offset, given.offset + given.nbytes),
            {
                tensor: self.place(tensor) for tensor in (*node.inputs, *node.outputs)
                if tensor is not None and self.graph.constant(tensor) is None
            },
        )
        try:
            check_rows(self.graph, node, bands, step.rows, self.plan.alignment, proof, frame)
        except RowsError as error:
            self.fail(str(error))
        return step.rows.size

    def _check_arena(self, step: Step, node: Node, op: EthosU) -> None:
        """Tensors lie where the commands look for them."""
        scratch = step.scratch or ScratchRange(0, 0)
        for tensor, at in zip((*node.inputs[op.first :], *node.outputs), op.places, strict=True):
            if tensor is None or self.plan.placements[tensor] != Placement(
                Space.WORKSPACE, scratch.pool, scratch.offset + at
            ):
                self.fail(f"{node} wants an input or output at byte {at} of its arena")

    def _check_inner(self, step: Step) -> int:
        """Proves the plans of the graphs that a node runs; the bytes of scratch that they need.

        Whatever such a graph writes lies in the node's scratch or outputs, so that what it is given
        stays; a loop's body leaves its outputs where they are given to it, or apart from all that
        it reads.
        """
        node = self.graph.nodes[step.node]
        if len(step.inner) != len(node.graphs):
            self.fail(f"{node} has {len(node.graphs)} graphs, but {len(step.inner)} plans of them")
        needed = 0
        for number, (inner, graph) in enumerate(zip(step.inner, node.graphs, strict=True)):
            what = f"graph {number} of {node}"
            proof = None if self.proof is None else self.proof.inner(step.node, number)
            try:
                check(graph, inner.plan, proof)
            except PlanError as error:
                self.fail(f"{what}: {error}")
            if inner.plan.io_in_workspace or self.plan.alignment % inner.plan.alignment:
                self.fail(f"{what} is planned as if it were a network of its own")
            placed = len(inner.outputs) == len(graph.outputs)
            if not placed or not self._placed_well(node, number, inner):
                self.fail(f"{what} doesn't put its outputs where {node} looks for them")
            parts = [(inner.workspace, inner.plan.workspace_size)]
            sizes = [graph.type(tensor).nbytes for tensor in graph.outputs]
            for start, size in zip(inner.outputs, sizes, strict=True):
                parts += [(start, size)] if start is not None else []
            needed = max(needed, self._check_apart(what, parts))
        return needed

    def _placed_well(self, node: Node, number: int, inner: Inner) -> bool:
        """Returns whether the outputs of a graph are where they can be found, and over no other
        input."""
        own = frozenset(i for i, start in enumerate(inner.outputs) if start is None)
        if not isinstance(node.op, While):
            return not inner.plan.shared and len(own) == len(inner.outputs)
        return inner.plan.shared == own and (number == 1 or not own)

    def _check_apart(self, what: str, parts: list[tuple[int, int]]) -> int:
        """Returns the end of ranges (start, size), which must be aligned and have no byte in
        common."""
        end = 0
        for start, size in sorted(parts):
            if size and start < end:
                self.fail(f"{what} uses byte {start} of its scratch twice")
            if start % self.plan.alignment:
                self.fail(f"{what} uses its scratch from byte {start} on, which isn't aligned")
            end = max(end, start + size)
        return end

    def _check_overlaps(self, step: Step, position: int, at: Range) -> None:
        node = self.graph.nodes[step.node]
        output = node.outputs[position]
        for number, tensor in enumerate(node.inputs):
            if tensor is None or self.plan.placements[tensor] is None:
                continue
            source = self.place(tensor)
            declared = (position, number) in step.in_place
            if not source.overlaps(at):
                if declared:
                    self.fail(f"{node} says in place, but {self._both(tensor, output)}")
                continue
            if not declared:
                self.fail(f"{node} overwrites what it reads: {self._both(tensor, output)}")
            distance = at.start - source.start
            if self.proof is None or not self.proof.harmless(
                step, position, number, distance
            ):
                self.fail(f"{node} can't work in place: {self._both(tensor, output)}")

    def _both(self, source: int, target: int) -> str:
        return (
            f"{self.name(source)} is {self.place(source)}, "
            f"{self.name(target)} {self.place(target)}"
        )

    def _check_kept(self) -> None:
        """Nothing overwrites the rows that a cascade needs for the next result."""
        for step in self.plan.steps:
            node = self.graph.nodes[step.node]
            if not _goes_on(node) or step.scratch is None:
                continue
            start, end = step.scratch.offset, step.scratch.offset + step.scratch.nbytes
            whole = Range(Space.WORKSPACE, step.scratch.pool, start, end)
            (output,) = (self.place(tensor) for tensor in node.outputs)
            parts = ((start, output.start), (output.end, end))
            if any(
                first < last and self.memory.stranger(
                    replace(whole, start=first, end=last), KEPT, start
                ) for first, last in parts
            ):
                self.fail(f"rows of {node} are overwritten that the next result needs")
            self._read(f"the next result of {node}", node.outputs[0])

    def _check_results(self) -> None:
        self._check_kept()
        for variable in self.graph.variables:
            self._read("the next run", variable)
        for index, tensor in enumerate(self.graph.outputs):
            at = self.place(tensor)
            inside = self.plan.io_in_workspace and at.space is Space.WORKSPACE
            if not inside and (at.space, at.index, at.start) != (Space.OUTPUT, index, 0):
                self.fail(f"graph output {index}, {self.name(tensor)}, ends in {at}")
            self._read(f"the caller of output {index}", tensor)
