"""Elementwise operators that give or take truth values."""

from __future__ import annotations

from crtexport.ir.infer.arithmetic import alike, broadcast_shape
from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.ops import Comparison, LogicalAnd, LogicalNot, LogicalOr, Op, Select
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


@infers(Comparison, required=2)
def comparison(_op: Op, inputs: InputTypes) -> tuple[TensorType, ...]:
    return (TensorType(DType.BOOL, broadcast_shape(*alike(inputs[0], inputs[1]))),)


@infers(LogicalAnd, LogicalOr, required=2)
def logical(_op: Op, inputs: InputTypes) -> tuple[TensorType, ...]:
    left, right = _truth(inputs[0]), _truth(inputs[1])
    return (TensorType(DType.BOOL, broadcast_shape(left, right)),)


@infers(LogicalNot)
def negation(_op: LogicalNot, inputs: InputTypes) -> tuple[TensorType, ...]:
    return (same(_truth(inputs[0])),)


@infers(Select, required=3)
def select(op: Select, inputs: InputTypes) -> tuple[TensorType, ...]:
    condition = _truth(inputs[0])
    then, other = alike(inputs[1], inputs[2])
    if op.rows:
        if condition.shape != then.shape[:1] or then.shape != other.shape:
            raise CrtExportError(f"{condition} doesn't choose among the rows of {then} and {other}")
        return (same(then),)
    shape = broadcast_shape(then, other)
    return (TensorType(then.dtype, broadcast_shape(condition, TensorType(then.dtype, shape))),)


def _truth(type_: TensorType) -> TensorType:
    """Raises CrtExportError unless an input holds truth values."""
    if type_.dtype is not DType.BOOL:
        raise CrtExportError(f"expected bool, found {type_}")
    return type_
