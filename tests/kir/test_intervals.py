"""Intervals hold every value that there is, found by trying all, and where they can no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.kir.builder import add, cast, const, div, i32, max_, min_, mul, select, sub
from crtexport.kir.intervals import Interval, Ranges, binary
from crtexport.kir.language import BinaryOp, Compare, CompareOp, Expr, Scalar, Var

X, Y = Var("x", Scalar.I32), Var("y", Scalar.I32)


def truncated(a: int, b: int) -> int:
    return int(a / b)


MEANING: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda a, b: a + b, BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b, BinaryOp.WRAP_ADD: lambda a, b: a + b,
    BinaryOp.WRAP_SUB: lambda a, b: a - b, BinaryOp.WRAP_MUL: lambda a, b: a * b,
    BinaryOp.MIN: min, BinaryOp.MAX: max, BinaryOp.DIV: truncated,
    BinaryOp.SHL: lambda a, b: a << b, BinaryOp.SHR: lambda a, b: a >> b,
    BinaryOp.AND: lambda a, b: a & b, BinaryOp.OR: lambda a, b: a | b,
    BinaryOp.XOR: lambda a, b: a ^ b,
}
LOOSE = (BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR)
HOLDS: dict[CompareOp, Callable[[int, int], bool]] = {
    CompareOp.EQ: lambda a, b: a == b, CompareOp.NE: lambda a, b: a != b,
    CompareOp.LT: lambda a, b: a < b, CompareOp.LE: lambda a, b: a <= b,
    CompareOp.GT: lambda a, b: a > b, CompareOp.GE: lambda a, b: a >= b,
}
intervals = st.tuples(st.integers(-9, 9), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1]))


def values(interval: Interval) -> range:
    return range(interval[0], interval[1] + 1)


def around(found: list[int]) -> Interval:
    return min(found), max(found)


@pytest.mark.parametrize("op", MEANING)
@given(a=intervals, b=intervals)
def test_operators_give_what_their_operands_can(op: BinaryOp, a: Interval, b: Interval) -> None:
    if op in (BinaryOp.SHL, BinaryOp.SHR):
        b = abs(b[0]), abs(b[0]) + b[1] - b[0]
    results = [
        MEANING[op](x, y) for x in values(a) for y in values(b) if op is not BinaryOp.DIV or y
    ]
    found = binary(op, a, b, Scalar.I32)
    if not results:
        assert found == (-(1 << 31), (1 << 31) - 1)
        return
    low, high = around(results)
    assert found[0] <= low
    assert high <= found[1]
    assert op in LOOSE or found == (low, high)


def test_sums_beyond_their_type_wrap_or_cannot_be() -> None:
    assert binary(BinaryOp.ADD, (100, 120), (27, 28), Scalar.I8) == (127, 127)
    assert binary(BinaryOp.WRAP_ADD, (100, 120), (27, 28), Scalar.I8) == (-128, 127)


@pytest.mark.parametrize("op", HOLDS)
@given(
    x=intervals, y=intervals, offset=st.integers(-3, 3), truth=st.booleans(),
    mirrored=st.booleans(), minus=st.booleans(), single=st.booleans(),
)
def test_conditions_leave_what_can_fulfil_them(
    op: CompareOp, x: Interval, y: Interval, offset: int, truth: bool, mirrored: bool,
    minus: bool, single: bool,
) -> None:
    if single:
        y = y[0], y[0]
    ranges = Ranges({}).bind(X, x).bind(Y, y)
    shifted = sub(X, i32(offset)) if minus else add(X, i32(offset))
    moved = -offset if minus else offset
    other: Expr = i32(y[0]) if single else Y
    condition = Compare(op, other, shifted) if mirrored else Compare(op, shifted, other)
    pairs = [
        (a, b) for a in values(x) for b in values(y)
        if HOLDS[op](*((b, a + moved) if mirrored else (a + moved, b))) is truth
    ]
    found = ranges.assuming(condition, truth)
    if found is None:
        assert not pairs
        return
    if not pairs:
        return
    for var, column in zip((X, Y), zip(*pairs, strict=True), strict=True):
        low, high = around(list(column))
        got = found.integer(var)
        assert got[0] <= low
        assert high <= got[1]
        assert got == (low, high) or not single  # two that vary bound each other once


@given(x=intervals, at=st.integers(-9, 12), other=st.integers(-9, 9))
def test_either_side_of_a_choice_knows_its_condition(x: Interval, at: int, other: int) -> None:
    ranges = Ranges({}).bind(X, x)
    chosen = select(Compare(CompareOp.GT, X, i32(at)), X, i32(other))
    assert ranges.integer(chosen) == around([v if v > at else other for v in values(x)])
    clamped = min_(max_(X, i32(-2)), i32(3))
    assert ranges.integer(clamped) == around([min(max(v, -2), 3) for v in values(x)])


@given(high=st.integers(0, 40), divisor=st.integers(2, 9))
def test_remainders_are_below_their_divisor(high: int, divisor: int) -> None:
    i = Var("i", Scalar.INDEX)
    ranges = Ranges({}).bind(i, (0, high))
    rest = sub(i, mul(div(i, const(divisor)), const(divisor)))
    assert ranges.integer(rest) == around([v % divisor for v in range(high + 1)])


@given(x=intervals, type_=st.sampled_from([Scalar.I8, Scalar.U8, Scalar.I64, Scalar.INDEX]))
def test_casts_keep_what_fits(x: Interval, type_: Scalar) -> None:
    ranges = Ranges({}).bind(X, x)
    fits = type_ is not Scalar.U8 or x[0] >= 0
    assert ranges.integer(cast(X, type_)) == (x if fits else (0, 255))


def test_nothing_is_known_of_what_changes() -> None:
    ranges = Ranges({}, frozenset({"x"})).bind(X, (1, 2))
    assert ranges.integer(X) == (-(1 << 31), (1 << 31) - 1)
