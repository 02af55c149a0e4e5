"""Networks that are computed row by row give what they give as a whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.artifact.assemble import ModuleOptions, Planned, assemble_package
from crtexport.artifact.model import FunctionCall, every_call
from crtexport.artifact.row_calls import call_sites
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Cascade, ChannelSums, MaxPool2D, Padding2D
from crtexport.ir.types import DType
from crtexport.ir.verify import verify
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import Compute, band_heights, row_schedule
from crtexport.plan import plan, svg, text
from crtexport.plan.check import PlanError, check
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.model import Plan
from crtexport.plan.row_liveness import _last_reads
from tests.fuzz.artifacts import Interpreted
from tests.lowered import plain
from tests.lowering.rows.drawn import Q, cascades
from tests.plan.execute import execute
from tests.plan.graphs import GraphBuilder

Array = npt.NDArray[Any]


def _lowered(graph: Graph) -> LoweredGraph:
    verify(graph)
    lowered = plain(graph)
    assert not any(node.problems for node in lowered.nodes)
    return lowered


def _inputs(graph: Graph, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = [graph.type(tensor).shape for tensor in graph.inputs]
    return [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(cascades(), st.booleans(), st.integers(0, 1000))
def test_rows_give_what_whole_tensors_give(
    drawn: tuple[Graph, Graph], io_in_workspace: bool, seed: int
) -> None:
    """Plans are proven, and their calls interpreted twice in one memory."""
    network, graph = drawn
    lowered = _lowered(graph)
    planned = plan(lowered, io_in_workspace=io_in_workspace)
    check(lowered.graph, planned, ReplayProof(lowered))
    (artifact,) = assemble_package([Planned(lowered, planned, ModuleOptions("m"))])
    machine = Interpreted(artifact, 32)
    for more in range(2):
        inputs = _inputs(network, seed + more)
        for found, wanted in zip(machine.run(inputs), execute(network, inputs), strict=True):
            np.testing.assert_array_equal(found, wanted)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cascades())
def test_bands_are_counted_as_they_are_computed(drawn: tuple[Graph, Graph]) -> None:
    _, graph = drawn
    for node in graph.nodes:
        if not isinstance(node.op, Cascade):
            continue
        schedule = row_schedule(graph, node, node.op.heights)
        bands = band_heights(graph, node, node.op.heights)
        assert schedule is not None
        assert bands is not None
        done: dict[int, Counter[int]] = defaultdict(Counter)
        for step in schedule.steps:
            if isinstance(step.work, Compute):
                done[step.work.part][step.work.rows] += 1
        for number, (part, counts) in enumerate(zip(node.parts, bands, strict=True)):
            sums = isinstance(part.op, ChannelSums)
            tensor = part.inputs[0] if sums else part.outputs[0]
            rows = graph.type(tensor or 0).shape[1]
            assert sum(height * count for height, count in counts.items()) == rows
            if sum(height * count for height, count in done[number].items()) == rows:
                assert done[number] == counts


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cascades())
def test_hardly_more_calls_are_counted_than_are_written(drawn: tuple[Graph, Graph]) -> None:
    _, graph = drawn
    lowered = _lowered(graph)
    planned = plan(lowered)
    (artifact,) = assemble_package([Planned(lowered, planned, ModuleOptions("m"))])
    counted = sum(
        call_sites(graph, node.node, node.rows, step.rows) for step in planned.steps
        for node in (lowered.nodes[step.node],) if node.rows is not None and step.rows is not None
    )
    assert (counted > 0) == any(isinstance(node.op, Cascade) for node in graph.nodes)
    plain = sum(isinstance(call, FunctionCall) for call in artifact.calls)
    # Addresses of several whole tensors may move alike.
    written = sum(1 for _ in every_call(artifact.calls)) - plain
    assert counted * 0.8 - 2 <= written <= counted


def _with_rows(graph: Graph, planned: Plan) -> list[int]:
    """Positions of the steps that keep rows."""
    nodes = graph.nodes
    return [n for n, step in enumerate(planned.steps) if isinstance(nodes[step.node].op, Cascade)]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cascades(), st.data())
def test_the_checker_refuses_cascades_that_leave_something_out(
    drawn: tuple[Graph, Graph], data: st.DataObject
) -> None:
    lowered = _lowered(drawn[1])
    planned = plan(lowered)
    numbers = [n for n, node in enumerate(lowered.nodes) if node.rows is not None]
    if not numbers:
        return
    number = data.draw(st.sampled_from(numbers))
    rows = lowered.nodes[number].rows
    assert rows is not None
    steps = list(rows.bands.schedule.steps)
    read = _last_reads(rows.bands.schedule)  # strides leave rows out
    needed = [
        n for n, step in enumerate(steps) if isinstance(step.work, Compute)
        and (step.write.slot is None or step.write.row in read.get(step.write.tensor, {}))
    ]
    del steps[data.draw(st.sampled_from(needed))]
    schedule = replace(rows.bands.schedule, steps=tuple(steps))
    fewer = replace(
        lowered.nodes[number], rows=replace(rows, bands=replace(rows.bands, schedule=schedule))
    )
    nodes = (*lowered.nodes[:number], fewer, *lowered.nodes[number + 1 :])
    with pytest.raises(PlanError):
        check(lowered.graph, planned, ReplayProof(replace(lowered, nodes=nodes)))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cascades(), st.data())
def test_the_checker_refuses_rings_that_lie_elsewhere(
    drawn: tuple[Graph, Graph], data: st.DataObject
) -> None:
    """Over others or beyond the scratch: what is planned has hardly a byte to spare. Where a ring
    may lie elsewhere, the plan is as good as it was, and so is what it computes."""
    network, graph = drawn
    lowered = _lowered(graph)
    planned = plan(lowered)
    for position in _with_rows(graph, planned):
        step = planned.steps[position]
        assert step.rows is not None
        rings = dict(step.rows.rings)
        if not rings:
            continue
        tensor = data.draw(st.sampled_from(sorted(rings)))
        rings[tensor] += data.draw(st.sampled_from([-32, -16, -8, 8, 16, 32]))
        moved = replace(step, rows=replace(step.rows, rings=rings))
        steps = (*planned.steps[:position], moved, *planned.steps[position + 1 :])
        other = replace(planned, steps=steps)
        try:
            check(lowered.graph, other, ReplayProof(lowered))
        except PlanError:
            continue
        (artifact,) = assemble_package([Planned(lowered, other, ModuleOptions("m"))])
        inputs = _inputs(network, 0)
        found = Interpreted(artifact, 32).run(inputs)
        for one, wanted in zip(found, execute(network, inputs), strict=True):
            np.testing.assert_array_equal(one, wanted)


def _small() -> LoweredGraph:
    b = GraphBuilder()
    x = b.input(1, 6, 4, 2, dtype=DType.INT8, quant=Q)
    for _ in range(2):
        x = b.node(MaxPool2D((3, 3), padding=Padding2D(1, 1, 1, 1)), x, quant=Q)
    graph = b.finish(x)
    return _lowered(graph.with_nodes((cascade(graph.nodes, graph.outputs),)))


def test_a_cascade_without_a_plan_of_its_rows_is_refused() -> None:
    lowered = _small()
    planned = plan(lowered)
    without = replace(planned, steps=(replace(planned.steps[0], rows=None),))
    with pytest.raises(PlanError, match="has no rows"):
        check(lowered.graph, without, ReplayProof(lowered))


def test_a_chain_keeps_as_many_rows_as_windows_have() -> None:
    rows = _small().nodes[0].rows
    assert rows is not None
    assert list(rows.bands.schedule.capacity.values()) == [3, 3]


def test_rings_lie_over_rows_of_others_that_are_no_longer_needed() -> None:
    """Each layer has three rows in its ring; between its turns it needs two. At the image's last
    row, two more of the input are there, with one of padding."""
    b = GraphBuilder()
    x = b.input(1, 32, 4, 4, dtype=DType.INT8, quant=Q)
    for _ in range(8):
        x = b.node(MaxPool2D((3, 3), padding=Padding2D(1, 1, 1, 1)), x, quant=Q)
    graph = b.finish(x)
    lowered = _lowered(graph.with_nodes((cascade(graph.nodes, graph.outputs),)))
    (step,) = plan(lowered).steps
    assert step.rows is not None
    assert list(step.rows.rows.values()) == 8 * [3]
    assert step.rows.size == (7 * 2 + 1 + 3) * 16


def test_a_result_lies_over_rows_of_the_input_that_were_read() -> None:
    b = GraphBuilder()
    x = b.input(1, 32, 4, 4, dtype=DType.INT8, quant=Q)
    for _ in range(2):
        x = b.node(MaxPool2D((3, 3), padding=Padding2D(1, 1, 1, 1)), x, quant=Q)
    graph = b.finish(x)
    lowered = _lowered(graph.with_nodes((cascade(graph.nodes, graph.outputs),)))
    planned = plan(lowered, io_in_workspace=True)
    check(lowered.graph, planned, ReplayProof(lowered))
    assert planned.total < 2 * 32 * 16


def test_text_and_picture_show_the_rows_that_are_kept() -> None:
    lowered = _small()
    planned = plan(lowered)
    assert "keeps 3 rows of %0 't0'" in text.dump(lowered.graph, planned)
    picture = svg.draw(lowered.graph, planned)
    assert "3 rows of t0, 8 bytes each" in picture
    assert picture.count("stroke-dasharray") == 4
    assert ">0 rows of " in picture  # above their columns
    assert ">3×8<" in picture
    assert "lower: rows that windows span are kept; most of them are" in picture
