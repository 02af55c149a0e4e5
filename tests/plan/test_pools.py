"""Workspaces in several memories: what is used most in the first, nothing beyond its size."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Add, Conv2D, Mean, Padding2D, Relu, Softmax
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import plan, svg
from crtexport.plan.arena import Arena, Ban
from crtexport.plan.check import PlanError, check
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.model import Placement, Plan, Space
from crtexport.plan.pools import spread
from tests.lowered import plain, without_kernels
from tests.plan.graphs import GraphBuilder, networks


def planned(graph: Graph, *pools: int | None, inside: bool = True) -> Plan:
    result = plan(plain(graph), io_in_workspace=inside, pools=pools)
    check(graph, result, ReplayProof(plain(graph)))
    return result


@settings(max_examples=40, deadline=None)
@given(graph=networks(), first=st.integers(0, 800), second=st.integers(0, 400))
def test_every_pool_keeps_its_size(graph: Graph, first: int, second: int) -> None:
    graph = copy_outputs(graph)
    alone = planned(graph, None)
    result = planned(graph, first, second, None)
    if alone.workspace_size <= first:
        assert result.pools == alone.pools
        return
    assert result.pools[0] <= first
    assert result.pools[1] <= second
    assert sum(result.pools) == result.total >= result.peak.lower_bound


def two_branches() -> tuple[Graph, int, int]:
    """Of two tensors as large as each other and alive together, a convolution reads one often."""
    b = GraphBuilder()
    x = b.input(1, 8, 8, 4)
    hot, cold = b.node(Softmax(), x), b.node(Relu(), x)
    weights = b.constant(np.ones((4, 3, 3, 4), np.float32))
    worked = b.node(Conv2D(padding=Padding2D(1, 1, 1, 1)), hot, weights)
    return b.finish(b.node(Mean((1, 2), False), b.node(Add(), worked, cold))), hot, cold


def pool_of(result: Plan, tensor: int) -> int:
    home = result.placements[tensor]
    assert home is not None
    assert home.space is Space.WORKSPACE
    return home.index


def test_what_is_used_most_lies_in_the_first_memory() -> None:
    pairs = ((0, 1), (0, 2), (1, 2))
    arena = Arena((96, 96, 96), tuple(Ban(i, j, -96, 96) for i, j in pairs), (0, 0, 0))
    found = spread(arena, (1.0, 5.0, 3.0), (200, 50, None), 16)
    assert [pool for pool, _ in found.places] == [2, 0, 0]
    assert found.sizes == (192, 0, 96)


def test_a_tensor_too_large_for_all_but_the_last_lies_there() -> None:
    graph, hot, cold = two_branches()
    result = planned(graph, 100, 200, None, inside=False)
    assert result.pools[:2] == (0, 0)
    assert {pool_of(result, hot), pool_of(result, cold)} == {2}


def test_the_picture_has_one_memory_below_the_other() -> None:
    graph, hot, cold = two_branches()
    result = planned(graph, 1300, None)
    picture = svg.draw(graph, result)
    boxes = {}
    for tensor in (hot, cold):
        title, numbers = f"<title>t{tensor} .*?</title>", r'y="([\d.]+)" .*? height="([\d.]+)"'
        (found,) = re.findall(rf'{title}\n<rect x="\d+" {numbers}', picture)
        boxes[pool_of(result, tensor)] = [float(number) for number in found]
    (top, height), (below, _) = boxes[0], boxes[1]
    assert top + height <= below
    assert f"{result.total} bytes of workspace" in picture


def test_the_checker_wants_pools_that_exist_and_are_large_enough() -> None:
    graph, hot, _ = two_branches()
    result = planned(graph, 1300, None, inside=False)
    for index, problem in ((2, "which doesn't exist"), (0, "overwrites|but bytes|which has")):
        homes = list(result.placements)
        homes[hot] = Placement(Space.WORKSPACE, index, result.pools[0] if not index else 0)
        with pytest.raises(PlanError, match=problem):
            check(graph, replace(result, placements=tuple(homes)), ReplayProof(plain(graph)))


def test_a_workspace_needs_a_memory() -> None:
    with pytest.raises(ValueError, match="needs a memory"):
        plan(without_kernels(two_branches()[0]), pools=())
