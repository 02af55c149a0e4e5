"""Blocks on processors whose instructions begin by rules: cycles, and orders that use them.

What takes how long is that of the measurements and the model that the module names."""

from __future__ import annotations

from contextlib import suppress
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir.assembly.armv7em import list_order, order
from crtexport.kir.assembly.armv7em.dependences import BlockFacts, Dependences, dependences
from crtexport.kir.assembly.armv7em.instructions import (
    Instruction,
    Kind,
    MemoryOperand,
    Register,
    UnsupportedError,
)
from crtexport.kir.assembly.armv7em.issue import IssueRules, Pipeline, at_least, rules_of
from crtexport.kir.assembly.armv7em.spellings import Features
from tests.kir.assembly.loops import M7, M33, drawn_blocks

A, B, C, D, E, P, Q = (Register(name) for name in "abcdepq")


def _load(to: Register, base: Register) -> Instruction:
    memory = MemoryOperand("x", base, 0, base, 0, 4)
    return Instruction("ldr {w}, [{base}, #{at}]", (to,), (), Kind.LOAD, memory)


def _store(value: Register, base: Register) -> Instruction:
    memory = MemoryOperand("y", base, 0, base, 0, 4)
    return Instruction("str {0}, [{base}, #{at}]", (), (value,), Kind.STORE, memory)


def _advancing(to: Register, base: Register) -> Instruction:
    memory = MemoryOperand("x", base, 0, base, 4, 4)
    return Instruction("ldr {w}, [{base}, #{at}]!", (to, base), (), Kind.LOAD, memory)


def _adds_product(total: Register, x: Register, y: Register) -> Instruction:
    return Instruction(
        "smlad {w}, {0}, {1}, {2}", (total,), (x, y, total), Kind.MULTIPLY, adds=total
    )


def _simple(text: str, to: Register, *reads: Register) -> Instruction:
    return Instruction(text, (to,), reads)


def _block(
    body: list[Instruction], features: Features, needed: tuple[Register, ...] = ()
) -> Dependences:
    apart = (frozenset(("x", "y")),)
    return dependences(body, BlockFacts(apart, needed), features)[0]


def _rules(features: Features) -> IssueRules:
    assert features.rules is not None
    return features.rules


def _cycles(features: Features, *body: Instruction) -> int:
    known = _block(list(body), features)
    pipeline = Pipeline(known.values, _rules(features))
    for step in known.steps:
        assert step.issue is not None
        pipeline.begin(step.issue, step.reads, step.writes, step.advanced)
    return pipeline.took


@pytest.mark.parametrize(("body", "m7", "m33"), [
    ([_load(A, P), _adds_product(B, C, D)], 1, 2),
    ([_simple("add {w}, {0}, {1}", A, B, C), _simple("sub {w}, {0}, {1}", D, B, C)], 1, 2),
    ([_simple("sxtb16 {w}, {0}", A, B), _adds_product(C, D, E)], 1, 2),
    ([_load(A, P), _store(B, Q)], 1, 2),
    # One of each other kind in a cycle, and no product beside a store.
    ([_adds_product(A, B, C), _adds_product(D, B, C)], 2, 2),
    ([_load(A, P), _load(B, Q)], 2, 2),
    ([_simple("sxtb16 {w}, {0}", A, B), _simple("pkhbt {w}, {0}, {1}, lsl #16", C, D, E)], 2, 2),
    ([_store(A, P), _adds_product(B, C, D)], 2, 2),
    # What shifts is the first of two.
    ([_adds_product(C, D, E), _simple("sxtb16 {w}, {0}", A, B)], 2, 2),
    # Results: a sum that goes on, an operand, a loaded one, a shifted one, an address, a constant.
    ([_adds_product(A, B, C), _adds_product(A, D, E)], 2, 2),
    ([_adds_product(A, B, C), _simple("add {w}, {0}, {1}", D, A, B)], 3, 3),
    ([_load(A, P), _adds_product(B, A, C)], 3, 3),
    ([_load(A, P), _adds_product(A, B, C)], 2, 2),
    ([_simple("sxtb16 {w}, {0}", A, B), _adds_product(C, A, E)], 2, 3),
    ([_simple("add {w}, {0}, {1}", A, B, C), _simple("add {w}, {0}, {1}", D, A, B)], 2, 2),
    ([_simple("add {w}, {0}, {1}", A, B, C), _simple("add {w}, {0}, {1}, lsl #2", D, B, A)], 3, 2),
    ([_simple("add {w}, {0}, {1}, lsl #2", A, B, C), _simple("add {w}, {0}, {1}", D, A, B)], 2, 2),
    ([_simple("add {w}, {0}, {1}, asr #2", A, B, C), _simple("add {w}, {0}, {1}", D, A, B)], 2, 3),
    ([_simple("add {w}, {0}, {1}", P, B, C), _load(A, P)], 3, 2),
    ([_advancing(A, P), _load(B, P)], 2, 2),
    ([_load(A, P), _store(A, Q)], 2, 3),
    ([Instruction("movw {w}, #1\nmovt {w}, #2", (A,), (), count=2),
      _simple("add {w}, {0}, {1}", B, C, D)], 2, 3),
])
def test_instructions_begin_in_order_where_units_and_operands_are_there(
    body: list[Instruction], m7: int, m33: int
) -> None:
    assert _cycles(M7, *body) == m7
    assert _cycles(M33, *body) == m33


def test_other_processors_have_no_rules() -> None:
    assert rules_of("cortex-m7") == M7.rules
    assert rules_of("cortex-m33") == rules_of("star-mc1") == M33.rules
    assert rules_of("cortex-m4") is None


def _products(words: int) -> tuple[list[Instruction], tuple[Register, ...]]:
    """Two pixels by four channels: loads of four words, of which two are extended, and eight
    products of them, for each of ``words``."""
    pixels, weights = Register("pixels"), Register("weights")
    sums = [Register(f"sum{n}") for n in range(8)]
    body = []
    for number in range(words):
        loaded = [Register(f"w{n}") for n in range(4)]
        for one, base in zip(loaded, (pixels, pixels, weights, weights), strict=True):
            memory = MemoryOperand(base.name, base, 4 * number, base, 4 * number, 4)
            body.append(Instruction("ldr {w}, [{base}, #{at}]", (one,), (), Kind.LOAD, memory))
        for which, one in enumerate(loaded[:2]):
            odd = Register("odd")
            body += [_adds_product(sums[4 * which + n], one, loaded[2 + n]) for n in range(2)]
            body.append(_simple("sxtb16 {w}, {0}", odd, one))
            body += [_adds_product(sums[4 * which + 2 + n], odd, loaded[2 + n]) for n in range(2)]
    return body, tuple(sums)


@pytest.mark.parametrize(("features", "room", "most"), [
    (M7, 14, 75), (M7, 15, 68), (M7, 20, 68), (M33, 14, 118), (M33, 15, 114), (M33, 20, 114),
])
def test_few_cycles_pass_in_which_nothing_begins(
    features: Features, room: int, most: int
) -> None:
    """Of 64 products, which begin one at a time, and 48 others; clustered loads leave more."""
    body, sums = _products(8)
    rules, block = _rules(features), _block(body, features, sums)
    found = list_order.best_list_order(block, room, rules)
    clustered = order.best_order(block, room)
    assert found is not None
    assert clustered is not None
    assert at_least(body, 0, rules) == (64 if features is M7 else 112)
    assert found.cycles <= most
    assert list_order._timed(order.graph_of(block), clustered, rules).cycles >= found.cycles + 5


@pytest.mark.parametrize("features", [M7, M33])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_cycles_are_those_of_the_order_and_no_fewer_than_any_takes(
    features: Features, data: st.DataObject
) -> None:
    rules = _rules(features)
    with suppress(UnsupportedError):
        for drawn, block in drawn_blocks(data, features):
            room = data.draw(st.integers(4, 14))
            found = list_order.best_list_order(block, room, rules)
            if found is None:
                assert order.best_order(block, room) is None
                continue
            assert found == list_order._timed(order.graph_of(block), found, rules)
            assert found.cycles >= at_least(drawn.body, 0, rules)


@pytest.mark.parametrize("features", [M7, M33])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_cannot_be_better_is_given_up_and_nothing_else(
    features: Features, data: st.DataObject
) -> None:
    with suppress(UnsupportedError):
        for _, block in drawn_blocks(data, features):
            room = data.draw(st.integers(4, 14))
            for by_path in (False, True):
                whole = _run(block, room, features, inf, by_path=by_path)
                if whole is not None:
                    more, none = (
                        _run(block, room, features, limit, by_path=by_path)
                        for limit in (whole.cycles + 1, whole.cycles)
                    )
                    assert more == whole
                    assert none is None


def _run(
    block: Dependences, room: int, features: Features, limit: float, *, by_path: bool
) -> order.Order | None:
    graph = order.graph_of(block)
    return list_order._ListRun(graph, room, _rules(features), 1, by_path=by_path).result(limit)
