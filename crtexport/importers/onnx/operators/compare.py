"""Comparisons, truth values, and choices by them."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.numbers import FLOAT, WHOLE, operands, pairwise
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
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
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_COMPARISONS: Mapping[str, Op] = {
    "Equal": Equal(), "Greater": Greater(), "GreaterOrEqual": GreaterEqual(), "Less": Less(),
    "LessOrEqual": LessEqual(),
}


@operator(*_COMPARISONS, inputs=(2, 2), follows=True)
def comparison(node: OnnxNode) -> Value:
    op = _COMPARISONS[node.info.operator]
    types = (FLOAT, *WHOLE, DType.BOOL) if isinstance(op, Equal) else (FLOAT, *WHOLE)
    return pairwise(node, op, types, *operands(node), result=DType.BOOL)


_LOGICAL: Mapping[str, Op] = {"And": LogicalAnd(), "Or": LogicalOr(), "Xor": NotEqual()}


@operator(*_LOGICAL, inputs=(2, 2), follows=True)
def logical(node: OnnxNode) -> Value:
    return node.elementwise(_LOGICAL[node.info.operator], *operands(node))


@operator("Not", follows=True, oldest=1)
def negation(node: OnnxNode) -> Value:
    return node.unary(LogicalNot(), node.input(0))


@operator("Where", inputs=(3, 3), follows=True)
def where(node: OnnxNode) -> Value:
    condition, then, other = node.all()
    if node.dtype(then) is not node.dtype(other):
        raise CrtExportError("the inputs differ in type")
    return node.elementwise(Select(), condition, then, other)
