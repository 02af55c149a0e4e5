"""Plans are small, shared where that is safe, and proven by a checker that finds every mistake."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Add,
    Concatenation,
    DepthwiseConv2D,
    Dequantize,
    Mul,
    Pad,
    Padding2D,
    Quantize,
    Relu,
    Relu6,
    Reshape,
    Softmax,
    Tanh,
)
from crtexport.ir.types import DType
from crtexport.kir.interpreter import InterpreterError
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import Placement, Plan, Space, Step, plan
from crtexport.plan.check import PlanError, check
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.svg import draw
from crtexport.plan.text import dump
from tests.lowered import plain, without_kernels
from tests.plan.execute import execute, execute_planned
from tests.plan.graphs import GraphBuilder, Q, networks
from tests.plan.plans import at, moved, planned, residual

SETTINGS = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def workspace(result: Plan) -> dict[int, int]:
    return {
        t: p.offset for t, p in enumerate(result.placements)
        if p is not None and p.space is Space.WORKSPACE
    }


@SETTINGS
@given(networks(), st.sampled_from((4, 16)), st.booleans())
def test_the_checker_accepts_every_plan(network: Graph, alignment: int, inside: bool) -> None:
    graph = copy_outputs(network)
    result = planned(graph, alignment, io_in_workspace=inside)
    assert result.workspace_size >= result.peak.lower_bound
    touched = {t for n in graph.nodes for t in (*n.inputs, *n.outputs)} | set(graph.inputs)
    for tensor, placement in enumerate(result.placements):
        assert (placement is not None) == (tensor in touched)
    again = plan(plain(graph), alignment=alignment, io_in_workspace=inside)
    assert again == result
    assert dump(graph, result).endswith("\n")
    assert draw(graph, result) == draw(graph, again)


@SETTINGS
@given(networks())
def test_sharing_never_costs_memory(network: Graph) -> None:
    graph = copy_outputs(network)
    assert planned(graph).workspace_size <= plan(without_kernels(graph)).workspace_size


@SETTINGS
@given(networks(), st.data())
def test_a_moved_tensor_passes_only_where_it_does_no_harm(
    network: Graph, data: st.DataObject
) -> None:
    """A plan that the checker accepts computes the right values on real bytes."""
    graph = copy_outputs(network)
    result = planned(graph, 4)
    homes = workspace(result)
    movable = [t for t in homes if graph.type(t).nbytes]
    assume(movable)
    victim = data.draw(st.sampled_from(movable))
    offsets = st.integers(0, result.workspace_size // 4 + 2).map(lambda x: 4 * x)
    homes[victim] = data.draw(offsets.filter(lambda o: o != homes[victim]))
    changed = replace(result, placements=tuple(
        Placement(Space.WORKSPACE, offset=homes[t]) if t in homes else p
        for t, p in enumerate(result.placements)
    ))
    steps = []
    for step in changed.steps:
        pairs = overlapping(graph, changed, step)
        steps.append(replace(step, in_place=pairs))
    changed = replace(changed, steps=tuple(steps))
    try:
        check(graph, changed, ReplayProof(plain(graph)))
    except PlanError:
        return
    assert computes(graph, changed)


def overlapping(graph: Graph, result: Plan, step: Step) -> tuple[tuple[int, int], ...]:
    """The pairs (output, input) of a step that share bytes."""
    node = graph.nodes[step.node]
    found = []
    for o, output in enumerate(node.outputs):
        for i, source in enumerate(node.inputs):
            a, b = result.placements[output], result.placements[source or 0]
            if source is None or a is None or b is None:
                continue
            same = (a.space, a.index) == (b.space, b.index)
            ends = a.offset + graph.type(output).nbytes, b.offset + graph.type(source).nbytes
            if same and max(a.offset, b.offset) < min(ends):
                found.append((o, i))
    return tuple(found)


def computes(graph: Graph, result: Plan) -> bool:
    """Returns whether the plan, run on real bytes, gives what memory for every tensor gives."""
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=graph.type(t).shape).astype(np.float32) for t in graph.inputs]
    try:
        found = execute_planned(graph, result, inputs)
    except InterpreterError:
        return False
    return all(
        np.array_equal(a, b) for a, b in zip(found, execute(graph, inputs), strict=True)
    )


@SETTINGS
@given(networks(), st.data())
def test_the_checker_rejects_forgotten_and_repeated_steps(
    network: Graph, data: st.DataObject
) -> None:
    graph = copy_outputs(network)
    result = planned(graph)
    at = data.draw(st.integers(0, len(result.steps) - 1))
    left, step, right = result.steps[:at], result.steps[at], result.steps[at + 1 :]
    with pytest.raises(PlanError, match="runs twice"):
        check(graph, replace(result, steps=(*left, step, step, *right)), ReplayProof(plain(graph)))
    if not isinstance(graph.nodes[step.node].op, Reshape | Concatenation):
        with pytest.raises(PlanError, match="never runs"):
            check(graph, replace(result, steps=(*left, *right)), ReplayProof(plain(graph)))


# ---- sharing


def test_a_chain_that_may_run_in_place_takes_one_buffer() -> None:
    b = GraphBuilder()
    x = b.input(1, 64)
    for _ in range(6):
        x = b.node(Softmax(), x)
    graph = b.finish(x)
    result = planned(graph)
    assert result.workspace_size == 0  # all of it runs in the caller's output
    assert {p for p in result.placements if p} == {
        Placement(Space.INPUT, 0), Placement(Space.OUTPUT, 0)
    }
    assert planned(graph, io_in_workspace=True).workspace_size == 256


def test_without_facts_about_kernels_nothing_is_overwritten() -> None:
    b = GraphBuilder()
    x = b.input(1, 64)
    for _ in range(6):
        x = b.node(Softmax(), x)
    graph = b.finish(x)
    result = plan(without_kernels(graph))
    check(graph, result)
    assert result.workspace_size == result.peak.lower_bound == 512


def test_elementwise_chains_run_in_the_callers_output() -> None:
    b = GraphBuilder()
    x = b.input(1, 64)
    y = b.node(Relu(), x)  # the caller's input is never written
    z = b.node(Tanh(), b.node(Relu6(), y))
    graph = b.finish(z)
    result = planned(graph)
    assert result.workspace_size == 0
    assert [s.in_place for s in result.steps] == [(), ((0, 0),), ((0, 0),)]


def test_in_place_saves_workspace() -> None:
    b = GraphBuilder()
    x = b.input(1, 64)
    a, c = b.node(Softmax(), x), b.node(Softmax(), x)
    graph = b.finish(b.node(Pad(((0, 0), (0, 1))), b.node(Mul(), a, c)))
    result = planned(graph)
    assert result.workspace_size == 256  # the other operand waits in the output of the last
    assert result.steps[2].in_place


def test_an_operand_used_twice_is_declared_twice() -> None:
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    graph = b.finish(b.node(Softmax(), b.node(Add(), a, a)))
    assert planned(graph).steps[1].in_place == ((0, 0), (0, 1))


def test_in_place_waits_until_the_input_is_dead() -> None:
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    kept = b.node(Relu(), a)
    graph = b.finish(b.node(Mul(), kept, a))
    assert planned(graph).steps[1].in_place == ()
    # The same holds for a view of it that is read later.
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    view = b.node(Reshape((8, 1)), a)
    first = b.node(Reshape((8, 1)), b.node(Relu(), a))
    graph = b.finish(b.node(Mul(), first, view))
    assert planned(graph).steps[1].in_place == ()


def test_quantized_bytes_go_over_the_floats_that_they_come_from() -> None:
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 64))
    signed = b.node(Quantize(), a, quant=Q)
    graph = b.finish(b.node(Pad(((0, 0), (0, 1))), signed, quant=Q))
    result = planned(graph, io_in_workspace=True)
    assert result.workspace_size == 256
    assert result.steps[1].in_place == ((0, 0),)


def test_windows_follow_their_input_a_few_lines_behind() -> None:
    """A depthwise convolution over its own input: one row and one pixel more than one image."""
    b = GraphBuilder()
    x = b.node(Softmax(), b.input(1, 16, 16, 4))
    weights = b.constant(np.ones((1, 3, 3, 4), np.float32))
    y = b.node(DepthwiseConv2D(padding=Padding2D(1, 1, 1, 1)), x, weights)
    graph = b.finish(b.node(Pad(((0, 0), (0, 1), (0, 0), (0, 0))), y))
    image, row, pixel = 4096, 256, 16
    result = planned(graph)
    assert result.workspace_size == image  # the convolution's input waits in the padded output
    inside = planned(graph, io_in_workspace=True)
    assert inside.workspace_size == image + row + pixel
    assert inside.steps[1].in_place == ((0, 0),)
    assert computes(graph, inside)
    assert computes(graph, result)


def test_kernels_run_backwards_where_outputs_would_creep_down() -> None:
    b = GraphBuilder()
    x = b.node(Softmax(), b.input(1, 16, 16, 4))
    weights = b.constant(np.ones((1, 3, 3, 4), np.float32))
    for _ in range(6):
        x = b.node(DepthwiseConv2D(padding=Padding2D(1, 1, 1, 1)), x, weights)
    graph = b.finish(b.node(Pad(((0, 0), (0, 1), (0, 0), (0, 0))), x))
    result = planned(graph)
    assert result.workspace_size <= 4096 + 512
    assert any(s.backward for s in result.steps)
    assert computes(graph, result)
    broken = tuple(replace(s, backward=not s.backward) for s in result.steps[1:7])
    with pytest.raises(PlanError, match="can't work in place"):
        check(
            graph, replace(result, steps=(result.steps[0], *broken, result.steps[7])),
            ReplayProof(plain(graph)),
        )


def test_parts_of_an_outermost_concatenation_are_made_where_they_belong() -> None:
    b = GraphBuilder()
    x = b.input(4, 8)
    first, second = b.node(Softmax(), x), b.node(Relu(), x)
    joined = b.node(Concatenation(0), first, second)
    graph = b.finish(b.node(Pad(((0, 0), (0, 1))), joined))
    result = planned(graph, io_in_workspace=True)
    assert [s.node for s in result.steps] == [0, 1, 3]
    homes = workspace(result)
    assert (homes[first], homes[second]) == (homes[joined], homes[joined] + 128)
    assert computes(graph, result)


def test_a_tensor_that_two_concatenations_want_is_copied_into_one_of_them() -> None:
    b = GraphBuilder()
    x = b.input(4, 8)
    first, second = b.node(Softmax(), x), b.node(Relu(), x)
    one, two = b.node(Concatenation(0), first, second), b.node(Concatenation(0), second, first)
    graph = b.finish(b.node(Mul(), one, two))
    result = planned(graph)
    assert len(result.steps) == 4
    assert computes(graph, result)


def test_a_concatenation_within_rows_is_copied() -> None:
    b = GraphBuilder()
    x = b.input(4, 8)
    joined = b.node(Concatenation(1), b.node(Softmax(), x), b.node(Relu(), x))
    graph = b.finish(b.node(Pad(((0, 0), (0, 1))), joined))
    assert len(planned(graph).steps) == 4


def test_graph_outputs_are_not_overwritten_and_can_be_read_again() -> None:
    b = GraphBuilder()
    first = b.node(Softmax(), b.input(1, 8))
    second = b.node(Relu(), first)
    graph = b.finish(first, second)
    for inside in (False, True):
        result = planned(graph, io_in_workspace=inside)
        assert result.steps[1].in_place == ()
    assert planned(graph).placements[first] == Placement(Space.OUTPUT, 0)
    assert planned(graph).workspace_size == 0


def test_reshapes_are_views() -> None:
    b = GraphBuilder()
    x = b.input(1, 2, 2, 2)
    flat = b.node(Reshape((1, 8)), x)
    weights = b.constant(np.zeros((4, 2), np.float32))
    constant = b.node(Reshape((1, 8)), weights)
    total = b.node(Add(), flat, constant)
    out = b.node(Reshape((10,)), b.node(Pad(((0, 0), (0, 1))), b.node(Reshape((2, 4)), total)))
    graph = b.finish(out)
    result = planned(graph)
    assert [s.node for s in result.steps] == [2, 4]
    assert result.placements[flat] == Placement(Space.INPUT, 0)
    assert result.placements[constant] == Placement(Space.CONSTANT, weights)
    assert result.placements[out] == Placement(Space.OUTPUT, 0)


def test_reshapes_between_callers_buffers_copy() -> None:
    b = GraphBuilder()
    x = b.input(1, 8)
    flat, again = b.node(Reshape((8,)), x), b.node(Reshape((2, 4)), b.node(Softmax(), x))
    graph = b.finish(flat, again, b.node(Reshape((4, 2)), again))
    assert sorted(s.node for s in planned(graph).steps) == [0, 1, 3]
    inside = planned(graph, io_in_workspace=True)
    assert [s.node for s in inside.steps] == [1]


def test_identity_outputs_must_be_copied_first() -> None:
    b = GraphBuilder()
    x = b.input(1, 8)
    y = b.node(Softmax(), x)
    for graph in (b.finish(x), b.finish(y, y), b.finish(b.constant(np.zeros(3, np.float32)))):
        with pytest.raises(ValueError, match="a node of its own"):
            plan(without_kernels(graph))
        planned(copy_outputs(graph))
        planned(copy_outputs(graph), io_in_workspace=True)


def test_alignment_is_a_power_of_two() -> None:
    b = GraphBuilder()
    graph = b.finish(b.node(Softmax(), b.input(1, 8)))
    with pytest.raises(ValueError, match="12 is no power of two"):
        plan(without_kernels(graph), alignment=12)


# ---- inputs and outputs in the workspace


def test_the_bytes_of_an_input_are_used_again_once_it_is_dead() -> None:
    b = GraphBuilder()
    x = b.input(1, 64)
    graph = b.finish(b.node(Tanh(), b.node(Relu(), x)))
    result = planned(graph, io_in_workspace=True)
    assert result.workspace_size == 256
    assert workspace(result) == {0: 0, 1: 0, 2: 0}
    assert computes(graph, result)


def test_inputs_in_the_workspace_are_there_from_the_start() -> None:
    """Even one that is read last."""
    b = GraphBuilder()
    x, late = b.input(1, 64), b.input(1, 64)
    graph = b.finish(b.node(Add(), b.node(Pad(((0, 0), (0, 0))), x), late))
    result = planned(graph, io_in_workspace=True)
    assert result.workspace_size == 512
    with pytest.raises(PlanError, match="two graph inputs overlap"):
        check(graph, moved(result, late, at(workspace(result)[x])), ReplayProof(plain(graph)))


def test_graph_inputs_lie_where_the_plan_says() -> None:
    graph, good = residual()
    with pytest.raises(PlanError, match="graph input 0, tensor 0 't0', lies in bytes 0 to 32 of w"):
        check(graph, moved(good, 0, at(0)), ReplayProof(plain(graph)))
    with pytest.raises(PlanError, match="is a graph input but has no place"):
        check(graph, moved(good, 0, None), ReplayProof(plain(graph)))


# ---- text


def test_the_plan_as_text() -> None:
    graph, result = residual()
    assert dump(graph, result) == (
        "plan of 'test': 64 bytes of workspace (lower bound 64), aligned to 16\n"
        "  peak: node 1, operator 1 (Softmax); tensors that are needed at one time have 96 bytes\n"
        "  given %0 't0' float32[1x8]: input 0\n"
        "  node 0: operator 0 (Softmax)\n"
        "    reads %0: input 0\n"
        "    writes %1 't1' float32[1x8]: workspace 0 to 32\n"
        "  node 1: operator 1 (Softmax)\n"
        "    reads %1: workspace 0 to 32\n"
        "    writes %2 't2' float32[1x8]: workspace 32 to 64\n"
        "  node 2: operator 2 (Add) (in place)\n"
        "    reads %2: workspace 32 to 64\n"
        "    reads %1: workspace 0 to 32\n"
        "    writes %3 't3' float32[1x8]: workspace 0 to 32\n"
        "  node 3: operator 3 (Reshape) (view)\n"
        "    reads %3: workspace 0 to 32\n"
        "    writes %4 't4' float32[1x2x2x2]: workspace 0 to 32\n"
        "  node 4: operator 4 (MaxPool2D)\n"
        "    reads %4: workspace 0 to 32\n"
        "    writes %5 't5' float32[1x1x1x2]: output 0\n"
    )


def test_the_plan_as_a_picture() -> None:
    graph, result = residual()
    picture = draw(graph, result)
    assert picture.startswith("<svg xmlns=")
    assert "<title>t2 float32[1x8]: bytes 32 to 64</title>" in picture
    assert "peak: node 1, operator 1 (Softmax)" in picture
    assert ">lower: t1, 32 bytes, is there as a whole;" in picture
    for mark in ("0 KiB", "8", "64"):
        assert f'text-anchor="end">{mark}</text>' in picture
    hostile = replace(graph, name="</text><script>", tensors=tuple(
        replace(t, name="<b>&\x07") for t in graph.tensors
    ))
    picture = draw(hostile, result)
    assert "<script" not in picture
    assert "<b>" not in picture
    assert "\x07" not in picture


def test_smaller_elements_share_with_larger_ones() -> None:
    b = GraphBuilder()
    signed = b.node(Quantize(), b.input(1, 64), quant=Q)
    unsigned = b.node(Quantize(), signed, quant=Q, quantized=DType.UINT8)
    graph = b.finish(b.node(Dequantize(), unsigned))
    result = planned(graph, io_in_workspace=True)
    assert result.workspace_size == 256
    assert result.steps[0].in_place == ((0, 0),)
    assert result.steps[2].in_place == ((0, 0),)
    assert computes(graph, result)
