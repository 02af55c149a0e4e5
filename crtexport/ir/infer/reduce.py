"""Operators that fold axes."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers
from crtexport.ir.ops import Mean
from crtexport.ir.types import TensorType


@infers(Mean)
def mean(op: Mean, given: Given) -> tuple[TensorType, ...]:
    data = given[0]
    rank = len(data.shape)
    if not op.axes or list(op.axes) != sorted({axis for axis in op.axes if 0 <= axis < rank}):
        raise CrtExportError(
            f"axes {list(op.axes)} must be one or more of 0 to {rank - 1}, ascending"
        )
    if any(data.shape[axis] == 0 for axis in op.axes):
        raise CrtExportError("the mean of no elements is undefined")
    shape = tuple(
        1 if axis in op.axes else size
        for axis, size in enumerate(data.shape)
        if op.keep_dims or axis not in op.axes
    )
    return (TensorType(data.dtype, shape),)
