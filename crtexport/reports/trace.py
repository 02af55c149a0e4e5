"""Finds out which statement of a network's code made each call that QEMU saw.

Without IF and WHILE, the calls are the statements in their order. With them, the statements are an
automaton whose transitions are calls, and the watched calls are one of the sequences that it
accepts. If several statements could have made a call in such a sequence, its counts belong to none.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from crtexport.artifact.calls import describe
from crtexport.artifact.model import (
    BranchStatement,
    Feed,
    FunctionCall,
    LoopStatement,
    Repeat,
    Statement,
    every_call,
)
from crtexport.firmware.spent import Spent
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import While
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode, LoweredRows
from crtexport.plan.model import Plan
from crtexport.support.errors import CrtExportError

if TYPE_CHECKING:
    from crtexport.firmware.run import WatchedCall


class CallSite(Struct, frozen=True):
    """A call in the generated code, and the node ``lowered`` that it computes. ``name`` is the
    node's, with a prefix such as "loop, body: " for nodes in graphs of other nodes. ``copies``: the
    call only copies values that a loop carries from one iteration to the next. ``by_rows``: it is
    one of several calls that compute rows of a cascade's layer."""

    call: FunctionCall
    lowered: LoweredNode
    name: str
    copies: bool = False
    by_rows: bool = False

    @property
    def graph(self) -> Graph:
        """Returns the graph that the node is in."""
        return self.lowered.context.graph

    @property
    def node(self) -> Node:
        return self.lowered.node


class Executed(Struct, frozen=True):
    """The number of ``runs`` of a call in one inference, and their total costs."""

    runs: int
    spent: Spent

    @property
    def instructions(self) -> int:
        return self.spent.instructions


def call_sites(
    graph: LoweredGraph, plan: Plan, statements: Sequence[Statement]
) -> list[CallSite]:
    """Returns the calls in ``statements`` with the nodes that they compute, in the order of
    :func:`crtexport.artifact.model.every_call`.

    Raises CrtExportError if the statements don't follow from the plan.
    """
    return list(_all_sites(graph, plan, list(statements), ""))


def _mismatch(graph: LoweredGraph) -> CrtExportError:
    return CrtExportError(
        "the layers of this network can't be told apart", location=graph.graph.name
    )


def _step_sites(
    graph: LoweredGraph, plan: Plan, remaining: list[Statement], within: str
) -> Iterator[CallSite]:
    """Removes the statements of a plan's steps from the front of ``remaining``, and yields their
    calls; ``within`` is a prefix of the nodes' names."""
    for step in plan.steps:
        node = graph.nodes[step.node]
        name = f"{within}{node.node}"
        if isinstance(node.node.op, While):
            yield from _copy_sites(node, remaining, within)
        inner = list(zip(node.graphs, (inner.plan for inner in step.inner), strict=True))
        match remaining.pop(0) if remaining else None:
            case Repeat() | Feed() as group if node.rows is not None:
                yield from _row_sites(node.rows, (group,))
            case FunctionCall() as call if not inner:
                yield CallSite(call, node, name)
            case BranchStatement(then=then, other=other) if inner:
                for role, body, nested in zip(("then", "else"), (then, other), inner, strict=True):
                    yield from _all_sites(*nested, list(body), f"{name}, {role}: ")
            case LoopStatement(before=before, body=body) if inner:
                yield from _all_sites(*inner[0], list(before), f"{name}, condition: ")
                remaining_body = list(body)
                yield from _step_sites(*inner[1], remaining_body, f"{name}, body: ")
                yield from _copy_sites(node, remaining_body, within)
                if remaining_body:
                    raise _mismatch(graph)
            case _:
                raise _mismatch(graph)


def _row_sites(
    rows: LoweredRows, body: Sequence[Statement]
) -> Iterator[CallSite]:
    """Yields the calls of a cascade. A call's comment names the node of the band that it
    computes."""
    bands = {describe(rows.bands.graph, node.node): node for node in rows.lowered.nodes}
    for call in every_call(body):
        if call.comment not in bands:
            raise _mismatch(rows.lowered)
        yield CallSite(call, bands[call.comment], f"{bands[call.comment].node}", by_rows=True)


def _all_sites(
    graph: LoweredGraph, plan: Plan, statements: list[Statement], within: str
) -> Iterator[CallSite]:
    """As :func:`_step_sites`. Raises CrtExportError if statements remain."""
    yield from _step_sites(graph, plan, statements, within)
    if statements:
        raise _mismatch(graph)


def _copy_sites(
    node: LoweredNode, remaining: list[Statement], within: str
) -> Iterator[CallSite]:
    """Removes the calls that ``remaining`` begins with, which copy the values of a loop."""
    while remaining and isinstance(remaining[0], FunctionCall):
        call = remaining[0]
        del remaining[0]
        yield CallSite(call, node, f"{within}{call.comment}", copies=True)


def static_runs(statements: Sequence[Statement], times: int = 1) -> Iterator[int | None]:
    """Yields how often each call is made in one inference, in the order of every_call; None for
    calls in IF and WHILE, which decide that at run time."""
    for statement in statements:
        match statement:
            case FunctionCall():
                yield times
            case Repeat(times=again, body=body):
                yield from static_runs(body, times * again)
            case Feed():
                made = Counter(
                    number for number, _ in itertools.islice(statement.order(), statement.rows)
                )
                for number, segment in enumerate(statement.segments):
                    yield from static_runs(segment, times * made[number])
            case _:
                statement_calls: Sequence[Statement] = (statement,)
                yield from (None for _ in every_call(statement_calls))


_Counted: TypeAlias = tuple[CallSite, Executed | None, int | None]


def _sum(first: _Counted, second: _Counted) -> _Counted:
    (site, before, times), (_, after, again) = first, second
    return (
        site,
        None if before is None or after is None else Executed(
            before.runs + after.runs, _sum_spent(before.spent, after.spent)
        ),
        None if times is None or again is None else times + again,
    )


def merged_rows(
    sites: Iterable[CallSite], counts: Iterable[Executed | None], runs: Iterable[int | None]
) -> list[_Counted]:
    """Returns (call, its counts, how often the code makes it) for each call; the calls that compute
    rows of one layer of a cascade are one entry, with their sums."""
    found: dict[int, _Counted] = {}
    for number, one in enumerate(zip(sites, counts, runs, strict=True)):
        key = id(one[0].lowered) if one[0].by_rows else -1 - number
        found[key] = _sum(found[key], one) if key in found else one
    return list(found.values())


def executed(
    statements: Sequence[Statement], watched: Sequence[WatchedCall] | None
) -> list[Executed | None]:
    """Returns the counts of each call of ``statements``, in the order of every_call; None if they
    can't be determined. ``watched`` are all calls of an inference in the order in which they were
    made, None if QEMU couldn't watch them."""
    walks = _Automaton(statements)
    unknown: list[Executed | None] = [None] * len(walks.calls)
    if watched is None:
        return unknown
    names = [call.symbol for call in watched]
    # The states that can be reached before each call, and those from which the end can be reached
    # after it.
    before = list(_through(frozenset({0}), names, walks.forward))
    after = list(_through(frozenset({walks.end}), names[::-1], walks.backward))[::-1]
    runs, totals = [0] * len(walks.calls), [Spent(0)] * len(walks.calls)
    unclear: set[int] = set()
    for call, sources, targets in zip(watched, before, after[1:], strict=False):
        makers = walks.between(sources, call.symbol, targets)
        if not makers:
            return unknown
        if len(makers) > 1:
            unclear |= makers
        for maker in makers:
            runs[maker] += 1
            totals[maker] = _sum_spent(totals[maker], call.spent)
    if not watched and walks.end not in walks.rest(before[0]):
        return unknown
    return [
        None if number in unclear else Executed(runs[number], totals[number])
        for number in range(len(walks.calls))
    ]


def _sum_spent(total: Spent, more: Spent) -> Spent:
    """Returns the sum; ``total`` may be that of no call yet, which has no cycles."""
    return total + more if total.instructions else more


_States = frozenset[int]


def _through(
    states: _States, names: Sequence[str], step: Callable[[_States, str], _States]
) -> Iterator[_States]:
    yield states
    for name in names:
        states = step(states, name)
        yield states


class _Automaton:
    """The sequences of calls that statements allow, as a finite automaton. Its states are numbers;
    each call of a function is a transition, branches and loops are transitions without a call."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.calls = [call.symbol for call in every_call(statements)]
        self._edges: list[tuple[int, int, int]] = []  # from, to, and the number of the call
        self._free: list[tuple[int, int]] = []
        self._states = 1
        self.end, _ = self._through(statements, 0, 0)
        self.forward = functools.cache(self._forward)
        self.backward = functools.cache(self._backward)
        self.between = functools.cache(self._between)
        self.rest = functools.cache(self._rest)

    def _new(self) -> int:
        self._states += 1
        return self._states - 1

    def _through(
        self, statements: Sequence[Statement], at: int, number: int
    ) -> tuple[int, int]:
        """Adds ``statements`` behind state ``at``; ``number`` is the number of their first call.
        Returns the state after them, and the number of the next call."""
        for statement in statements:
            match statement:
                case FunctionCall():
                    made = self._new()
                    self._edges.append((at, made, number))
                    at, number = made, number + 1
                case BranchStatement(then=then, other=other):
                    first, number = self._through(then, at, number)
                    second, number = self._through(other, at, number)
                    at = self._new()
                    self._free += ((end, at) for end in (first, second))
                case LoopStatement(before=before, body=body):
                    # A new state: an iteration returns to it, not to the calls before the loop.
                    head = self._new()
                    self._free.append((at, head))
                    decided, number = self._through(before, head, number)
                    again, number = self._through(body, decided, number)
                    self._free.append((again, head))
                    at = self._new()
                    self._free.append((decided, at))
                case Repeat(times=times, body=body):
                    first_call = number
                    for _ in range(times):
                        at, number = self._through(body, at, first_call)
                case Feed():
                    begins = [number]
                    for segment in statement.segments:
                        begins.append(begins[-1] + len([*every_call(segment)]))
                    for position, _ in itertools.islice(statement.order(), statement.rows):
                        segment = statement.segments[position]
                        at, _ = self._through(segment, at, begins[position])
                    number = begins[-1]
        return at, number

    def _rest(self, states: _States) -> _States:
        """Returns ``states`` and all that are reached from them without a call (the epsilon
        closure)."""
        return _closed(states, self._free)

    def _forward(self, states: _States, name: str) -> _States:
        from_here = self.rest(states)
        return frozenset(
            made for at, made, number in self._edges
            if self.calls[number] == name and at in from_here
        )

    def _backward(self, states: _States, name: str) -> _States:
        until_here = _closed(states, [(b, a) for a, b in self._free])
        return frozenset(
            at for at, made, number in self._edges
            if self.calls[number] == name and made in until_here
        )

    def _between(self, sources: _States, name: str, targets: _States) -> frozenset[int]:
        """Returns the numbers of the calls of function ``name`` that lead from one of ``sources``
        to a state from which one of ``targets`` is reached without a call."""
        from_here = self.rest(sources)
        until_here = _closed(targets, [(b, a) for a, b in self._free])
        return frozenset(
            number for at, made, number in self._edges
            if self.calls[number] == name and at in from_here and made in until_here
        )


def _closed(states: _States, edges: Sequence[tuple[int, int]]) -> _States:
    found, left = set(states), list(states)
    while left:
        at = left.pop()
        fresh = {target for source, target in edges if source == at} - found
        found |= fresh
        left += fresh
    return frozenset(found)
