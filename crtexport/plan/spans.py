"""Intervals of time, with an index that finds those that overlap one without looking at all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Generic, TypeVar

T = TypeVar("T")

_first = itemgetter(0)


class Spans(Generic[T]):
    """Owners of intervals of time from -1 to ``end``, both inclusive.

    An interval that overlaps another either contains its first moment or begins inside it. To find
    the former, each interval is kept at the few nodes of a binary tree over all moments that cover
    it exactly.
    """

    def __init__(self, end: int) -> None:
        self._leaves = 1 << (end + 2).bit_length()
        self._over: dict[int, list[T]] = {}
        self._begins: list[tuple[int, T]] = []

    def add(self, first: int, last: int, owner: T) -> None:
        """Adds an interval."""
        insort(self._begins, (first, owner), key=_first)
        low, high = first + 1 + self._leaves, last + 2 + self._leaves
        while low < high:
            if low & 1:
                self._over.setdefault(low, []).append(owner)
                low += 1
            if high & 1:
                high -= 1
                self._over.setdefault(high, []).append(owner)
            low, high = low >> 1, high >> 1

    def meeting(self, first: int, last: int) -> Iterator[T]:
        """Yields the owners of intervals that overlap this one, each interval once, in no
        particular order."""
        node = first + 1 + self._leaves
        while node:
            yield from self._over.get(node, ())
            node >>= 1
        for start, owner in self._begins[bisect_right(self._begins, first, key=_first) :]:
            if start > last:
                return
            yield owner


def pairs(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the numbers of two intervals that overlap, the smaller first, in rising order."""
    after: list[list[int]] = [[] for _ in spans]
    living: dict[int, int] = {}
    for number, (first, last) in sorted(enumerate(spans), key=lambda item: item[1]):
        for other in [other for other, end in living.items() if end < first]:
            del living[other]
        for other in living:
            after[min(other, number)].append(max(other, number))
        living[number] = last
    for number, others in enumerate(after):
        yield from ((number, other) for other in sorted(others))


def meetings(spans: Iterable[tuple[int, int]]) -> int:
    """Returns the number of pairs of intervals that overlap."""
    stretches = [*spans]
    ends = sorted(last for _, last in stretches)
    begins = sorted(first for first, _ in stretches)
    return sum(number - bisect_left(ends, first) for number, first in enumerate(begins))


def moments(spans: Iterable[tuple[int, int, T]], end: int) -> Iterator[tuple[list[T], list[T]]]:
    """Yields, for each moment from -1 to ``end``, the owners of intervals that begin there, and of
    those that ended before it."""
    begun: dict[int, list[T]] = {}
    ended: dict[int, list[T]] = {}
    for first, last, owner in spans:
        if first <= last:
            begun.setdefault(first, []).append(owner)
            ended.setdefault(last + 1, []).append(owner)
    for moment in range(-1, end + 1):
        yield begun.get(moment, []), ended.get(moment, [])
