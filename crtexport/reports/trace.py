"""Matches watched calls with the statements of a network that made them.

Where IF and WHILE decide, the calls are one of many sequences that the statements allow: a walk
through them, from the first to the last. A call that several statements could have made, in walks
that all fit, stays unmatched.
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
    Branch,
    Feed,
    FunctionCall,
    Loop,
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
    """The origin of a call: it computes ``lowered``. ``name`` says for nodes within others in which
    of their graphs they are. ``copies``: it only moves values that a loop works on. ``by_rows``: it
    is one of several calls that compute rows."""

    call: FunctionCall
    lowered: LoweredNode
    name: str
    copies: bool = False
    by_rows: bool = False

    @property
    def graph(self) -> Graph:
        """The graph that the node is in."""
        return self.lowered.context.graph

    @property
    def node(self) -> Node:
        return self.lowered.node


class Executed(Struct, frozen=True):
    """The number of times that a call was made, and what all of them took together."""

    runs: int
    spent: Spent

    @property
    def instructions(self) -> int:
        return self.spent.instructions


def places(
    graph: LoweredGraph, plan: Plan, statements: Sequence[Statement]
) -> list[CallSite]:
    """Returns the calls of a graph's statements, in the order of
    :func:`crtexport.artifact.model.every_call`.

    Raises CrtExportError where the statements aren't those of the plan.
    """
    left = list(statements)
    found = list(_placed(graph, plan, left, ""))
    if left:
        raise _unlike(graph)
    return found


def _unlike(graph: LoweredGraph) -> CrtExportError:
    return CrtExportError(
        "the layers of this network can't be told apart", location=graph.graph.name
    )


def _placed(
    graph: LoweredGraph, plan: Plan, remaining: list[Statement], within: str
) -> Iterator[CallSite]:
    """Takes the statements of a plan's steps from ``remaining``."""
    for step in plan.steps:
        node = graph.nodes[step.node]
        name = f"{within}{node.node}"
        if isinstance(node.node.op, While):
            yield from _copies(node, remaining, within)
        inner = list(zip(node.graphs, (inner.plan for inner in step.inner), strict=True))
        match remaining.pop(0) if remaining else None:
            case Repeat() | Feed() as group if node.rows is not None:
                yield from _rows(node.rows, (group,))
            case FunctionCall() as call if not inner:
                yield CallSite(call, node, name)
            case Branch(then=then, other=other) if inner:
                for role, body, nested in zip(("then", "else"), (then, other), inner, strict=True):
                    yield from _whole(*nested, list(body), f"{name}, {role}: ")
            case Loop(before=before, body=body) if inner:
                yield from _whole(*inner[0], list(before), f"{name}, condition: ")
                remaining_body = list(body)
                yield from _placed(*inner[1], remaining_body, f"{name}, body: ")
                yield from _copies(node, remaining_body, within)
                if remaining_body:
                    raise _unlike(graph)
            case _:
                raise _unlike(graph)


def _rows(
    rows: LoweredRows, body: Sequence[Statement]
) -> Iterator[CallSite]:
    """The calls of a cascade, each of the node of its bands with its comment."""
    bands = {describe(rows.bands.graph, node.node): node for node in rows.lowered.nodes}
    for call in every_call(body):
        if call.comment not in bands:
            raise _unlike(rows.lowered)
        yield CallSite(call, bands[call.comment], f"{bands[call.comment].node}", by_rows=True)


def _whole(
    graph: LoweredGraph, plan: Plan, remaining: list[Statement], within: str
) -> Iterator[CallSite]:
    yield from _placed(graph, plan, remaining, within)
    if remaining:
        raise _unlike(graph)


def _copies(node: LoweredNode, remaining: list[Statement], within: str) -> Iterator[CallSite]:
    """Takes the calls that ``remaining`` begins with."""
    while remaining and isinstance(remaining[0], FunctionCall):
        call = remaining[0]
        del remaining[0]
        yield CallSite(call, node, f"{within}{call.comment}", copies=True)


def static_runs(statements: Sequence[Statement], times: int = 1) -> Iterator[int | None]:
    """Yields how often each call is made, in the order of every_call; None for all where anything
    is decided while they run."""
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
            before.runs + after.runs, _together(before.spent, after.spent)
        ),
        None if times is None or again is None else times + again,
    )


def joined(
    sites: Iterable[CallSite], counts: Iterable[Executed | None], runs: Iterable[int | None]
) -> list[_Counted]:
    """Calls with how often they are made; those of one node of a cascade together."""
    found: dict[int, _Counted] = {}
    for number, one in enumerate(zip(sites, counts, runs, strict=True)):
        key = id(one[0].lowered) if one[0].by_rows else -1 - number
        found[key] = _sum(found[key], one) if key in found else one
    return list(found.values())


def executed(
    statements: Sequence[Statement], watched: Sequence[WatchedCall] | None
) -> list[Executed | None]:
    """Returns the counts of each call of ``statements``, in the order of every_call; None where
    they aren't known. ``watched`` are all calls in the order in which they were made."""
    walks = _Walks(statements)
    unknown: list[Executed | None] = [None] * len(walks.calls)
    if watched is None:
        return unknown
    names = [call.symbol for call in watched]
    # What can have been reached before each call, and from where after it the end can be.
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
            totals[maker] = _together(totals[maker], call.spent)
    if not watched and walks.end not in walks.rest(before[0]):
        return unknown
    return [
        None if number in unclear else Executed(runs[number], totals[number])
        for number in range(len(walks.calls))
    ]


def _together(total: Spent, more: Spent) -> Spent:
    """The sum of both, the first of which may be of no call."""
    return total + more if total.instructions else more


_States = frozenset[int]


def _through(
    states: _States, names: Sequence[str], step: Callable[[_States, str], _States]
) -> Iterator[_States]:
    yield states
    for name in names:
        states = step(states, name)
        yield states


class _Walks:
    """The walks through statements, as a graph of states: calls lead from one to the next, and so
    do, without a call, branches and loops."""

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
        """Returns the state after ``statements`` from ``at`` on, and the number of the call behind
        them; that of their first call is ``number``."""
        for statement in statements:
            match statement:
                case FunctionCall():
                    made = self._new()
                    self._edges.append((at, made, number))
                    at, number = made, number + 1
                case Branch(then=then, other=other):
                    first, number = self._through(then, at, number)
                    second, number = self._through(other, at, number)
                    at = self._new()
                    self._free += ((end, at) for end in (first, second))
                case Loop(before=before, body=body):
                    # Not what was there: calls before the loop aren't made again.
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
        """Returns the states and those that are reached from them without a call."""
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
        """Returns the calls of ``name`` that lead from one of ``sources`` to one from which
        ``targets``, or without any call left the end, are reached."""
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
