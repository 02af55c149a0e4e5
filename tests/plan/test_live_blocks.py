"""Blocks that are compared where they get their place lie as those whose pairs are listed."""

from __future__ import annotations

import random
from itertools import combinations
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.plan import layout, plan
from crtexport.plan.arena import Arena, Ban, extent, fill, place
from crtexport.plan.check import check
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.live_blocks import Bans, LiveBlocks, Part
from crtexport.plan.pools import spread
from tests.lowered import plain
from tests.plan.graphs import networks


def drawn(seed: int) -> tuple[LiveBlocks, Arena]:
    """The same blocks, of one or more parts, with and without a list of bans."""
    rng = random.Random(seed)  # noqa: S311  (no secret)
    parts: list[Part] = []
    for block in range(rng.randrange(1, 14)):
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            first = rng.randrange(9)
            parts.append(Part(
                block, rng.randrange(0, 40, 4), rng.randrange(1, 60), first,
                first + rng.randrange(4),
            ))
    sizes = [max(p.start + p.size for p in parts if p.block == b) for b in range(block + 1)]
    times = tuple(min(p.first for p in parts if p.block == b) for b in range(block + 1))
    special: dict[tuple[int, int], Bans] = {}
    bans: list[Ban] = []
    for (i, one), (j, two) in combinations(enumerate(parts), 2):
        if one.block == two.block or one.first > two.last or two.first > one.last:
            continue
        apart: Bans = ((-two.size, one.size),)
        if rng.random() < 0.2:
            apart = rng.choice((
                (), ((-two.size, 0),), ((0, one.size),), ((-two.size, 0), (4, one.size)),
            ))
            special[i, j] = apart
        bans += [
            Ban(one.block, two.block, low + one.start - two.start, high + one.start - two.start)
            for low, high in apart
        ]
    blocks = LiveBlocks(tuple(sizes), tuple(parts), special, times)
    return blocks, Arena(tuple(sizes), tuple(bans), times)


@pytest.mark.parametrize("seed", range(120))
def test_blocks_lie_where_a_list_of_pairs_lets_them(seed: int) -> None:
    blocks, arena = drawn(seed)
    order = [*range(len(blocks.sizes))]
    random.Random(seed).shuffle(order)  # noqa: S311  (no secret)
    for capacity in (None, 100):
        assert fill(blocks, order, capacity, 8) == fill(arena, order, capacity, 8)
    some = sorted(order[: len(order) // 2])
    assert fill(blocks.only(some), range(len(some)), None, 4) == fill(
        arena.only(some), range(len(some)), None, 4
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_order_of_the_first_ones_is_better_than_what_is_chosen(seed: int) -> None:
    blocks, arena = drawn(seed)
    offsets = place(blocks, 8)
    for ban in arena.bans:
        assert not ban.low < offsets[ban.second] - offsets[ban.first] < ban.high
    everything = range(len(blocks.sizes))
    for key in (
        lambda i: (-blocks.sizes[i], blocks.times[i], i),
        lambda i: (blocks.times[i], -blocks.sizes[i], i),
        lambda i: (-blocks.times[i], -blocks.sizes[i], i),
    ):
        found = fill(arena, sorted(everything, key=key), None, 8)
        least = extent(blocks.sizes, [found[i] for i in everything])
        assert extent(blocks.sizes, offsets) <= least


def test_memories_keep_their_sizes() -> None:
    parts = tuple(Part(i, 0, 96, 0, 3) for i in range(3))
    blocks = LiveBlocks((96, 96, 96), parts, {}, (0, 0, 0))
    found = spread(blocks, (1.0, 5.0, 3.0), (200, 50, None), 16)
    assert [pool for pool, _ in found.places] == [2, 0, 0]
    assert found.sizes == (192, 0, 96)


@settings(max_examples=40, deadline=None)
@given(graph=networks(), inside=st.booleans(), first=st.sampled_from((None, 0, 128, 400)))
def test_plans_of_crowds_compute_their_graphs(
    graph: Graph, inside: bool, first: int | None
) -> None:
    graph = copy_outputs(graph)
    pools = (None,) if first is None else (first, None)
    with patch.object(layout, "_PAIRS", -1):
        found = plan(plain(graph), io_in_workspace=inside, pools=pools)
    check(graph, found, ReplayProof(plain(graph)))
    assert found.total >= found.peak.lower_bound
