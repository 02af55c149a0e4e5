"""The calls in generated code, and the nodes that they compute."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

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
            before.runs + after.runs, sum_spent(before.spent, after.spent)
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


def sum_spent(total: Spent, more: Spent) -> Spent:
    """Returns the sum; ``total`` may be that of no call yet, which has no cycles."""
    return total + more if total.instructions else more
