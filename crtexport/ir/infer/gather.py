"""Operators that pick or place elements by numbers that are computed at run time."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers, same
from crtexport.ir.ops import DynamicUpdateSlice, Gather, GatherNd
from crtexport.ir.types import DType, TensorType

_INDICES = (DType.INT16, DType.INT32, DType.INT64)


@infers(Gather, required=2)
def gather(op: Gather, given: Given) -> tuple[TensorType, ...]:
    data, indices = given[0], _indices(given)
    rank, batch = len(data.shape), op.batch_dims
    if not 0 <= op.axis < rank:
        raise CrtExportError(f"axis {op.axis} is not one of the {rank} of {data}")
    if not 0 <= batch <= min(op.axis, len(indices.shape)):
        raise CrtExportError(f"{batch} batch dimensions before axis {op.axis}, and of {indices}")
    if data.shape[:batch] != indices.shape[:batch]:
        raise CrtExportError(f"{data} and {indices} differ in their batch dimensions")
    shape = data.shape[: op.axis] + indices.shape[batch:] + data.shape[op.axis + 1 :]
    result = TensorType(data.dtype, shape)
    if data.shape[op.axis] == 0 and result.elements:
        raise CrtExportError(f"{data} has nothing to take along axis {op.axis}")
    return (result,)


@infers(GatherNd, required=2)
def gather_nd(op: GatherNd, given: Given) -> tuple[TensorType, ...]:
    del op
    data, indices = given[0], _indices(given)
    if not indices.shape or not 1 <= indices.shape[-1] <= len(data.shape):
        raise CrtExportError(f"the last axis of {indices} must give positions in {data}")
    depth = indices.shape[-1]
    result = TensorType(data.dtype, indices.shape[:-1] + data.shape[depth:])
    if 0 in data.shape[:depth] and result.elements:
        raise CrtExportError(f"{data} has nothing to take")
    return (result,)


@infers(DynamicUpdateSlice, required=3)
def dynamic_update_slice(op: DynamicUpdateSlice, given: Given) -> tuple[TensorType, ...]:
    del op
    data, update, start = given[0], given[1], _indices(given, 2)
    if update.dtype is not data.dtype or len(update.shape) != len(data.shape) or any(
        size > whole for size, whole in zip(update.shape, data.shape, strict=True)
    ):
        raise CrtExportError(f"{update} is no part of {data}")
    if start.shape != (len(data.shape),):
        raise CrtExportError(f"{start} is no position in {data}")
    return (same(data),)


def _indices(given: Given, position: int = 1) -> TensorType:
    indices = given[position]
    if indices.dtype not in _INDICES:
        raise CrtExportError(f"indices must be integers, found {indices}")
    return indices
