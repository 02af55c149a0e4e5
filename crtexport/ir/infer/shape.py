"""Operators that move elements."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers
from crtexport.ir.ops import Concatenation, Pad, Reshape
from crtexport.ir.types import TensorType


@infers(Reshape)
def reshape(op: Reshape, given: Given) -> tuple[TensorType, ...]:
    data = given[0]
    result = TensorType(data.dtype, op.shape)
    if min(op.shape, default=0) < 0 or result.elements != data.elements:
        raise CrtExportError(
            f"{data} has {data.elements} elements and can't become {list(op.shape)}"
        )
    return (result,)


@infers(Pad)
def pad(op: Pad, given: Given) -> tuple[TensorType, ...]:
    data = given[0]
    if len(op.paddings) != len(data.shape):
        raise CrtExportError(f"{len(op.paddings)} pairs of paddings for {data}")
    if any(amount < 0 for pair in op.paddings for amount in pair):
        raise CrtExportError("paddings must not be negative")
    shape = tuple(
        before + size + after for size, (before, after) in zip(data.shape, op.paddings, strict=True)
    )
    return (TensorType(data.dtype, shape),)


@infers(Concatenation, most=None)
def concatenation(op: Concatenation, given: Given) -> tuple[TensorType, ...]:
    parts = given.all()
    first = parts[0]
    if not 0 <= op.axis < len(first.shape):
        raise CrtExportError(f"axis {op.axis} is not one of the {len(first.shape)} of {first}")
    for part in parts[1:]:
        if part.dtype is not first.dtype:
            raise CrtExportError(f"the inputs differ in type: {first} and {part}")
        if _without(part.shape, op.axis) != _without(first.shape, op.axis):
            raise CrtExportError(f"{first} and {part} can't be joined along axis {op.axis}")
    total = sum(part.shape[op.axis] for part in parts)
    shape = (*first.shape[: op.axis], total, *first.shape[op.axis + 1 :])
    return (TensorType(first.dtype, shape),)


def _without(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return shape[:axis], shape[axis + 1 :]
