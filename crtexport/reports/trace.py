"""Finds out which statement of a network's code made each call that QEMU saw.

Without IF and WHILE, the calls are the statements in their order. With them, the statements are an
automaton whose transitions are calls, and the watched calls are one of the sequences that it
accepts. If several statements could have made a call in such a sequence, its counts belong to none.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from crtexport.artifact.model import (
    BranchStatement,
    Feed,
    FunctionCall,
    LoopStatement,
    Repeat,
    Statement,
    every_call,
)
from crtexport.firmware.spent import Spent
from crtexport.pipeline.summary.sites import Executed, sum_spent

if TYPE_CHECKING:
    from crtexport.firmware.run import WatchedCall


def executed(
    statements: Sequence[Statement], watched: Sequence[WatchedCall] | None
) -> list[Executed | None]:
    """Returns the counts of each call of ``statements``, in the order of every_call; None if they
    can't be determined. ``watched`` are all calls of an inference in the order in which they were
    made, None if QEMU couldn't watch them."""
    walks = _Automaton(statements)
    unknown: list[Executed | None] = [None] * len(walks.calls)
    if watched is None:
        return unknown
    names = [call.symbol for call in watched]
    # The states that can be reached before each call, and those from which the end can be reached
    # after it.
    before = list(_through(frozenset({0}), names, walks.forward))
    after = list(_through(frozenset({walks.end}), names[::-1], walks.backward))[::-1]
    runs, totals = [0] * len(walks.calls), [Spent(0)] * len(walks.calls)
    unclear: set[int] = set()
    for call, sources, targets in zip(watched, before, after[1:], strict=False):
        makers = walks.between(sources, call.symbol, targets)
        if not makers:
            return unknown
        if len(makers) > 1:
            unclear |= makers
        for maker in makers:
            runs[maker] += 1
            totals[maker] = sum_spent(totals[maker], call.spent)
    if not watched and walks.end not in walks.rest(before[0]):
        return unknown
    return [
        None if number in unclear else Executed(runs[number], totals[number])
        for number in range(len(walks.calls))
    ]


_States = frozenset[int]


def _through(
    states: _States, names: Sequence[str], step: Callable[[_States, str], _States]
) -> Iterator[_States]:
    yield states
    for name in names:
        states = step(states, name)
        yield states


class _Automaton:
    """The sequences of calls that statements allow, as a finite automaton. Its states are numbers;
    each call of a function is a transition, branches and loops are transitions without a call."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.calls = [call.symbol for call in every_call(statements)]
        self._edges: list[tuple[int, int, int]] = []  # from, to, and the number of the call
        self._free: list[tuple[int, int]] = []
        self._states = 1
        self.end, _ = self._through(statements, 0, 0)
        self.forward = functools.cache(self._forward)
        self.backward = functools.cache(self._backward)
        self.between = functools.cache(self._between)
        self.rest = functools.cache(self._rest)

    def _new(self) -> int:
        self._states += 1
        return self._states - 1

    def _through(
        self, statements: Sequence[Statement], at: int, number: int
    ) -> tuple[int, int]:
        """Adds ``statements`` behind state ``at``; ``number`` is the number of their first call.
        Returns the state after them, and the number of the next call."""
        for statement in statements:
            match statement:
                case FunctionCall():
                    made = self._new()
                    self._edges.append((at, made, number))
                    at, number = made, number + 1
                case BranchStatement(then=then, other=other):
                    first, number = self._through(then, at, number)
                    second, number = self._through(other, at, number)
                    at = self._new()
                    self._free += ((end, at) for end in (first, second))
                case LoopStatement(before=before, body=body):
                    # A new state: an iteration returns to it, not to the calls before the loop.
                    head = self._new()
                    self._free.append((at, head))
                    decided, number = self._through(before, head, number)
                    again, number = self._through(body, decided, number)
                    self._free.append((again, head))
                    at = self._new()
                    self._free.append((decided, at))
                case Repeat(times=times, body=body):
                    first_call = number
                    for _ in range(times):
                        at, number = self._through(body, at, first_call)
                case Feed():
                    begins = [number]
                    for segment in statement.segments:
                        begins.append(begins[-1] + len([*every_call(segment)]))
                    for position, _ in itertools.islice(statement.order(), statement.rows):
                        segment = statement.segments[position]
                        at, _ = self._through(segment, at, begins[position])
                    number = begins[-1]
        return at, number

    def _rest(self, states: _States) -> _States:
        """Returns ``states`` and all that are reached from them without a call (the epsilon
        closure)."""
        return _closed(states, self._free)

    def _forward(self, states: _States, name: str) -> _States:
        from_here = self.rest(states)
        return frozenset(
            made for at, made, number in self._edges
            if self.calls[number] == name and at in from_here
        )

    def _backward(self, states: _States, name: str) -> _States:
        until_here = _closed(states, [(b, a) for a, b in self._free])
        return frozenset(
            at for at, made, number in self._edges
            if self.calls[number] == name and made in until_here
        )

    def _between(self, sources: _States, name: str, targets: _States) -> frozenset[int]:
        """Returns the numbers of the calls of function ``name`` that lead from one of ``sources``
        to a state from which one of ``targets`` is reached without a call."""
        from_here = self.rest(sources)
        until_here = _closed(targets, [(b, a) for a, b in self._free])
        return frozenset(
            number for at, made, number in self._edges
            if self.calls[number] == name and at in from_here and made in until_here
        )


def _closed(states: _States, edges: Sequence[tuple[int, int]]) -> _States:
    found, left = set(states), list(states)
    while left:
        at = left.pop()
        fresh = {target for source, target in edges if source == at} - found
        found |= fresh
        left += fresh
    return frozenset(found)
