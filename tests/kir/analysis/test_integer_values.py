"""What is known of a kernel's integers before it runs."""

from __future__ import annotations

import pytest

from crtexport.kir.analysis.integer_values import NamedValues
from crtexport.kir.language import Binary, BinaryOp, Buffer, Const, Expr, Load, Scalar, Var

LOADED = Load(Buffer("table", Scalar.I32, 4), Const(0, Scalar.INDEX))


def bounded(op: BinaryOp, value: Expr, to: int) -> Binary:
    return Binary(op, value, Const(to, Scalar.I32))


@pytest.mark.parametrize(("index", "values"), [
    (bounded(BinaryOp.MIN, bounded(BinaryOp.MAX, LOADED, 0), 6), 7),
    (bounded(BinaryOp.MAX, LOADED, 0), None),
    (bounded(BinaryOp.MIN, LOADED, 6), None),
    (bounded(BinaryOp.MIN, bounded(BinaryOp.MAX, LOADED, -1), 6), None),
])
def test_loaded_numbers_are_indices_where_they_are_bounded_on_both_sides(
    index: Expr, values: int | None
) -> None:
    names = NamedValues()
    names.add("at", index)
    reached = names.reach(Var("at", Scalar.I32))
    assert reached == (None if values is None else (frozenset(), {"at": values}))
