"""Lower bounds of any placement: the bytes that are needed at one time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Reshape
from crtexport.lowering.facts import Facts
from crtexport.plan.layout import NO_FACTS, Layout, TensorBlock
from crtexport.plan.model import Peak, Plan, Space
from crtexport.plan.order import overlap
from crtexport.plan.spans import moments


def peak(layout: Layout) -> Peak:
    """Returns the greatest lower bound over all steps; the first step of several with that bound.
    """
    end = len(layout.order)
    best = Peak(0, None, 0)
    live = 0
    for moment, (whole, shared) in enumerate(
        zip(_covered(layout, end), _shared(layout, end), strict=True), -1
    ):
        live = max(live, whole)
        if whole - shared > best.lower_bound:
            node = layout.order[moment] if 0 <= moment < end else None
            best = Peak(whole - shared, node, 0)
    return Peak(best.lower_bound, best.node, live)


def _covered(layout: Layout, end: int) -> Iterator[int]:
    """Yields, for each step, the bytes that tensors in the workspace take if only tensors of one
    block overlap."""
    lives = (
        (life.first, life.last, tensor) for tensor, life in layout.lifetimes.items()
        if layout.block_of[tensor].home is None
    )
    there: dict[int, set[int]] = {}
    bytes_of: dict[int, int] = {}
    total = 0
    for begun, ended in moments(lives, end):
        changed = {block.number: block for t in (*begun, *ended) for block in (layout.block_of[t],)}
        for tensor in ended:
            there[layout.block_of[tensor].number].remove(tensor)
        for tensor in begun:
            there.setdefault(layout.block_of[tensor].number, set()).add(tensor)
        for number, block in changed.items():
            total -= bytes_of.get(number, 0)
            bytes_of[number] = _length(layout, block, there[number])
            total += bytes_of[number]
        yield total


def _length(layout: Layout, block: TensorBlock, tensors: Iterable[int]) -> int:
    """Returns the bytes of a block that some of its tensors cover."""
    total = 0
    reached = -math.inf
    for start, stop in sorted((block.starts[t], block.starts[t] + layout.size(t)) for t in tensors):
        total += int(max(0, stop - max(start, reached)))
        reached = max(reached, stop)
    return total


def _shared(layout: Layout, end: int) -> Iterator[int]:
    """Yields, for each step, the most bytes that pairs of tensors in the workspace could share."""
    pairs = []
    for source, output in layout.free:
        if any(layout.block_of[tensor].home is not None for tensor in (source, output)):
            continue
        first, second = layout.lifetimes[source], layout.lifetimes[output]
        pairs.append((
            max(first.first, second.first), min(first.last, second.last), (source, output)
        ))
    there: dict[tuple[int, int], None] = {}
    for begun, ended in moments(pairs, end):
        for pair in ended:
            del there[pair]
        there |= dict.fromkeys(begun)
        total = sum(_overlap(layout, source, output) for source, output in there)
        sources = sum(map(layout.size, {source for source, _ in there}))
        outputs = sum(map(layout.size, {output for _, output in there}))
        yield min(total, sources, outputs)


def _overlap(layout: Layout, source: int, output: int) -> int:
    """Returns the most bytes that an output may share with an input."""
    return layout.free[source, output].shared(layout.size(source), layout.size(output))


def least(graph: Graph, plan: Plan, facts: Mapping[int, Facts], size: float) -> bool:
    """Returns whether every plan needs ``size`` bytes, whatever its order and the direction of its
    kernels.

    While a node runs, its own tensors are live, and those that are computed before it and read
    after it in every order. Only tensors are counted that ``plan`` has in the workspace and that
    fit no buffer of the caller. They can't overlap, except where the node may write an output over
    an input.
    """
    moments = [m for m in _moments(graph, plan, facts) if m.needed >= size]
    if any(moment.needed - moment.most >= size for moment in moments):
        return True
    # It takes long to find out whether kernels may run backwards.
    return any(
        all(moment.needed - moment.over(backward) >= size for backward in (False, True))
        for moment in moments
    )


class _Moment(Struct, frozen=True):
    """A node while it runs: the bytes ``needed`` if no output lies over an input, and the pairs
    (output position, input position, bytes of both) that may overlap."""

    facts: Facts
    needed: int
    pairs: list[tuple[int, int, int, int]]

    @property
    def most(self) -> int:
        """Returns the bytes that could overlap if the kernel allowed every distance."""
        return min(
            sum({i: source for _, i, source, _ in self.pairs}.values()),
            sum({o: output for o, _, _, output in self.pairs}.values()),
        )

    def over(self, backward: bool) -> int:
        """Returns the bytes that may overlap, for the kernel ``backward`` or not."""
        return sum(
            overlap(self.facts, o, i, source, output, backward=backward)
            for o, i, source, output in self.pairs
        )


def _moments(graph: Graph, plan: Plan, facts: Mapping[int, Facts]) -> Iterator[_Moment]:
    sizes = _counted(graph, plan, facts)
    made, wanted = _related(graph)
    around = np.zeros(len(graph.nodes), np.int64)
    for tensor, size in sizes.items():
        around[_flags(made[tensor] & wanted[tensor], len(around))] += size
    for number, node in enumerate(graph.nodes):
        known, bit = facts.get(number, NO_FACTS), 1 << number
        own = {t for t in (*node.inputs, *node.outputs) if t is not None and t in sizes}
        beside = {
            t for t in {*own, *known.pins} if t in sizes and made[t] & wanted[t] & bit
        }
        there = own.difference(known.pins)
        needed = int(around[number]) + sum(sizes[t] for t in there) - sum(sizes[t] for t in beside)
        yield _Moment(known, known.scratch + needed, [
            (o, i, sizes[source], sizes[output])
            for o, output in enumerate(node.outputs) for i, source in enumerate(node.inputs)
            if source in there and output in there and not wanted[source] & bit
        ])


def _flags(bits: int, count: int) -> npt.NDArray[np.bool_]:
    """Returns the lowest ``count`` bits of a number."""
    whole = np.frombuffer(bits.to_bytes(count // 8 + 1, "little"), np.uint8)
    return np.unpackbits(whole, count=count, bitorder="little").view(np.bool_)


def _counted(graph: Graph, plan: Plan, facts: Mapping[int, Facts]) -> dict[int, int]:
    """Returns the bytes of the tensors that are in the workspace and don't overlap in any plan."""
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
    """Returns two sets for each tensor, as bits: the nodes that run after its producer, and those
    that run before one of its readers, in every order."""
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
    after = [0] * len(graph.nodes)
    for number, node in reversed([*enumerate(graph.nodes)]):
        for other in {maker[t] for t in node.inputs if t in maker}:
            after[other] |= after[number] | 1 << number
    for tensor, number in maker.items():
        made[tensor] = after[number]
    for tensor in graph.inputs:
        made[tensor] = everything
    for tensor in graph.outputs:
        wanted[tensor] = everything
    return made, wanted
