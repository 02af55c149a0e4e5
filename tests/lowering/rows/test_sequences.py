"""Networks of sequences are computed row by row, and go on from one window to the next."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.artifact.assemble import ModuleOptions, Planned, assemble_package
from crtexport.artifact.model import Artifact
from crtexport.ir.graph import Graph
from crtexport.ir.verify import verify
from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import row_schedule
from crtexport.pipeline.cascades.images import as_images
from crtexport.pipeline.cascades.streams import streamed
from crtexport.pipeline.cascades.upright import joined, upright
from crtexport.plan import plan
from crtexport.plan.check import check
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.support.errors import CrtExportError
from tests.fuzz.artifacts import Interpreted
from tests.lowered import plain
from tests.lowering.rows.sequences import sequences
from tests.plan.execute import execute

Array = npt.NDArray[Any]
SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def _artifact(graph: Graph) -> Artifact:
    """What a graph becomes whose plan is proven."""
    verify(graph)
    lowered = plain(graph)
    planned = plan(lowered)
    check(lowered.graph, planned, ReplayProof(lowered))
    (artifact,) = assemble_package([Planned(lowered, planned, ModuleOptions("m"))])
    return artifact


def _same(network: Graph, artifact: Artifact, seed: int) -> None:
    """Compares two runs in one memory with whole tensors."""
    machine, rng = Interpreted(artifact, 32), np.random.default_rng(seed)
    (shape,) = (network.type(tensor).shape for tensor in network.inputs)
    for _ in range(2):
        x = rng.integers(-128, 128, shape).astype(np.int8)
        for found, wanted in zip(machine.run([x]), execute(network, [x]), strict=True):
            np.testing.assert_array_equal(found, wanted)


@SETTINGS
@given(sequences(), st.data(), st.integers(0, 1000))
def test_layers_over_time_give_the_same_as_rows_and_as_columns(
    network: Graph, data: st.DataObject, seed: int
) -> None:
    graph = as_images(network)
    turned, count = upright(graph), len(graph.nodes)
    cuts = sorted(data.draw(st.sets(st.integers(0, count), max_size=3)))
    found = []
    for start, end in pairwise((0, *cuts, count)):
        parts = turned.nodes[start:end]
        later = {t for node in graph.nodes[end:] for t in node.inputs} | {*graph.outputs}
        outputs = [t for part in parts for t in part.outputs if t in later]
        heights = [data.draw(st.integers(1, 4)) for _ in parts]
        node = cascade(parts, outputs, heights) if parts else None
        if node is not None and row_schedule(turned, node, heights) is not None:
            found.append((start, end, node))
    _same(network, _artifact(joined(graph, turned, found)), seed)


@SETTINGS
@given(sequences(causal=False), st.integers(0, 1000))
def test_layers_without_padding_go_on_from_one_window_to_the_next(
    network: Graph, seed: int
) -> None:
    """Some windows come before the one whose result is compared."""
    artifact = _artifact(streamed(network))
    assert artifact.feed is not None
    assert artifact.feed.hop > 0
    _same(network, artifact, seed)


@SETTINGS
@given(sequences(causal=True), st.integers(0, 1000))
def test_causal_layers_go_on_where_only_frames_are_read_that_see_no_padding(
    network: Graph, seed: int
) -> None:
    with contextlib.suppress(CrtExportError):
        _same(network, _artifact(streamed(network)), seed)
