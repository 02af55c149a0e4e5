"""Calls that were watched find their places in branches and loops, or are said to be unclear."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.artifact.model import (
    BranchStatement,
    FunctionCall,
    InputArg,
    LoopStatement,
    Statement,
    every_call,
)
from crtexport.firmware.board import load_board
from crtexport.firmware.run import WatchedCall
from crtexport.firmware.spent import Spent
from crtexport.pipeline import driver
from crtexport.pipeline.summary.sites import Executed, call_sites
from crtexport.reports.trace import executed
from crtexport.support.errors import CrtExportError
from tests.control.networks import NETWORKS

CONDITION = InputArg(0)


def ran(runs: int, instructions: int) -> Executed:
    return Executed(runs, Spent(instructions))


def call(symbol: str) -> FunctionCall:
    return FunctionCall(symbol, ())


def watched(text: str) -> list[WatchedCall]:
    return [WatchedCall(symbol, Spent(10 ** number)) for number, symbol in enumerate(text)]


def test_straight_code_makes_each_call_once_or_nothing_is_known() -> None:
    calls = (call("a"), call("b"))
    assert executed(calls, watched("ab")) == [ran(1, 1), ran(1, 10)]
    for other in ("", "a", "ba", "abb", "c"):
        assert executed(calls, watched(other)) == [None, None]
    assert executed(calls, None) == [None, None]
    assert executed((), []) == []


def test_iterations_are_added_and_what_was_not_taken_ran_never() -> None:
    branch = BranchStatement(CONDITION, (call("x"),), (call("y"),))
    loop = LoopStatement((call("c"),), CONDITION, (branch,))
    code = (call("x"), loop, call("z"))
    assert executed(code, watched("xcxcxcz")) == [
        ran(1, 1), ran(3, 101010), ran(2, 10100), ran(0, 0),
        ran(1, 1000000),
    ]
    assert executed(code, watched("xcz")) == [
        ran(1, 1), ran(1, 10), ran(0, 0), ran(0, 0), ran(1, 100),
    ]


def test_what_two_statements_could_have_done_is_neither_s() -> None:
    code = (BranchStatement(CONDITION, (call("a"), call("b")), (call("a"), call("c"))), call("d"))
    assert executed(code, watched("abd"))[0] == ran(1, 1)
    alike = (BranchStatement(CONDITION, (call("a"),), (call("a"),)), call("d"))
    assert executed(alike, watched("ad")) == [None, None, ran(1, 10)]


def test_a_loop_that_only_decides_and_one_without_a_call_are_walked_through() -> None:
    assert executed((LoopStatement((), CONDITION, ()), call("a")), watched("a")) == [ran(1, 1)]
    assert executed((LoopStatement((), CONDITION, (call("a"),)),), []) == [ran(0, 0)]
    assert executed((call("a"), LoopStatement((), CONDITION, (call("a"),))), []) == [None, None]


def statements() -> st.SearchStrategy[list[Statement]]:
    def of(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
        some = st.lists(inner, max_size=3).map(tuple)
        return st.builds(lambda a, b: BranchStatement(CONDITION, a, b), some, some) | st.builds(
            lambda a, b: LoopStatement(a, CONDITION, b), some, some
        )

    return st.lists(st.recursive(st.sampled_from("abc").map(call), of, max_leaves=8), max_size=4)


def walk(
    code: tuple[Statement, ...], numbers: dict[int, int], rng: np.random.Generator
) -> Iterator[int]:
    """The numbers of the calls that a run makes."""
    for statement in code:
        match statement:
            case FunctionCall():
                yield numbers[id(statement)]
            case BranchStatement(then=then, other=other):
                yield from walk((then, other)[rng.integers(2)], numbers, rng)
            case LoopStatement(before=before, body=body):
                for _ in range(rng.integers(3)):
                    yield from walk((*before, *body), numbers, rng)
                yield from walk(before, numbers, rng)


def distinct(code: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The same with objects of their own for all calls."""
    made: list[Statement] = []
    for statement in code:
        match statement:
            case FunctionCall(symbol=symbol):
                made.append(call(symbol))
            case BranchStatement(then=then, other=other):
                made.append(BranchStatement(CONDITION, distinct(then), distinct(other)))
            case LoopStatement(before=before, body=body):
                made.append(LoopStatement(distinct(before), CONDITION, distinct(body)))
    return tuple(made)


@given(statements(), st.integers(0, 1 << 20))
def test_what_is_said_is_what_happened(code: list[Statement], seed: int) -> None:
    program = distinct(tuple(code))
    calls = list(every_call(program))
    numbers = {id(one): number for number, one in enumerate(calls)}
    run = list(walk(program, numbers, np.random.default_rng(seed)))
    seen = [WatchedCall(calls[number].symbol, Spent(1 << at)) for at, number in enumerate(run)]
    found = executed(program, seen)
    assert len(found) == len(calls)
    for number, one in enumerate(found):
        times = [at for at, made in enumerate(run) if made == number]
        assert one in (None, Executed(len(times), Spent(sum(1 << at for at in times))))
    if len({one.symbol for one in calls}) == len(calls):
        assert None not in found


@pytest.mark.parametrize("name", NETWORKS)
def test_every_call_of_a_network_has_a_node_of_its_own(name: str) -> None:
    made = driver.prepare(NETWORKS[name]().graph, load_board("mps2_an386"))
    found = call_sites(made.lowered, made.plan, made.artifact.calls)
    assert [place.call for place in found] == list(every_call(made.artifact.calls))
    for place in found:
        assert any(place.node is node for node in place.graph.nodes)
        assert place.copies or str(place.node) in place.call.comment
    own = [id(place.node) for place in found if not place.copies]
    assert len(own) == len(set(own))
    with pytest.raises(CrtExportError, match="can't be told apart"):
        call_sites(made.lowered, made.plan, made.artifact.calls[:-1])
