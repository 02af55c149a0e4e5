"""Searches for cascades of a network's nodes, instead of one whole tensor after another.

From one result to the next, memory grows and what it costs falls, as estimated: instructions, and
bytes of code for what balanced kernels trade them for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from crtexport.artifact.row_calls import call_sites
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Reshape
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode
from crtexport.lowering.rows.bands import cascade
from crtexport.pipeline.cascades.costs import BandCosts, KernelTotals, time_of
from crtexport.pipeline.cascades.heights import Choice, choices
from crtexport.pipeline.cascades.images import as_images, fed_tensor
from crtexport.pipeline.cascades.segments import Segment, Segments
from crtexport.pipeline.cascades.sums import with_sums, without_sums
from crtexport.pipeline.cascades.upright import joined, upright
from crtexport.plan.model import Plan
from crtexport.plan.planner import RowPlans
from crtexport.schedules.select.lower import Lowerer

_STEP = 1.06
"""The factor from one number of bytes to the next for which cascades are looked for."""

_SLOW = 2
"""Cascades after which no faster ones are expected."""

Planner = Callable[[LoweredGraph, RowPlans], Plan]
Made = tuple[LoweredGraph, Plan]
"""A graph lowered, and its plan."""


class Cascades(Struct, frozen=True):
    """``segments`` of a graph with how many rows their nodes compute at once; ``nbytes`` of
    workspace, and ``more`` work than one whole tensor after another takes, as estimated."""

    segments: tuple[tuple[Segment, Choice], ...]
    nbytes: int
    more: KernelTotals

    @property
    def instructions(self) -> int:
        """Returns the instructions that it takes more."""
        return self.more.instructions

    @property
    def parts(self) -> int:
        """Returns the number of nodes that run row by row."""
        return sum(len(segment.nodes) for segment, _ in self.segments)


class CascadeSearch:
    """Searches for cascades of a graph; ``planner`` plans. ``outside``: inputs and outputs take no
    memory of the workspace. ``fed``: the rows of the one input are given one after the
    other; ``lowered``: nodes that were lowered before."""

    def __init__(
        self, graph: Graph, lower: Lowerer, planner: Planner, *, outside: bool, fed: bool = False,
        lowered: Mapping[Node, LoweredNode] = MappingProxyType({}),
    ) -> None:
        self._graph = with_sums(as_images(graph))
        self._turned = upright(self._graph)
        self._lower, self._planner = lower, planner
        self._costs = BandCosts(self._graph, self._turned, lower, lowered)
        self._fed = fed_tensor(self._graph) if fed else None
        self._segments = Segments(
            self._costs, _outside(self._graph) if outside else (), self._fed
        )
        self._choices: dict[object, list[Choice]] = {}
        self._row_plans: RowPlans = {}
        self._lowered: dict[Node, LoweredNode] = dict(
            zip(self._graph.nodes, self._costs.lowered.nodes, strict=True)
        )
        self._made: dict[Cascades, Made] = {}

    @property
    def instructions(self) -> int:
        """Returns the instructions of one whole tensor after another, as estimated."""
        return self._costs.total

    @property
    def time(self) -> int:
        """Returns the time of one whole tensor after another, as estimated, as in
        ``KernelTotals``."""
        return self._costs.time

    def time_of(self, planned: Made) -> int:
        """Returns the time of a graph that is lowered, in the same unit."""
        return time_of(planned[0], self._lower)

    def below(self, most: int | None = None) -> list[Cascades]:
        """Returns cascades, or those that need fewer bytes than ``most``, by rising bytes; none
        twice."""
        found = dict.fromkeys(
            cascades for cascades in self._by_bytes(most) if most is None or cascades.nbytes < most
        )
        return sorted(found, key=lambda cascades: (cascades.nbytes, cascades.instructions))

    def _by_bytes(self, most: int | None) -> Iterator[Cascades]:
        nbytes, largest = self._segments.least, self._segments.most()
        if nbytes is not None and (cascades := self.within(nbytes, least=True)) is not None:
            yield cascades
        while nbytes is not None and (most is None or nbytes < most):
            cascades = self.within(nbytes)
            if cascades is not None:
                yield cascades
            if nbytes >= largest:
                return
            nbytes = int(nbytes * _STEP) + 1

    @property
    def flash(self) -> int:
        """Returns the bytes of constants and of code of one whole tensor after another, as
        estimated."""
        return self._costs.flash

    def calls(self, planned: Made) -> int:
        """Returns how many calls compute the rows of a graph that is lowered and planned."""
        graph, plan = planned[0].graph, planned[1]
        rows = ((planned[0].nodes[step.node], step.rows) for step in plan.steps)
        return sum(
            call_sites(graph, lowered.node, lowered.rows, kept) for lowered, kept in rows
            if lowered.rows is not None and kept is not None
        )

    def cheap(self, most: int, time: float) -> Iterator[Cascades]:
        """Yields cascades from ``most`` bytes down that take no more ``time`` than one whole tensor
        after another and so much, to where several take more."""
        bound, nbytes, slow = self._segments.least, most - 1, 0
        while bound is not None and slow < _SLOW:
            for least in (False, True) if nbytes <= bound else (False,):
                cascades = self.within(nbytes, least=least, time=time)
                slow += 1
                if cascades is not None and cascades.more.time <= time:
                    slow = 0
                    yield cascades
            if nbytes <= bound:
                return
            smaller = nbytes if cascades is None else min(nbytes, cascades.nbytes)
            nbytes = max(int(smaller / _STEP), bound)

    def within(
        self, nbytes: int, *, least: bool = False, time: float = math.inf
    ) -> Cascades | None:
        """Returns the cascades of least cost that need no more bytes, or hardly more; None where
        there are none. ``least``: those with as little memory as they can; ``time``: that which a
        cascade may take more than its nodes as a whole."""
        most = self._segments.least
        if most is None:
            return None
        path = self._segments.within(max(nbytes, most))
        chosen: list[tuple[Segment, Choice]] = []
        worst, more = 0, KernelTotals()
        for segment in path:
            if not segment.rows:
                worst = max(worst, segment.nbytes)
                continue
            found = self._of(segment, time)
            if not found:
                return None
            fitting = [c for c in found if segment.around + c.nbytes <= nbytes]
            choice = fitting[-1] if fitting and not least else found[0]
            chosen.append((segment, choice))
            worst = max(worst, segment.around + choice.nbytes)
            more += choice.work - self._costs.of_whole(segment.nodes)
        return Cascades(tuple(chosen), worst, more) if chosen else None

    def _of(self, segment: Segment, time: float) -> list[Choice]:
        outputs, fed = self._segments.outputs(segment), self._given_rows(segment)
        key = self._costs.structure(segment.nodes, outputs), fed, time
        if key not in self._choices:
            self._choices[key] = choices(
                self._costs, segment.nodes, outputs, fed=fed,
                most=time + self._costs.of_whole(segment.nodes).time,
            )
        return self._choices[key]

    def _given_rows(self, segment: Segment) -> bool:
        return self._fed is not None and segment.start == self._fed[1]

    def made(self, cascades: Cascades) -> Made:
        """Returns the graph lowered that computes a network in these cascades, and its plan."""
        if cascades not in self._made:
            joined = self._joined(cascades)
            # Nodes that were lowered before stay as they are.
            kept = {
                number: self._lowered[node] for number, node in enumerate(joined.nodes)
                if node in self._lowered
            }
            nodes = tuple(
                kept[number].node if number in kept else node
                for number, node in enumerate(joined.nodes)
            )
            lowered = self._lower(joined.with_nodes(nodes), kept)
            self._lowered.update(zip(nodes, lowered.nodes, strict=True))
            self._made[cascades] = lowered, self._planner(lowered, self._row_plans)
        return self._made[cascades]

    def _joined(self, cascades: Cascades) -> Graph:
        return without_sums(joined(self._graph, self._turned, (
            (segment.start, segment.end, cascade(
                self._turned.nodes[segment.start : segment.end],
                self._segments.outputs(segment), choice.heights, fed=self._given_rows(segment),
                rests=choice.rests,
            ))
            for segment, choice in cascades.segments
        )))


def _outside(graph: Graph) -> set[int]:
    """Returns the inputs and outputs of a graph, whatever shape they are given."""
    found = {*graph.inputs, *graph.outputs}
    shaped = [
        (graph.required(node, 0), node.outputs[0])
        for node in graph.nodes if isinstance(node.op, Reshape)
    ]
    for source, output in shaped:
        found |= {output} if source in found else set()
    for source, output in reversed(shaped):
        found |= {source} if output in found else set()
    return found
