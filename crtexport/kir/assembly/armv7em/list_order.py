"""Orders the instructions of a block by a list of those that may come next, cycle by cycle.

That is for processors on which results take longer than their instructions, or of which two begin
at once: there it doesn't matter whether loads stand together, but what can be done while a result
isn't there yet. What comes next is chosen in one of two ways: what the busiest unit can do, then
loads; or what the longest path hangs on.
"""

from __future__ import annotations

import functools
from math import inf

from crtexport.kir.assembly.armv7em.dependences import Dependences, DependenceStep
from crtexport.kir.assembly.armv7em.instructions import Kind
from crtexport.kir.assembly.armv7em.issue import Issue, IssueRules, Pipeline, Unit
from crtexport.kir.assembly.armv7em.order import (
    BLOCKS,
    BlockGraph,
    Order,
    Preference,
    Run,
    best_order,
    graph_of,
)

_MOST_FREE = 2
"""The most registers that loads leave to other instructions; which number is best is tried."""
_LOADS = 4
"""Loads, in the order in which their values are used, of which the best is taken."""


def order_by(block: Dependences, room: int, rules: IssueRules | None) -> Order | None:
    """Returns the best order that is found by ``rules``, or with loads put together where there are
    none; None if none needs as few as ``room`` registers."""
    return best_order(block, room) if rules is None else best_list_order(block, room, rules)


@functools.lru_cache(BLOCKS)
def best_list_order(block: Dependences, room: int, rules: IssueRules) -> Order | None:
    """Returns the best order that is found in which ``room`` registers are enough; None if none
    is."""
    graph = graph_of(block)
    best: Order | None = None
    for free in range(_MOST_FREE + 1):
        before = best
        for by_path in (False, True):
            run = _ListRun(graph, room, rules, free, by_path=by_path)
            best = run.result(best.cycles if best is not None else inf) or best
        if best is before and best is not None:
            break
    if best is None:  # orders with loads put together may need fewer registers
        clustered = best_order(block, room)
        best = clustered and _timed(graph, clustered, rules)
    return best


def _timed(graph: BlockGraph, order: Order, rules: IssueRules) -> Order:
    """Returns an order with the cycles that it takes by ``rules``."""
    pipeline = Pipeline(len(graph.readers), rules)
    for number in order.places:
        if number < 0:
            pipeline.begin_constant(graph.constants[~number])
        else:
            _begin(pipeline, graph.steps[number])
    return Order(order.places, pipeline.took)


def _begin(pipeline: Pipeline, step: DependenceStep) -> None:
    pipeline.begin(_issue(step), step.reads, step.writes, step.advanced)


def _issue(step: DependenceStep) -> Issue:
    if step.issue is None:
        raise ValueError("the steps are those of a processor without rules")
    return step.issue


@functools.lru_cache(BLOCKS)
def _paths(block: Dependences) -> list[int]:
    """Returns the cycles from each instruction to the end, along what depends on it."""
    cycles = [0] * len(block.steps)
    for number in reversed(range(len(block.steps))):
        step = block.steps[number]
        cycles[number] = _issue(step).latency + max(
            (cycles[target] for target in step.after), default=0
        )
    return cycles


class _ListRun(Run):
    """One way through a graph: loads leave ``free`` registers to other instructions."""

    def __init__(
        self, graph: BlockGraph, room: int, rules: IssueRules, free: int, *, by_path: bool
    ) -> None:
        super().__init__(graph, room, Preference(free, eager=True))
        self.by_path, self.paths = by_path, _paths(graph.block)
        self.pipeline, self.per_cycle = Pipeline(len(graph.readers), rules), rules.per_cycle
        self.waiting = len(graph.steps)
        # The cycles that each unit is still busy.
        self.busy = dict.fromkeys(Unit, 0.0)
        for step in graph.steps:
            unit = _issue(step).unit
            self.busy[unit] += 1 / unit.count
        self._count()

    def _pass(self, one: DependenceStep) -> None:
        _begin(self.pipeline, one)
        unit = _issue(one).unit
        self.busy[unit] -= 1 / unit.count
        self.waiting -= 1
        self._count()

    def _pass_constant(self, cycles: int) -> None:
        self.pipeline.begin_constant(cycles)
        self._count()

    def _count(self) -> None:
        self.took = self.pipeline.took
        # Some may still begin in the cycle that is the last until now.
        products = int(self.busy[Unit.MULTIPLY])
        self.left = max(products, self.waiting // self.per_cycle) - 1

    def _next(self) -> int | None:
        spare = self.room - self.live - len(self.made)
        loads = [
            number for _, number in self.loads[:1 if self.by_path else _LOADS]
            if self.more[number] <= 0 or spare > self.preference.free
        ]
        waiting = [number for number in (*self.ready, *loads) if self._has_room(number, spare)]
        if not waiting:
            return self.loads[0][1] if self.loads else None
        busiest = max(self.busy, key=self.busy.__getitem__)
        return min(waiting, key=lambda number: self._rank(number, busiest))

    def _has_room(self, number: int, spare: int) -> bool:
        """Returns whether there are registers for an instruction, if constants that it doesn't need
        are forgotten."""
        needed = self.graph.steps[number].constants
        if not needed and self.more[number] <= spare:
            return True
        missing = sum(value not in self.made for value in needed)
        forgotten = len(self.made) - (len(needed) - missing)
        more = self.more[number] + missing
        return more <= 0 or more <= spare + forgotten

    def _rank(self, number: int, busiest: Unit) -> tuple[int, ...]:
        """Returns a key of an instruction, that of the best one is the least."""
        step = self.graph.steps[number]
        issue = _issue(step)
        at = self.pipeline.earliest(issue, step.reads)
        if step.constants:
            at += sum(value not in self.made for value in step.constants)
        first = issue.unit is Unit.SHIFT and self.more[number] <= 0
        if self.by_path:
            return at, not first, -self.paths[number], number
        load = step.kind is Kind.LOAD
        place = self.graph.first_use[number] if load else number
        return at, not first, issue.unit is not busiest, not load, place
