"""Cuts a network into segments: nodes that are computed one whole tensor after another, and
cascades, which are computed row by row.

A network can be cut between any two nodes, in their order. What is alive there is in memory as a
whole; between two cuts, a cascade keeps rows. How many bytes a segment needs is estimated from what
rings have at each step of a cascade of all nodes that can be computed row by row without a gap.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator

import numpy as np
from msgspec import Struct

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Reshape
from crtexport.lowering.facts import Facts
from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import Compute, RowSchedule, RowStep, row_schedule
from crtexport.pipeline.cascades.costs import BandCosts
from crtexport.plan.live_bytes import LiveBytes, live_bytes
from crtexport.plan.rows import row_bytes

_LONGEST = 96
"""Most nodes of a cascade."""
_ROWS = 3
"""Rows of a result after which the memory of a cascade doesn't grow any more."""
_SMALL = 1 / 12
"""The part of the largest segment's memory below which a node's rows needn't be known exactly."""
_PART = 1e-5
"""The part of the network's instructions that a further node in a cascade must gain."""


class Segment(Struct, frozen=True):
    """Nodes ``start`` to ``end`` (exclusive), as a cascade or one by one. ``around``: bytes of
    whole tensors that are in memory meanwhile; ``nbytes``: with those of rings and scratch."""

    start: int
    end: int
    rows: bool
    around: int
    nbytes: int

    @property
    def nodes(self) -> range:
        """Returns the numbers of its nodes."""
        return range(self.start, self.end)


class Segments:
    """All segments of a graph. ``outside`` are tensors that take no memory of the workspace.
    ``fed``: a tensor whose rows are given one after the other, and its first reader, with which a
    cascade begins that reads all of them and makes none of the graph's outputs. ``least``: bytes
    without which there is no path; None where there is none anyway."""

    def __init__(
        self, costs: BandCosts, outside: Collection[int], fed: tuple[int, int] | None = None
    ) -> None:
        self._costs, self._graph, self._outside = costs, costs.graph, outside
        self._sizes = [
            0 if number in outside else tensor.type.nbytes
            for number, tensor in enumerate(self._graph.tensors)
        ]
        self._fed = None if fed is None else fed[0]
        self._first = None if fed is None else fed[1]
        self._alive = _alive(self._graph)
        self._alive_bytes = [self._whole(alive) for alive in self._alive]
        self._makers = {t: n for n, node in enumerate(self._graph.nodes) for t in node.outputs}
        self._kept: dict[int, int] = {}
        self._more = [0] * len(self._graph.nodes)
        self._by_end: list[list[Segment]] = [[] for _ in range(len(self._graph.nodes) + 1)]
        self._bytes: dict[tuple[int, int], int] = {}
        self._overheads: dict[int, float] = {}
        for number, node in enumerate(self._graph.nodes):
            if self._fed is None or self._fed not in node.inputs:
                self._add(self._single(number))
        self._largest = self.most()
        self._alone = self._single_bytes()
        runs = [*self._runs()]
        needed = self._needed(runs)
        for run in runs:
            self._add_cascades(run, needed)
        self.least = self._least()

    def _least(self) -> int | None:
        best: list[int | None] = [0]
        for end in range(1, len(self._by_end)):
            best.append(min((
                max(before, segment.nbytes) for segment in self._by_end[end]
                if (before := best[segment.start]) is not None
            ), default=None))
        return best[-1]

    def most(self) -> int:
        """Returns the bytes of the segment that needs most."""
        return max((segment.nbytes for found in self._by_end for segment in found), default=0)

    def within(self, nbytes: int) -> list[Segment]:
        """Returns the segments, none of which needs more, with the fewest instructions; ``nbytes``
        are ``least`` or more."""
        best: list[tuple[float, Segment | None] | None] = [(0.0, None)]
        for end in range(1, len(self._by_end)):
            found: tuple[float, Segment | None] | None = None
            for segment in self._by_end[end]:
                before = best[segment.start]
                if before is None or segment.nbytes > nbytes or self._longer(segment, nbytes):
                    continue
                cost = before[0] + self._cost(segment)
                if found is None or cost < found[0]:
                    found = cost, segment
            best.append(found)
        path: list[Segment] = []
        at = len(best) - 1
        while at:
            last = best[at]
            if last is None or last[1] is None:
                raise ValueError(f"no path of segments needs {nbytes} bytes or less")
            path.append(last[1])
            at = last[1].start
        return path[::-1]

    def outputs(self, segment: Segment) -> tuple[int, ...]:
        """Returns what later nodes read of a segment's results."""
        made = (t for n in segment.nodes for t in self._graph.nodes[n].outputs)
        return tuple(t for t in made if t in self._alive[segment.end])

    def _add(self, segment: Segment) -> None:
        self._by_end[segment.end].append(segment)
        self._bytes[segment.start, segment.end] = segment.nbytes

    def _longer(self, segment: Segment, nbytes: int) -> bool:
        """Returns whether a cascade needn't have its first or its last node, which takes no more
        than ``nbytes`` alone."""
        start, end = segment.start, segment.end
        shorter = ((start, start + 1), (start + 1, end)), ((end - 1, end), (start, end - 1))
        return segment.rows and end - start > 1 and any(
            all(self._bytes.get(part, nbytes + 1) <= nbytes for part in parts) for parts in shorter
        )

    def _cost(self, segment: Segment) -> float:
        """Returns the instructions that a segment takes more."""
        return math.fsum(map(self._overhead, segment.nodes)) if segment.rows else 0.0

    def _whole(self, tensors: Collection[int]) -> int:
        return sum(self._sizes[tensor] for tensor in tensors)

    def _around(self, start: int, end: int, outputs: Collection[int]) -> int:
        """Returns the bytes of whole tensors while a cascade runs that makes ``outputs``; one of
        them may lie over what dies."""
        dying = [self._sizes[tensor] for tensor in self._alive[start] - self._alive[end]]
        made = max([self._sizes[tensor] for tensor in outputs])
        return self._alive_bytes[end] + sum(dying) - min(max(dying, default=0), made)

    def _single(self, number: int) -> Segment:
        node, facts = self._graph.nodes[number], self._costs.lowered.nodes[number].facts
        before, after = self._alive[number], self._alive[number + 1]
        if isinstance(node.op, Reshape):
            return Segment(number, number + 1, False, 0, 0)
        shared = max((
            freedom.shared(self._graph.type(source).nbytes, self._graph.type(output).nbytes)
            for (position, freedom) in facts.forward.items()
            for output in node.outputs[position[0] : position[0] + 1]
            for source in node.inputs[position[1] : position[1] + 1]
            if source is not None and source not in after
            and not {source, output} & {*self._outside}
        ), default=0)
        around = self._whole(before | after | {*node.outputs}) - shared
        return Segment(number, number + 1, False, around, around + facts.scratch)

    # -- cascades

    def _runs(self) -> Iterator[range]:
        """Yields nodes that can be computed row by row together, at least two."""
        start = 0
        while start < len(self._graph.nodes):
            end, filled = start, dict[int, object]()
            while end < len(self._graph.nodes) and self._fits(end, filled):
                end += 1
            if end - start > (self._fed is None):
                yield range(start, end)
            start = max(end, start + 1)

    def _fits(self, number: int, filled: dict[int, object]) -> bool:
        """Returns whether a node can be in a cascade with those before: readers of a tensor must
        see the same padding around it. ``filled``: that of each tensor that has any."""
        if not self._costs.can(number):
            return False
        found = self._costs.paddings(number)
        if any(filled.get(tensor, value) != value for tensor, value in found.items()):
            return False
        filled.update(found)
        return True

    def _needed(self, runs: Iterable[range]) -> int:
        """Returns bytes that every path needs: those of nodes that no cascade computes, and what is
        alive at one of so many neighbouring cuts that a cascade can't reach over all of them."""
        reshape = [isinstance(node.op, Reshape) for node in self._graph.nodes]
        cuts = [
            0 if all(reshape[max(cut - 1, 0) : cut + 1]) else nbytes
            for cut, nbytes in enumerate(self._alive_bytes)
        ]
        needed, start = 0, 0
        for run in (*runs, range(len(reshape), len(reshape))):
            alone = (self._bytes.get((n, n + 1), 0) for n in range(start, run.start))
            within = (
                min(cuts[cut : cut + _LONGEST])
                for cut in range(run.start + 1, run.stop - _LONGEST + 1)
            )
            needed = max(needed, cuts[run.start], cuts[run.stop], *alone, *within)
            start = run.stop
        return needed

    def _single_bytes(self) -> list[float]:
        """Returns what each node needs alone, any amount where it can't be computed so. A cascade
        that needs as much as each of its nodes does alone is in no path: they take less time."""
        return [self._bytes.get((n, n + 1), math.inf) for n in range(len(self._graph.nodes))]

    def _add_cascades(self, run: range, needed: int) -> None:
        """Adds the cascades of a run that some path may have, each of which needs ``needed``."""
        large = [number for number in run if self._alone[number] > needed]
        if not large:
            return
        self._measure(run)
        most = max(self._alone[number] for number in large)
        for start in range(run.start, large[-1] + 1):
            with_large = large[bisect_left(large, start)] + 1
            for segment in self._cascades(start, with_large, run.stop, most):
                self._add(segment)

    def _measure(self, run: range) -> None:
        """Estimates what each ring of a cascade of all nodes of a run needs between the steps that
        use it, and how much more each node needs while it runs."""
        nodes = [self._graph.nodes[number] for number in run]
        outputs = tuple(
            t for node in nodes for t in node.outputs
            if t in self._alive[run.stop] and not self._padded(t, run)
        )
        node = cascade(nodes, outputs or nodes[-1].outputs, fed=self._takes_rows(run.start))
        units = [self._costs.unit(number) for number in run]
        schedule = row_schedule(self._graph, node, [1] * len(nodes), _ROWS * units[-1])
        if schedule is None:
            return
        sizes = {tensor: row_bytes(self._graph, tensor) for tensor in schedule.capacity}
        live = live_bytes(
            schedule, sizes, lambda work: self._facts(run[work.part], work.rows)
        )
        self._kept |= _between(schedule, live)
        for number, step in enumerate(schedule.steps):
            if isinstance(step.work, Compute):
                maker = run[step.work.part]
            elif step.write.tensor in self._makers:
                maker = self._makers[step.write.tensor]
            else:
                maker = run.start
            more = int(live.others[number]) + sum(
                int(live.rings[t][number]) - self._kept[t] for t in _rings(step)
            )
            self._more[maker] = max(self._more[maker], more)

    def _facts(self, number: int, rows: int) -> Facts:
        """Returns the facts of a band; what a whole node takes beside its tensors, if that is
        little."""
        alone = self._bytes.get((number, number + 1))
        if alone is not None and alone < _SMALL * self._largest:
            return Facts(scratch=self._costs.lowered.nodes[number].facts.scratch)
        return self._costs.of(number, rows).facts

    def _padded(self, tensor: int, run: range) -> bool:
        return any(tensor in self._costs.paddings(number) for number in run)

    def _cascades(self, start: int, first: int, stop: int, most: float) -> Iterator[Segment]:
        """Yields the cascades that begin with a node, end between ``first`` and ``stop``, and need
        less than one of their nodes alone. ``most``: what any of these needs."""
        made: set[int] = set()
        padded: set[int] = set()
        alone, more, kept, fed = 0.0, 0, 0, False
        least = 0  # whole tensors that a cascade makes need their rings' bytes, too
        for end in range(start + 1, min(stop, start + _LONGEST) + 1):
            node = self._graph.nodes[end - 1]
            made.update(node.outputs)
            padded.update(self._costs.paddings(end - 1))
            alone = max(alone, self._alone[end - 1])
            more = max(more, self._more[end - 1])
            kept += self._in_rings(node.outputs)
            least += sum([min(self._kept.get(t, 0), self._sizes[t]) for t in node.outputs])
            if least + more >= most:
                return
            fed = fed or self._fed in node.inputs
            if end < first or self._alive_bytes[end] >= alone:
                continue
            outputs = made & self._alive[end]
            if not outputs or outputs & padded or not self._possible(start, end, outputs, fed=fed):
                continue
            around = self._around(start, end, outputs)
            nbytes = around + kept - self._in_rings(outputs) + more
            if nbytes < alone:
                yield Segment(start, end, True, around, nbytes)

    def _in_rings(self, tensors: Collection[int]) -> int:
        return sum([self._kept.get(tensor, 0) for tensor in tensors])

    def _takes_rows(self, start: int) -> bool:
        """Returns whether a cascade from a node on is that whose rows are given."""
        return self._fed is not None and start == self._first

    def _possible(self, start: int, end: int, outputs: set[int], *, fed: bool) -> bool:
        if not fed:
            return end - start > 1
        return start == self._first and self._fed not in self._alive[end] and (
            outputs.isdisjoint(self._graph.outputs)
        )

    def _overhead(self, number: int) -> float:
        """Returns the instructions that a node takes more in a cascade, at the best of a few
        heights."""
        if number not in self._overheads:
            whole, units = self._costs.whole(number), self._costs.units(number)
            least = min(
                self._costs.by_rows(number, height) for height in (1, 2) if height <= units
            )
            self._overheads[number] = max(least - whole, 0) + _PART * self._costs.total
        return self._overheads[number]


def _rings(step: RowStep) -> set[int]:
    """Returns the tensors of which a step reads or writes rows in rings."""
    places = (step.write, *step.reads)
    return {place.tensor for place in places if place is not None and place.slot is not None}


def _between(schedule: RowSchedule, live: LiveBytes) -> dict[int, int]:
    """Returns the most bytes of each ring that are needed while no step uses it."""
    unused = {tensor: np.ones(len(schedule.steps), np.bool_) for tensor in live.rings}
    for number, step in enumerate(schedule.steps):
        for tensor in _rings(step):
            unused[tensor][number] = False
    return {
        tensor: int(ring[unused[tensor]].max(initial=0)) for tensor, ring in live.rings.items()
    }


def _alive(graph: Graph) -> list[set[int]]:
    """Returns the tensors that are in memory before each node, and after the last."""
    last: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        last.update({t: number for t in node.inputs if t is not None})
    last.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    alive = {t for t in graph.inputs if t in last}
    found = [set(alive)]
    for number, node in enumerate(graph.nodes):
        alive |= {t for t in node.outputs if t in last}
        alive = {t for t in alive if last[t] > number}
        found.append(set(alive))
    return found
