"""Bitwise operators on integers, and tests for NaN and infinity."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from crtexport.importers.onnx.constants import element_type
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import (
    Abs,
    Bitcast,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Equal,
    Less,
    LogicalAnd,
    NotEqual,
    Op,
    Select,
    ShiftLeft,
    ShiftRight,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_BITWISE: Mapping[str, Op] = {
    "BitwiseAnd": BitwiseAnd(), "BitwiseOr": BitwiseOr(), "BitwiseXor": BitwiseXor(),
}


@operator(*_BITWISE, inputs=(2, 2), follows=True)
def bitwise(node: OnnxNode) -> Value:
    return node.elementwise(_BITWISE[node.info.operator], *node.all())


@operator("BitwiseNot", follows=True)
def bitwise_not(node: OnnxNode) -> Value:
    x = node.input(0)
    dtype = node.dtype(x)
    return node.elementwise(BitwiseXor(), x, node.constant(
        -1 if dtype.limits[0] else dtype.limits[1], dtype
    ))


@operator("BitShift", inputs=(2, 2), follows=True)
def bit_shift(node: OnnxNode) -> Value:
    """Returns shifted integers. Negative shift counts are read as unsigned, and so exceed
    the number of bits."""
    x, by = node.all()
    direction = node.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise CrtExportError(f"the direction {direction!r} is unknown")
    op: Op = ShiftLeft() if direction == "LEFT" else ShiftRight()
    dtype = node.dtype(x)
    if dtype.is_integer and dtype.limits[0]:
        negative = node.elementwise(Less(), node.cast(by, _wide(dtype)), node.constant(
            0, _wide(dtype)
        ))
        by = node.elementwise(Select(), negative, node.constant(8 * dtype.itemsize, dtype), by)
    return node.elementwise(op, x, by)


def _wide(dtype: DType) -> DType:
    return dtype if dtype in (DType.INT32, DType.INT64) else DType.INT32


@operator("BitCast", follows=True)
def bit_cast(node: OnnxNode) -> Value:
    x, dtype = node.input(0), element_type(node.integer("to"))
    if node.dtype(x).itemsize != dtype.itemsize:
        raise CrtExportError(f"{node.dtype(x).value} and {dtype.value} differ in size")
    return x if node.dtype(x) is dtype else node.unary(Bitcast(), x, dtypes=(dtype,))


@operator("IsNaN", follows=True)
def is_nan(node: OnnxNode) -> Value:
    x = node.input(0)
    return node.elementwise(NotEqual(), x, x)


@operator("IsInf", follows=True)
def is_infinite(node: OnnxNode) -> Value:
    x = node.input(0)
    down, up = node.integer("detect_negative", 1), node.integer("detect_positive", 1)
    if down and up:
        return node.elementwise(Equal(), node.unary(Abs(), x), node.like(np.inf, x))
    if down or up:
        return node.elementwise(Equal(), x, node.like(np.inf if up else -np.inf, x))
    same = node.elementwise(Equal(), x, x)
    other = node.elementwise(NotEqual(), x, x)
    return node.elementwise(LogicalAnd(), same, other)

