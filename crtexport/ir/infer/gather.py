"""Operators that read or write elements at indices that are computed at run time."""

from __future__ import annotations

from crtexport.ir import ops
from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

_INDICES = (DType.INT16, DType.INT32, DType.INT64)


@infers(ops.Gather, required=2)
def gather(op: ops.Gather, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, indices = inputs[0], _indices(inputs)
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


@infers(ops.GatherNd, required=2)
def gather_nd(op: ops.GatherNd, inputs: InputTypes) -> tuple[TensorType, ...]:
    del op
    data, indices = inputs[0], _indices(inputs)
    if not indices.shape or not 1 <= indices.shape[-1] <= len(data.shape):
        raise CrtExportError(f"the last axis of {indices} must give positions in {data}")
    depth = indices.shape[-1]
    result = TensorType(data.dtype, indices.shape[:-1] + data.shape[depth:])
    if 0 in data.shape[:depth] and result.elements:
        raise CrtExportError(f"{data} has nothing to take")
    return (result,)


@infers(ops.GatherElements, required=2)
def gather_elements(op: ops.GatherElements, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, indices = inputs[0], _indices(inputs)
    _check_beside(op.axis, data, indices)
    if data.shape[op.axis] == 0 and indices.elements:
        raise CrtExportError(f"{data} has nothing to take along axis {op.axis}")
    return (TensorType(data.dtype, indices.shape),)


def _check_beside(axis: int, data: TensorType, indices: TensorType) -> None:
    """Raises CrtExportError unless each index has a place of its own beside ``axis``."""
    rank = len(data.shape)
    if not 0 <= axis < rank:
        raise CrtExportError(f"axis {axis} is not one of the {rank} of {data}")
    if len(indices.shape) != rank or any(
        count > whole for number, (count, whole) in enumerate(
            zip(indices.shape, data.shape, strict=True)
        ) if number != axis
    ):
        raise CrtExportError(f"the indices {indices} are not inside of {data}")


@infers(ops.ScatterElements, required=3)
def scatter_elements(op: ops.ScatterElements, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, indices, updates = inputs[0], _indices(inputs), inputs[2]
    _check_beside(op.axis, data, indices)
    if updates.dtype is not data.dtype or updates.shape != indices.shape:
        raise CrtExportError(f"{updates} for the places {indices} in {data}")
    if data.shape[op.axis] == 0 and indices.elements:
        raise CrtExportError(f"{data} has no place along axis {op.axis}")
    return (same(data),)


@infers(ops.ScatterNd, required=3)
def scatter_nd(op: ops.ScatterNd, inputs: InputTypes) -> tuple[TensorType, ...]:
    del op
    data, indices, updates = inputs[0], _indices(inputs), inputs[2]
    if not indices.shape or not 1 <= indices.shape[-1] <= len(data.shape):
        raise CrtExportError(f"the last axis of {indices} must give positions in {data}")
    depth = indices.shape[-1]
    wanted = indices.shape[:-1] + data.shape[depth:]
    if updates.dtype is not data.dtype or updates.shape != wanted:
        raise CrtExportError(f"{updates} for the places {indices} in {data}")
    if 0 in data.shape[:depth] and updates.elements:
        raise CrtExportError(f"{data} has no places")
    return (same(data),)


@infers(ops.DynamicUpdateSlice, required=3)
def dynamic_update_slice(op: ops.DynamicUpdateSlice, inputs: InputTypes) -> tuple[TensorType, ...]:
    del op
    data, update, start = inputs[0], inputs[1], _indices(inputs, 2)
    if update.dtype is not data.dtype or len(update.shape) != len(data.shape) or any(
        size > whole for size, whole in zip(update.shape, data.shape, strict=True)
    ):
        raise CrtExportError(f"{update} is no part of {data}")
    if start.shape != (len(data.shape),):
        raise CrtExportError(f"{start} is no position in {data}")
    return (same(data),)


def _indices(inputs: InputTypes, position: int = 1) -> TensorType:
    indices = inputs[position]
    if indices.dtype not in _INDICES:
        raise CrtExportError(f"indices must be integers, found {indices}")
    return indices
