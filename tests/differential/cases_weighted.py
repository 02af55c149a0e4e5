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
    same_or_valid,
    values,
)
from tests.tflite_builder import ModelBuilder

Quant = dict[str, Any]

WEIGHTS = {"float32": "float32", "int8": "int8", "uint8": "uint8", "int16": "int8"}
"""The element type of the weights that go with an input's."""


def weights_type(draw: Draw, dtype: str) -> str:
    """That, or int4 under int8 inputs, where the runtime unpacks them too."""
    return "int4" if dtype == "int8" and draw.choice([True, False, False]) else WEIGHTS[dtype]


def _weight_scale(draw: Draw, x: float, y: float) -> float:
    """Around what makes an output use its range; now and then with a multiplier above 1."""
    return float(np.float32(y / x * draw.integer(1, 400) / draw.choice([4000, 4000, 30])))


def weight_quantization(
    draw: Draw, dtype: str, channels: int, axis: int, qx: Quant, qy: Quant
) -> Quant:
    """One scale, or one per channel where weights of ``dtype`` can have them."""
    if dtype == "float32":
        return {}
    many = draw.choice([False, True]) and dtype in ("int8", "int4") and channels > 1
    count = channels if many else 1
    scales = [_weight_scale(draw, qx["scale"], qy["scale"]) for _ in range(count)]
    if dtype == "uint8":
        return {"scale": scales, "zero_point": draw.choice([0, 255, 128, draw.integer(0, 255)])}
    return {"scale": scales, "axis": axis} if many else {"scale": scales}


def weights_of(draw: Draw, shape: tuple[int, ...], dtype: str) -> Array:
    """Weights; int8 and int4 ones are symmetric."""
    if dtype == "int4":
        return np.maximum(values(draw, shape, "int8") // 16, -7)
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


def conv_3d(draw: Draw, dtype: str) -> Case:
    size, window, stride, dilation, padding, out = geometry(draw)
    taps, step, apart = draw.integer(1, 3), draw.integer(1, 2), draw.choice([1, 1, 2])
    least = (taps - 1) * apart + 1 if padding == "VALID" else 1
    planes = least + draw.integer(0, 3)
    x_shape = (draw.integer(1, 2), planes, *size, draw.integer(1, 3))
    w_shape = (taps, *window, x_shape[4], draw.integer(1, 4))
    depth = same_or_valid(planes, taps, step, apart, padding)
    m = ModelBuilder()
    x = m.tensor("x", x_shape, dtype)
    w = m.tensor("w", w_shape, dtype, data=values(draw, w_shape, dtype))
    b = m.tensor("b", w_shape[4:], dtype, data=values(draw, w_shape[4:], dtype))
    y = m.tensor("y", (x_shape[0], depth, *out, w_shape[4]), dtype)
    m.op(
        "CONV_3D", [x, w, *draw.choice([[b], []])], [y], version=1, activation=activation(draw),
        padding=padding, stride=tuple(stride), dilation=tuple(dilation), stride_d=step,
        dilation_d_factor=apart,
    )
    return Case(m.build([x], [y]), (values(draw, x_shape, dtype),))


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
    stored = weights_type(draw, dtype)
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    qw = weight_quantization(draw, stored, units, axis, qx, qy)
    x = m.tensor("x", x_shape, dtype, **qx)
    w = m.tensor("w", w_shape, stored, data=weights_of(draw, w_shape, stored), **qw)
    # The runtime's CONV_2D wants a bias; the others take none.
    b = bias(draw, m, units, dtype, qx, qw, needed=not depthwise, short=not depthwise)
    y = m.tensor("y", y_shape, dtype, **qy)
    m.op(code, [x, w, *b], [y], activation=activation(draw), **options)
    return Case(m.build([x], [y]), (values(draw, x_shape, dtype),))


def fully_connected(draw: Draw, dtype: str) -> Case:
    """A third of them with weights that are an input of the network, as in attention."""
    rows, depth, units = draw.integer(1, 5), draw.integer(1, 40), draw.integer(1, 7)
    m = ModelBuilder()
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    computed = draw.choice([True, False, False])
    stored = WEIGHTS[dtype] if computed else weights_type(draw, dtype)
    # The runtime has no int4 weights with several scales here.
    single = computed or stored == "int4"
    qw = weight_quantization(draw, stored, 1 if single else units, 0, qx, qy)
    if stored == "int8" and len(qw["scale"]) == 1:
        qw["zero_point"] = draw.choice([0, 0, 5, -128])
    x = m.tensor("x", (rows, depth), dtype, **qx)
    data = weights_of(draw, (units, depth), stored)
    w = m.tensor("w", (units, depth), stored, data=None if computed else data, **qw)
    inputs = [x, w, *bias(draw, m, units, dtype, qx, qw)]
    y = m.tensor("y", (rows, units), dtype, **qy)
    m.op("FULLY_CONNECTED", inputs, [y], activation=activation(draw))
    given = values(draw, (rows, depth), dtype)
    if computed:
        return Case(m.build([x, w], [y]), (given, data))
    return Case(m.build([x], [y]), (given,))


def transpose_conv_2d(draw: Draw, dtype: str) -> Case:
    size = [draw.integer(1, 5), draw.integer(1, 4)]
    window, stride = [draw.integer(1, 4), draw.integer(1, 3)], [draw.integer(1, 3) for _ in "yx"]
    padding = draw.choice(["SAME", "VALID"])
    # An output may be so large that its last cells are reached by no input.
    least = [(n - 1) * s + 1 for n, s in zip(size, stride, strict=True)]
    if padding == "VALID":
        least = [n + w - 1 for n, w in zip(least, window, strict=True)]
    out = [n + draw.integer(0, s - 1) for n, s in zip(least, stride, strict=True)]
    batch, depth, units = draw.integer(1, 2), draw.integer(1, 4), draw.integer(1, 5)
    m = ModelBuilder()
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    qw = weight_quantization(draw, WEIGHTS[dtype], units, 0, qx, qy)
    sizes = np.array([batch, *out, units], np.int32)
    computed = draw.choice([False, False, True])
    shape = m.tensor("shape", (4,), "int32", data=None if computed else sizes)
    w_shape = (units, *window, depth)
    data = weights_of(draw, w_shape, WEIGHTS[dtype])
    w = m.tensor("w", w_shape, WEIGHTS[dtype], data=data, **qw)
    x = m.tensor("x", (batch, *size, depth), dtype, **qx)
    b = bias(draw, m, units, dtype, qx, qw)
    y = m.tensor("y", (batch, *out, units), dtype, **qy)
    m.op(
        "TRANSPOSE_CONV", [shape, w, x, *b], [y], padding=padding, stride=tuple(stride),
        activation=activation(draw),
    )
    data = values(draw, (batch, *size, depth), dtype)
    if computed:
        return Case(m.build([shape, x], [y]), (sizes, data))
    return Case(m.build([x], [y]), (data,))


def batch_matmul(draw: Draw, dtype: str) -> Case:
    rows, depth, columns = draw.integer(1, 4), draw.integer(1, 9), draw.integer(1, 4)
    adjoint = {"adj_x": draw.choice([False, True]), "adj_y": draw.choice([False, True])}
    batch = [draw.integer(1, 3) for _ in range(draw.integer(0, 3))]
    left = [draw.choice([1, n, n]) for n in batch]
    right = [n if a == 1 else draw.choice([1, n, n]) for a, n in zip(left, batch, strict=True)]
    if draw.choice([True, False, False]):
        right = right[draw.integer(0, len(right)) :]
        out = list(np.broadcast_shapes(tuple(left), tuple(right)))
    else:
        out = batch
    if left[-1:] not in ([], [1]) and right[-1:] == [1]:
        adjoint["adj_x"] = False  # which tflite-runtime 2.14 gets wrong; see docs/numerics.md
    first = (*left, *((depth, rows) if adjoint["adj_x"] else (rows, depth)))
    second = (*right, *((columns, depth) if adjoint["adj_y"] else (depth, columns)))
    m = ModelBuilder()
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    qw: Quant = quantization(draw, dtype)
    if qw:
        qw["scale"] = _weight_scale(draw, qx["scale"], qy["scale"])
    if dtype == "int16":
        qw["scale"] = float(np.float32(qw["scale"] / 256))
    x, w = m.tensor("x", first, dtype, **qx), m.tensor("w", second, dtype, **qw)
    y = m.tensor("y", (*out, rows, columns), dtype, **qy)
    m.op("BATCH_MATMUL", [x, w], [y], **adjoint)
    return Case(m.build([x, w], [y]), (values(draw, first, dtype), values(draw, second, dtype)))


def embedding_lookup(draw: Draw, dtype: str) -> Case:
    """``hybrid``: an int8 table, rows of which become floats."""
    rows, count = draw.integer(1, 6), draw.integer(1, 4)
    tail = [draw.integer(1, 4) for _ in range(draw.integer(1, 3))]
    stored, result = ("int8", "float32") if dtype == "hybrid" else (dtype, dtype)
    q = quantization(draw, stored)
    if dtype == "hybrid":
        q["zero_point"] = 0
    m = ModelBuilder()
    indices = m.tensor("indices", (count,), "int32")
    data = values(draw, (rows, *tail), stored)
    table = m.tensor("table", (rows, *tail), stored, data=data, **q)
    y = m.tensor("y", (count, *tail), result, **({} if dtype == "hybrid" else q))
    m.op("EMBEDDING_LOOKUP", [indices, table], [y])
    chosen = np.array([draw.integer(0, rows - 1) for _ in range(count)], np.int32)
    return Case(m.build([indices], [y]), (chosen,))


WEIGHTED_OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")


def stored_weights(draw: Draw, code: str, stored: str) -> Case:
    """A float network with int8 or float16 weights: through a DEQUANTIZE, or ("hybrid") without."""
    size, window, stride, dilation, padding, out = geometry(draw)
    channels, units = 2, 4
    shapes = {
        "CONV_2D": ((1, *size, channels), (units, *window, channels), (1, *out, units)),
        "DEPTHWISE_CONV_2D": ((1, *size, channels), (1, *window, units), (1, *out, units)),
        "FULLY_CONNECTED": ((3, 9), (units, 9), (3, units)),
        "TRANSPOSE_CONV": ((1, *out, channels), (units, *window, channels), (1, *size, units)),
    }
    x_shape, w_shape, y_shape = shapes[code]
    options: Quant = {}
    if code != "FULLY_CONNECTED":
        options = {"padding": padding, "stride": tuple(stride), "dilation": tuple(dilation)}
    if code == "TRANSPOSE_CONV":
        del options["dilation"]
    m = ModelBuilder()
    x = m.tensor("x", x_shape)
    qw: Quant = {}
    dtype = "int8" if stored == "hybrid" else stored
    if dtype == "int8":
        # Runtimes take hybrid depthwise weights per channel alone.
        many = code == "DEPTHWISE_CONV_2D" or draw.choice([False, True])
        scales = [draw.integer(1, 1000) / 1e4 for _ in range(units if many else 1)]
        qw = {"scale": scales, "axis": 3 if code == "DEPTHWISE_CONV_2D" else 0}
    w = m.tensor("w", w_shape, dtype, data=weights_of(draw, w_shape, dtype), **qw)
    if stored != "hybrid":
        real = m.tensor("real", w_shape)
        m.op("DEQUANTIZE", [w], [real])
        w = real
    b = bias(draw, m, units, "float32", {}, {}, needed=True)
    y = m.tensor("y", y_shape)
    inputs = [x, w, *b]
    if code == "TRANSPOSE_CONV":
        inputs = [m.tensor("shape", (4,), "int32", data=y_shape), w, x, *b]
    m.op(code, inputs, [y], activation=activation(draw), **options)
    return Case(m.build([x], [y]), (values(draw, x_shape, "float32"),))


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__: f
    for f in (
        conv_2d, conv_3d, depthwise_conv_2d, fully_connected, transpose_conv_2d, batch_matmul,
        embedding_lookup,
    )
}

_ALL = ("int8", "float32", "uint8", "int16")
DTYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(CASES, _ALL),
    "conv_3d": ("float32",),
    "batch_matmul": ("int8", "float32", "int16"),
    "embedding_lookup": ("int8", "float32", "hybrid", "uint8"),
}
