"""Addresses are multiples of what their alignment says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.kir.alignment import alignment, factor
from crtexport.kir.builder import add, const, load_word, mul, sub
from crtexport.kir.language import Binary, BinaryOp, Buffer, Const, Expr, Scalar, Var

INDEX = Var("i", Scalar.INDEX)


def value(index: Expr, i: int) -> int:
    match index:
        case Const(number):
            return int(number)
        case Binary(op, a, b):
            x, y = value(a, i), value(b, i)
            return {BinaryOp.ADD: x + y, BinaryOp.SUB: x - y, BinaryOp.MUL: x * y}[op]
        case _:
            return i


indices = st.recursive(
    st.one_of(st.integers(-40, 40).map(const), st.just(INDEX)),
    lambda parts: st.builds(
        lambda make, a, b: make(a, b), st.sampled_from([add, sub, mul]), parts, parts
    ),
    max_leaves=8,
)


@given(indices, st.integers(-9, 9))
def test_indices_are_multiples_of_their_factor(index: Expr, i: int) -> None:
    found, number = factor(index), value(index, i)
    assert number % found == 0 if found else number == 0


@pytest.mark.parametrize(("dtype", "align", "index", "wanted"), [
    (Scalar.U16, 4, mul(INDEX, const(2)), 4), (Scalar.U16, 2, mul(INDEX, const(2)), 2),
    (Scalar.U16, 4, add(mul(INDEX, const(4)), const(1)), 2), (Scalar.I8, 16, INDEX, 1),
    (Scalar.I8, 16, mul(INDEX, const(8)), 4), (Scalar.I8, 4, const(0), 4),
    (Scalar.I8, 8, sub(mul(INDEX, const(8)), const(2)), 2),
])
def test_words_are_as_aligned_as_buffer_and_index_say(
    dtype: Scalar, align: int, index: Expr, wanted: int
) -> None:
    assert alignment(load_word(Buffer("x", dtype, 64, align=align), index)) == wanted
