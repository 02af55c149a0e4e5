"""Networks compute the same in planned memory as with memory for every tensor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport import passes
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import plan
from crtexport.plan.check import check
from crtexport.plan.kernel_proof import ReplayProof
from tests.helpers import fnv1a, shared_model, standard_input, tflm_outputs
from tests.lowered import plain
from tests.plan.execute import execute, execute_planned
from tests.plan.graphs import networks


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.integers(0, 1000), st.booleans())
def test_planned_memory_changes_nothing(network: Graph, seed: int, workspace_io: bool) -> None:
    graph = copy_outputs(network)
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=graph.type(t).shape).astype(np.float32) for t in graph.inputs]
    expected = execute(graph, inputs)
    planned = plan(plain(graph), io_in_workspace=workspace_io)
    check(graph, planned, ReplayProof(plain(graph)))
    for found, wanted in zip(execute_planned(graph, planned, inputs), expected, strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.models
@pytest.mark.parametrize(("name", "most"), [
    ("ad01_int8", 768), ("kws_int8", 8384), ("resnet8_int8", 33312), ("vww96_int8", 36880),
])
def test_reference_networks_give_what_devices_gave(name: str, most: int) -> None:
    """Simplified, planned and interpreted, inputs and outputs in the workspace: the bytes that
    TFLM computed on a Cortex-M, in no more than these bytes of memory."""
    graph = passes.run(load(shared_model(name)))
    planned = plan(plain(graph), io_in_workspace=True)
    check(graph, planned, ReplayProof(plain(graph)))
    assert planned.workspace_size == most
    (found,) = execute_planned(graph, planned, [standard_input(graph.type(graph.inputs[0]).shape)])
    assert fnv1a(found.tobytes()) == tflm_outputs()[name]["fnv1a"]
