"""Memory that a kernel needs only while it runs: in the plan, the proof and the picture."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Softmax
from crtexport.kernels import families
from crtexport.kernels.build import const, load
from crtexport.kernels.inplace import InPlaceFacts
from crtexport.kernels.ir import Scalar
from crtexport.kernels.proof import ReplayProof
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.kernels.step import lower_step
from crtexport.plan import Plan, plan
from crtexport.plan import text as plan_text
from crtexport.plan.check import PlanError, check
from crtexport.plan.model import Scratch
from tests.plan.graphs import GraphBuilder


def by_way_of_scratch(context: Context) -> Lowered:
    """A copy that takes each value to scratch and back, or the plain kernel."""
    if not isinstance(context.node.op, Softmax) or context.node.outputs[0] % 2:
        return families.lower(context)
    lowering = Lowering("copy", context)
    b, count = lowering.b, context.output().elements
    source, output = lowering.input(0, "input"), lowering.output()
    first = lowering.scratch("first", Scalar.I8, 3)
    between = lowering.scratch("between", Scalar.F32, count)
    b.store(first, const(2), const(0, Scalar.I8))
    with b.loop("i", count) as i:
        b.store(between, i, load(source, i))
    with b.loop("j", count) as j:
        b.store(output, j, load(between, j))
    return lowering.finish()


step_by_way_of_scratch = partial(lower_step, lower_node=by_way_of_scratch)


def chain() -> Graph:
    b = GraphBuilder()
    x = b.input(1, 10)
    for _ in range(4):
        x = b.node(Softmax(), x)
    return b.finish(x)


def planned(graph: Graph, *pools: int | None) -> Plan:
    return plan(
        graph, facts=InPlaceFacts(step_by_way_of_scratch), io_in_workspace=True,
        pools=pools or (None,),
    )


def test_scratch_is_planned_for_the_time_of_its_node_alone() -> None:
    graph = chain()
    result = planned(graph)
    check(graph, result, ReplayProof(step_by_way_of_scratch))
    assert [s.scratch is not None for s in result.steps] == [False, True, False, True]
    scratch = result.steps[1].scratch
    assert scratch is not None
    assert scratch.nbytes == 16 + 40
    assert scratch.offset % result.alignment == 0
    assert result.workspace_size >= scratch.nbytes + 40
    # Were each scratch kept for itself, it would be more.
    assert result.workspace_size < 2 * scratch.nbytes + 40
    assert f"scratch {scratch.offset} to {scratch.offset + 56}" in plan_text.dump(graph, result)


def test_scratch_too_large_for_the_first_memory_lies_in_the_next() -> None:
    graph = chain()
    result = planned(graph, 48, None)
    check(graph, result, ReplayProof(step_by_way_of_scratch))
    assert result.pools[0] <= 48
    scratch = result.steps[1].scratch
    assert scratch is not None
    assert scratch.pool == 1
    text = plan_text.dump(graph, result)
    assert f"scratch {scratch.offset} to {scratch.offset + 56} of memory 1" in text
    assert f"{result.pools[0]} bytes of workspace, {result.pools[1]} in memory 1 " in text


def test_the_checker_finds_what_scratch_would_spoil() -> None:
    graph = chain()
    good = planned(graph)
    home = good.placements[graph.nodes[1].inputs[0] or 0]
    assert home is not None

    def with_scratch(scratch: Scratch | None) -> Plan:
        steps = list(good.steps)
        steps[1] = replace(steps[1], scratch=scratch)
        return replace(good, steps=tuple(steps))

    for scratch, message in (
        (None, "needs 56 bytes of scratch, but has 0"),
        (Scratch(0, 48), "needs 56 bytes of scratch, but has 48"),
        (Scratch(good.workspace_size, 56), "which has"),
        (Scratch(-16, 56), "which has"),
        (Scratch(8, 56), "not aligned to 16"),
        (Scratch(0, 56, pool=1), "of workspace 1, which doesn't exist"),
        (Scratch(home.offset, 56), r"scratch of .* where tensor 1 't1' lies"),
    ):
        wider = replace(with_scratch(scratch))
        if scratch is not None and 0 <= scratch.offset < good.workspace_size:
            wider = replace(wider, workspace_size=good.workspace_size + 64)
        with pytest.raises(PlanError, match=message):
            check(graph, wider, ReplayProof(step_by_way_of_scratch))


def test_the_checker_names_scratch_that_overwrote_a_tensor() -> None:
    b = GraphBuilder()
    x = b.input(1, 10)
    kept = b.node(Softmax(), x)
    copied = b.node(Softmax(), x)
    graph = b.finish(b.node(Softmax(), kept), b.node(Softmax(), copied))
    good = planned(graph)
    check(graph, good, ReplayProof(step_by_way_of_scratch))
    home = good.placements[kept]
    number = next(i for i, s in enumerate(good.steps) if graph.nodes[s.node].outputs == (copied,))
    assert home is not None
    steps = list(good.steps)
    steps[number] = replace(steps[number], scratch=Scratch(home.offset, 56))
    bad = replace(good, steps=tuple(steps), workspace_size=good.workspace_size + 64)
    with pytest.raises(PlanError, match=r"reads tensor 1 .* hold scratch"):
        check(graph, bad, ReplayProof(step_by_way_of_scratch))
