"""Elementwise operators of two or three inputs, and pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.differential.draw import (
    SCALED,
    Array,
    Case,
    Draw,
    activation,
    geometry,
    quantization,
    same_or_valid,
    scale,
    values,
)
from tests.tflite_builder import ModelBuilder

Quant = dict[str, Any]
Operand = tuple[Sequence[int], Quant, Array]

NUMBERS = ("float32", "int8", "uint8", "int16", "int32", "int64")
WHOLE = ("int32", "int64")


def _pool(draw: Draw, code: str, dtype: str) -> Case:
    size, window, stride, dilation, padding, out = geometry(draw)
    del dilation
    out = [same_or_valid(s, w, t, 1, padding) for s, w, t in zip(size, window, stride, strict=True)]
    batch, channels = draw.integer(1, 2), draw.integer(1, 5)
    q = quantization(draw, dtype)
    m = ModelBuilder()
    shape = (batch, *size, channels)
    x = m.tensor("x", shape, dtype, **q)
    y = m.tensor("y", (batch, *out, channels), dtype, **q)
    m.op(
        code, [x], [y], padding=padding, stride=tuple(stride), window=tuple(window),
        activation=activation(draw),
    )
    return Case(m.build([x], [y]), (values(draw, shape, dtype),))


def average_pool_2d(draw: Draw, dtype: str) -> Case:
    return _pool(draw, "AVERAGE_POOL_2D", dtype)


def max_pool_2d(draw: Draw, dtype: str) -> Case:
    return _pool(draw, "MAX_POOL_2D", dtype)


def l2_pool_2d(draw: Draw, dtype: str) -> Case:
    return _pool(draw, "L2_POOL_2D", dtype)


def _shapes(draw: Draw, count: int) -> list[list[int]]:
    """Shapes that broadcast."""
    rank = draw.integer(1, 4)
    shapes = [[draw.integer(1, 4) for _ in range(rank)]] * count
    shapes = [list(shape) for shape in shapes]
    for axis in range(rank):
        which = draw.choice([None, None, *range(count)])
        if which is not None:
            shapes[which][axis] = 1
    if draw.choice([True, False, False]) and rank > 1:
        shapes[-1] = shapes[-1][1:]
    return shapes


def _operands(draw: Draw, dtype: str) -> list[Operand]:
    return [
        (shape, quantization(draw, dtype), values(draw, shape, dtype))
        for shape in _shapes(draw, 2)
    ]


def _network(
    code: str, operands: Sequence[Operand], result: str, quant: Quant, **options: Any
) -> Case:
    m = ModelBuilder()
    inputs = [
        m.tensor(f"x{i}", shape, data.dtype.name, **q)
        for i, (shape, q, data) in enumerate(operands)
    ]
    out = np.broadcast_shapes(*(tuple(shape) for shape, _, _ in operands))
    y = m.tensor("y", out, result, **quant)
    m.op(code, inputs, [y], **options)
    return Case(m.build(inputs, [y]), tuple(data for _, _, data in operands))


def _sum(draw: Draw, code: str, dtype: str) -> Case:
    options = {"activation": activation(draw)}
    if dtype != "int16":
        return _network(
            code, _operands(draw, dtype), dtype, quantization(draw, dtype), **options
        )
    if draw.choice([True, False]):
        return _network(
            code, _operands(draw, dtype), dtype, quantization(draw, dtype),
            pot_scale_int16=False, **options,
        )
    # One operand on the scale of the result, the other on a finer one; the runtime's ADD can't
    # broadcast them.
    shape = _shapes(draw, 1)[0]
    whole = 2.0 ** draw.integer(-8, 0)
    scales = [whole, whole * 2.0 ** -draw.integer(0, 6)][:: draw.choice([1, -1])]
    operands: list[Operand] = [
        (shape, {"scale": s, "zero_point": 0}, values(draw, shape, dtype)) for s in scales
    ]
    quant = {"scale": whole, "zero_point": 0}
    return _network(code, operands, dtype, quant, pot_scale_int16=True, **options)


def add(draw: Draw, dtype: str) -> Case:
    return _sum(draw, "ADD", dtype)


def sub(draw: Draw, dtype: str) -> Case:
    return _sum(draw, "SUB", dtype)


def mul(draw: Draw, dtype: str) -> Case:
    clamp = "NONE" if dtype == "uint32" else activation(draw)
    return _network(
        "MUL", _operands(draw, dtype), dtype, quantization(draw, dtype), activation=clamp
    )


def _divisible(dtype: str, operands: list[Operand]) -> list[Operand]:
    """With divisors that the runtime survives: none that are 0, nor -1 for what is as small as it
    gets."""
    shape, quant, divisors = operands[1]
    if dtype == "float32":
        divisors = divisors + np.copysign(np.float32(0.25), divisors)
    else:
        zero = quant.get("zero_point", 0)
        divisors = np.where(divisors == zero, zero + (1 if zero < 100 else -1), divisors)
        if dtype in WHOLE:
            divisors = np.where(divisors == -1, -2, divisors)
    return [operands[0], (shape, quant, divisors.astype(dtype))]


def div(draw: Draw, dtype: str) -> Case:
    operands = _divisible(dtype, _operands(draw, dtype))
    quant = quantization(draw, dtype)
    if quant:
        # The runtime's shifts are defined for quotients that are no small part of the result.
        ratio = operands[0][1]["scale"] / operands[1][1]["scale"]
        quant["scale"] = float(np.float32(ratio / draw.integer(65, 4000)))
    return _network("DIV", operands, dtype, quant, activation=activation(draw))


def _stored(draw: Draw, dtype: str) -> list[Operand]:
    """Operands whose scales don't matter."""
    return [(shape, {}, data) for shape, _, data in _operands(draw, dtype)]


def floor_div(draw: Draw, dtype: str) -> Case:
    return _network("FLOOR_DIV", _divisible(dtype, _stored(draw, dtype)), dtype, {})


def floor_mod(draw: Draw, dtype: str) -> Case:
    return _network("FLOOR_MOD", _divisible(dtype, _stored(draw, dtype)), dtype, {})


def maximum(draw: Draw, dtype: str) -> Case:
    return _network("MAXIMUM", _operands(draw, dtype), dtype, quantization(draw, dtype))


def minimum(draw: Draw, dtype: str) -> Case:
    return _network("MINIMUM", _operands(draw, dtype), dtype, quantization(draw, dtype))


def squared_difference(draw: Draw, dtype: str) -> Case:
    operands = _operands(draw, dtype)
    quant = quantization(draw, dtype)
    if quant:
        # The runtime takes multipliers below 1.
        largest = max(q["scale"] for _, q, _ in operands)
        quant["scale"] = float(np.float32(max(quant["scale"], largest**2 / 4000)))
    return _network("SQUARED_DIFFERENCE", operands, dtype, quant)


def pow_(draw: Draw, dtype: str) -> Case:
    """Positive numbers, or any with whole exponents; half of the exponents are one constant."""
    first, second = _shapes(draw, 2)
    x = np.abs(values(draw, first, dtype)) + np.float32(0.1)
    if draw.choice([True, False]):
        exponent = draw.choice([1.0, 2.0, 3.0, 0.5, -0.5, -1.0, 1.7])
        if exponent in (1.0, 2.0, 3.0, -1.0):
            x = x * np.where(values(draw, first, dtype) < 0, -1, 1)
        m = ModelBuilder()
        base = m.tensor("x", first, dtype)
        y = m.tensor("y", (), dtype, data=exponent)
        z = m.tensor("z", first, dtype)
        m.op("POW", [base, y], [z], version=1)
        return Case(m.build([base], [z]), (x.astype(dtype),))
    exponents = np.clip(values(draw, second, dtype), -3, 3)
    if draw.choice([True, False]):
        exponents = np.round(exponents)
        x = x * np.where(values(draw, first, dtype) < 0, -1, 1)
    operands: list[Operand] = [(first, {}, x.astype(dtype)), (second, {}, exponents)]
    return _network("POW", operands, dtype, {})


def add_n(draw: Draw, dtype: str) -> Case:
    shape, quant = _shapes(draw, 1)[0], quantization(draw, dtype)
    operands: list[Operand] = [
        (shape, quant, values(draw, shape, dtype)) for _ in range(draw.integer(2, 4))
    ]
    return _network("ADD_N", operands, dtype, quantization(draw, dtype))


def _comparison(draw: Draw, code: str, dtype: str) -> Case:
    shapes = _shapes(draw, 2)
    quants = [quantization(draw, dtype) for _ in shapes]
    for quant in quants:
        if quant:
            quant["scale"] = min(scale(draw), 0.999)
    if dtype == "int16" or draw.choice([True, False]):
        quants[1] = quants[0]
    data = [values(draw, shape, dtype) for shape in shapes]
    if draw.choice([True, False]) and dtype != "bool":
        # Near each other, so that some are equal.
        data = [np.clip(np.round(d), 0, 2).astype(dtype) for d in data]
    return _network(code, list(zip(shapes, quants, data, strict=True)), "bool", {})


def equal(draw: Draw, dtype: str) -> Case:
    return _comparison(draw, "EQUAL", dtype)


def not_equal(draw: Draw, dtype: str) -> Case:
    return _comparison(draw, "NOT_EQUAL", dtype)


def greater(draw: Draw, dtype: str) -> Case:
    return _comparison(draw, "GREATER", dtype)


def greater_equal(draw: Draw, dtype: str) -> Case:
    return _comparison(draw, "GREATER_EQUAL", dtype)


def less(draw: Draw, dtype: str) -> Case:
    return _comparison(draw, "LESS", dtype)


def less_equal(draw: Draw, dtype: str) -> Case:
    return _comparison(draw, "LESS_EQUAL", dtype)


def logical_and(draw: Draw, dtype: str) -> Case:
    return _network("LOGICAL_AND", _operands(draw, dtype), dtype, {})


def logical_or(draw: Draw, dtype: str) -> Case:
    return _network("LOGICAL_OR", _operands(draw, dtype), dtype, {})


def logical_not(draw: Draw, dtype: str) -> Case:
    return _network("LOGICAL_NOT", _operands(draw, dtype)[:1], dtype, {})


def select(draw: Draw, dtype: str) -> Case:
    codes = ["SELECT_V2", "SELECT"] if dtype != "bool" else ["SELECT_V2"]
    code = draw.choice(codes)
    shapes = _shapes(draw, 3)
    if code == "SELECT":
        whole = shapes[1]
        shapes = [draw.choice([whole, whole[:1]]), whole, whole]
    q = quantization(draw, dtype)
    data = [values(draw, shape, t) for shape, t in zip(shapes, ("bool", dtype, dtype), strict=True)]
    m = ModelBuilder()
    inputs = [
        m.tensor(f"x{i}", shape, d.dtype.name, **(q if i else {}))
        for i, (shape, d) in enumerate(zip(shapes, data, strict=True))
    ]
    out = shapes[1] if code == "SELECT" else np.broadcast_shapes(*map(tuple, shapes))
    y = m.tensor("y", out, dtype, **q)
    m.op(code, inputs, [y])
    return Case(m.build(inputs, [y]), tuple(data))


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__: f
    for f in (
        average_pool_2d, max_pool_2d, l2_pool_2d, add, sub, mul, div, floor_div, floor_mod,
        maximum, minimum, squared_difference, pow_, add_n, equal, not_equal, greater, greater_equal,
        less, less_equal, logical_and, logical_or, logical_not, select,
    )
}

_WITHOUT_INT16 = tuple(d for d in NUMBERS if d != "int16")

DTYPES: dict[str, tuple[str, ...]] = {
    "average_pool_2d": ("float32", *SCALED),
    "max_pool_2d": ("float32", *SCALED),
    "l2_pool_2d": ("float32",),
    "add": NUMBERS,
    "sub": NUMBERS,
    "mul": (*NUMBERS, "uint32"),
    "div": ("float32", "uint8", "int32"),
    "floor_div": ("float32", "int8", "int16", "int32"),
    "floor_mod": ("float32", "int8", "int16", "int32", "int64"),
    "maximum": NUMBERS,
    "minimum": NUMBERS,
    "squared_difference": ("float32", "int8", "int32"),
    "add_n": ("float32", "int32"), "pow_": ("float32",),
    "equal": (*NUMBERS, "bool"),
    "not_equal": (*_WITHOUT_INT16, "bool"),
    "greater": _WITHOUT_INT16,
    "greater_equal": _WITHOUT_INT16,
    "less": NUMBERS,
    "less_equal": _WITHOUT_INT16,
    "logical_and": ("bool",),
    "logical_or": ("bool",),
    "logical_not": ("bool",),
    "select": (*NUMBERS, "uint32", "bool"),
}
"""The element types that the reference takes."""
