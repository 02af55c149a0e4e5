"""Loops make the calls that they were made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.artifact.model import (
    Arg,
    ConstantArg,
    InputArg,
    OutputArg,
    Repeat,
    ScalarArg,
    WorkspaceArg,
)
from crtexport.artifact.repetition import Addressed, looped
from crtexport.kir.language import Scalar

Call = tuple[str, tuple[Arg, ...]]


def _made(statements: Sequence[Any], runs: tuple[int, ...] = ()) -> Iterator[Call]:
    """The calls that statements make, with their addresses."""
    for statement in statements:
        if isinstance(statement, Repeat):
            for run in range(statement.times):
                yield from _made(statement.body, (*runs, run))
            continue
        name, args = statement
        found: list[Arg] = []
        for arg in args:
            steps = getattr(arg, "steps", ())
            moved = sum(step * run for step, run in zip(steps, runs, strict=False))
            found.append(
                replace(arg, offset=arg.offset + moved, steps=()) if steps else arg
            )
        yield name, tuple(found)


def _looped(calls: Sequence[Call]) -> tuple[Any, ...]:
    return looped(
        [Addressed(call, call[0], call[1]) for call in calls],
        lambda call, args, _: (call[0], args),
    )


OFFSETS = st.integers(0, 3).map(lambda n: 8 * n)
ARGS = st.one_of(
    st.builds(InputArg, st.integers(0, 1), OFFSETS), st.builds(OutputArg, st.just(0), OFFSETS),
    st.builds(WorkspaceArg, OFFSETS), st.builds(ConstantArg, st.sampled_from(("a", "b")), OFFSETS),
    st.builds(ScalarArg, st.integers(0, 1), st.just(Scalar.I32)),
)
CALLS = st.tuples(st.sampled_from("kl"), st.lists(ARGS, min_size=1, max_size=2).map(tuple))


@settings(max_examples=60, deadline=None)
@given(st.lists(CALLS, max_size=4), st.integers(1, 4), st.lists(CALLS, max_size=3),
       st.integers(-8, 8))
def test_loops_make_the_same_calls(
    body: list[Call], times: int, others: list[Call], step: int
) -> None:
    calls = list(others)
    for run in range(times):
        for name, args in body:
            calls.append((name, tuple(
                replace(arg, offset=arg.offset + 64 + step * run)
                if isinstance(arg, InputArg | WorkspaceArg) else arg for arg in args
            )))
    calls += others
    assert list(_made(_looped(calls))) == calls


def test_calls_with_addresses_that_move_become_a_loop() -> None:
    calls = [("k", (InputArg(0, 16 * n), WorkspaceArg(4))) for n in range(9)]
    (loop,) = _looped(calls)
    assert loop == Repeat(9, (("k", (InputArg(0, 0, (16,)), WorkspaceArg(4))),))


def test_calls_know_how_often_they_are_made() -> None:
    calls = [("k", (InputArg(0, 16 * n),)) for n in range(9)] + [("l", (InputArg(0),))]
    loop, last = looped(
        [Addressed(call, call[0], call[1]) for call in calls], lambda call, _, runs: (call[0], runs)
    )
    assert (loop, last) == (Repeat(9, (("k", 9),)), ("l", 1))


def test_loops_are_found_in_loops() -> None:
    calls = []
    for outer in range(5):
        calls += [("k", (InputArg(0, 100 * outer + n),)) for n in range(7)]
        calls.append(("l", (OutputArg(0, outer),)))
    (loop,) = _looped(calls)
    inner = Repeat(7, (("k", (InputArg(0, 0, (100, 1)),)),))
    assert loop == Repeat(5, (inner, ("l", (OutputArg(0, 0, (1,)),))))


def test_calls_on_other_buffers_stay_apart() -> None:
    calls = [("k", (InputArg(0, 8 * n) if n < 3 else WorkspaceArg(8 * n),)) for n in range(6)]
    assert list(_made(_looped(calls))) == calls
