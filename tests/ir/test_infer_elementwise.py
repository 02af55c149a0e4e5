"""Output types of elementwise operators of two or more inputs."""

from __future__ import annotations

import pytest

from crtexport.ir.infer import infer
from crtexport.ir.ops import (
    AddN,
    Div,
    Equal,
    FloorDiv,
    FloorMod,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Maximum,
    Minimum,
    NotEqual,
    Op,
    Select,
    SquaredDifference,
)
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


def real(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def whole(*shape: int) -> TensorType:
    return TensorType(DType.INT64, shape)


def truth(*shape: int) -> TensorType:
    return TensorType(DType.BOOL, shape)


GOOD: list[tuple[Op, tuple[TensorType, ...], TensorType]] = [
    (Div(), (real(2, 3), real(3)), real(2, 3)),
    (FloorDiv(), (real(2, 1), real(1, 3)), real(2, 3)),
    (FloorMod(), (whole(2), whole()), whole(2)),
    (Maximum(), (whole(4, 1, 1), whole(2, 3)), whole(4, 2, 3)),
    (Minimum(), (real(), real()), real()),
    (SquaredDifference(), (real(0, 3), real(1, 3)), real(0, 3)),
    (AddN(), (real(2, 3),), real(2, 3)),
    (AddN(), (real(2, 3), real(2, 3), real(2, 3)), real(2, 3)),
    (Equal(), (truth(2), truth(3, 1)), truth(3, 2)),
    (NotEqual(), (real(2), real(2)), truth(2)),
    (Greater(), (whole(2), whole()), truth(2)),
    (GreaterEqual(), (real(2), real(2)), truth(2)),
    (Less(), (real(2), real(2)), truth(2)),
    (LessEqual(), (real(2), real(2)), truth(2)),
    (LogicalAnd(), (truth(2, 1), truth(3)), truth(2, 3)),
    (LogicalOr(), (truth(2), truth(2)), truth(2)),
    (LogicalNot(), (truth(2, 3),), truth(2, 3)),
    (Select(), (truth(2, 1), real(3), real(1, 1, 1)), real(1, 2, 3)),
    (Select(), (truth(), whole(2), whole(2)), whole(2)),
    (Select(rows=True), (truth(4), real(4, 3), real(4, 3)), real(4, 3)),
]

BAD: list[tuple[Op, tuple[TensorType, ...], str]] = [
    (Div(), (real(2), whole(2)), "the inputs differ in type"),
    (Maximum(), (real(2), real(3)), "don't broadcast"),
    (AddN(), (real(2), real(2, 1)), r"the inputs differ in shape: float32\[2\] and float32\[2x1\]"),
    (AddN(), (real(2), whole(2)), "the inputs differ in type"),
    (Less(), (real(2), whole(2)), "the inputs differ in type"),
    (LogicalAnd(), (truth(2), real(2)), r"expected bool, found float32\[2\]"),
    (LogicalNot(), (whole(2),), "expected bool"),
    (Select(), (whole(2), real(2), real(2)), "expected bool"),
    (Select(), (truth(2), real(2), whole(2)), "the inputs differ in type"),
    (Select(), (truth(4), real(4, 3), real(4, 3)), "don't broadcast"),
    (Select(rows=True), (truth(3), real(4, 3), real(4, 3)), "doesn't choose among the rows"),
    (Select(rows=True), (truth(4), real(4, 3), real(4, 1)), "doesn't choose among the rows"),
]


@pytest.mark.parametrize(("op", "inputs", "expected"), GOOD)
def test_type(op: Op, inputs: tuple[TensorType, ...], expected: TensorType) -> None:
    assert infer(op, inputs) == (expected,)


@pytest.mark.parametrize(("op", "inputs", "message"), BAD)
def test_what_does_not_fit(op: Op, inputs: tuple[TensorType, ...], message: str) -> None:
    with pytest.raises(CrtExportError, match=message):
        infer(op, inputs)
