"""Trigonometric and hyperbolic functions, built from functions with kernels so that nothing
cancels."""

from __future__ import annotations

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.activation import log_of_1_plus
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import (
    Abs,
    Add,
    Atan,
    Cos,
    Div,
    Erf,
    Exp,
    Less,
    Mul,
    Neg,
    Select,
    Sin,
    Sqrt,
    Square,
    Sub,
    Tanh,
)


@operator("Erf", follows=True)
def erf(node: OnnxNode) -> Value:
    return node.unary(Erf(), node.input(0))


@operator("Erfc")
def erfc(node: OnnxNode) -> Value:
    """Returns 1 - erf(x). It isn't in the standard, but tf2onnx writes it for Keras' gelu."""
    rest = node.unary(Erf(), node.input(0))
    return node.elementwise(Sub(), node.like(1, rest), rest)


@operator("Atan", follows=True)
def atan(node: OnnxNode) -> Value:
    return node.unary(Atan(), node.input(0))


@operator("Tan", follows=True)
def tan(node: OnnxNode) -> Value:
    x = node.input(0)
    return node.elementwise(Div(), node.unary(Sin(), x), node.unary(Cos(), x))


@operator("Asin", "Acos", follows=True)
def arc(node: OnnxNode) -> Value:
    """Returns arcsine or arccosine, through the arctangent: asin(x) = atan(x / sqrt((1 - x)(1 +
    x))), acos(x) = 2 atan(sqrt((1 - x) / (1 + x)))."""
    x = node.input(0)
    one = node.like(1, x)
    below, above = node.elementwise(Sub(), one, x), node.elementwise(Add(), one, x)
    if node.info.operator == "Acos":
        tangent = node.unary(Sqrt(), node.elementwise(Div(), below, above))
        return node.elementwise(Mul(), node.unary(Atan(), tangent), node.like(2, x))
    root = node.unary(Sqrt(), node.elementwise(Mul(), below, above))
    return node.unary(Atan(), node.elementwise(Div(), x, root))


def _cosh(node: OnnxNode, x: Value) -> Value:
    half = node.like(0.5, x)
    both = node.elementwise(
        Add(), node.unary(Exp(), x), node.unary(Exp(), node.unary(Neg(), x))
    )
    return node.elementwise(Mul(), both, half)


@operator("Cosh", follows=True)
def cosh(node: OnnxNode) -> Value:
    return _cosh(node, node.input(0))


@operator("Sinh", follows=True)
def sinh(node: OnnxNode) -> Value:
    """Returns tanh(x) * cosh(x), which is accurate near 0."""
    x = node.input(0)
    return node.elementwise(Mul(), node.unary(Tanh(), x), _cosh(node, x))


@operator("Asinh", follows=True)
def asinh(node: OnnxNode) -> Value:
    """Returns log(1 + x + x² / (1 + sqrt(1 + x²))) of the magnitude, with the sign."""
    x = node.input(0)
    size, square, one = node.unary(Abs(), x), node.unary(Square(), x), node.like(1, x)
    root = node.unary(Sqrt(), node.elementwise(Add(), square, one))
    rest = node.elementwise(Div(), square, node.elementwise(Add(), root, one))
    made = log_of_1_plus(node, node.elementwise(Add(), size, rest))
    negative = node.elementwise(Less(), x, node.like(0, x))
    return node.elementwise(Select(), negative, node.unary(Neg(), made), made)


@operator("Acosh", follows=True)
def acosh(node: OnnxNode) -> Value:
    """Returns log(1 + t + sqrt(t² + 2t)) for t = x - 1."""
    x = node.input(0)
    t = node.elementwise(Sub(), x, node.like(1, x))
    inner = node.elementwise(Mul(), t, node.elementwise(Add(), t, node.like(2, x)))
    return log_of_1_plus(node, node.elementwise(Add(), t, node.unary(Sqrt(), inner)))


@operator("Atanh", follows=True)
def atanh(node: OnnxNode) -> Value:
    """Returns log(1 + 2x / (1 - x)) / 2."""
    x = node.input(0)
    twice = node.elementwise(Add(), x, x)
    ratio = node.elementwise(Div(), twice, node.elementwise(Sub(), node.like(1, x), x))
    return node.elementwise(Mul(), log_of_1_plus(node, ratio), node.like(0.5, x))
