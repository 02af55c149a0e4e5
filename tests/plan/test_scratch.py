"""Memory that a kernel needs only while it runs: in the plan, the proof and the picture."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport import passes
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import EthosU, Softmax
from crtexport.ir.types import DType
from crtexport.kir.builder import const, load
from crtexport.kir.language import Scalar
from crtexport.lowering import operator_table
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.passes.copy_arenas import copy_arenas
from crtexport.plan import Plan, plan, svg
from crtexport.plan import text as plan_text
from crtexport.plan.check import PlanError, check
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.model import ScratchRange
from tests.lowered import plain, without_kernels
from tests.plan.graphs import GraphBuilder


def by_way_of_scratch(context: Context) -> Lowered:
    """A copy that takes each value to scratch and back, or the plain kernel."""
    if not isinstance(context.node.op, Softmax) or context.node.outputs[0] % 2:
        return operator_table.lower(context)
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


def lowered_so(graph: Graph) -> LoweredGraph:
    return plain(graph, by_way_of_scratch)


def chain() -> Graph:
    b = GraphBuilder()
    x = b.input(1, 10)
    for _ in range(4):
        x = b.node(Softmax(), x)
    return b.finish(x)


def planned(graph: Graph, *pools: int | None) -> Plan:
    return plan(lowered_so(graph), io_in_workspace=True, pools=pools or (None,))


def test_scratch_is_planned_for_the_time_of_its_node_alone() -> None:
    graph = chain()
    result = planned(graph)
    check(graph, result, ReplayProof(lowered_so(graph)))
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
    check(graph, result, ReplayProof(lowered_so(graph)))
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

    def with_scratch(scratch: ScratchRange | None) -> Plan:
        steps = list(good.steps)
        steps[1] = replace(steps[1], scratch=scratch)
        return replace(good, steps=tuple(steps))

    for scratch, message in (
        (None, "needs 56 bytes of scratch, but has 0"),
        (ScratchRange(0, 48), "needs 56 bytes of scratch, but has 48"),
        (ScratchRange(good.workspace_size, 56), "which has"),
        (ScratchRange(-16, 56), "which has"),
        (ScratchRange(8, 56), "not aligned to 16"),
        (ScratchRange(0, 56, pool=1), "of workspace 1, which doesn't exist"),
        (ScratchRange(home.offset, 56), r"scratch of .* where tensor 1 't1' lies"),
    ):
        wider = replace(with_scratch(scratch))
        if scratch is not None and 0 <= scratch.offset < good.workspace_size:
            wider = replace(wider, workspace_size=good.workspace_size + 64)
        with pytest.raises(PlanError, match=message):
            check(graph, wider, ReplayProof(lowered_so(graph)))


def test_the_checker_names_scratch_that_overwrote_a_tensor() -> None:
    b = GraphBuilder()
    x = b.input(1, 10)
    kept = b.node(Softmax(), x)
    copied = b.node(Softmax(), x)
    graph = b.finish(b.node(Softmax(), kept), b.node(Softmax(), copied))
    good = planned(graph)
    check(graph, good, ReplayProof(lowered_so(graph)))
    home = good.placements[kept]
    number = next(i for i, s in enumerate(good.steps) if graph.nodes[s.node].outputs == (copied,))
    assert home is not None
    steps = list(good.steps)
    steps[number] = replace(steps[number], scratch=ScratchRange(home.offset, 56))
    bad = replace(good, steps=tuple(steps), workspace_size=good.workspace_size + 64)
    with pytest.raises(PlanError, match=r"reads tensor 1 .* hold scratch"):
        check(graph, bad, ReplayProof(lowered_so(graph)))


# ---- tensors that must lie in a scratch


def commanded(*places: tuple[int, int]) -> Graph:
    """Commands for an Ethos-U one after the other, each with the places in its arena of what it
    reads and writes."""
    b = GraphBuilder()
    x = b.input(1, 16, dtype=DType.INT8)
    words = b.constant(np.zeros(4, np.int32))
    for pair in places:
        y = b.tensor(b.tensors[x].type)
        op = EthosU("launch", arena=64, fast=0, places=pair, accelerator="ethos-u55-128")
        b.nodes.append(Node(op, (words, None, x), (y,)))
        x = y
    return Graph("test", tuple(b.tensors), tuple(b.nodes), tuple(b.inputs), (x,))


@pytest.mark.parametrize(("inside", "tensor"), [(False, 0), (True, 2)])
def test_a_tensor_lies_in_one_scratch_alone(inside: bool, tensor: int) -> None:
    """Neither in a buffer of the caller's and a scratch, nor in two of these."""
    graph = commanded((0, 32), (16, 0))
    with pytest.raises(ValueError, match=rf"tensor {tensor} can't lie in the scratch of node"):
        plan(without_kernels(graph), io_in_workspace=inside)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("places", [
    ((0, 32),), ((0, 32), (16, 0)), ((0, 32), (32, 0), (32, 16)), ((48, 0), (48, 0)),
])
def test_copies_let_every_tensor_lie_in_its_scratch(
    places: tuple[tuple[int, int], ...], inside: bool
) -> None:
    """So an export never meets the error above: its last pass makes them."""
    graph = copy_arenas(commanded(*places))
    found = plan(without_kernels(graph), io_in_workspace=inside)
    check(graph, found)
    for step in found.steps:
        node = graph.nodes[step.node]
        if isinstance(node.op, EthosU):
            assert step.scratch is not None
            at = [found.placements[t] for t in (node.inputs[2], node.outputs[0])]  # type: ignore[index]
            assert [p.offset - step.scratch.offset for p in at] == list(node.op.places)


def test_the_pass_for_copies_is_the_last_that_an_export_runs() -> None:
    assert passes.PIPELINE[-1] is copy_arenas


def test_the_picture_hatches_scratch_and_draws_tensors_that_share_bytes_as_one() -> None:
    graph = chain()
    picture = svg.draw(graph, planned(graph))
    assert "<title>scratch of operator" in picture
    assert picture.count('fill="url(#scratch)"') == sum(
        step.scratch is not None for step in planned(graph).steps
    )
    shapes = picture.split('<g opacity="0.7">')[1:]
    assert any(shape.count("<title>t") > 1 for shape in shapes)
