"""Networks for whose integers the precision matters in which scales are multiplied.

Scales and inputs are drawn until a formula gives other integers with multipliers of float32 than of
float64, which is rare: a multiplier has 31 bits, a float32 has 24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Activation, Svdf, UnidirectionalSequenceLstm
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.lowering.ops.hard_swish import hard_swish
from crtexport.support.fixedpoint import (
    inverse_sqrt_multiplier,
    multiply_all_by_quantized_multiplier,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    reduced_multiplier,
)
from tests.differential.cases_recurrent import RecurrentNetwork
from tests.differential.draw import Array, Case, Draw
from tests.tflite_builder import ModelBuilder

Ints = npt.NDArray[np.int64]
Scales = Sequence[np.floating[Any]]
Formula = Callable[[Ints, Scales], Ints]
"""Results of integers by the scales, without zero points."""

_FEW = 8
"""Elements of a network."""


def _scaled(values: Ints, real: Any) -> Ints:
    mantissa, shift = quantize_multiplier(float(real))
    return multiply_all_by_quantized_multiplier(
        values << max(shift, 0), mantissa, max(-shift, 0)
    )


def _found(
    draw: Draw, formula: Formula, values: Ints, sizes: Sequence[float], dtype: str = "int8"
) -> tuple[list[np.float32], Ints]:
    """Returns scales, each up to twice one of ``sizes``, and the places of few ``values`` for which
    the precision of scales matters."""
    while True:
        scales = [np.float32(draw.integer(1 << 20, 1 << 21) * 2.0**-20 * n) for n in sizes]
        single, double = (
            formula(values, [real(scale) for scale in scales]) for real in (np.float32, np.float64)
        )
        at = np.flatnonzero((single != double) & (np.abs(double) < np.iinfo(dtype).max))[:_FEW]
        if at.size:
            return scales, at


def _network(
    code: str, dtype: str, inputs: Sequence[Ints], scales: Scales, shape: Sequence[int],
    **options: Any,
) -> Case:
    """One operator; the last of ``scales`` and ``shape`` are those of its output."""
    m = ModelBuilder()
    x = [
        m.tensor(f"x{i}", given.shape, dtype, scale=float(scales[i]), zero_point=0)
        for i, given in enumerate(inputs)
    ]
    y = m.tensor("y", shape, dtype, scale=float(scales[-1]), zero_point=0)
    m.op(code, x, [y], **options)
    return Case(m.build(x, [y]), tuple(given.astype(dtype) for given in inputs))


def _every(dtype: str) -> Ints:
    limits = np.iinfo(dtype)
    return np.arange(limits.min, limits.max + 1)


def _unary(code: str, formula: Formula, draw: Draw, dtype: str, **options: Any) -> Case:
    values = _every(dtype)
    scales, at = _found(draw, formula, values, (1.0, 1.0), dtype)
    return _network(code, dtype, [values[at]], scales, at.shape, **options)


_ALPHA = 0.3


def _leaky(x: Ints, scales: Scales) -> Ints:
    before, after = scales
    slope = before * type(before)(np.float32(_ALPHA)) / after
    return np.where(x < 0, _scaled(x, slope), _scaled(x, before / after))


_ROOTS = np.array([
    multiply_by_quantized_multiplier(1, root, moved + 20)
    for root, moved in map(inverse_sqrt_multiplier, range(1, 128))
])
"""Inverse square roots of the numbers from 1 on, with 20 bits behind the point."""


def _root(x: Ints, scales: Scales) -> Ints:
    mantissa, shift = quantize_multiplier(1.0 / float(np.sqrt(scales[0]) * scales[1]))
    return multiply_all_by_quantized_multiplier(_ROOTS[x - 1], mantissa, 20 - shift)


def _rsqrt(draw: Draw, dtype: str) -> Case:
    values = np.arange(1, 128)
    scales, at = _found(draw, _root, values, (2.0**-8, 0.1))
    return _network("RSQRT", dtype, [values[at]], scales, at.shape)


def _hard_swish(draw: Draw, dtype: str) -> Case:
    """Found with the exporter's own formula; the results are the runtime's."""

    def formula(x: Ints, scales: Scales) -> Ints:
        source, target = (
            TensorType(DType(dtype), (256,), Quantization((float(scale),), (0,)))
            for scale in scales
        )
        numerics = Numerics.TFLM if scales[0].dtype == np.float64 else Numerics.TFLITE
        return np.array(hard_swish(source, target, numerics))[x + 128]

    values = _every(dtype)
    scales, at = _found(draw, formula, values, (2.0**-6, 2.0**-6))
    return _network("HARD_SWISH", dtype, [values[at]], scales, at.shape)


def _product(products: Ints, scales: Scales) -> Ints:
    first, second, result = scales
    return _scaled(products, first * second / result)


def _layer(sums: Ints, scales: Scales) -> Ints:
    """The product alone has the precision; it is divided in double precision."""
    return _scaled(sums, float(scales[0] * scales[1]) / float(scales[2]))


def _pairs(dtype: str) -> tuple[Ints, Ints]:
    limits = np.iinfo(dtype)
    some = np.arange(limits.min, limits.max + 1, -(-(limits.max - limits.min) // 512))
    first, second = np.meshgrid(some, some)
    return first.reshape(-1), second.reshape(-1)


def _mul(draw: Draw, dtype: str) -> Case:
    first, second = _pairs(dtype)
    size = 128.0 if dtype == "int8" else 32768.0
    scales, at = _found(draw, _product, first * second, (1.0, 1.0, size), dtype)
    return _network("MUL", dtype, [first[at], second[at]], scales, at.shape)


def _batch_matmul(draw: Draw, dtype: str) -> Case:
    """Products of a column and a row."""
    first, second = _pairs(dtype)
    scales, at = _found(draw, _layer, first * second, (1.0, 1.0, 128.0))
    inputs = [first[at].reshape(-1, 1), second[at].reshape(1, -1)]
    return _network("BATCH_MATMUL", dtype, inputs, scales, (at.size, at.size))


def _prelu(draw: Draw, dtype: str) -> Case:
    x, slopes = _pairs(dtype)
    x, slopes = x[x < 0], slopes[x < 0]
    scales, at = _found(draw, _product, x * slopes, (1.0, 2.0**-8, 0.5))
    m = ModelBuilder()
    given, slope, result = scales
    tensor = m.tensor("x", at.shape, dtype, scale=float(given), zero_point=0)
    constant = m.tensor(
        "slopes", at.shape, dtype, data=slopes[at].astype(dtype), scale=float(slope), zero_point=0
    )
    y = m.tensor("y", at.shape, dtype, scale=float(result), zero_point=0)
    m.op("PRELU", [tensor, constant], [y])
    return Case(m.build([tensor], [y]), (x[at].astype(dtype),))


def _fully_connected(draw: Draw, dtype: str) -> Case:
    """With one scale; of an input of 0, so that sums are biases."""
    values = np.arange(-(1 << 17), 1 << 17)
    scales, at = _found(draw, _layer, values, (0.01, 0.01, 0.1))
    m = ModelBuilder()
    x = m.tensor("x", (1, 1), dtype, scale=float(scales[0]), zero_point=0)
    w = m.tensor(
        "w", (at.size, 1), "int8", data=np.ones((at.size, 1), np.int8), scale=float(scales[1]),
        zero_point=0,
    )
    b = m.tensor(
        "b", at.shape, "int32", data=values[at].astype(np.int32),
        scale=float(scales[0] * scales[1]), zero_point=0,
    )
    y = m.tensor("y", (1, at.size), dtype, scale=float(scales[2]), zero_point=0)
    m.op("FULLY_CONNECTED", [x, w, b], [y])
    return Case(m.build([x], [y]), (np.zeros((1, 1), dtype),))


def _svdf(draw: Draw, dtype: str) -> Case:
    """Biases take away the state, of which then only rounding is left."""
    sums = np.arange(-30000, 30001)
    (x_scale, w_scale, state_scale), at = _found(
        draw, _product, sums, (0.01, 0.01, 0.0001), "int16"
    )
    product = float(x_scale) * float(w_scale) / float(state_scale)
    high, low = np.divmod(sums[at], 127)
    first = np.clip(high, -127, 127)
    net = RecurrentNetwork(draw)
    x = net.add("x", dtype, (1, 3), float(x_scale))
    feature = net.add(
        "feature", dtype, (at.size, 3), float(w_scale),
        data=np.stack([first, high - first, low], axis=-1),
    )
    time = net.add("time", "int16", (at.size, 1), 2.0**-15, data=np.full((at.size, 1), 32767))
    state = net.variable("state", "int16", (1, at.size), float(state_scale))
    bias = net.add(
        "bias", "int32", (at.size,), float(state_scale) * 2.0**-15,
        data=-32767 * _scaled(sums[at], product),
    )
    y = net.add("y", dtype, (1, at.size), float(state_scale))
    case = net.case(Svdf(1, Activation.RELU), (x, feature, time, state, bias), y)
    return Case(case.content, (np.array([[127, 127, 1]], np.int8),))


def _lstm(draw: Draw, dtype: str) -> Case:
    """Weights of 0, so that biases alone decide: cells saturate, and output gates show how they are
    scaled, with 15 bits of the multiplier."""
    units = 4 * _FEW

    def formula(sums: Ints, scales: Scales) -> Ints:
        mantissa, shift = quantize_multiplier(float(scales[0] * scales[1]) * 2.0**12)
        return sums * reduced_multiplier(mantissa) << (16 + shift)

    (x_scale, w_scale), _ = _found(draw, formula, np.ones(1, np.int64), (2.0**-13, 0.004), "int64")
    net = RecurrentNetwork(draw)
    inputs: list[int | None] = [net.add("x", dtype, (1, 1, 1), float(x_scale))]
    for kind, size in (("x", 1), ("h", units)):
        nothing: Array = np.zeros((units, size), np.int8)
        inputs += [
            net.add(f"w{kind}{gate}", "int8", nothing.shape, float(w_scale), data=nothing)
            for gate in range(4)
        ]
    gate_unit = float(x_scale) * float(w_scale) * 2.0**12
    for gate in range(4):
        wanted = np.full(units, 30000.0)
        if gate == 3:
            wanted = np.array([draw.integer(-1 << 24, 1 << 24) / 2000 for _ in range(units)])
        data = (wanted / gate_unit).astype(np.int64)
        inputs.append(net.add(f"b{gate}", "int64", (units,), data=data))
    inputs.append(net.variable("h", dtype, (1, units), 2.0**-15))
    inputs.append(net.variable("c", "int16", (1, units), 2.0**-11))
    y = net.add("y", dtype, (1, 1, units), 2.0**-15)
    return net.case(UnidirectionalSequenceLstm(False, 0.0, 2.0**-15, 0), tuple(inputs), y)


PRECISION_CASES: Mapping[str, Callable[[Draw, str], Case]] = {
    "abs by scales": partial(
        _unary, "ABS", lambda x, scales: _scaled(np.abs(x), scales[0] / scales[1])
    ),
    "relu by scales": partial(
        _unary, "RELU", lambda x, scales: _scaled(np.maximum(x, 0), scales[0] / scales[1])
    ),
    "leaky_relu by scales": partial(_unary, "LEAKY_RELU", _leaky, alpha=_ALPHA),
    "rsqrt by scales": _rsqrt,
    "hard_swish by scales": _hard_swish,
    "prelu by scales": _prelu,
    "mul by scales": _mul,
    "batch_matmul by scales": _batch_matmul,
    "fully_connected by scales": _fully_connected,
    "svdf by scales": _svdf,
    "lstm by scales": _lstm,
}
