"""Activations: functions of one input, made of clamps, exponentials and their kin."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.numbers import FLOAT, WHOLE, clamped, computed, times
from crtexport.importers.onnx.operators.shape import flattened
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import (
    Abs,
    Add,
    ArgMax,
    Div,
    Elu,
    Equal,
    Exp,
    Gelu,
    Greater,
    HardSwish,
    LeakyRelu,
    Less,
    Log,
    Logistic,
    LogSoftmax,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Op,
    Prelu,
    Relu,
    Select,
    Softmax,
    Sub,
    Tanh,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_PLAIN: Mapping[str, Op] = {
    "Sigmoid": Logistic(), "Tanh": Tanh(), "HardSwish": HardSwish(),
}


@operator(*_PLAIN, follows=True)
def plain(node: OnnxNode) -> Value:
    return node.unary(_PLAIN[node.info.operator], node.input(0))


@operator("Relu", follows=True)
def relu(node: OnnxNode) -> Value:
    x = node.input(0)
    if node.dtype(x) is FLOAT:
        return node.unary(Relu(), x)
    return computed(node, lambda y: node.elementwise(Maximum(), y, node.like(0, y)), WHOLE, x)


@operator("LeakyRelu", follows=True)
def leaky_relu(node: OnnxNode) -> Value:
    return node.unary(LeakyRelu(node.real("alpha", 0.01)), node.input(0))


@operator("Elu", follows=True)
def elu(node: OnnxNode) -> Value:
    alpha, x = node.real("alpha", 1.0), node.input(0)
    return node.unary(Elu(), x) if alpha == 1 else _exponential(node, x, 1.0, alpha)


@operator("PRelu", inputs=(2, 2), follows=True)
def prelu(node: OnnxNode) -> Value:
    """Returns x where it is positive, slope * x elsewhere. Before opset 7, a slope of one axis has
    a number for each channel."""
    x, slope = node.all()
    if node.version < 7 and len(slope.shape) == 1 and slope.elements > 1:
        slope = node.builder.reshaped(slope, (*slope.shape, *(1,) * (len(x.shape) - 2)))
    return node.elementwise(Prelu(), x, slope)


@operator("Gelu", follows=True)
def gelu(node: OnnxNode) -> Value:
    approximate = node.text("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise CrtExportError(f"the approximation {approximate!r} is unknown")
    return node.unary(Gelu(approximate == "tanh"), node.input(0))


@operator("HardSigmoid", follows=True)
def hard_sigmoid(node: OnnxNode) -> Value:
    x = node.input(0)
    alpha, beta = node.real("alpha", 0.2), node.real("beta", 0.5)
    line = node.elementwise(Mul(), x, node.like(alpha, x))
    return clamped(node, node.elementwise(Add(), line, node.like(beta, x)), 0.0, 1.0)


@operator("ThresholdedRelu", follows=True)
def thresholded_relu(node: OnnxNode) -> Value:
    x, alpha = node.input(0), node.real("alpha", 1.0)
    above = node.elementwise(Greater(), x, node.like(alpha, x))
    return node.elementwise(Select(), above, x, node.like(0, x))


@operator("Softsign", follows=True)
def softsign(node: OnnxNode) -> Value:
    x = node.input(0)
    below = node.elementwise(Add(), node.unary(Abs(), x), node.like(1, x))
    return node.elementwise(Div(), x, below)


@operator("Swish", follows=True)
def swish(node: OnnxNode) -> Value:
    return _swish(node, node.input(0))


def _swish(node: OnnxNode, x: Value) -> Value:
    """Returns x * sigmoid(alpha * x)."""
    inner = times(node, x, node.real("alpha", 1.0))
    return node.elementwise(Mul(), x, node.unary(Logistic(), inner))


@operator("Softmax", "LogSoftmax", follows=True)
def softmax(node: OnnxNode) -> Value:
    """Returns the softmax along one axis; before opset 13 along all axes from ``axis`` on."""
    x = node.input(0)
    op: Op = Softmax() if node.info.operator == "Softmax" else LogSoftmax()
    if node.dtype(x) is not DType.FLOAT32:
        raise CrtExportError(f"{node.dtype(x).value} is not supported")
    rows, axis = _rows(node, x)
    order = rows.order or tuple(range(len(rows.shape)))
    order = (*(a for a in order if a != axis), axis)
    made = node.emit(op, node.builder.arranged(rows, order), order=order)
    return node.builder.reshaped(made, x.shape)


def _rows(node: OnnxNode, x: Value) -> tuple[Value, int]:
    """Returns the input and the axis along which to look; before opset 13 that is all axes from
    ``axis`` on, as one."""
    axis = node.integer("axis", -1 if node.version >= 13 else 1)
    if node.version >= 13:
        return x, node.axis(axis, max(len(x.shape), 1))
    return flattened(node, x, axis), 1


@operator("Softplus", follows=True)
def softplus(node: OnnxNode) -> Value:
    return rectified(node, node.input(0))


def rectified(node: OnnxNode, x: Value) -> Value:
    """Returns log(1 + exp(x)) as max(x, 0) plus a term of at most log(2)."""
    small = node.unary(Exp(), node.unary(Neg(), node.unary(Abs(), x)))
    return node.elementwise(Add(), node.unary(Relu(), x), log_of_1_plus(node, small))


def log_of_1_plus(node: OnnxNode, x: Value) -> Value:
    """Returns log(1 + x), accurate near 0: W. Kahan's quotient, in which errors cancel."""
    one = node.like(1, x)
    raised = node.elementwise(Add(), x, one)
    over = node.elementwise(Sub(), raised, one)
    gone = node.elementwise(Equal(), over, node.like(0, x))
    divisor = node.elementwise(Select(), gone, one, over)
    exact = node.elementwise(
        Div(), node.elementwise(Mul(), node.unary(Log(), raised), x), divisor
    )
    return node.elementwise(Select(), gone, x, exact)


@operator("Mish", follows=True)
def mish(node: OnnxNode) -> Value:
    x = node.input(0)
    return node.elementwise(Mul(), x, node.unary(Tanh(), rectified(node, x)))


def _exponential(node: OnnxNode, x: Value, inner: float, outer: float) -> Value:
    """Returns x for positive x, else outer * (exp(x / inner) - 1)."""
    negative = times(node, node.elementwise(Minimum(), x, node.like(0, x)), 1 / inner)
    return node.elementwise(
        Add(), node.unary(Relu(), x), times(node, node.unary(Elu(), negative), outer)
    )


@operator("Celu", follows=True)
def celu(node: OnnxNode) -> Value:
    alpha = node.real("alpha", 1.0)
    return _exponential(node, node.input(0), alpha, alpha)


@operator("Selu", follows=True)
def selu(node: OnnxNode) -> Value:
    alpha, gamma = node.real("alpha", 1.67326319217), node.real("gamma", 1.05070102214)
    return times(node, _exponential(node, node.input(0), 1.0, alpha), gamma)


@operator("Shrink", follows=True)
def shrink(node: OnnxNode) -> Value:
    """Returns 0 for values within ``lambd`` of 0; others move towards 0 by ``bias``."""
    bias, bound = node.real("bias", 0.0), node.real("lambd", 0.5)

    def shrunk(x: Value) -> Value:
        low = node.elementwise(Less(), x, node.like(-bound, x))
        high = node.elementwise(Greater(), x, node.like(bound, x))
        above = node.elementwise(Sub(), x, node.like(bias, x))
        below = node.elementwise(Add(), x, node.like(bias, x))
        upper = node.elementwise(Select(), high, above, node.like(0, x))
        return node.elementwise(Select(), low, below, upper)

    return computed(node, shrunk, (FLOAT, *WHOLE), node.input(0))


@operator("Sign", follows=True)
def sign(node: OnnxNode) -> Value:
    """Returns -1 or 1 by the sign; 0 and NaN stay what they are."""

    def signed(x: Value) -> Value:
        zero = node.like(0, x)
        negative = node.elementwise(Less(), x, zero)
        lower = node.elementwise(Select(), negative, node.like(-1, x), x)
        positive = node.elementwise(Greater(), x, zero)
        return node.elementwise(Select(), positive, node.like(1, x), lower)

    return computed(node, signed, (FLOAT, *WHOLE), node.input(0))


@operator("Hardmax", follows=True)
def hardmax(node: OnnxNode) -> Value:
    """Returns 1 at the first largest element of an axis, 0 elsewhere; before opset 13 of all axes
    from ``axis`` on."""
    x = node.input(0)
    rows, axis = _rows(node, x)
    tensor, order = node.builder.ordered(rows)
    place = order.index(axis)
    shape = node.type(tensor).shape
    (where,) = node.builder.emit(ArgMax(place), tensor, dtypes=(DType.INT32,))
    kept = (*shape[:place], 1, *shape[place + 1 :])
    found = stored(node.builder.reshape(where, kept), kept, order)
    sizes = [1] * len(shape)
    sizes[axis] = rows.shape[axis]
    numbers = node.constant(np.arange(sizes[axis]), DType.INT32, tuple(sizes))
    hot = node.elementwise(Equal(), numbers, found)
    return node.builder.reshaped(node.cast(hot, node.dtype(x)), x.shape)


@operator("SwiGLU", inputs=(2, 2), follows=True)
def swiglu(node: OnnxNode) -> Value:
    gate, x = node.all()
    return node.elementwise(Mul(), _swish(node, gate), x)
