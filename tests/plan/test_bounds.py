"""Lower bounds of all plans hold for those that there are, and stop nothing that is better."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Add, Conv2D, Mean
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import plan, planner
from crtexport.plan.bounds import least
from crtexport.plan.model import Plan
from tests.lowered import plain
from tests.plan.graphs import GraphBuilder, networks


def bound(graph: Graph, found: Plan, size: int) -> bool:
    facts = {number: node.facts for number, node in enumerate(plain(graph).nodes)}
    return least(graph, found, facts, size)


@given(networks(), st.booleans())
def test_no_plan_goes_below_the_bound(network: Graph, inside: bool) -> None:
    network = copy_outputs(network)
    found = plan(plain(network), io_in_workspace=inside)
    with patch.object(planner, "least", lambda *_: False):
        tried = plan(plain(network), io_in_workspace=inside)
    assert found == tried
    assert not bound(network, found, tried.total + 1)


def test_what_is_wanted_behind_a_node_counts() -> None:
    b = GraphBuilder()
    weights = b.constant(np.ones((4, 1, 1, 4), np.float32))
    start = b.node(Conv2D(), b.input(1, 8, 8, 4), weights)
    once = b.node(Conv2D(), start, weights)
    twice = b.node(Conv2D(), once, weights)
    graph = b.finish(b.node(Mean((1, 2), False), b.node(Add(), start, twice)))
    found, two = plan(plain(graph)), 2 * graph.type(start).nbytes
    assert found.total >= two
    assert bound(graph, found, two)
    assert not bound(graph, found, found.total + 1)
