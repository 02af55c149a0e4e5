"""Decides which nodes take a kernel with less memory of its own, where that is what is missing.

The fastest kernel of a layer may prepare its input once for all channels: memory that counts only
where the node is what the workspace is largest for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.pipeline.cascades.costs import time_of
from crtexport.plan.model import Plan
from crtexport.schedules.select.lower import Lowerer

_WORTH = 10
"""Memory must shrink so many times faster than time grows."""
_TRIED = 8
"""Kernels that are exchanged at most where memory isn't all that matters: each is planned."""
_KERNELS = 3
"""Kernels of a node that are tried: the fastest ones may have too much code."""

Made = tuple[LoweredGraph, Plan]
"""A graph lowered, and its plan."""


class MemoryWorth(Struct, frozen=True):
    """The worth of memory: no more than the part ``most`` of the network's time, and ``code`` bytes
    for each byte of code."""

    most: float
    code: float


CHEAP = MemoryWorth(most=0.02, code=2)
LITTLE = MemoryWorth(most=0.03, code=1 / 8)
"""For little memory."""
NO_LIMIT = MemoryWorth(most=math.inf, code=0)
"""Memory is all that matters."""


def leaner(
    made: Made, lower: Lowerer, planned: Callable[[LoweredGraph], Plan], worth: MemoryWorth
) -> Made:
    """Returns a graph with other kernels for nodes that the workspace is largest for, as far as
    memory is ``worth`` it; ``planned`` plans."""
    best, least = made, float(made[1].total)
    time, code = max(time_of(made[0], lower), 1), _code(made[0], lower)
    lowered, plan = made
    more = 0
    for _ in range(len(lowered.nodes) if worth is NO_LIMIT else _TRIED):
        chosen: tuple[int, Made] | None = None
        for extra, other in _exchanges(lowered, plan, lower):
            longer = max((more + extra) / time, 0)
            if longer > worth.most:
                break
            planned_other = other, planned(other)
            larger = max(_code(other, lower) - code, 0)
            weight = planned_other[1].total * (1 + longer) ** _WORTH + worth.code * larger
            if chosen is None or weight < least:
                chosen = more + extra, planned_other
            if weight < least:
                best, least = planned_other, weight
                break
        if chosen is None:
            break
        more, (lowered, plan) = chosen
    return best


def _exchanges(
    lowered: LoweredGraph, plan: Plan, lower: Lowerer
) -> Iterator[tuple[int, LoweredGraph]]:
    """Yields the graph with each of the fastest kernels of less memory for the node that the
    workspace is largest for, and the time that it takes more; none where there are none."""
    number = plan.peak.node
    node = None if number is None else lowered.nodes[number]
    if number is None or node is None or node.build is None or not node.lowered.scratch:
        return
    if _shares_weights(lowered, number):
        return
    leaner_nodes = (
        (more, other) for more, other in lower.alternatives(node)
        if other.lowered.scratch < node.lowered.scratch
    )
    for more, other in islice(leaner_nodes, _KERNELS):
        nodes = (*lowered.nodes[:number], other, *lowered.nodes[number + 1 :])
        yield more, replace(lowered, nodes=nodes)


def _shares_weights(lowered: LoweredGraph, number: int) -> bool:
    """Returns whether another node reads constants of a node, which needn't be stored twice."""
    graph = lowered.graph
    readers = Counter(t for node in graph.nodes for t in node.inputs if t is not None)
    return any(
        t is not None and graph.constant(t) is not None and readers[t] > 1
        for t in graph.nodes[number].inputs
    )


def _code(lowered: LoweredGraph, lower: Lowerer) -> int:
    """Returns the bytes of the kernels of whole nodes, as estimated, of equal ones once."""
    kernels = dict.fromkeys(
        node.lowered.kernel for node in lowered.nodes if node.build is not None
    )
    return sum(lower.costs.of(kernel).code for kernel in kernels)
