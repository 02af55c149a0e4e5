"""Elementwise operators of two or more numbers."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.ops import AddN, Op, Pairwise
from crtexport.ir.types import TensorType
from crtexport.support.errors import CrtExportError


@infers(Pairwise, required=2)
def broadcast(_op: Op, inputs: InputTypes) -> tuple[TensorType, ...]:
    left, right = alike(inputs[0], inputs[1])
    return (TensorType(left.dtype, broadcast_shape(left, right)),)


@infers(AddN, most=None)
def add_n(_op: AddN, inputs: InputTypes) -> tuple[TensorType, ...]:
    first = inputs[0]
    for other in inputs.all()[1:]:
        alike(first, other)
        if other.shape != first.shape:
            raise CrtExportError(f"the inputs differ in shape: {first} and {other}")
    return (same(first),)


def alike(left: TensorType, right: TensorType) -> tuple[TensorType, TensorType]:
    """Raises CrtExportError unless two inputs have one element type."""
    if left.dtype is not right.dtype:
        raise CrtExportError(f"the inputs differ in type: {left} and {right}")
    return left, right


def broadcast_shape(left: TensorType, right: TensorType) -> tuple[int, ...]:
    """Returns the shape of an elementwise result, by NumPy's rules."""
    rank = max(len(left.shape), len(right.shape))
    shape = []
    for a, b in zip(_leading(left.shape, rank), _leading(right.shape, rank), strict=True):
        if a != b and 1 not in (a, b):
            raise CrtExportError(f"shapes {left} and {right} don't broadcast")
        shape.append(b if a == 1 else a)
    return tuple(shape)


def _leading(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape
