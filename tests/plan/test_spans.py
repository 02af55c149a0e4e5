"""Stretches of time that meet are found without a look at all of them."""

from __future__ import annotations

import random

import pytest

from crtexport.plan.spans import Spans, meetings, moments, pairs


def drawn(seed: int) -> tuple[list[tuple[int, int]], int]:
    rng = random.Random(seed)  # noqa: S311  (no secret)
    end = rng.randrange(1, 40)
    spans = []
    for _ in range(rng.randrange(30)):
        first = rng.randrange(-1, end + 1)
        spans.append((first, rng.randrange(first, end + 1)))
    return spans, end


def meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


@pytest.mark.parametrize("seed", range(60))
def test_those_that_meet_one_are_found_once(seed: int) -> None:
    spans, end = drawn(seed)
    index: Spans[int] = Spans(end)
    for number, span in enumerate(spans):
        assert sorted(index.meeting(*span)) == [
            other for other in range(number) if meet(spans[other], span)
        ]
        index.add(*span, number)


@pytest.mark.parametrize("seed", range(60))
def test_pairs_are_all_that_meet_in_rising_order(seed: int) -> None:
    spans, _ = drawn(seed)
    assert [*pairs(spans)] == [
        (i, j) for i in range(len(spans)) for j in range(i + 1, len(spans))
        if meet(spans[i], spans[j])
    ]
    assert meetings(spans) == len([*pairs(spans)])


@pytest.mark.parametrize("seed", range(20))
def test_moments_tell_who_comes_and_who_has_gone(seed: int) -> None:
    spans, end = drawn(seed)
    there: set[int] = set()
    for moment, (begun, ended) in enumerate(
        moments([(*span, number) for number, span in enumerate(spans)], end), -1
    ):
        there -= set(ended)
        there |= set(begun)
        assert there == {
            n for n, (first, last) in enumerate(spans) if first <= moment <= last
        }
