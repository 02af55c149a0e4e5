"""Networks of thousands of operators: twice as many take about twice the work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from unittest.mock import patch

import pytest

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Abs, Add, Concatenation, Logistic, MaxPool2D, Relu, Reshape, Tanh
from crtexport.lowering import inplace_facts
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import check, layout, order, plan
from crtexport.plan.kernel_proof import ReplayProof
from tests.lowered import plain
from tests.plan.graphs import GraphBuilder

FEW, MANY = 120, 240


def chain(count: int) -> Graph:
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2)
    for number in range(count):
        x = b.node((Relu(), Tanh())[number % 2], x)
    return b.finish(x)


def skips(count: int) -> Graph:
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2)
    for _ in range(count // 3):
        x = b.node(Add(), x, b.node(Tanh(), b.node(Abs(), x)))
    return b.finish(x)


def branches(count: int) -> Graph:
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2)
    for _ in range(count // 5):
        one, two, three = (b.node(op, x) for op in (Abs(), Tanh(), Logistic()))
        x = b.node(Add(), b.node(Add(), one, two), three)
    return b.finish(x)


def joined(count: int) -> Graph:
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2)
    for _ in range(count // 4):
        both = b.node(Concatenation(3), b.node(Abs(), x), b.node(Tanh(), x))
        x = b.node(MaxPool2D((1, 2), (1, 2)), b.node(Reshape((1, 4, 8, 2)), both))
    return b.finish(x)


def aside(count: int) -> Graph:
    """All are read at the end, so that all are needed at the same time."""
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2)
    results = [b.node(Tanh(), x) for _ in range(count // 2)]
    whole = results[0]
    for result in results[1:]:
        whole = b.node(Add(), whole, result)
    return b.finish(whole)


def ladder(count: int) -> Graph:
    """Each result is read twice: by the next one, and on the way back."""
    b = GraphBuilder()
    results = [b.input(1, 4, 4, 2)]
    for _ in range(count // 2):
        results.append(b.node(Tanh(), results[-1]))
    whole = results.pop()
    while results:
        whole = b.node(Add(), whole, results.pop())
    return b.finish(whole)


def gathered(count: int) -> Graph:
    """Concatenations of concatenations of what was computed aside."""
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2)
    whole = [b.node(Tanh(), x) for _ in range(count * 7 // 8)]
    while len(whole) > 1:
        whole = [b.node(Concatenation(0), *whole[i : i + 8]) for i in range(0, len(whole), 8)]
    return b.finish(b.node(Relu(), whole[0]))


def dense(count: int) -> Graph:
    """Each concatenation has that before it and a bit more."""
    b = GraphBuilder()
    x = b.input(1, 1, 1, 4)
    whole = x
    for _ in range(count // 2):
        whole = b.node(Concatenation(0), whole, b.node(Tanh(), x))
    return b.finish(b.node(Relu(), whole))


def steps(graph: Graph, inside: bool) -> int:
    """Function calls of the planner and the checker, which know no clock."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and "crtexport/plan/" in frame.f_code.co_filename

    lowered = plain(graph)
    sys.setprofile(count)
    try:
        found = plan(lowered, io_in_workspace=inside)
        check.check(graph, found, ReplayProof(lowered))
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("network", [chain, skips, branches, joined])
def test_twice_the_operators_take_about_twice_the_steps(
    network: Callable[[int], Graph], inside: bool
) -> None:
    few, many = (steps(copy_outputs(network(count)), inside) for count in (FEW, MANY))
    assert few > FEW
    assert many < 2.6 * few


def test_what_is_needed_at_one_time_takes_pairs_and_no_more() -> None:
    with patch.object(order, "_KEPT", ((1000, 8),)):
        few, many = (steps(copy_outputs(aside(count)), False) for count in (FEW, MANY))
    assert many < 5 * few


def lines(work: Callable[[], object]) -> int:
    """Lines of the planner and the checker that run in ``work``, each time they do."""
    count = 0

    def line(_: FrameType, event: str, __: object) -> Callable[..., object]:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, _: str, __: object) -> Callable[..., object] | None:
        return line if "crtexport/plan/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def lines_of_plan(graph: Graph, inside: bool) -> int:
    lowered = plain(graph)
    return lines(lambda: check.check(
        graph, plan(lowered, io_in_workspace=inside), ReplayProof(lowered)
    ))


def test_the_places_of_views_are_found_in_about_linear_steps() -> None:
    def running(graph: Graph) -> list[int]:
        return [n for n, node in enumerate(graph.nodes) if not isinstance(node.op, Reshape)]

    few, many = (
        lines(partial(order.whole_order, graph, running(graph)))
        for graph in (joined(FEW), joined(MANY))
    )
    assert few > FEW
    assert many < 2.6 * few


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("network", [aside, ladder, gathered, dense])
def test_wide_networks_are_planned_without_a_list_of_pairs(
    network: Callable[[int], Graph], inside: bool
) -> None:
    with (
        patch.object(order, "_KEPT", ((1000, 8),)), patch.object(layout, "_PAIRS", 500),
        patch.object(layout, "_STRETCHES", 500), patch.object(layout, "_FEW_STRETCHES", 50),
    ):
        few, many = (lines_of_plan(copy_outputs(network(count)), inside) for count in (FEW, MANY))
    assert few > FEW
    assert many < 2.6 * few


@pytest.mark.parametrize("network", [chain, skips, branches, joined])
def test_the_order_is_looked_for_in_bounded_effort(network: Callable[[int], Graph]) -> None:
    graph = network(MANY)
    with patch.object(order, "_KEPT", ((200, 4096), (400, 8), (600, 1))):
        found = order.execution_order(graph, io_counts=True)
    assert sorted(found) == list(range(len(graph.nodes)))


def test_wide_graphs_keep_their_order_when_the_search_is_given_up() -> None:
    graph = aside(FEW)
    with patch.object(order, "_KEPT", ((50, 4096),)):
        assert order.execution_order(graph) == tuple(range(len(graph.nodes)))


def test_no_order_is_looked_for_where_too_many_nodes_can_run_next() -> None:
    graph = aside(FEW)
    most = order._Costs(graph, {}, io_counts=False).choices()
    # 60 can run first, then one fewer at each step, with a sum beside the others once two are there
    assert 60 * 61 // 2 <= most <= 60 * 61 // 2 + 2 * 59
    for limit, searches in ((most, 1), (most - 1, 0)):
        with (
            patch.object(order, "_KEPT", ((limit, 1),)),
            patch.object(order._OrderSearch, "run", autospec=True, return_value=None) as run,
        ):
            order.execution_order(graph)
        assert run.call_count == searches


def test_inputs_of_a_node_with_very_many_are_not_told_apart() -> None:
    limit = inplace_facts.PAIRS_LIMIT
    for count, allowed in ((limit, True), (limit + 1, False)):
        b = GraphBuilder()
        x = b.input(1, 4, 4, 2)
        whole = b.node(Concatenation(3), *(b.node(Tanh(), x) for _ in range(count)))
        facts = plain(b.finish(whole)).nodes[count].facts
        assert bool(facts.forward.get((0, 0))) == allowed
        assert facts.moves is None
