"""Reductions, positions of extremes and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.draw import SCALED, Array, Case, Draw, quantization, scale, values
from tests.tflite_builder import ModelBuilder

Quantized = dict[str, Any]


def _reduction(
    draw: Draw, code: str, dtype: str, qx: Quantized, qy: Quantized, data: Array | None = None
) -> Case:
    rank = draw.integer(1, 4)
    shape = [draw.integer(1, 5) for _ in range(rank)]
    axes = sorted({draw.integer(0, rank - 1) for _ in range(draw.integer(1, rank))})
    keep = bool(draw.choice([True, False]))
    out = [1 if a in axes else n for a, n in enumerate(shape) if keep or a not in axes]
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **qx)
    written = [a - draw.choice([0, rank]) for a in draw.choice([axes, axes[::-1]])]
    axis = m.tensor("axes", (len(axes),), "int32", data=written)
    y = m.tensor("y", out, dtype, **qy)
    m.op(code, [x, axis], [y], keep_dims=keep)
    given = values(draw, shape, dtype) if data is None else np.resize(data, shape)
    return Case(m.build([x], [y]), (given,))


def mean(draw: Draw, dtype: str) -> Case:
    qx = quantization(draw, dtype)
    qy = draw.choice([qx, quantization(draw, dtype)])
    return _reduction(draw, "MEAN", dtype, qx, qy)


def sum_(draw: Draw, dtype: str) -> Case:
    """Of int16, tflite-runtime takes one scale only, and wraps where TFLM saturates."""
    qx = quantization(draw, dtype)
    if dtype == "int16":
        data = values(draw, (625,), dtype) // 625
        return _reduction(draw, "SUM", dtype, qx, qx, data.astype(np.int16))
    return _reduction(draw, "SUM", dtype, qx, draw.choice([qx, quantization(draw, dtype)]))


def reduce_max(draw: Draw, dtype: str) -> Case:
    q = quantization(draw, dtype)
    return _reduction(draw, "REDUCE_MAX", dtype, q, q)


def reduce_min(draw: Draw, dtype: str) -> Case:
    q = quantization(draw, dtype)
    return _reduction(draw, "REDUCE_MIN", dtype, q, q)


def reduce_prod(draw: Draw, dtype: str) -> Case:
    """Quantized where int8 and int16 are; numbers around those that leave the scale alone."""
    if dtype in ("int8", "int16") and draw.choice([True, True, False]):
        qx, qy = quantization(draw, dtype), quantization(draw, dtype)
        qx["scale"] = float(np.float32(1 / draw.integer(1, 200)))
        qy["scale"] = scale(draw)
        return _reduction(draw, "REDUCE_PROD", dtype, qx, qy)
    if dtype == "float32":
        data = values(draw, (625,), dtype) * np.float32(0.3) + np.float32(1)
        return _reduction(draw, "REDUCE_PROD", dtype, {}, {}, data)
    return _reduction(draw, "REDUCE_PROD", dtype, {}, {})


def reduce_any(draw: Draw, dtype: str) -> Case:
    return _reduction(draw, "REDUCE_ANY", dtype, {}, {})


def reduce_all(draw: Draw, dtype: str) -> Case:
    return _reduction(draw, "REDUCE_ALL", dtype, {}, {})


def _position(draw: Draw, code: str, dtype: str) -> Case:
    shape = [draw.integer(1, 5) for _ in range(draw.integer(1, 4))]
    axis = draw.integer(0, len(shape) - 1)
    kind = draw.choice(["int32", "int64"])
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **quantization(draw, dtype))
    where = m.tensor("axis", (1,), kind, data=[axis - draw.choice([0, len(shape)])])
    result = draw.choice(["int32", "int64"])
    y = m.tensor("y", [*shape[:axis], *shape[axis + 1 :]], result)
    m.op(code, [x, where], [y], output_type=result.upper())
    data = values(draw, shape, dtype)
    if dtype != "bool" and draw.choice([True, False]):
        data = (data % 3).astype(dtype)  # many equals, of which the first counts
    return Case(m.build([x], [y]), (data,))


def arg_max(draw: Draw, dtype: str) -> Case:
    return _position(draw, "ARG_MAX", dtype)


def arg_min(draw: Draw, dtype: str) -> Case:
    return _position(draw, "ARG_MIN", dtype)


def cumsum(draw: Draw, dtype: str) -> Case:
    shape = [draw.integer(1, 5) for _ in range(draw.integer(1, 4))]
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **quantization(draw, dtype))
    axis = m.tensor("axis", (), "int32", data=draw.integer(-len(shape), len(shape) - 1))
    y = m.tensor("y", shape, dtype, **quantization(draw, dtype))
    exclusive, reverse = (bool(draw.choice([True, False])) for _ in range(2))
    m.op("CUMSUM", [x, axis], [y], version=1, exclusive=exclusive, reverse=reverse)
    return Case(m.build([x], [y]), (values(draw, shape, dtype),))


def topk_v2(draw: Draw, dtype: str) -> Case:
    """Of few different numbers: of equal ones the first counts."""
    shape = [draw.integer(1, 5) for _ in range(draw.integer(0, 2))] + [draw.integer(1, 12)]
    out = [*shape[:-1], draw.integer(1, shape[-1])]
    q, m = quantization(draw, dtype), ModelBuilder()
    x, k = m.tensor("x", shape, dtype, **q), m.tensor("k", (), "int32", data=out[-1])
    y, places = m.tensor("y", out, dtype, **q), m.tensor("places", out, "int32")
    m.op("TOPK_V2", [x, k], [y, places])
    given = values(draw, shape, dtype)
    if draw.choice([True, False]):
        given = (given % 3).astype(given.dtype)
    return Case(m.build([x], [y, places]), (given,))


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__: f
    for f in (
        mean, sum_, reduce_max, reduce_min, reduce_prod, reduce_any, reduce_all, arg_max, arg_min,
        cumsum, topk_v2,
    )
}

_NUMBERS = ("float32", *SCALED, "int32", "int64")
_ORDERED = ("float32", "int8", "uint8", "int32", "bool")
DTYPES: dict[str, tuple[str, ...]] = {
    "mean": _NUMBERS,
    # Not int8: tflite-runtime 2.14 and LiteRT 2.3 read int8 as uint8 there (see test_reduce.py).
    "sum_": ("float32", "uint8", "int16", "int32", "int64", "bool"),
    **dict.fromkeys(("reduce_max", "reduce_min", "reduce_prod"), (*_NUMBERS, "bool")),
    **dict.fromkeys(("reduce_any", "reduce_all"), ("bool",)),
    **dict.fromkeys(("arg_max", "arg_min"), _ORDERED),
    "cumsum": ("float32", "int32", "int64"),
    "topk_v2": ("float32", "int8", "uint8", "int32", "int64"),
}
