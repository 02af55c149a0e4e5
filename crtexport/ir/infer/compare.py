"""Elementwise operators that give or take truth values."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.arithmetic import alike, broadcast_shape
from crtexport.ir.infer.base import Given, infers, same
from crtexport.ir.ops import (
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    NotEqual,
    Op,
    Select,
)
from crtexport.ir.types import DType, TensorType


@infers(Equal, NotEqual, Greater, GreaterEqual, Less, LessEqual, required=2)
def comparison(_op: Op, given: Given) -> tuple[TensorType, ...]:
    return (TensorType(DType.BOOL, broadcast_shape(*alike(given[0], given[1]))),)


@infers(LogicalAnd, LogicalOr, required=2)
def logical(_op: Op, given: Given) -> tuple[TensorType, ...]:
    left, right = _truth(given[0]), _truth(given[1])
    return (TensorType(DType.BOOL, broadcast_shape(left, right)),)


@infers(LogicalNot)
def negation(_op: LogicalNot, given: Given) -> tuple[TensorType, ...]:
    return (same(_truth(given[0])),)


@infers(Select, required=3)
def select(op: Select, given: Given) -> tuple[TensorType, ...]:
    condition = _truth(given[0])
    then, other = alike(given[1], given[2])
    if op.rows:
        if condition.shape != then.shape[:1] or then.shape != other.shape:
            raise CrtExportError(f"{condition} doesn't choose among the rows of {then} and {other}")
        return (same(then),)
    shape = broadcast_shape(then, other)
    return (TensorType(then.dtype, broadcast_shape(condition, TensorType(then.dtype, shape))),)


def _truth(type_: TensorType) -> TensorType:
    """An input that must hold truth values."""
    if type_.dtype is not DType.BOOL:
        raise CrtExportError(f"expected bool, found {type_}")
    return type_
