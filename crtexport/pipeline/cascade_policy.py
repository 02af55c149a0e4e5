"""Decides which stretches of a network are computed row by row, so that it needs least memory.

Where one tensor alone leads from one stretch of nodes to the next, a network can be cut. A stretch
needs its input and output as a whole, and the rows that it keeps between them; of all ways to cut,
the one whose largest stretch is smallest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.lowering.rows.schedule import row_schedule
from crtexport.lowering.rows.windows import row_windows
from crtexport.pipeline.row_heights import Heights, joint
from crtexport.pipeline.row_sums import with_sums, without_sums
from crtexport.plan.model import Plan
from crtexport.plan.planner import RowPlans
from crtexport.plan.rows import row_bytes
from crtexport.schedules.select.lower import Lowerer


class Cut(Struct, frozen=True):
    """A place behind the first ``end`` nodes, where ``tensor`` is all that later ones read."""

    end: int
    tensor: int


class Stretch(Struct, frozen=True):
    """Nodes ``start`` to ``end`` (exclusive), and the bytes that they need: one whole tensor after
    another, or by ``rows``."""

    start: int
    end: int
    nbytes: int
    rows: bool


PARTS = 0.027, 0.12, 0.4, math.inf
"""Parts of a network's instructions that may be spent on having it run row by row: the first with
which that needs less memory counts. Where kernels compute in vectors only the last is tried: what
the cost model says of such kernels for few rows is far more than they take."""
_LESS = 0.9
"""The part of the memory that must be left."""
_HARDLY = 1.06
"""More memory that is nothing beside fewer instructions."""
_TRIED, _MANY = 4, 16
_MOST = 8
"""Cascades up to which each is tried without."""


def smallest(
    graph: Graph, lower: Lowerer, planned: Callable[[LoweredGraph, RowPlans], Plan],
    whole: tuple[LoweredGraph, Plan], *, vectors: bool, enough: int | None = None,
) -> tuple[LoweredGraph, Plan]:
    """Returns the graph lowered, with its plan, where stretches run row by row if that needs less
    memory than the ``whole`` network, one tensor after another; ``planned`` plans. ``vectors``:
    kernels compute in vectors. ``enough``: so many bytes are as good as fewer; fewer instructions
    count more then."""
    graph = with_sums(graph)
    chosen = [stretch for stretch in stretches(graph) if stretch.rows]
    if not chosen:
        return whole
    heights = Heights(graph, lower)
    known = dict(zip(graph.nodes, heights.lowered.nodes, strict=True))
    row_plans: RowPlans = {}

    def tried(some: list[Stretch], rows: Mapping[int, int]) -> tuple[LoweredGraph, Plan]:
        """Cascades and nodes that were lowered before stay as they are."""
        joined = cascaded(graph, some, rows)
        kept = {n: known[node] for n, node in enumerate(joined.nodes) if node in known}
        nodes = tuple(kept[n].node if n in kept else node for n, node in enumerate(joined.nodes))
        lowered = lower(joined.with_nodes(nodes), kept)
        known.update(zip(nodes, lowered.nodes, strict=True))
        return lowered, planned(lowered, row_plans)

    nodes = [number for s in chosen for number in range(s.start, s.end)]
    best, rows = whole, dict.fromkeys(nodes, 1)
    most = math.floor(_LESS * whole[1].total) if enough is None else enough
    for part in PARTS[3 * vectors :]:
        some = heights.within(nodes, part)
        found = tried(chosen, some)
        if found[1].total < best[1].total:
            best, rows = found, some
        if found[1].total <= most:
            break
    for stretch in tuple(chosen) if 1 < len(chosen) <= _MOST else ():
        fewer = [other for other in chosen if other != stretch]
        found = tried(fewer, rows)
        if found[1].total <= max(best[1].total, enough or 0):
            best, chosen = found, fewer
    most = math.floor(best[1].total * _HARDLY) if enough is None else enough
    for _ in range(0 if vectors else _TRIED if enough is None else _MANY):
        taller = heights.taller(rows)
        if taller is None:
            break
        found = tried(chosen, taller)
        if found[1].total > most:
            break
        best, rows = found, taller
    return best if best[1].total < whole[1].total else whole


def cascaded(graph: Graph, chosen: Sequence[Stretch], heights: Mapping[int, int]) -> Graph:
    """Returns the graph with each stretch as one node, whose parts compute so many rows at once."""
    nodes: list[Node] = []
    at = 0
    for stretch in sorted(chosen, key=lambda s: s.start):
        numbers = range(stretch.start, stretch.end)
        nodes += graph.nodes[at : stretch.start]
        nodes.append(joint(
            graph.nodes[stretch.start : stretch.end], [heights[number] for number in numbers]
        ))
        at = stretch.end
    return without_sums(graph.with_nodes((*nodes, *graph.nodes[at:])))


def cuts(graph: Graph) -> Iterator[Cut]:
    """Yields the places where a graph can be cut, in the order of its nodes."""
    last: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        last.update({t: number for t in node.inputs if t is not None})
    last.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    alive = {t for t in graph.inputs if last.get(t, -1) >= 0}
    for number in range(len(graph.nodes) + 1):
        if len(alive) == 1:
            yield Cut(number, next(iter(alive)))
        if number < len(graph.nodes):
            alive |= {t for t in graph.nodes[number].outputs if t in last}
            alive = {t for t in alive if last[t] > number}


def stretches(graph: Graph) -> list[Stretch]:
    """Returns the stretches between cuts for which the largest is smallest, and of these the ones
    with the fewest nodes in cascades."""
    places = list(cuts(graph))
    best: list[tuple[int, int, list[Stretch]] | None] = [None] * len(places)
    if not places:
        return []
    best[0] = 0, 0, []
    sizes = _Sizes(graph, places)
    for begin in range(len(places)):
        for end in range(begin + 1, len(places)):
            stretch, before = sizes.stretch(begin, end), best[begin]
            if stretch is None or before is None:
                continue
            found = (
                max(before[0], stretch.nbytes),
                before[1] + (stretch.end - stretch.start if stretch.rows else 0),
                [*before[2], stretch],
            )
            known = best[end]
            if known is None or found[:2] < known[:2]:
                best[end] = found
    last = best[-1]
    return last[2] if last is not None else []


class _Sizes:
    """The bytes that stretches need, as far as shapes tell."""

    def __init__(self, graph: Graph, places: list[Cut]) -> None:
        self._graph, self._places = graph, places
        self._outside = {*graph.inputs, *graph.outputs}
        self._by_rows = [row_windows(graph, node) is not None for node in graph.nodes]
        self._kept = self._capacities()

    def stretch(self, begin: int, end: int) -> Stretch | None:
        """Returns the stretch between two places; None where it can't be computed."""
        first, last = self._places[begin], self._places[end]
        if end == begin + 1:
            nodes = self._graph.nodes[first.end : last.end]
            whole = Stretch(first.end, last.end, max(map(self._one, nodes), default=0), False)
            if len(nodes) < 2:
                return whole
        rows = self._rows(first, last)
        if rows is None or (end == begin + 1 and whole.nbytes <= rows):
            return whole if end == begin + 1 else None
        return Stretch(first.end, last.end, rows, True)

    def _one(self, node: Node) -> int:
        """The bytes of a node's tensors, of which the output may lie over the input."""
        tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
        return max((self._whole(tensor) for tensor in tensors), default=0)

    def _whole(self, tensor: int) -> int:
        if tensor in self._outside or self._graph.constant(tensor) is not None:
            return 0
        return self._graph.type(tensor).nbytes

    def _rows(self, first: Cut, last: Cut) -> int | None:
        """The bytes of a stretch row by row; None where that can't be."""
        made = [t for node in self._graph.nodes[first.end : last.end] for t in node.outputs]
        if any(t not in self._kept for t in made[:-1]) or not all(
            self._by_rows[first.end : last.end]
        ):
            return None
        kept = sum(self._kept[tensor] for tensor in made if tensor != last.tensor)
        return self._whole(first.tensor) + self._whole(last.tensor) + kept

    def _capacities(self) -> dict[int, int]:
        """The bytes of the rows that are kept of each tensor inside of what can be computed row by
        row without a gap."""
        found: dict[int, int] = {}
        begin = 0
        while begin + 1 < len(self._places):
            end = begin
            while end + 1 < len(self._places) and all(
                self._by_rows[self._places[end].end : self._places[end + 1].end]
            ):
                end += 1
            if end > begin:
                parts = self._graph.nodes[self._places[begin].end : self._places[end].end]
                schedule = row_schedule(self._graph, joint(parts), (1,) * len(parts))
                for tensor, rows in schedule.capacity.items() if schedule is not None else ():
                    found[tensor] = rows * row_bytes(self._graph, tensor)
            begin = max(end, begin + 1)
        return found
