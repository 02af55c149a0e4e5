"""What no placement can go below: the bytes that are needed at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Reshape
from crtexport.plan.layout import NO_FACTS, Layout
from crtexport.plan.model import Facts, Peak, Plan, Space
from crtexport.plan.order import overlap


def peak(layout: Layout) -> Peak:
    """The greatest lower bound of all moments, the first of equals."""
    end = len(layout.order)
    best = Peak(0, None, 0)
    live = 0
    for moment in range(-1, end + 1):
        tensors = [
            t for t, life in layout.lifetimes.items()
            if layout.block_of[t].home is None and life.first <= moment <= life.last
        ]
        whole = _covered(layout, tensors)
        live = max(live, whole)
        needed = whole - _shared(layout, set(tensors))
        if needed > best.lower_bound:
            node = layout.order[moment] if 0 <= moment < end else None
            best = Peak(needed, node, 0)
    return Peak(best.lower_bound, best.node, live)


def _covered(layout: Layout, tensors: Iterable[int]) -> int:
    """Bytes that tensors take where only those of one block lie over each other."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for tensor in tensors:
        block = layout.block_of[tensor]
        start = block.starts[tensor]
        ranges.setdefault(id(block), []).append((start, start + layout.size(tensor)))
    total = 0
    for spans in ranges.values():
        reached = min(start for start, _ in spans)
        for start, stop in sorted(spans):
            total += max(0, stop - max(start, reached))
            reached = max(reached, stop)
    return total


def _shared(layout: Layout, tensors: set[int]) -> int:
    """Most bytes that pairs of ``tensors`` could have in common."""
    sources: dict[int, int] = {}
    outputs: dict[int, int] = {}
    total = 0
    for source, output in layout.free:
        if not {source, output} <= tensors:
            continue
        sources[source], outputs[output] = layout.size(source), layout.size(output)
        total += _overlap(layout, source, output)
    return min(total, sum(sources.values()), sum(outputs.values()))


def _overlap(layout: Layout, source: int, output: int) -> int:
    """Most bytes that an output may share with an input."""
    return layout.free[source, output].shared(layout.size(source), layout.size(output))


def least(graph: Graph, plan: Plan, facts: Mapping[int, Facts], size: float) -> bool:
    """Whether every plan needs ``size`` bytes, whatever its order and its kernels' directions.

    While a node runs, there are its tensors, and those that come before it and are wanted behind
    it, in every order. Of these count what lies in the workspace of ``plan`` and fits no buffer of
    the caller's; all of them lie apart but for what the node itself may overwrite.
    """
    moments = [m for m in _moments(graph, plan, facts) if m.needed >= size]
    if any(moment.needed - moment.most >= size for moment in moments):
        return True
    # Whether kernels may run backwards takes long to find out.
    return any(
        all(moment.needed - moment.over(backward) >= size for backward in (False, True))
        for moment in moments
    )


class _Moment(Struct, frozen=True):
    """While a node runs: bytes that are ``needed`` if nothing is overwritten, and the pairs
    (output position, input position, bytes of both) that may share some."""

    facts: Facts
    needed: int
    pairs: list[tuple[int, int, int, int]]

    @property
    def most(self) -> int:
        """Bytes that could be overwritten, if the kernel allowed any."""
        return min(
            sum({i: source for _, i, source, _ in self.pairs}.values()),
            sum({o: output for o, _, _, output in self.pairs}.values()),
        )

    def over(self, backward: bool) -> int:
        """Bytes that may be overwritten, with the kernel ``backward`` or not."""
        return sum(
            overlap(self.facts, o, i, source, output, backward=backward)
            for o, i, source, output in self.pairs
        )


def _moments(graph: Graph, plan: Plan, facts: Mapping[int, Facts]) -> Iterator[_Moment]:
    sizes = _counted(graph, plan, facts)
    made, wanted = _related(graph)
    for number, node in enumerate(graph.nodes):
        known, bit = facts.get(number, NO_FACTS), 1 << number
        there = {
            t for t in sizes
            if t in node.inputs or t in node.outputs or (made[t] & bit and wanted[t] & bit)
        }.difference(known.pins)
        yield _Moment(known, known.scratch + sum(sizes[t] for t in there), [
            (o, i, sizes[source], sizes[output])
            for o, output in enumerate(node.outputs) for i, source in enumerate(node.inputs)
            if source in there and output in there and not wanted[source] & bit
        ])


def _counted(graph: Graph, plan: Plan, facts: Mapping[int, Facts]) -> dict[int, int]:
    """The bytes of tensors that lie apart, and in the workspace, in any plan."""
    largest = max((graph.type(t).nbytes for t in graph.outputs), default=0)
    views = {
        t for n, node in enumerate(graph.nodes) for t in node.outputs
        if isinstance(node.op, Reshape) or facts.get(n, NO_FACTS).moves is not None
    }
    return {
        t: graph.type(t).nbytes for t, home in enumerate(plan.placements)
        if home is not None and home.space is Space.WORKSPACE and t not in views
        and (plan.io_in_workspace or graph.type(t).nbytes > largest)
    }


def _related(graph: Graph) -> tuple[list[int], list[int]]:
    """For each tensor, as bits: the nodes that run behind the one that makes it, and those that run
    before one that reads it, in every order."""
    everything = (1 << len(graph.nodes)) - 1
    made, wanted = [0] * len(graph.tensors), [0] * len(graph.tensors)
    before: list[int] = []
    maker: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        makers = {maker[t] for t in node.inputs if t in maker}
        before.append(0)
        for other in makers:
            before[number] |= before[other] | 1 << other
        for tensor in node.inputs:
            if tensor is not None:
                wanted[tensor] |= before[number]
        maker |= dict.fromkeys(node.outputs, number)
    for tensor, number in maker.items():
        made[tensor] = sum(1 << n for n, others in enumerate(before) if others >> number & 1)
    for tensor in graph.inputs:
        made[tensor] = everything
    for tensor in graph.outputs:
        wanted[tensor] = everything
    return made, wanted
