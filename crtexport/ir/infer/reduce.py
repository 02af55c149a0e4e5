"""Reductions over axes."""

from __future__ import annotations

from crtexport.ir import ops
from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

_WHAT: dict[type[ops.Reducer], str] = {
    ops.Mean: "mean", ops.Sum: "sum", ops.ReduceMax: "maximum", ops.ReduceMin: "minimum",
    ops.ReduceProd: "product", ops.ReduceAny: "disjunction", ops.ReduceAll: "conjunction",
}


@infers(ops.Reducer)
def reduction(op: ops.Reducer, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    rank = len(data.shape)
    if not op.axes or list(op.axes) != sorted({axis for axis in op.axes if 0 <= axis < rank}):
        raise CrtExportError(
            f"axes {list(op.axes)} must be one or more of 0 to {rank - 1}, ascending"
        )
    if any(data.shape[axis] == 0 for axis in op.axes):
        raise CrtExportError(f"the {_WHAT[type(op)]} of no elements is undefined")
    shape = tuple(
        1 if axis in op.axes else size
        for axis, size in enumerate(data.shape)
        if op.keep_dims or axis not in op.axes
    )
    return (TensorType(data.dtype, shape),)


@infers(ops.Extreme)
def position(op: ops.Extreme, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, result = inputs[0], inputs.declared[0]
    _check_axis(op.axis, data)
    if data.shape[op.axis] == 0:
        raise CrtExportError(f"axis {op.axis} of {data} has no elements to choose from")
    if result not in (DType.INT32, DType.INT64):
        raise CrtExportError(f"positions are int32 or int64, not {result.value}")
    return (TensorType(result, (*data.shape[: op.axis], *data.shape[op.axis + 1 :])),)


@infers(ops.TopK)
def largest(op: ops.TopK, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    _check_axis(op.axis, data)
    if not 0 <= op.count <= data.shape[op.axis]:
        raise CrtExportError(f"{op.count} of the {data.shape[op.axis]} along axis {op.axis}")
    shape = (*data.shape[: op.axis], op.count, *data.shape[op.axis + 1 :])
    places = DType.INT32 if inputs.declared[1:] == (DType.INT32,) else DType.INT64
    return TensorType(data.dtype, shape), TensorType(places, shape)


@infers(ops.Running)
def running(op: ops.Running, inputs: InputTypes) -> tuple[TensorType, ...]:
    _check_axis(op.axis, inputs[0])
    return (same(inputs[0]),)


def _check_axis(axis: int, data: TensorType) -> None:
    if not 0 <= axis < len(data.shape):
        raise CrtExportError(f"axis {axis} is not one of the {len(data.shape)} of {data}")
