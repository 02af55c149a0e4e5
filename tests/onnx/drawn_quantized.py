"""Draws single quantized nodes of ONNX, of the standard and of ONNX Runtime's own domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.onnx.draws import Array, Draw, DrawnNode

MICROSOFT = "com.microsoft"
_U8, _I8 = np.dtype(np.uint8), np.dtype(np.int8)


def _scale(d: Draw, around: float) -> Array:
    return np.array(around * d.rng.uniform(0.5, 2), np.float32)


def _zero(d: Draw, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    return np.array(d.one(limits.min, limits.max, d.between(limits.min, limits.max)), dtype)


def _values(d: Draw, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    return d.integers(limits.min, limits.max, tuple(shape), dtype)


def _quantized(d: Draw, shape: Sequence[int], dtype: np.dtype[Any]) -> list[Array | None]:
    """Integers with their scale and zero point."""
    return [_values(d, shape, dtype), _scale(d, 0.02), _zero(d, dtype)]


def _weights(d: Draw, shape: Sequence[int], units: int) -> list[Array | None]:
    """int8 with zero points of 0, and a scale for all or for each unit."""
    scales = _scale(d, 0.02) if d.maybe() else d.rng.uniform(0.005, 0.04, units).astype(np.float32)
    return [_values(d, shape, _I8), scales, np.zeros(scales.shape, np.int8)]


def _output(d: Draw, dtype: np.dtype[Any], around: float) -> list[Array | None]:
    return [_scale(d, around), _zero(d, dtype)]


def qlinear_conv(d: Draw) -> DrawnNode:
    axes, group, own, made = d.one(1, 2, 2), d.one(1, 1, 2), d.between(1, 5), d.between(1, 5)
    kernel, dtype = tuple(d.between(1, 3) for _ in range(axes)), d.one(_U8, _I8)
    x = _quantized(d, (d.one(1, 2), own * group, *d.shape(axes, 4, 7)), dtype)
    w = _weights(d, (made * group, own, *kernel), made * group)
    bias = [d.integers(-2000, 2000, (made * group,), np.int32)] if d.maybe() else []
    return DrawnNode("QLinearConv", [*x, *w, *_output(d, dtype, 0.1), *bias], {
        "group": group, "strides": [d.between(1, 2) for _ in range(axes)],
        "pads": [d.between(0, k - 1) for k in (*kernel, *kernel)],
    })


def qlinear_matmul(d: Draw) -> DrawnNode:
    m, k, n = d.shape(3)
    lead, dtype = d.shape(d.between(0, 1), 1, 3), d.one(_U8, _I8)
    return DrawnNode("QLinearMatMul", [
        *_quantized(d, (*lead, m, k), dtype), *_weights(d, (k, n), n), *_output(d, dtype, 0.1),
    ], {})


def qgemm(d: Draw) -> DrawnNode:
    m, k, n = d.shape(3)
    turned, dtype = d.maybe(), d.one(_U8, _I8)
    bias = d.integers(-2000, 2000, (n,), np.int32) if d.maybe() else None
    return DrawnNode("QGemm", [
        *_quantized(d, (m, k), dtype), *_weights(d, (n, k) if turned else (k, n), n), bias,
        *_output(d, dtype, 0.1),
    ], {"transB": int(turned)}, domain=MICROSOFT)


def qlinear_binary(d: Draw) -> DrawnNode:
    shape, dtype = d.shape(d.between(1, 4)), d.one(_U8, _I8)
    cut = [tuple(s if d.between(0, 3) else 1 for s in shape) for _ in range(2)]
    return DrawnNode(d.one("QLinearAdd", "QLinearMul"), [
        *_quantized(d, cut[0], dtype), *_quantized(d, cut[1], dtype), *_output(d, dtype, 0.04),
    ], {}, d.one((0,), (3,), (0, 3)), domain=MICROSOFT)


def qlinear_unary(d: Draw) -> DrawnNode:
    dtype = d.one(_U8, _I8)
    operator, attributes, around = d.one(
        ("QLinearLeakyRelu", {"alpha": 0.2}, 0.02), ("QLinearSigmoid", {}, 1 / 300),
    )
    x = _quantized(d, d.shape(d.between(1, 4)), dtype)
    return DrawnNode(operator, [*x, *_output(d, dtype, around)], attributes, domain=MICROSOFT)


def qlinear_softmax(d: Draw) -> DrawnNode:
    shape, dtype = d.shape(d.between(1, 4)), d.one(_U8, _I8)
    x = _quantized(d, shape, dtype)
    zero = np.array(np.iinfo(dtype).min, dtype)
    return DrawnNode("QLinearSoftmax", [*x, np.array(1 / 256, np.float32), zero], {
        "axis": d.axis(len(shape)), "opset": 13,
    }, domain=MICROSOFT)


def qlinear_pool(d: Draw) -> DrawnNode:
    dtype = d.one(_U8, _I8)
    x = _quantized(d, (d.one(1, 2), *d.shape(3, 3, 7)), dtype)
    given = [*x, *_output(d, dtype, 0.02)]
    if d.maybe():
        return DrawnNode(
            "QLinearGlobalAveragePool", given, {"channels_last": 0}, domain=MICROSOFT
        )
    kernel = [d.between(1, 3), d.between(1, 3)]
    return DrawnNode("QLinearAveragePool", given, {
        "kernel_shape": kernel, "strides": [d.between(1, 2), d.between(1, 2)],
        "pads": [d.between(0, k - 1) for k in (*kernel, *kernel)],
        "count_include_pad": d.between(0, 1),
    }, domain=MICROSOFT)


def qlinear_concat(d: Draw) -> DrawnNode:
    shape, dtype = [*d.shape(d.between(1, 4))], d.one(_U8, _I8)
    axis, count = d.between(0, len(shape) - 1), d.between(1, 3)
    parts: list[Array | None] = []
    for _ in range(count):
        shape[axis] = d.between(1, 4)
        parts += _quantized(d, shape, dtype)
    computed = tuple(range(2, 2 + 3 * count, 3))
    return DrawnNode("QLinearConcat", [*_output(d, dtype, 0.02), *parts], {"axis": axis},
                     computed, domain=MICROSOFT)


def quantize(d: Draw) -> DrawnNode:
    """Of all or of each slice of an axis."""
    shape, dtype = d.shape(d.between(1, 4)), d.one(_U8, _I8, np.dtype(np.int16))
    axis = d.axis(len(shape))
    scales, zeros = _scale(d, 0.02), _zero(d, dtype)
    if d.maybe():
        scales = d.rng.uniform(0.005, 0.04, shape[axis]).astype(np.float32)
        zeros = _values(d, scales.shape, dtype)
    return DrawnNode("QuantizeLinear", [d.floats(shape), scales, zeros], {"axis": axis})


def dequantize(d: Draw) -> DrawnNode:
    shape = d.shape(d.between(1, 4))
    dtype, axis = d.one(_U8, _I8, np.dtype(np.int16), np.dtype(np.int32)), d.axis(len(shape))
    scales, zeros = _scale(d, 0.02), None if dtype == np.int32 else _zero(d, dtype)
    if d.maybe():
        scales = d.rng.uniform(0.005, 0.04, shape[axis]).astype(np.float32)
        zeros = None if zeros is None else _values(d, scales.shape, dtype)
    x = d.integers(-1000, 1000, shape, dtype) if dtype == np.int32 else _values(d, shape, dtype)
    return DrawnNode("DequantizeLinear", [x, scales, zeros], {"axis": axis})


def matmul_blocks(d: Draw) -> DrawnNode:
    """Weights of 4 or 8 bits with a scale for each block of a unit's weights."""
    bits, size = d.one(4, 4, 8), d.one(16, 32)
    rows, depth, units = d.between(1, 3), d.between(10, 70), d.between(1, 5)
    blocks = -(-depth // size)
    packed = d.integers(0, 255, (units, blocks, size * bits // 8), np.uint8)
    if bits == 8:  # what int8 can hold, less the zero point
        packed = d.integers(64, 191, packed.shape, np.uint8)
    scales = d.rng.uniform(0.01, 0.1, (units * blocks,)).astype(np.float32)
    return DrawnNode("MatMulNBits", [d.floats((rows, depth)), packed, scales], {
        "K": depth, "N": units, "bits": bits, "block_size": size,
    }, domain=MICROSOFT)


def dynamic_quantize(d: Draw) -> DrawnNode:
    x = d.floats(d.shape(d.between(1, 4)))
    return DrawnNode("DynamicQuantizeLinear", [d.one(x, np.abs(x), x * 0)], {}, outputs=3)


def integer_products(d: Draw) -> DrawnNode:
    m, k, n = d.shape(3)
    dtype = d.one(_U8, _I8)
    zeros: list[Array | None] = [_zero(d, dtype), np.zeros((), np.int8)] if d.maybe() else []
    return DrawnNode(
        "MatMulInteger", [_values(d, (m, k), dtype), _values(d, (k, n), _I8), *zeros], {}
    )


DRAWS: tuple[Callable[[Draw], DrawnNode], ...] = (
    qlinear_conv, qlinear_matmul, qgemm, qlinear_binary, qlinear_unary, qlinear_softmax,
    qlinear_pool, qlinear_concat, quantize, dequantize, matmul_blocks, dynamic_quantize,
    integer_products,
)
