"""Networks compute the same in planned memory as with memory for every tensor."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import plan
from tests.plan.execute import execute, execute_planned
from tests.plan.graphs import networks


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.integers(0, 1000))
def test_planned_memory_changes_nothing(network: Graph, seed: int) -> None:
    graph = copy_outputs(network)
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=graph.type(t).shape).astype(np.float32) for t in graph.inputs]
    expected = execute(graph, inputs)
    for found, wanted in zip(
        execute_planned(graph, plan(graph), inputs), expected, strict=True
    ):
        np.testing.assert_array_equal(found, wanted, strict=True)
