"""Nodes run in the order that needs the least memory at its worst moment."""

from __future__ import annotations

from itertools import permutations

from hypothesis import HealthCheck, given, settings

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Add, Concatenation, MaxPool2D, Pad, Relu, Softmax
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import plan
from crtexport.plan.check import check
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.order import execution_order, peak_of, whole_order
from tests.lowered import plain
from tests.plan.graphs import GraphBuilder, networks

SETTINGS = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def valid(graph: Graph, order: tuple[int, ...]) -> bool:
    produced = {t for node in graph.nodes for t in node.outputs}
    there = set(range(len(graph.tensors))) - produced
    for number in order:
        if any(t is not None and t not in there for t in graph.nodes[number].inputs):
            return False
        there.update(graph.nodes[number].outputs)
    return sorted(order) == list(range(len(graph.nodes)))


def branches(count: int, width: int) -> Graph:
    """Every branch first grows by padding, then shrinks to a few bytes; all begin before any
    ends, in the order of the model."""
    b = GraphBuilder()
    x = b.input(1, 4, 4, 2)
    grown = [b.node(Pad(((0, 0), (0, width), (0, width), (0, 0))), x) for _ in range(count)]
    small = [b.node(MaxPool2D((4, 4), (4, 4)), g) for g in grown]
    total = small[0]
    for s in small[1:]:
        total = b.node(Add(), total, s)
    return b.finish(b.node(Softmax(), total))


def test_a_branch_ends_before_the_next_begins() -> None:
    graph = branches(4, 12)
    order = execution_order(graph)
    assert valid(graph, order)
    one = 16 * 16 * 2 * 4
    assert peak_of(graph, tuple(range(len(graph.nodes)))) >= 4 * one
    assert peak_of(graph, order) < 2 * one
    result = plan(plain(graph))
    check(graph, result, ReplayProof(plain(graph)))
    assert result.workspace_size < 2 * one


def test_wide_graphs_get_a_good_order_in_bearable_effort() -> None:
    graph = branches(40, 4)
    order = execution_order(graph)
    assert valid(graph, order)
    assert peak_of(graph, order) < peak_of(graph, tuple(range(len(graph.nodes)))) / 5


def test_the_order_of_the_model_stays_where_no_other_is_better() -> None:
    b = GraphBuilder()
    x = b.input(1, 8)
    first, second = b.node(Softmax(), x), b.node(Relu(), x)
    graph = b.finish(b.node(Concatenation(1), second, first))
    assert execution_order(graph) == (0, 1, 2)


@SETTINGS
@given(networks())
def test_no_order_of_a_small_network_is_better(network: Graph) -> None:
    graph = copy_outputs(network)
    order = execution_order(graph, io_counts=True)
    assert valid(graph, order)
    found = peak_of(graph, order, io_counts=True)
    if len(graph.nodes) <= 6:
        for other in permutations(range(len(graph.nodes))):
            if valid(graph, other):
                assert found <= peak_of(graph, other, io_counts=True)


@SETTINGS
@given(networks())
def test_views_find_their_place_in_the_order(network: Graph) -> None:
    graph = copy_outputs(network)
    result = plan(plain(graph))
    assert valid(graph, whole_order(graph, (s.node for s in result.steps)))
