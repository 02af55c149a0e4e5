"""Conditions on loops hold as often as is said."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from crtexport.kir.builder import add, const, load, mul, sub
from crtexport.kir.language import Buffer, Compare, CompareOp, Expr, Scalar, Var
from crtexport.schedules.select.likelihood import likelihood

ROW, COLUMN, PADDED = (Var(name, Scalar.INDEX) for name in ("i", "j", "padded"))
HOLDS = {
    CompareOp.EQ: lambda x: x == 0, CompareOp.NE: lambda x: x != 0,
    CompareOp.LT: lambda x: x < 0, CompareOp.LE: lambda x: x <= 0,
    CompareOp.GT: lambda x: x > 0, CompareOp.GE: lambda x: x >= 0,
}
SMALL = st.integers(-3, 3)


@given(
    st.sampled_from(list(CompareOp)), st.integers(1, 6), st.integers(1, 6), SMALL, SMALL, SMALL,
)
def test_it_is_the_part_of_all_iterations(
    op: CompareOp, many: int, more: int, a: int, b: int, limit: int
) -> None:
    values = {"padded": sub(mul(COLUMN, const(b)), const(1))}
    condition = Compare(op, add(mul(ROW, const(a)), PADDED), const(limit))
    wanted = [
        HOLDS[op](a * i + b * j - 1 - limit) for i, j in itertools.product(range(many), range(more))
    ]
    found = likelihood(condition, {"i": many, "j": more}, values)
    assert found == sum(wanted) / len(wanted)


def test_it_is_not_known_of_what_is_loaded_or_given_or_too_long() -> None:
    loaded = load(Buffer("x", Scalar.I32, 4), const(0))
    found: list[Expr] = [
        loaded, *(Compare(CompareOp.LT, value, const(3)) for value in (loaded, COLUMN, ROW))
    ]
    assert [likelihood(one, {"i": 1 << 20}, {}) for one in found] == [None] * 4
