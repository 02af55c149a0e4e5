"""Arithmetic of elements, with broadcasting."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.numbers import (
    FLOAT,
    WHOLE,
    clamped,
    clamped_bytes,
    combined,
    computed,
    operands,
    pairwise,
)
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import (
    Abs,
    Add,
    Ceil,
    Cos,
    Div,
    Exp,
    Floor,
    FloorMod,
    Less,
    Log,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Op,
    Pow,
    Round,
    Select,
    Sin,
    Sqrt,
    Square,
    Sub,
)
from crtexport.ir.types import DType

_NUMBERS = (FLOAT, *WHOLE)
_BINARY: Mapping[str, tuple[Op, tuple[DType, ...]]] = {
    "Add": (Add(), _NUMBERS), "Sub": (Sub(), _NUMBERS), "Mul": (Mul(), _NUMBERS),
    "Div": (Div(), _NUMBERS),
}


@operator(*_BINARY, inputs=(2, 2), follows=True)
def binary(node: OnnxNode) -> Value:
    op, supported = _BINARY[node.info.operator]
    return pairwise(node, op, supported, *operands(node))


_UNARY: Mapping[str, Op] = {
    "Ceil": Ceil(), "Cos": Cos(), "Exp": Exp(), "Floor": Floor(), "Log": Log(), "Round": Round(),
    "Sin": Sin(), "Sqrt": Sqrt(),
}


@operator(*_UNARY, follows=True)
def unary(node: OnnxNode) -> Value:
    return node.unary(_UNARY[node.info.operator], node.input(0))


@operator("Neg", follows=True)
def neg(node: OnnxNode) -> Value:
    return computed(node, lambda x: node.unary(Neg(), x), _NUMBERS, node.input(0))


@operator("Abs", follows=True)
def absolute(node: OnnxNode) -> Value:
    x = node.input(0)
    if node.dtype(x) in (DType.UINT8, DType.UINT16, DType.UINT32, DType.BOOL):
        return x
    if node.dtype(x) is DType.INT64:
        return node.elementwise(Maximum(), x, node.unary(Neg(), x))
    return computed(node, lambda y: node.unary(Abs(), y), (FLOAT, DType.INT32), x)


@operator("Reciprocal", follows=True)
def reciprocal(node: OnnxNode) -> Value:
    x = node.input(0)
    return node.elementwise(Div(), node.like(1, x), x)


_EXTREME: Mapping[str, Op] = {"Max": Maximum(), "Min": Minimum()}


@operator(*_EXTREME, inputs=(1, None), follows=True)
def extreme(node: OnnxNode) -> Value:
    op = _EXTREME[node.info.operator]
    return reduce(lambda a, b: pairwise(node, op, _NUMBERS, a, b), node.all())


@operator("Sum", inputs=(1, None), follows=True)
def total(node: OnnxNode) -> Value:
    return reduce(lambda a, b: pairwise(node, Add(), _NUMBERS, a, b), node.all())


@operator("Mean", inputs=(1, None), follows=True)
def mean(node: OnnxNode) -> Value:
    values = node.all()
    if len(values) == 1:
        return values[0]
    whole = combined(node, Add(), values)
    return node.elementwise(Div(), whole, node.like(len(values), whole))


@operator("Mod", inputs=(2, 2), follows=True)
def modulo(node: OnnxNode) -> Value:
    """Returns the remainder: with ``fmod`` it has the sign of the dividend, as in C, else that of
    the divisor."""
    a, b = node.all()
    if not node.integer("fmod", 0):
        return pairwise(node, FloorMod(), _NUMBERS, a, b)
    if node.dtype(a).is_float:
        # The remainder of magnitudes, which is exact, with the dividend's sign.
        whole = node.elementwise(FloorMod(), node.unary(Abs(), a), node.unary(Abs(), b))
        negative = node.elementwise(Less(), a, node.like(0, a))
        return node.elementwise(Select(), negative, node.unary(Neg(), whole), whole)

    def remainder(x: Value, y: Value) -> Value:
        quotient = node.elementwise(Div(), x, y)
        return node.elementwise(Sub(), x, node.elementwise(Mul(), quotient, y))

    return computed(node, remainder, WHOLE, a, b)


_POWERS: Mapping[float, tuple[Op, ...]] = {
    0.5: (Sqrt(),), 1.0: (), 2.0: (Square(),), 4.0: (Square(), Square()),
}


@operator("Pow", inputs=(2, 2), follows=True)
def power(node: OnnxNode) -> Value:
    """Returns powers in the base's type; constant float exponents become roots and products if
    possible."""
    x, exponent = operands(node)
    if node.dtype(x) is FLOAT and node.builder.is_constant(exponent) and exponent.elements == 1:
        value = float(node.array(exponent, "the exponent").reshape(()))
        if value == 3:
            return node.elementwise(Mul(), node.unary(Square(), x), x)
        if value == -1:
            return node.elementwise(Div(), node.like(1, x), x)
        if value in _POWERS:
            return reduce(lambda y, op: node.unary(op, y), _POWERS[value], x)
    dtype = node.dtype(x)
    if FLOAT in (dtype, node.dtype(exponent)):
        made = node.elementwise(Pow(), node.cast(x, FLOAT), node.cast(exponent, FLOAT))
        return node.cast(made, dtype)
    work = DType.INT64 if DType.INT64 in (dtype, node.dtype(exponent)) else DType.INT32
    return node.cast(
        node.elementwise(Pow(), node.cast(x, work), node.cast(exponent, work)), dtype
    )


@operator("Clip", inputs=(1, 3), follows=True)
def clip(node: OnnxNode) -> Value:
    x = node.input(0)
    if node.version < 11:
        low: float | None = node.real("min") if node.has("min") else None
        high: float | None = node.real("max") if node.has("max") else None
        return clamped(node, x, low, high)
    bounds = [node.optional(1), node.optional(2)]
    if all(bound is None or node.builder.is_constant(bound) for bound in bounds):
        low, high = (
            None if node.optional(i) is None else node.number(i, "the bound") for i in (1, 2)
        )
        if node.dtype(x) in (DType.INT8, DType.UINT8) and not node.builder.is_constant(x):
            return clamped_bytes(node, x, low, high)
        return clamped(node, x, low, high)
    ends: tuple[Op, Op] = (Maximum(), Minimum())
    for bound, op in zip(bounds, ends, strict=True):
        if bound is not None:
            x = pairwise(node, op, _NUMBERS, x, bound)
    return x
