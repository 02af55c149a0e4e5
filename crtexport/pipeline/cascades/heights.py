"""The rows that the parts of a cascade compute at once: choices from little memory to few
instructions.

A kernel that computes one row has overhead that others spread over many: it prepares rows that its
windows share again, and has pixels left over. More rows at once take more memory. Where all parts
make what a few rows of the last one need, no row waits for the next turn but those that windows
share: so each choice begins with that, and divides what would take too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import row_schedule
from crtexport.pipeline.cascades.costs import BandCosts
from crtexport.plan.live_bytes import live_bytes
from crtexport.plan.rows import row_bytes

_LAST = (1, 2, 3, 4, 6, 8)
"""Rows of the last part that the others make at once."""
_GAIN = 0.0005
"""The part of the network's instructions that one of two further choices of rows must gain, or no
more are tried."""
_CAPS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16)
"""Bytes that a part makes at once, in rows of the part whose rows are largest."""
_TURNS = 3
"""Times that the last part runs until memory doesn't grow any more."""


class Choice(Struct, frozen=True):
    """``heights``: units of rows that each part computes at once; ``nbytes`` of rings and scratch
    at the step that needs most, ``instructions`` of all parts, bytes of ``code``; ``cost``: both
    as instructions."""

    heights: tuple[int, ...]
    nbytes: int
    instructions: int
    code: int
    cost: float


def choices(
    costs: BandCosts, nodes: Sequence[int], outputs: Sequence[int], *, fed: bool = False
) -> list[Choice]:
    """Returns the choices for a cascade of some nodes, by rising bytes and falling cost; none where
    they can't be computed row by row. ``fed`` as for :func:`.bands.cascade`."""
    found: dict[tuple[int, ...], Choice] = {}
    least = math.inf
    idle = 0
    for multiple in _LAST:
        if multiple > costs.rows(nodes[-1]) or idle > 1:
            break
        for heights in _candidates(costs, nodes, multiple):
            if heights in found:
                continue
            instructions = sum(map(costs.by_rows, nodes, heights))
            code = costs.code(nodes, heights)
            nbytes = _peak(costs, nodes, outputs, heights, fed=fed)
            if nbytes is None:
                return []
            cost = instructions + costs.byte * code
            found[heights] = Choice(heights, nbytes, instructions, code, cost)
        before, least = least, min(choice.instructions for choice in found.values())
        idle = 0 if before - least > _GAIN * costs.total else idle + 1
    return _pareto(found.values())


def _pareto(found: Iterable[Choice]) -> list[Choice]:
    """Returns the choices than which none is better in both ways, by rising bytes."""
    kept: list[Choice] = []
    for choice in sorted(found, key=lambda c: (c.nbytes, c.cost, c.heights)):
        if not kept or choice.cost < kept[-1].cost:
            kept.append(choice)
    return kept


def _peak(
    costs: BandCosts, nodes: Sequence[int], outputs: Sequence[int], heights: Sequence[int], *,
    fed: bool,
) -> int | None:
    """Returns the bytes of rings and scratch that a cascade needs; None where it can't be."""
    graph = costs.graph
    node = cascade([graph.nodes[number] for number in nodes], outputs, heights, fed=fed)
    turns = _TURNS * heights[-1] * costs.unit(nodes[-1])
    schedule = row_schedule(graph, node, heights, turns)
    if schedule is None:
        return None
    sizes = {tensor: row_bytes(graph, tensor) for tensor in schedule.capacity}
    live = live_bytes(schedule, sizes, lambda work: costs.of(nodes[work.part], work.rows).facts)
    return live.peak


def _candidates(
    costs: BandCosts, nodes: Sequence[int], multiple: int
) -> Iterator[tuple[int, ...]]:
    """Yields heights for so many rows of the last part, from little memory to much."""
    last = costs.rows(nodes[-1])
    widths = [_width(costs, number) for number in nodes]
    units = [costs.rows(number) // costs.unit(number) for number in nodes]
    wanted = [max(min(round(multiple * count / last), count), 1) for count in units]
    for cap in _CAPS:
        yield tuple(
            _best(costs, number, [
                height for height in _divisors(want)
                if height == 1 or height * width <= cap * max(widths)
            ])
            for number, want, width in zip(nodes, wanted, widths, strict=True)
        )


def _width(costs: BandCosts, number: int) -> int:
    """The bytes that a node computes at once, at least."""
    (output,) = costs.graph.nodes[number].outputs
    return row_bytes(costs.graph, output) * costs.unit(number)


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _best(costs: BandCosts, number: int, heights: Sequence[int]) -> int:
    """The height with the fewest instructions, and of equal ones the smallest."""
    return min(heights, key=lambda height: (costs.by_rows(number, height), height))
