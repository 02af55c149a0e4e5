"""Elementwise operators of two or more numbers."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers, same
from crtexport.ir.ops import (
    Add,
    AddN,
    Div,
    FloorDiv,
    FloorMod,
    Maximum,
    Minimum,
    Mul,
    Op,
    SquaredDifference,
    Sub,
)
from crtexport.ir.types import TensorType


@infers(
    Add, Sub, Mul, Div, FloorDiv, FloorMod, Maximum, Minimum, SquaredDifference, required=2
)
def broadcast(_op: Op, given: Given) -> tuple[TensorType, ...]:
    left, right = alike(given[0], given[1])
    return (TensorType(left.dtype, broadcast_shape(left, right)),)


@infers(AddN, most=None)
def add_n(_op: AddN, given: Given) -> tuple[TensorType, ...]:
    first = given[0]
    for other in given.all()[1:]:
        alike(first, other)
        if other.shape != first.shape:
            raise CrtExportError(f"the inputs differ in shape: {first} and {other}")
    return (same(first),)


def alike(left: TensorType, right: TensorType) -> tuple[TensorType, TensorType]:
    """Two inputs that must have one element type."""
    if left.dtype is not right.dtype:
        raise CrtExportError(f"the inputs differ in type: {left} and {right}")
    return left, right


def broadcast_shape(left: TensorType, right: TensorType) -> tuple[int, ...]:
    """The shape of an elementwise result, by NumPy's rules."""
    rank = max(len(left.shape), len(right.shape))
    shape = []
    for a, b in zip(_leading(left.shape, rank), _leading(right.shape, rank), strict=True):
        if a != b and 1 not in (a, b):
            raise CrtExportError(f"shapes {left} and {right} don't broadcast")
        shape.append(b if a == 1 else a)
    return tuple(shape)


def _leading(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape
