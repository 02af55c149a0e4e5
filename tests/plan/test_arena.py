"""Offsets keep every ban, use gaps, and are never worse than greedy placement by size."""

from __future__ import annotations

from itertools import pairwise, permutations
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.plan.arena import Arena, Ban, _Solver, extent, place
from crtexport.plan.liveness import Lifetime

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def arena(sizes: list[int], lives: list[Lifetime]) -> Arena:
    """Blocks that must not overlap while both are needed."""
    bans = [
        Ban(i, j, -sizes[j], sizes[i])
        for i in range(len(sizes)) for j in range(i + 1, len(sizes))
        if sizes[i] and sizes[j] and lives[i].meets(lives[j])
    ]
    least = max(
        (
            sum(s for s, t in zip(sizes, lives, strict=True) if t.first <= m <= t.last)
            for m in {t.first for t in lives}
        ),
        default=0,
    )
    return Arena(tuple(sizes), tuple(bans), tuple(t.first for t in lives), least)


def greedy_by_size(given: Arena, alignment: int) -> int:
    """Returns what placing the largest block first, each as low as it can be, takes."""
    offsets: dict[int, int] = {}
    for i in sorted(range(len(given.sizes)), key=lambda i: (-given.sizes[i], given.times[i], i)):
        offset = 0
        while any(
            (ban.first == i and ban.second in offsets
             and ban.low < offsets[ban.second] - offset < ban.high)
            or (ban.second == i and ban.first in offsets
                and ban.low < offset - offsets[ban.first] < ban.high)
            for ban in given.bans
        ):
            offset += alignment
        offsets[i] = offset
    return max((offsets[i] + size for i, size in enumerate(given.sizes)), default=0)


SPECS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 8), st.integers(0, 3)), max_size=9
)


@SETTINGS
@given(SPECS, st.sampled_from((0, 50)))
def test_bans_are_kept_and_greedy_placement_is_never_better(
    specs: list[tuple[int, int, int]], swaps: int
) -> None:
    given_arena = arena(
        [size for size, _, _ in specs], [Lifetime(a, a + span) for _, a, span in specs]
    )
    offsets = place(given_arena, 8, swaps=swaps)
    assert all(o % 8 == 0 and o >= 0 for o in offsets)
    for ban in given_arena.bans:
        assert not ban.low < offsets[ban.second] - offsets[ban.first] < ban.high
    assert extent(given_arena.sizes, offsets) <= greedy_by_size(given_arena, 8)
    assert place(given_arena, 8, swaps=swaps) == offsets


@SETTINGS
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4), st.integers(0, 2)), max_size=5))
def test_few_blocks_are_placed_as_well_as_they_can_be(specs: list[tuple[int, int, int]]) -> None:
    """No order of placing each block as low as it can be does better."""
    given_arena = arena(
        [size for size, _, _ in specs], [Lifetime(a, a + span) for _, a, span in specs]
    )
    found = extent(given_arena.sizes, place(given_arena, 1))
    count = len(specs)
    for order in permutations(range(count)):
        offsets: dict[int, int] = {}
        for i in order:
            offset = 0
            while any(
                ban.low < (offsets[ban.second] - offset) < ban.high
                for ban in given_arena.bans if ban.first == i and ban.second in offsets
            ) or any(
                ban.low < (offset - offsets[ban.first]) < ban.high
                for ban in given_arena.bans if ban.second == i and ban.first in offsets
            ):
                offset += 1
            offsets[i] = offset
        assert found <= max((offsets[i] + given_arena.sizes[i] for i in range(count)), default=0)


def test_a_bottleneck_between_large_tensors_takes_no_room_of_its_own() -> None:
    lives = [Lifetime(i, i + 1) for i in range(7)]
    given_arena = arena([128, 128, 128, 128, 8, 128, 128], lives)
    assert extent(given_arena.sizes, place(given_arena, 16)) == 256


def test_distances_may_be_shorter_than_blocks() -> None:
    """A chain in which each block may begin 4 bytes before the one before or 4 after it."""
    sizes = (100,) * 6
    bans = tuple(Ban(i, i + 1, -4, 4) for i in range(5))
    given_arena = Arena(sizes, bans, tuple(range(6)), bound=104)
    assert extent(sizes, place(given_arena, 4)) == 104
    one_way = tuple(Ban(i, i + 1, -4, 100) for i in range(5))
    assert extent(sizes, place(Arena(sizes, one_way, tuple(range(6))), 4)) == 120


def test_many_blocks_end_in_bearable_effort() -> None:
    count = 600
    lives = [Lifetime(i, i + 1 + i % 5) for i in range(count)]
    sizes = [16 * (1 + (i * 7919) % 41) for i in range(count)]
    given_arena = arena(sizes, lives)
    assert extent(given_arena.sizes, place(given_arena, 16)) <= 1.2 * given_arena.bound


CHAINS = st.lists(
    st.tuples(st.integers(1, 12), st.integers(-12, 0), st.integers(0, 6)), min_size=2, max_size=7
)
"""Sizes of tensors, how far each may begin before the one before, and scratch between the two."""


def chain(specs: list[tuple[int, int, int]]) -> Arena:
    """Tensors that may each lie partly over the one before, and what is needed beside both."""
    sizes, times, bans = [size for size, _, _ in specs], list(range(len(specs))), []
    for (first, (before, _, _)), (second, (size, low, scratch)) in pairwise(enumerate(specs)):
        bans.append(Ban(first, second, max(low, -size), before))
        if scratch:
            bans += [
                Ban(tensor, len(sizes), -scratch, sizes[tensor]) for tensor in (first, second)
            ]
            sizes.append(scratch)
            times.append(second)
    return Arena(tuple(sizes), tuple(bans), tuple(times))


@SETTINGS
@given(CHAINS)
def test_nothing_better_is_missed_where_parts_say_that_there_is_nothing(
    specs: list[tuple[int, int, int]]
) -> None:
    given_arena = chain(specs)
    found = place(given_arena, 1)
    with patch.object(_Solver, "_parts", lambda _: iter(())):
        assert place(given_arena, 1) == found


def test_a_long_chain_that_drifts_needs_no_search() -> None:
    """Its tensors alone take all that there is; the orders of the rest don't matter."""
    solver = _Solver(chain([(8000, -64, (148, 256)[number % 2]) for number in range(9)]), 16)
    solver.greedy()
    assert solver.least == 8000 + 8 * 64
    with patch.object(_Solver, "_branch", autospec=True, side_effect=_Solver._branch) as branch:
        solver.search()
    assert 0 < branch.call_count < 100
