"""Shapes of recurrent operators."""

from __future__ import annotations

import pytest

from crtexport.ir.infer import infer
from crtexport.ir.ops import (
    Direction,
    GateFunction,
    Gru,
    Lstm,
    Op,
    Rnn,
    Svdf,
    UnidirectionalSequenceLstm,
)
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

Shape = tuple[int, ...]


def types(*shapes: Shape) -> tuple[TensorType, ...]:
    return tuple(TensorType(DType.FLOAT32, shape) for shape in shapes)


def lstm(first: Shape, batches: int, depth: int, units: int) -> tuple[TensorType, ...]:
    return types(
        first, *[(units, depth)] * 4, *[(units, units)] * 4, *[(units,)] * 4,
        *[(batches, units)] * 2,
    )


def test_an_svdf_gives_a_value_for_each_unit() -> None:
    assert infer(Svdf(2), types((3, 5), (8, 5), (8, 6), (3, 48), (4,))) == types((3, 4))
    assert infer(Svdf(1), types((3, 5), (8, 5), (8, 6), (3, 48))) == types((3, 8))


@pytest.mark.parametrize(
    ("op", "shapes", "problem"),
    [
        (Svdf(3), ((3, 5), (8, 5), (8, 6), (3, 48)), "don't make up rank 3"),
        (Svdf(2), ((3, 5), (8, 5), (8, 6), (3, 47)), r"the state must have the shape \[3, 48\]"),
        (Svdf(2), ((3, 5), (8, 5), (8, 6), (3, 48), (8,)), r"the bias must .* \[4\]"),
        (Svdf(2), ((3, 5), (8, 4), (8, 6), (3, 48)), r"the feature weights must .* \[8, 5\]"),
        (Svdf(2), ((5,), (8, 5), (8, 6), (3, 48)), "must have 2 dimensions"),
    ],
)
def test_an_svdf_that_does_not_fit(op: Svdf, shapes: tuple[Shape, ...], problem: str) -> None:
    with pytest.raises(CrtExportError, match=problem):
        infer(op, types(*shapes))


def test_an_lstm_gives_units_for_each_step() -> None:
    assert infer(UnidirectionalSequenceLstm(), lstm((2, 7, 3), 2, 3, 4)) == types((2, 7, 4))
    assert infer(UnidirectionalSequenceLstm(True), lstm((7, 2, 3), 2, 3, 4)) == types((7, 2, 4))


def test_an_lstm_that_does_not_fit() -> None:
    with pytest.raises(CrtExportError, match="the output state must"):
        infer(UnidirectionalSequenceLstm(True), lstm((2, 7, 3), 2, 3, 4))
    with pytest.raises(CrtExportError, match="is negative"):
        infer(UnidirectionalSequenceLstm(cell_clip=-1.0), lstm((2, 7, 3), 2, 3, 4))


def test_states_of_recurrent_operators_are_outputs() -> None:
    both = Direction.BIDIRECTIONAL
    weights = (2, 5, 3, 1), (2, 5, 5, 1), (2, 5, 1)
    assert infer(Rnn(both), types((7, 4, 3), *weights)) == types((7, 4, 2, 5), (2, 4, 5))
    assert infer(Rnn(both, batch_major=True), types((7, 4, 3), *weights)) == types(
        (7, 4, 2, 5), (2, 7, 5)
    )
    gates = (1, 5, 3, 4), (1, 5, 5, 4), (1, 5, 4)
    assert infer(Lstm(), types((7, 4, 3), *gates)) == types((7, 4, 1, 5), *[(1, 4, 5)] * 2)
    assert infer(Lstm(each_step=False), types((7, 4, 3), *gates)) == types(*[(1, 4, 5)] * 2)


@pytest.mark.parametrize(
    ("op", "shapes", "problem"),
    [
        (Gru(), ((7, 4, 3), (1, 5, 3, 3), (1, 5, 5, 3), (1, 5, 4)), r"the bias .* \[1, 5, 3\]"),
        (Gru(), ((7, 4, 3), (1, 5, 2, 3), (1, 5, 5, 3), (1, 5, 3)), r"the weights must .* 5, 3, 3"),
        (Rnn(), ((7, 4), (1, 5, 3, 1), (1, 5, 5, 1), (1, 5, 1)), "must have 3 dimensions"),
        (Rnn(clip=-1.0), ((7, 4, 3), (1, 5, 3, 1), (1, 5, 5, 1), (1, 5, 1)), "is negative"),
        (Rnn(functions=(GateFunction.RELU,) * 2),
         ((7, 4, 3), (1, 5, 3, 1), (1, 5, 5, 1), (1, 5, 1)), "2 functions of gates, not 1"),
        (Rnn(), ((7, 4, 3), (1, 5, 3, 1), (1, 5, 5, 1), (1, 5, 1), (4,)), "must be int32"),
        (Lstm(alpha=(0.5,)), ((7, 4, 3), (1, 5, 3, 4), (1, 5, 5, 4), (1, 5, 4)), "alpha, not 3"),
        (Lstm(), ((7, 4, 3), (1, 5, 3, 4), (1, 5, 5, 4), (1, 5, 4), (4,)), "must be int32"),
    ],
)
def test_a_recurrent_operator_that_does_not_fit(
    op: Op, shapes: tuple[Shape, ...], problem: str
) -> None:
    with pytest.raises(CrtExportError, match=problem):
        infer(op, types(*shapes))
