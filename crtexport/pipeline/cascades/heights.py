"""The rows that the parts of a cascade compute at once: choices from little memory to few
instructions.

A kernel that computes one row has overhead that others spread over many: it prepares rows that its
windows share again, and has pixels left over. More rows at once take more memory. Where all parts
make what a few rows of the last one need, no row waits for the next turn but those that windows
share: so each choice begins with that, and divides what would take too much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.graph import Node
from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import RowMove, band_heights, row_schedule
from crtexport.pipeline.cascades.costs import BandCosts, KernelTotals
from crtexport.pipeline.cascades.least_rows import LeastRows
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
_RUNS = 3
"""Times that the part with the highest bands runs until memory doesn't grow any more."""


class Choice(Struct, frozen=True):
    """``heights``: units of rows that each part computes at once, with ``rests`` those that are
    left above and below, too; ``nbytes`` of rings and scratch at the step that needs most, the
    ``work`` of all parts; ``cost``: instructions and code as instructions."""

    heights: tuple[int, ...]
    rests: bool
    nbytes: int
    work: KernelTotals
    cost: float

    @property
    def instructions(self) -> int:
        """Returns the instructions of all parts."""
        return self.work.instructions


def choices(
    costs: BandCosts, nodes: Sequence[int], outputs: Sequence[int], *, fed: bool = False,
    most: float = math.inf,
) -> list[Choice]:
    """Returns the choices for a cascade of some nodes, by rising bytes and falling cost; none where
    they can't be computed row by row, or take more time than ``most``. ``fed`` as for
    :func:`.bands.cascade`."""
    measuring = _Measuring(costs, nodes, outputs, fed=fed)
    few = max(map(costs.rows, nodes)) <= _FEW_ROWS
    tried: dict[tuple[tuple[int, ...], bool], Choice] = {}
    least = math.inf
    idle = 0
    for multiple in _LAST:
        if multiple > costs.rows(nodes[-1]) or idle > 1:
            break
        for heights in _candidates(costs, nodes, multiple):
            if (heights, False) in tried:
                continue
            for rests in (False, True) if few else (False,):
                choice = measuring.counted(heights, rests)
                if choice is None:
                    return []
                tried[heights, rests] = choice
        before, least = least, min(choice.instructions for choice in tried.values())
        idle = 0 if before - least > _GAIN * costs.total else idle + 1
    kept = _pareto((one for one in tried.values() if one.work.time <= most), measuring)
    if len(nodes) > _LONG:
        return kept
    return _pareto([*kept, *(
        better for choice in kept for better in _taller(costs, nodes, choice, measuring, kept)
    )], measuring)


def _taller(
    costs: BandCosts, nodes: Sequence[int], choice: Choice, measuring: _Measuring,
    earlier: Sequence[Choice],
) -> Iterator[Choice]:
    """Yields choices in which some of the parts compute twice as many rows at once, one after the
    other those whose instructions shrink most for the bytes that this takes; and the next part with
    them, so that no rows wait for it. None is worse in both ways than one of ``earlier``."""

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
                other = measuring.counted(
                    (*choice.heights[:place], *doubled, *choice.heights[end:]), choice.rests
                )
                if other is None or other.cost >= choice.cost or any(
                    one.cost <= other.cost and one.nbytes <= other.nbytes for one in earlier
                ):
                    continue
                found.append(measuring.measured(other))
        if not found:
            return
        choice = max(found, key=lambda one: (
            (choice.cost - one.cost) / max(one.nbytes - choice.nbytes, 1), one.heights
        ))
        yield choice


def _pareto(choices: Iterable[Choice], measuring: _Measuring) -> list[Choice]:
    """Returns the choices than which none is better in both ways, by rising bytes. Those are
    measured that may be among them."""
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (c.cost, c.nbytes, c.heights)):
        if kept and choice.nbytes >= kept[-1].nbytes:
            continue
        measured = measuring.measured(choice)
        if not kept or measured.nbytes < kept[-1].nbytes:
            kept = [*(one for one in kept if one.cost < measured.cost), measured]
    return kept[::-1]


class _Measuring:
    """Measures choices for a cascade of some nodes, each once."""

    def __init__(
        self, costs: BandCosts, nodes: Sequence[int], outputs: Sequence[int], *, fed: bool
    ) -> None:
        self._costs, self._nodes, self._outputs, self._fed = costs, nodes, outputs, fed
        self._parts = [costs.graph.nodes[number] for number in nodes]
        self._counted: dict[tuple[tuple[int, ...], bool], Choice | None] = {}
        self._measured: dict[tuple[tuple[int, ...], bool], Choice] = {}
        self._bound = LeastRows.of(costs, nodes, outputs)

    def _node(self, heights: Sequence[int], rests: bool) -> Node:
        return cascade(self._parts, self._outputs, heights, fed=self._fed, rests=rests)

    def counted(self, heights: tuple[int, ...], rests: bool) -> Choice | None:
        """Returns a choice with the least bytes that it may need; None where it can't be."""
        key = heights, rests
        if key not in self._counted:
            self._counted[key] = self._count(heights, rests)
        return self._counted[key]

    def _count(self, heights: tuple[int, ...], rests: bool) -> Choice | None:
        bands = band_heights(self._costs.graph, self._node(heights, rests), heights)
        if bands is None:
            return None
        work = self._costs.of_all(self._nodes, bands)
        cost = work.instructions + self._costs.byte * work.code
        return Choice(heights, rests, self._bound.least(heights), work, cost)

    def measured(self, choice: Choice) -> Choice:
        """Returns a choice with the bytes that it needs, and with the time of moving rows."""
        key = choice.heights, choice.rests
        if key not in self._measured:
            self._measured[key] = self._measure(choice)
        return self._measured[key]

    def _measure(self, choice: Choice) -> Choice:
        costs, nodes = self._costs, self._nodes
        heights, rests = choice.heights, choice.rests
        last = costs.rows(nodes[-1])
        limit: int | None = _RUNS * max(
            -(-height * costs.unit(number) * last // costs.rows(number))
            for number, height in zip(nodes, heights, strict=True)
        )
        if rests:  # what is left at the end may be what needs most
            limit = None
        node = self._node(heights, rests)
        schedule = row_schedule(costs.graph, node, heights, limit)
        if schedule is None:
            raise ValueError("a cascade whose bands can be counted has a schedule")
        sizes = {tensor: row_bytes(costs.graph, tensor) for tensor in schedule.capacity}
        live = live_bytes(
            schedule, sizes, lambda work: costs.of(nodes[work.part], work.rows).facts
        )
        moves = Counter(step.work for step in schedule.steps if isinstance(step.work, RowMove))
        part = 1.0 if limit is None else min(limit / last, 1)
        work = choice.work
        for move, count in moves.items():
            one = costs.moving(move.tensor, move.rows)
            runs = round(count / part)
            work += KernelTotals(time=runs * one.time)
        return replace(choice, nbytes=live.peak, work=work)


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
    """Returns the bytes that a node computes at once, at least."""
    (output,) = costs.graph.nodes[number].outputs
    return row_bytes(costs.graph, output) * costs.unit(number)


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _best(costs: BandCosts, number: int, heights: Sequence[int]) -> int:
    """Returns the height with the fewest instructions, and of equal ones the smallest."""
    return min(heights, key=lambda height: (costs.by_rows(number, height), height))
