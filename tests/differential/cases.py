"""Single-operator networks with drawn shapes, options, scales and zero points, one per operator.

Each case is a function of a :class:`Draw` and an element type, and gives a .tflite file and inputs
for it. Families of their own: ``cases_<family>.py``, with ``CASES`` and ``DTYPES`` merged here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential import cases_reduce, cases_weighted
from tests.differential.draw import (
    Array,
    Case,
    Draw,
    SeededDraw,
    activation,
    geometry,
    quantization,
    same_or_valid,
    scale,
    values,
    zero,
)
from tests.tflite_builder import ModelBuilder

__all__ = ["CASES", "DTYPES", "PAIRS", "Array", "Case", "Draw", "SeededDraw"]


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


def _binary(draw: Draw, code: str, dtype: str) -> Case:
    rank = draw.integer(1, 4)
    shape = [draw.integer(1, 4) for _ in range(rank)]
    first, second = list(shape), list(shape)
    for axis in range(rank):
        which = draw.choice([None, None, first, second])
        if which is not None:
            which[axis] = 1
    if draw.choice([True, False, False]) and rank > 1:
        second = second[1:]
    m = ModelBuilder()
    a = m.tensor("a", first, dtype, **quantization(draw, dtype))
    b = m.tensor("b", second, dtype, **quantization(draw, dtype))
    out = np.broadcast_shapes(tuple(first), tuple(second))
    y = m.tensor("y", out, dtype, **quantization(draw, dtype))
    m.op(code, [a, b], [y], activation=activation(draw))
    return Case(m.build([a, b], [y]), (values(draw, first, dtype), values(draw, second, dtype)))


def add(draw: Draw, dtype: str) -> Case:
    return _binary(draw, "ADD", dtype)


def sub(draw: Draw, dtype: str) -> Case:
    return _binary(draw, "SUB", dtype)


def mul(draw: Draw, dtype: str) -> Case:
    return _binary(draw, "MUL", dtype)


def reshape(draw: Draw, dtype: str) -> Case:
    a, b, c = (draw.integer(1, 4) for _ in range(3))
    q = quantization(draw, dtype)
    m = ModelBuilder()
    x = m.tensor("x", (a, b, c), dtype, **q)
    shape = m.tensor("shape", (2,), "int32", data=[a, b * c])
    y = m.tensor("y", (a, b * c), dtype, **q)
    m.op("RESHAPE", [x, shape], [y])
    return Case(m.build([x], [y]), (values(draw, (a, b, c), dtype),))


def pad(draw: Draw, dtype: str) -> Case:
    rank = draw.integer(1, 4)
    shape = [draw.integer(1, 4) for _ in range(rank)]
    frame = [[draw.integer(0, 2), draw.integer(0, 2)] for _ in range(rank)]
    q = quantization(draw, dtype)
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **q)
    paddings = m.tensor("paddings", (rank, 2), "int32", data=frame)
    out = [n + before + after for n, (before, after) in zip(shape, frame, strict=True)]
    y = m.tensor("y", out, dtype, **q)
    m.op("PAD", [x, paddings], [y])
    return Case(m.build([x], [y]), (values(draw, shape, dtype),))


def concatenation(draw: Draw, dtype: str) -> Case:
    rank, count = draw.integer(1, 4), draw.integer(1, 3)
    axis = draw.integer(0, rank - 1)
    base = [draw.integer(1, 4) for _ in range(rank)]
    extents = [draw.integer(1, 4) for _ in range(count)]
    shapes = [[n if a != axis else e for a, n in enumerate(base)] for e in extents]
    out = [n if a != axis else sum(extents) for a, n in enumerate(base)]
    q = quantization(draw, dtype)
    m = ModelBuilder()
    inputs = [m.tensor(f"x{i}", s, dtype, **q) for i, s in enumerate(shapes)]
    y = m.tensor("y", out, dtype, **q)
    m.op("CONCATENATION", inputs, [y], axis=draw.choice([axis, axis - rank]))
    return Case(m.build(inputs, [y]), tuple(values(draw, s, dtype) for s in shapes))


def softmax(draw: Draw, dtype: str) -> Case:
    shape = [draw.integer(1, 3) for _ in range(draw.integer(0, 3))] + [draw.integer(1, 12)]
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **quantization(draw, dtype))
    qy = {} if dtype == "float32" else {"scale": 1 / 256, "zero_point": -128}
    y = m.tensor("y", shape, dtype, **qy)
    m.op("SOFTMAX", [x], [y], beta=float(draw.choice([1.0, 0.5])))
    return Case(m.build([x], [y]), (values(draw, shape, dtype),))


def _unary(draw: Draw, code: str, dtype: str, out: dict[str, Any] | None = None) -> Case:
    shape = [draw.integer(1, 5) for _ in range(draw.integer(1, 4))]
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **quantization(draw, dtype))
    qy = quantization(draw, dtype) if out is None or dtype == "float32" else out
    y = m.tensor("y", shape, dtype, **qy)
    m.op(code, [x], [y])
    return Case(m.build([x], [y]), (values(draw, shape, dtype),))


def logistic(draw: Draw, dtype: str) -> Case:
    return _unary(draw, "LOGISTIC", dtype, {"scale": 1 / 256, "zero_point": -128})


def tanh(draw: Draw, dtype: str) -> Case:
    return _unary(draw, "TANH", dtype, {"scale": 1 / 128, "zero_point": 0})


def relu(draw: Draw, dtype: str) -> Case:
    return _unary(draw, "RELU", dtype)


def relu6(draw: Draw, dtype: str) -> Case:
    return _unary(draw, "RELU6", dtype)


def quantize(draw: Draw, dtype: str) -> Case:
    """``dtype`` is the input's."""
    shape = [draw.integer(1, 5) for _ in range(draw.integer(1, 4))]
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **quantization(draw, dtype))
    y = m.tensor("y", shape, "int8", **quantization(draw, "int8"))
    m.op("QUANTIZE", [x], [y])
    return Case(m.build([x], [y]), (values(draw, shape, dtype),))


def dequantize(draw: Draw, dtype: str) -> Case:
    """``dtype`` is the input's, unless it is float32: then uint8."""
    source = "uint8" if dtype == "float32" else dtype
    shape = [draw.integer(1, 5) for _ in range(draw.integer(1, 4))]
    m = ModelBuilder()
    zero_point = draw.integer(0, 255) if source == "uint8" else zero(draw)
    x = m.tensor("x", shape, source, scale=scale(draw), zero_point=zero_point)
    y = m.tensor("y", shape, "float32")
    m.op("DEQUANTIZE", [x], [y])
    return Case(m.build([x], [y]), (values(draw, shape, source),))


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__: f
    for f in (
        average_pool_2d, max_pool_2d, add, sub, mul, reshape, pad, concatenation, softmax,
        logistic, tanh, relu, relu6, quantize, dequantize,
    )
}
CASES |= cases_reduce.CASES
CASES |= cases_weighted.CASES

DTYPES: dict[str, tuple[str, ...]] = {**cases_reduce.DTYPES, **cases_weighted.DTYPES}
"""The element types that a case is made for, where they aren't int8 and float32."""

PAIRS = [(name, dtype) for name in CASES for dtype in DTYPES.get(name, ("int8", "float32"))]
"""Every case with every element type."""
