"""Elementwise operators of two inputs."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers
from crtexport.ir.ops import Add, Mul, Sub
from crtexport.ir.types import TensorType


@infers(Add, Sub, Mul, required=2)
def broadcast(_op: Add | Sub | Mul, given: Given) -> tuple[TensorType, ...]:
    left, right = given[0], given[1]
    if left.dtype is not right.dtype:
        raise CrtExportError(f"the inputs differ in type: {left} and {right}")
    return (TensorType(left.dtype, broadcast_shape(left, right)),)


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
