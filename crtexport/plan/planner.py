"""Decides when each node runs and where each tensor lies.

Facts about kernels say which distances an output may have from an input that is read for the last
time, and which nodes only copy. Several orders, with and without views, are planned, and the plan
with the smallest workspace is returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, EthosU, Reshape, While
from crtexport.lowering.facts import Facts
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode
from crtexport.plan.arena import Arena, extent, place
from crtexport.plan.bounds import least, peak
from crtexport.plan.layout import NO_FACTS, Layout, TensorBlock
from crtexport.plan.live_blocks import LiveBlocks
from crtexport.plan.model import Inner, Peak, Placement, Plan, RowPlan, Space, Step
from crtexport.plan.order import execution_order
from crtexport.plan.pools import Spread, spread
from crtexport.plan.rows import row_plan, whole_freedoms

RowPlans: TypeAlias = dict[Node, RowPlan]
"""The plans of the rows that cascades keep."""

_FEW = 8  # the largest number of outputs that are tried one by one
_WORTH_BACKWARD = 1 / 32
"""The part of the workspace that kernels in reverse order must save."""


def plan(
    lowered: LoweredGraph, *, alignment: int = 16, io_in_workspace: bool = False,
    pools: Sequence[int | None] = (None,), shared: frozenset[int] = frozenset(),
    row_plans: RowPlans | None = None,
) -> Plan:
    """Returns an order of the nodes and a place for each tensor of a verified graph.

    ``alignment`` of the workspace and of its blocks, in bytes, is a power of two.
    ``io_in_workspace`` gives graph inputs and outputs offsets in the workspace, where an input's
    bytes are reused after its last read; without it, each graph output must be the output of a node
    of its own (pass copy_outputs). ``pools`` are the sizes in bytes of the workspace's memories,
    fastest first, None for no limit: the first holds everything if it can, else the tensors that
    are accessed most; the last holds the rest. ``shared`` are outputs that should lie in the
    buffers of the inputs with the same numbers; the plan says which of them do. ``row_plans``
    caches the plans of cascades; new ones are added.

    Only reshapes share bytes with their inputs if a node has no kernel. Raises ValueError if an
    argument breaks these rules.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"alignment {alignment} is no power of two")
    if not pools:
        raise ValueError("a workspace needs a memory")
    graph = lowered.graph
    _check_outputs(graph)
    inner = {
        number: _inner(node, alignment)
        for number, node in enumerate(lowered.nodes) if node.graphs
    }
    rows = _rows(lowered, alignment, {} if row_plans is None else row_plans)
    facts = _known(lowered, inner, rows)
    best: Plan | None = None
    spoilt: list[int] = []
    tried: list[object] = []
    for directions in (1, 2):
        # Reversed kernels are additional code, so they must save enough.
        worth = 1 if directions == 1 else 1 - _WORTH_BACKWARD
        if best is not None and least(graph, best, facts, best.total * worth):
            break
        for layout in _layouts(graph, facts, io_in_workspace, alignment, directions, shared):
            overwritten = layout.spoilt()
            if overwritten:
                spoilt = spoilt or overwritten
                continue
            given = layout.order, layout.views_of_parts, layout.free
            if given in tried:
                continue  # no kernel allows more in reverse order
            tried.append(given)
            worst = peak(layout)
            if best is not None and worst.lower_bound >= best.total * worth:
                continue
            found = _planned(layout, facts, worst, inner, rows, pools)
            if best is None or found.total < best.total * worth:
                best = found
    if best is None and spoilt:
        fewer = shared - _given_up(graph, spoilt)
        return plan(lowered, alignment=alignment, pools=pools, shared=fewer)
    return best if best is not None else Plan((), (), 0, alignment, io_in_workspace)


def _rows(lowered: LoweredGraph, alignment: int, planned: RowPlans) -> dict[int, RowPlan]:
    """Returns the plans of cascades' rows, by the numbers of their nodes."""
    found = {}
    for number, node in enumerate(lowered.nodes):
        if node.rows is not None:
            if node.node not in planned:
                planned[node.node] = row_plan(lowered.graph, node.rows, alignment)
            found[number] = planned[node.node]
    return found


def _given_up(graph: Graph, spoilt: list[int]) -> set[int]:
    """Returns the outputs to take from ``shared``, if not all can lie over their inputs: the
    smallest one, or all if there are many."""
    if len(spoilt) > _FEW:
        return set(spoilt)
    return {min(spoilt, key=lambda number: graph.type(graph.outputs[number]).nbytes)}


def _known(
    lowered: LoweredGraph, inner: dict[int, tuple[Inner, ...]], rows: dict[int, RowPlan]
) -> dict[int, Facts]:
    """Returns the facts about each node, by its number."""
    graph = lowered.graph
    facts = {number: node.facts for number, node in enumerate(lowered.nodes)}
    for number, plans in inner.items():
        node = graph.nodes[number]
        scratch = max(map(_end, plans, node.graphs), default=0)
        facts[number] = Facts(scratch=scratch)
    for number, kept in rows.items():
        bands = lowered.nodes[number].rows
        if bands is None:
            continue
        node = graph.nodes[number]
        if isinstance(node.op, Cascade) and node.op.hop:
            pins = {tensor: kept.rings[tensor] for tensor in node.outputs}
            facts[number] = Facts(scratch=kept.size, pins=pins, kept=True)
        else:
            freedoms = whole_freedoms(graph, node, bands.bands.schedule)
            facts[number] = Facts(freedoms, scratch=kept.size)
    for number, node in enumerate(graph.nodes):
        if isinstance(node.op, EthosU):
            tensors = (*node.inputs[node.op.first :], *node.outputs)
            pins = {t: at for t, at in zip(tensors, node.op.places, strict=True) if t is not None}
            facts[number] = Facts(scratch=node.op.scratch, pins=pins)
    return facts


# ---- graphs that nodes run


def _inner(lowered: LoweredNode, alignment: int) -> tuple[Inner, ...]:
    """Returns the plans of a node's inner graphs; only one of them uses its memory at a time."""
    node = lowered.node
    looping = isinstance(node.op, While)
    _, second = node.graphs
    everything = frozenset(range(len(second.outputs))) if looping else frozenset()
    plans = (
        plan(lowered.graphs[0], alignment=alignment),
        plan(lowered.graphs[1], alignment=alignment, shared=everything),
    )
    if not looping:
        own = (None,) * len(node.outputs)
        return Inner(plans[0], 0, own), Inner(plans[1], 0, own)
    # Outputs that a loop's body can't write in place lie elsewhere, and are copied at its end.
    outputs: list[int | None] = []
    end = 0
    for number, tensor in enumerate(second.outputs):
        apart = number not in plans[1].shared
        outputs.append(end if apart else None)
        end += -(-second.type(tensor).nbytes // alignment) * alignment if apart else 0
    truth = -(-plans[0].workspace_size // alignment) * alignment
    return Inner(plans[0], 0, (truth,)), Inner(plans[1], end, tuple(outputs))


def _end(inner: Inner, graph: Graph) -> int:
    """Returns the bytes of scratch that an inner graph needs."""
    outputs = [
        start + graph.type(tensor).nbytes
        for start, tensor in zip(inner.outputs, graph.outputs, strict=True) if start is not None
    ]
    return max((inner.workspace + inner.plan.workspace_size, *outputs))


def _check_outputs(graph: Graph) -> None:
    produced = {t for node in graph.nodes for t in node.outputs}
    outputs = graph.outputs
    if len(set(outputs)) != len(outputs) or not produced.issuperset(outputs):
        raise ValueError("each graph output needs a node of its own")


def _layouts(
    graph: Graph, facts: dict[int, Facts], io_in_workspace: bool, alignment: int, directions: int,
    shared: frozenset[int],
) -> Iterator[Layout]:
    """Yields the layouts to try: two orders, with and without views beyond those of reshapes."""
    given = tuple(range(len(graph.nodes)))
    if directions == 1:
        facts = {number: replace(known, reversed=None) for number, known in facts.items()}
    orders = dict.fromkeys((execution_order(graph, facts, io_counts=io_in_workspace), given))
    copying = any(
        facts.get(n, NO_FACTS).moves is not None and not isinstance(node.op, Reshape)
        for n, node in enumerate(graph.nodes)
    )
    for order in orders:
        for parts in (True, False) if copying else (True,):
            yield Layout(graph, order, facts, io_in_workspace, parts, alignment, directions, shared)


class _Offsets(Struct, frozen=True):
    """The pools and offsets of a layout's tensors."""

    layout: Layout
    placements: tuple[Placement | None, ...]

    def distance(self, source: int, output: int) -> int | None:
        """Returns the bytes from the start of one tensor to that of another; None if they don't
        overlap."""
        first, second = self.placements[source], self.placements[output]
        if first is None or second is None:
            return None
        if (first.space, first.index) != (second.space, second.index):
            return None
        between = second.offset - first.offset
        graph = self.layout.graph
        apart = (
            between >= graph.type(source).nbytes or between <= -graph.type(output).nbytes
        )
        return None if apart else between


def _planned(
    layout: Layout, facts: dict[int, Facts], worst: Peak, inner: dict[int, tuple[Inner, ...]],
    rows: dict[int, RowPlan], pools: Sequence[int | None],
) -> Plan:
    blocks, arena = layout.arena()
    arena = replace(arena, bound=worst.lower_bound)
    alignment = layout.alignment
    offsets = place(arena, alignment)
    placed_blocks = Spread(tuple((0, at) for at in offsets), (extent(arena.sizes, offsets),))
    if len(pools) > 1 and pools[0] is not None and placed_blocks.sizes[0] > pools[0]:
        placed_blocks = spread(arena, _heat(layout, blocks, arena, facts), pools, alignment)
    placements: list[Placement | None] = [None] * len(layout.graph.tensors)
    for block in layout.blocks:
        if block.home is not None:
            for tensor, start in block.starts.items():
                placements[tensor] = replace(block.home, offset=block.home.offset + start)
    begins: dict[int, tuple[int, int]] = {}
    for block, (pool, offset) in zip(blocks, placed_blocks.places, strict=True):
        for tensor, start in block.starts.items():
            begins[tensor] = pool, offset + start
            if tensor < len(placements):
                placements[tensor] = Placement(Space.WORKSPACE, pool, offset + start)
    placed = _Offsets(layout, tuple(placements))
    steps = tuple(
        replace(
            _step(placed, number, facts.get(number, NO_FACTS)),
            scratch=layout.scratch(number, begins), inner=inner.get(number, ()),
            rows=rows.get(number),
        )
        for number in layout.order if number not in layout.views
    )
    return Plan(
        steps, placed.placements, placed_blocks.sizes[0], alignment,
        io_in_workspace=layout.io_in_workspace, state_size=layout.state_size, peak=worst,
        spilled=placed_blocks.sizes[1:], shared=layout.shared,
    )


def _heat(
    layout: Layout, blocks: list[TensorBlock], arena: Arena | LiveBlocks, facts: dict[int, Facts]
) -> list[float]:
    """Returns the accesses per byte of each block; scratch always comes first."""
    accesses: dict[int, int] = {}
    for number, known in facts.items():
        node = layout.graph.nodes[number]
        sides = ((node.inputs, known.reads), (node.outputs, known.writes))
        for tensors, counts in sides:
            for position, tensor in enumerate(tensors):
                if tensor is not None:
                    accesses[tensor] = accesses.get(tensor, 0) + counts.get(position, 0)
    count = len(layout.graph.tensors)
    return [
        math.inf if any(t >= count for t in block.starts)
        else sum(accesses.get(t, 0) for t in block.starts) / max(size, 1)
        for block, size in zip(blocks, arena.sizes, strict=True)
    ]


def _step(placed: _Offsets, number: int, facts: Facts) -> Step:
    """Returns a node's step: the tensors that share bytes, and the direction of its kernel."""
    if facts.pins:
        return Step(number)
    node: Node = placed.layout.graph.nodes[number]
    distances = {
        (o, i): distance
        for o, output in enumerate(node.outputs) for i, source in enumerate(node.inputs)
        if source is not None and (distance := placed.distance(source, output)) is not None
        and placed.layout.graph.type(source).nbytes and placed.layout.graph.type(output).nbytes
    }
    forward = all(
        pair in facts.forward and facts.forward[pair].allows(d) for pair, d in distances.items()
    )
    return Step(number, tuple(distances), backward=not forward)
