"""The rows that the parts of a cascade compute at once: choices from little memory to few
instructions.

A kernel that computes one row has overhead that others spread over many: it prepares rows that its
windows share again, and has pixels left over. More rows at once take more memory. Where all parts
make what a few rows of the last one need, no row waits for the next turn but those that windows
share: so each choice begins with that, and divides what would take too much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from crtexport.ir.graph import Node
from crtexport.ir.ops import Cascade
from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import band_heights, row_schedule
from crtexport.pipeline.cascades.costs import BandCosts
from crtexport.plan.live_bytes import live_bytes
from crtexport.plan.rows import row_bytes

_LAST = (1, 2, 3, 4, 5, 6, 8)
"""Rows of the last part that the others make at once."""
_GAIN = 0.0005
"""The part of the network's instructions that one of two further choices of rows must gain, or no
more are tried."""
_CAPS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16)
"""Bytes that a part makes at once, in rows of the part whose rows are largest."""
_FEW_ROWS = 64
"""Most rows of which those that are left may be computed at once: of more they are hardly any."""
_LONG = 16
"""Most parts of a cascade of which some are tried alone with more rows."""
_MOST_TALLER, _TRIED = 3, 3
"""Parts that get more rows so, and those that are tried for each of them."""
_TURNS = 3
"""Times that the part with the highest bands runs until memory doesn't grow any more."""


class Choice(Struct, frozen=True):
    """``heights``: units of rows that each part computes at once, with ``rests`` those that are
    left above and below, too; ``nbytes`` of rings and scratch at the step that needs most,
    ``instructions`` of all parts, bytes of ``code``; ``cost``: both as instructions."""

    heights: tuple[int, ...]
    rests: bool
    nbytes: int
    instructions: int
    code: int
    cost: float


def choices(
    costs: BandCosts, nodes: Sequence[int], outputs: Sequence[int], *, fed: bool = False
) -> list[Choice]:
    """Returns the choices for a cascade of some nodes, by rising bytes and falling cost; none where
    they can't be computed row by row. ``fed`` as for :func:`.bands.cascade`."""
    def measured(heights: tuple[int, ...], rests: bool) -> Choice | None:
        parts = [costs.graph.nodes[number] for number in nodes]
        node = cascade(parts, outputs, heights, fed=fed, rests=rests)
        return _measured(costs, nodes, node, rests=rests)

    few = max(map(costs.rows, nodes)) <= _FEW_ROWS
    found: dict[tuple[tuple[int, ...], bool], Choice] = {}
    least = math.inf
    idle = 0
    for multiple in _LAST:
        if multiple > costs.rows(nodes[-1]) or idle > 1:
            break
        for heights in _candidates(costs, nodes, multiple):
            if (heights, False) in found:
                continue
            for rests in (False, True) if few else (False,):
                choice = measured(heights, rests)
                if choice is None:
                    return []
                found[heights, rests] = choice
        before, least = least, min(choice.instructions for choice in found.values())
        idle = 0 if before - least > _GAIN * costs.total else idle + 1
    kept = _pareto(found.values())
    if len(nodes) > _LONG:
        return kept
    return _pareto([*kept, *(
        better for choice in kept for better in _taller(costs, nodes, choice, measured)
    )])


def _taller(
    costs: BandCosts, nodes: Sequence[int], choice: Choice,
    measured: Callable[[tuple[int, ...], bool], Choice | None],
) -> Iterator[Choice]:
    """Yields choices in which some of the parts compute twice as many rows at once, one after the
    other those whose instructions shrink most for the bytes that this takes; and the next part with
    them, so that no rows wait for it."""

    def fits(place: int) -> bool:
        number = nodes[place]
        return 2 * choice.heights[place] * costs.unit(number) <= costs.rows(number)

    for _ in range(_MOST_TALLER):
        gains = sorted((
            (costs.by_rows(number, height) - costs.by_rows(number, 2 * height), place)
            for place, (number, height) in enumerate(zip(nodes, choice.heights, strict=True))
            if fits(place)
        ), reverse=True)
        found = []
        for gain, place in gains[:_TRIED]:
            if gain <= _GAIN * costs.total:
                continue
            for end in (place + 1, place + 2):
                if end > len(nodes) or not fits(end - 1):
                    break
                doubled = (2 * height for height in choice.heights[place:end])
                other = measured(
                    (*choice.heights[:place], *doubled, *choice.heights[end:]), choice.rests
                )
                if other is not None and other.cost < choice.cost:
                    found.append(other)
        if not found:
            return
        choice = max(found, key=lambda one: (
            (choice.cost - one.cost) / max(one.nbytes - choice.nbytes, 1), one.heights
        ))
        yield choice


def _pareto(found: Iterable[Choice]) -> list[Choice]:
    """Returns the choices than which none is better in both ways, by rising bytes."""
    kept: list[Choice] = []
    for choice in sorted(found, key=lambda c: (c.nbytes, c.cost, c.heights)):
        if not kept or choice.cost < kept[-1].cost:
            kept.append(choice)
    return kept


def _measured(
    costs: BandCosts, nodes: Sequence[int], node: Node, *, rests: bool
) -> Choice | None:
    """Returns what a cascade ``node`` of some nodes needs; None where it can't be."""
    graph = costs.graph
    heights = node.op.heights if isinstance(node.op, Cascade) else ()
    bands = band_heights(graph, node, heights)
    if bands is None:
        return None
    instructions, code = costs.of_all(nodes, bands)
    last = costs.rows(nodes[-1])
    turns: int | None = _TURNS * max(
        -(-height * costs.unit(number) * last // costs.rows(number))
        for number, height in zip(nodes, heights, strict=True)
    )
    if rests:  # what is left at the end may be what needs most
        turns = None
    schedule = row_schedule(graph, node, heights, turns)
    if schedule is None:
        return None
    sizes = {tensor: row_bytes(graph, tensor) for tensor in schedule.capacity}
    live = live_bytes(schedule, sizes, lambda work: costs.of(nodes[work.part], work.rows).facts)
    cost = instructions + costs.byte * code
    return Choice(heights, rests, live.peak, instructions, code, cost)


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
