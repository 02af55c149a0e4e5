"""Convolutions and matrix products with drawn shapes, weights and scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.draw import (
    Array,
    Case,
    Draw,
    activation,
    geometry,
    quantization,
    values,
)
from tests.tflite_builder import ModelBuilder

Quant = dict[str, Any]

WEIGHTS = {"float32": "float32", "int8": "int8", "uint8": "uint8", "int16": "int8"}
"""The element type of the weights that go with an input's."""


def _weight_scale(draw: Draw, x: float, y: float) -> float:
    """Around what makes an output use its range; now and then with a multiplier above 1."""
    return float(np.float32(y / x * draw.integer(1, 400) / draw.choice([4000, 4000, 30])))


def weight_quantization(
    draw: Draw, dtype: str, channels: int, axis: int, qx: Quant, qy: Quant
) -> Quant:
    """One scale, or one per channel where weights of ``dtype`` can have them."""
    if dtype == "float32":
        return {}
    many = draw.choice([False, True]) and dtype == "int8" and channels > 1
    count = channels if many else 1
    scales = [_weight_scale(draw, qx["scale"], qy["scale"]) for _ in range(count)]
    if dtype == "uint8":
        return {"scale": scales, "zero_point": draw.choice([0, 255, 128, draw.integer(0, 255)])}
    return {"scale": scales, "axis": axis} if many else {"scale": scales}


def weights_of(draw: Draw, shape: tuple[int, ...], dtype: str) -> Array:
    """Weights; int8 ones are symmetric."""
    drawn = values(draw, shape, dtype)
    return np.maximum(drawn, -127) if dtype == "int8" else drawn


def bias(
    draw: Draw, m: ModelBuilder, units: int, dtype: str, qx: Quant, qw: Quant,
    *, needed: bool = False, short: bool = True,
) -> list[int]:
    """The tensor number of a bias, or nothing; ``short``: int16 networks may have an int32 bias."""
    if not needed and not draw.choice([True, True, False]):
        return []
    if dtype == "float32":
        return [m.tensor("b", (units,), "float32", data=values(draw, (units,), "float32"))]
    stored = "int32"
    if dtype == "int16":
        stored = draw.choice(["int64", "int64", "int32"]) if short else "int64"
    reach = draw.choice([20000, 20000, 1 << 34 if stored == "int64" else 1 << 30])
    data = np.array([draw.integer(-reach, reach) for _ in range(units)])
    scales = [qx["scale"] * s for s in np.atleast_1d(qw["scale"])]
    return [m.tensor("b", (units,), stored, data=data, scale=scales, axis=0)]


def conv_2d(draw: Draw, dtype: str) -> Case:
    size, window, stride, dilation, padding, out = geometry(draw)
    batch, groups = draw.integer(1, 2), draw.choice([1, 1, 1, 2, 3])
    depth, units = draw.integer(1, 5 if groups == 1 else 2), groups * draw.integer(1, 6 // groups)
    return _convolution(
        draw, "CONV_2D", dtype, (batch, *size, groups * depth), (units, *window, depth),
        (batch, *out, units), padding=padding, stride=tuple(stride), dilation=tuple(dilation),
    )


def depthwise_conv_2d(draw: Draw, dtype: str) -> Case:
    size, window, stride, dilation, padding, out = geometry(draw)
    batch, channels = draw.integer(1, 2), draw.integer(1, 5)
    units = channels * draw.integer(1, 3)
    return _convolution(
        draw, "DEPTHWISE_CONV_2D", dtype, (batch, *size, channels), (1, *window, units),
        (batch, *out, units), padding=padding, stride=tuple(stride), dilation=tuple(dilation),
    )


def _convolution(
    draw: Draw, code: str, dtype: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...],
    y_shape: tuple[int, ...], **options: Any,
) -> Case:
    depthwise = code == "DEPTHWISE_CONV_2D"
    axis, units = (3 if depthwise else 0), y_shape[3]
    m = ModelBuilder()
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    qw = weight_quantization(draw, WEIGHTS[dtype], units, axis, qx, qy)
    x = m.tensor("x", x_shape, dtype, **qx)
    data = weights_of(draw, w_shape, WEIGHTS[dtype])
    w = m.tensor("w", w_shape, WEIGHTS[dtype], data=data, **qw)
    # The runtime's CONV_2D wants a bias; the others take none.
    b = bias(draw, m, units, dtype, qx, qw, needed=not depthwise, short=not depthwise)
    y = m.tensor("y", y_shape, dtype, **qy)
    m.op(code, [x, w, *b], [y], activation=activation(draw), **options)
    return Case(m.build([x], [y]), (values(draw, x_shape, dtype),))


def fully_connected(draw: Draw, dtype: str) -> Case:
    rows, depth, units = draw.integer(1, 3), draw.integer(1, 40), draw.integer(1, 7)
    m = ModelBuilder()
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    qw = weight_quantization(draw, WEIGHTS[dtype], units, 0, qx, qy)
    if dtype in ("int8", "int16") and len(qw["scale"]) == 1:
        qw["zero_point"] = draw.choice([0, 0, 5, -128])
    x = m.tensor("x", (rows, depth), dtype, **qx)
    data = weights_of(draw, (units, depth), WEIGHTS[dtype])
    w = m.tensor("w", (units, depth), WEIGHTS[dtype], data=data, **qw)
    inputs = [x, w, *bias(draw, m, units, dtype, qx, qw)]
    y = m.tensor("y", (rows, units), dtype, **qy)
    m.op("FULLY_CONNECTED", inputs, [y], activation=activation(draw))
    return Case(m.build([x], [y]), (values(draw, (rows, depth), dtype),))


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__: f for f in (conv_2d, depthwise_conv_2d, fully_connected)
}

_ALL = ("int8", "float32", "uint8", "int16")
DTYPES: dict[str, tuple[str, ...]] = dict.fromkeys(CASES, _ALL)
