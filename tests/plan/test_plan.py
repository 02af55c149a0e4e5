"""Plans are small, shared where that is safe, and proven by a checker that finds every mistake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Add,
    Concatenation,
    MaxPool2D,
    Mul,
    Pad,
    Quantize,
    Relu,
    Relu6,
    Reshape,
    Softmax,
    Tanh,
)
from crtexport.ir.types import DType
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import Placement, Plan, Space, Step, plan
from crtexport.plan.arena import Block, extent, lower_bound, place
from crtexport.plan.check import PlanError, check
from crtexport.plan.liveness import Lifetime
from crtexport.plan.planner import workspace_lower_bound
from crtexport.plan.text import dump
from tests.plan.graphs import GraphBuilder, Q, networks

SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


def planned(graph: Graph, alignment: int = 16) -> Plan:
    """A plan that the checker accepts."""
    result = plan(graph, alignment=alignment)
    check(graph, result)
    return result


def workspace(result: Plan) -> dict[int, int]:
    return {
        t: p.offset for t, p in enumerate(result.placements)
        if p is not None and p.space is Space.WORKSPACE
    }


@SETTINGS
@given(networks(), st.sampled_from((1, 4, 16)))
def test_the_checker_accepts_every_plan(network: Graph, alignment: int) -> None:
    graph = copy_outputs(network)
    result = planned(graph, alignment)
    assert result.workspace_size >= workspace_lower_bound(graph)
    touched = {t for n in graph.nodes for t in (*n.inputs, *n.outputs)} | set(graph.inputs)
    for tensor, placement in enumerate(result.placements):
        assert (placement is not None) == (tensor in touched)
    assert dump(graph, result) == dump(graph, plan(graph, alignment=alignment))


@SETTINGS
@given(networks(), st.data())
def test_the_checker_rejects_moved_tensors(network: Graph, data: st.DataObject) -> None:
    """A moved tensor breaks something, unless running on real bytes shows that it doesn't."""
    graph = copy_outputs(network)
    result = planned(graph, 4)
    homes = workspace(result)
    read = {t for n in graph.nodes for t in n.inputs if t is not None}
    movable = [t for t in homes if t in read and graph.type(t).nbytes]
    assume(movable)
    victim = data.draw(st.sampled_from(movable))
    offsets = st.integers(0, result.workspace_size // 4 + 2).map(lambda x: 4 * x)
    offset = data.draw(offsets.filter(lambda o: o != homes[victim]))
    homes[victim] = offset
    changed = replace(result, placements=tuple(
        Placement(Space.WORKSPACE, offset=homes[t]) if t in homes else p
        for t, p in enumerate(result.placements)
    ))
    if independently_right(graph, changed):
        check(graph, changed)
    else:
        with pytest.raises(PlanError):
            check(graph, changed)


def independently_right(graph: Graph, result: Plan) -> bool:
    """Runs the plan on real bytes: each node writes random bytes, readers compare with a copy."""
    rng = np.random.default_rng(0)
    size = result.workspace_size
    memory = {(Space.WORKSPACE, 0): np.zeros(size + 4096, np.uint8)}
    for i, t in enumerate(graph.inputs):
        memory[Space.INPUT, i] = rng.integers(0, 256, graph.type(t).nbytes, np.uint8)
    for i, t in enumerate(graph.outputs):
        memory[Space.OUTPUT, i] = np.zeros(graph.type(t).nbytes, np.uint8)
    for t, tensor in enumerate(graph.tensors):
        if tensor.constant is not None:
            memory[Space.CONSTANT, t] = np.frombuffer(tensor.constant.read(), np.uint8)

    def view(t: int) -> np.ndarray:
        home = result.placements[t]
        assert home is not None
        return memory[home.space, home.index][home.offset : home.offset + graph.type(t).nbytes]

    values = {t: view(t).copy() for t in graph.inputs}
    steps = {s.node: s for s in result.steps}
    for number, node in enumerate(graph.nodes):
        (output,) = node.outputs
        inputs = [t for t in node.inputs if t is not None]
        for t in inputs:
            if graph.constant(t) is not None:
                values[t] = view(t).copy()
            if number in steps and not np.array_equal(values[t], view(t)):
                return False
        if number not in steps:
            if result.placements[output] != result.placements[inputs[0]]:
                return False
            values[output] = values[inputs[0]]
            continue
        target = result.placements[output]
        assert target is not None
        if target.space is Space.WORKSPACE and target.offset + graph.type(output).nbytes > size:
            return False
        for position, t in enumerate(node.inputs):
            if t is None:
                continue
            overlap = np.may_share_memory(view(t), view(output))
            same = result.placements[t] == target
            if overlap != ((0, position) in steps[number].in_place) or (overlap and not same):
                return False
        view(output)[:] = rng.integers(0, 256, graph.type(output).nbytes, np.uint8)
        values[output] = view(output).copy()
    return all(np.array_equal(values[t], view(t)) for t in graph.outputs)


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
        check(graph, replace(result, steps=(*left, step, step, *right)))
    if not isinstance(graph.nodes[step.node].op, Reshape):
        with pytest.raises(PlanError, match="never runs"):
            check(graph, replace(result, steps=(*left, *right)))


def test_a_chain_alternates_between_two_buffers() -> None:
    b = GraphBuilder()
    x = b.input(1, 64)
    for _ in range(6):
        x = b.node(Softmax(), x)
    graph = b.finish(x)
    result = planned(graph)
    assert sorted(set(workspace(result).values())) == [0, 256]
    assert result.workspace_size == workspace_lower_bound(graph) == 512
    assert result.placements[x] == Placement(Space.OUTPUT, 0)


def test_a_bottleneck_between_large_tensors_takes_no_room_of_its_own() -> None:
    """What greedy placement leaves above the large blocks moves down in a second attempt."""
    lifetimes = [Lifetime(i, i + 1) for i in range(7)]
    sizes = [128, 128, 128, 128, 8, 128, 128]
    blocks = [Block(s, t) for s, t in zip(sizes, lifetimes, strict=True)]
    assert extent(blocks, place(blocks, 16)) == lower_bound(blocks) == 256


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
    graph = b.finish(b.node(Softmax(), b.node(Mul(), a, c)))
    result = planned(graph)
    assert result.workspace_size == 2 * 256
    assert result.steps[2] == Step(2, ((0, 0),))


def test_an_operand_used_twice_is_declared_twice() -> None:
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    graph = b.finish(b.node(Softmax(), b.node(Add(), a, a)))
    assert planned(graph).steps[1].in_place == ((0, 0), (0, 1))


def test_a_broadcast_operand_is_never_overwritten() -> None:
    b = GraphBuilder()
    x = b.input(1, 8)
    small, big = b.node(Softmax(), b.input(1, 1)), b.node(Softmax(), x)
    graph = b.finish(b.node(Softmax(), b.node(Add(), small, big)))
    assert planned(graph).steps[2].in_place == ((0, 1),)


def test_in_place_waits_until_the_input_is_dead() -> None:
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    kept = b.node(Relu(), a)
    graph = b.finish(b.node(Concatenation(1), kept, a))
    assert planned(graph).steps[1].in_place == ()
    # The same holds for a view of it that is read later.
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    view = b.node(Reshape((8, 1)), a)
    first = b.node(Reshape((8, 1)), b.node(Relu(), a))
    graph = b.finish(b.node(Concatenation(1), first, view))
    assert planned(graph).steps[1].in_place == ()


def test_in_place_needs_equal_element_sizes() -> None:
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    signed = b.node(Quantize(), a, quant=Q)
    unsigned = b.node(Quantize(), signed, quant=Q, quantized=DType.UINT8)
    graph = b.finish(b.node(Pad(((0, 0), (0, 1))), unsigned, quant=Q))
    assert [s.in_place for s in planned(graph).steps] == [(), (), ((0, 0),), ()]


def test_graph_outputs_are_not_overwritten_and_can_be_read_again() -> None:
    b = GraphBuilder()
    first = b.node(Softmax(), b.input(1, 8))
    second = b.node(Relu(), first)
    graph = b.finish(first, second)
    result = planned(graph)
    assert [s.in_place for s in result.steps] == [(), ()]
    assert result.placements[first] == Placement(Space.OUTPUT, 0)
    assert result.workspace_size == 0


def test_reshapes_are_views() -> None:
    b = GraphBuilder()
    x = b.input(1, 2, 2, 2)
    flat = b.node(Reshape((1, 8)), x)
    weights = b.constant(np.zeros((4, 2), np.float32))
    constant = b.node(Reshape((1, 8)), weights)
    total = b.node(Add(), flat, constant)
    out = b.node(Reshape((8,)), b.node(Softmax(), b.node(Reshape((2, 4)), total)))
    graph = b.finish(out)
    result = planned(graph)
    assert [s.node for s in result.steps] == [2, 4]
    assert result.placements[flat] == Placement(Space.INPUT, 0)
    assert result.placements[constant] == Placement(Space.CONSTANT, weights)
    assert result.placements[out] == Placement(Space.OUTPUT, 0)
    assert result.workspace_size == 32


def test_reshapes_between_callers_buffers_copy() -> None:
    b = GraphBuilder()
    x = b.input(1, 8)
    flat, again = b.node(Reshape((8,)), x), b.node(Reshape((2, 4)), b.node(Softmax(), x))
    graph = b.finish(flat, again, b.node(Reshape((4, 2)), again))
    result = planned(graph)
    assert [s.node for s in result.steps] == [0, 1, 3]


def test_identity_outputs_must_be_copied_first() -> None:
    b = GraphBuilder()
    x = b.input(1, 8)
    y = b.node(Softmax(), x)
    for graph in (b.finish(x), b.finish(y, y), b.finish(b.constant(np.zeros(3, np.float32)))):
        with pytest.raises(ValueError, match="a node of its own"):
            plan(graph)
        planned(copy_outputs(graph))


def test_alignment_is_a_power_of_two() -> None:
    b = GraphBuilder()
    graph = b.finish(b.node(Softmax(), b.input(1, 8)))
    with pytest.raises(ValueError, match="12 is no power of two"):
        plan(graph, alignment=12)


def residual() -> tuple[Graph, Plan]:
    """conv-like network with a residual: %0 → %1 → %2, %2 + %1 → %3 → %4"""
    b = GraphBuilder()
    first = b.node(Softmax(), b.input(1, 8))
    second = b.node(Softmax(), first)
    total = b.node(Add(), second, first)
    graph = b.finish(b.node(MaxPool2D((1, 1)), b.node(Reshape((1, 2, 2, 2)), total)))
    return graph, planned(graph)


def test_the_plan_as_text() -> None:
    graph, result = residual()
    assert dump(graph, result) == (
        "plan of 'test': 64 bytes of workspace (lower bound 64), aligned to 16\n"
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
        "    writes %3 't3' float32[1x8]: workspace 32 to 64\n"
        "  node 3: operator 3 (Reshape) (view)\n"
        "    reads %3: workspace 32 to 64\n"
        "    writes %4 't4' float32[1x2x2x2]: workspace 32 to 64\n"
        "  node 4: operator 4 (MaxPool2D)\n"
        "    reads %4: workspace 32 to 64\n"
        "    writes %5 't5' float32[1x2x2x2]: output 0\n"
    )


def moved(result: Plan, tensor: int, placement: Placement | None) -> Plan:
    placements = list(result.placements)
    placements[tensor] = placement
    return replace(result, placements=tuple(placements))


def at(offset: int) -> Placement:
    return Placement(Space.WORKSPACE, offset=offset)


def test_the_checker_says_what_is_wrong() -> None:
    graph, good = residual()
    wrong: list[tuple[Plan, str]] = [
        (moved(good, 2, at(0)),
         r"1 \(Softmax\) overwrites what it reads: tensor 1 't1' is bytes 0 to 32 of workspace, t"),
        (moved(good, 3, at(16)), r"operator 3 \(Reshape\) never runs"),
        (moved(moved(good, 3, at(0)), 4, at(0)), r"operator 2 \(Add\) says in place"),
        (moved(good, 2, None), "tensor 2 't2' is used but has no place"),
        (moved(good, 2, at(48)), r"takes bytes 48 to 80 of workspace, which has 64"),
        (moved(good, 2, at(-16)), r"takes bytes -16 to 16 of workspace"),
        (moved(replace(good, workspace_size=128), 2, at(40)), "not aligned to 16"),
        (moved(good, 4, at(0)), r"operator 3 \(Reshape\) never runs, but tensor 3"),
        (moved(good, 5, at(0)), "graph output 0, tensor 5 't5', ends in bytes 0 to 32"),
        (moved(good, 5, Placement(Space.OUTPUT, 1)), "output 1, which doesn't exist"),
        (moved(good, 1, Placement(Space.INPUT, 0)), r"writes tensor 1 't1' to bytes 0 to 32 of i"),
        (moved(good, 1, Placement(Space.CONSTANT, 3)), "which doesn't exist"),
        (moved(good, 0, Placement(Space.OUTPUT, 0)), "hold nothing yet"),
        (replace(good, alignment=3), "alignment 3"),
        (replace(good, placements=good.placements[1:]), "another number of tensors"),
        (replace(good, steps=(*good.steps, Step(9))), "there is no node 9"),
        (replace(good, steps=(good.steps[1], good.steps[0], *good.steps[2:])), "nothing yet"),
        (replace(good, steps=(*good.steps[:2], Step(2), good.steps[3])), "overwrites what it"),
        (replace(good, steps=(*good.steps[:2], Step(2, ((0, 0), (0, 1))), good.steps[3])),
         "says in place"),
        (replace(good, steps=(good.steps[0], *good.steps[2:])), "operator 1 .* never runs"),
    ]
    for bad, message in wrong:
        with pytest.raises(PlanError, match=message):
            check(graph, bad)


def test_the_checker_names_what_overwrote_a_tensor() -> None:
    b = GraphBuilder()
    x = b.input(1, 8)
    a = b.node(Softmax(), x)
    c = b.node(Softmax(), x)
    graph = b.finish(b.node(Concatenation(1), a, c))
    with pytest.raises(PlanError, match=(
        r"operator 2 \(Concatenation\) reads tensor 1 't1' \(bytes 0 to 32 of workspace\), but "
        r"bytes 16 to 32 hold tensor 2 't2'"
    )):
        check(graph, moved(planned(graph), c, at(16)))


def test_the_checker_allows_only_elementwise_operators_in_place() -> None:
    b = GraphBuilder()
    a = b.node(Softmax(), b.input(1, 8))
    c = b.node(Softmax(), a)
    graph = b.finish(b.node(Softmax(), c))
    good = planned(graph)
    bad = moved(replace(good, steps=(Step(0), Step(1, ((0, 0),)), Step(2))), c, at(0))
    with pytest.raises(PlanError, match="can't work in place"):
        check(graph, bad)


@SETTINGS
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 8), st.integers(0, 3)), max_size=12))
def test_placed_blocks_never_meet(specs: list[tuple[int, int, int]]) -> None:
    blocks = [Block(size, Lifetime(first, first + span)) for size, first, span in specs]
    offsets = place(blocks, 8)
    assert extent(blocks, offsets) >= lower_bound(blocks)
    for i, (a, x) in enumerate(zip(blocks, offsets, strict=True)):
        assert x % 8 == 0
        for c, y in list(zip(blocks, offsets, strict=True))[:i]:
            apart = x + a.size <= y or y + c.size <= x
            assert apart or not a.lifetime.meets(c.lifetime) or 0 in (a.size, c.size)
