"""Products of integers that have no scale, as dynamic quantization has them: MatMulInteger and
ConvInteger.

Sums of whole numbers in float32 are exact below 2^24. Weights of int8 that are constant stay such
in flash (:mod:`crtexport.importers.onnx.integer_operators`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import numpy.typing as npt

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.convolution import constant_weights, convolved
from crtexport.importers.onnx.operators.move import section
from crtexport.importers.onnx.operators.numbers import FLOAT, combined
from crtexport.importers.onnx.operators.quantized import dequantized
from crtexport.importers.onnx.operators.windows import conv_axes
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import Add, Cast, Sub
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_EXACT = 1 << 24
_MOST = 255
"""The largest difference of a byte and a zero point."""


@operator("MatMulInteger", inputs=(2, 4), oldest=10)
def matmul_integer(node: OnnxNode) -> Value:
    a, b, zero = _centred(node, rows=True), node.input(1), node.optional(3)
    rank = len(b.shape)
    constant = node.builder.is_constant(b) and (zero is None or (
        node.builder.is_constant(zero) and zero.elements in (1, b.shape[-1])
    ))

    def multiplied(first: int, count: int) -> Value:
        rows = section(node, b, max(rank - 2, 0), first, count)
        real = _real(node, rows, zero, rank - 1) if constant else _difference(node, rows, zero)
        return node.read_as("MatMul", (section(node, a, len(a.shape) - 1, first, count), real))

    depth = a.shape[-1]
    whole = constant and rank > 1 and prod(b.shape[:-2]) == 1
    if whole and _sums(node, b, zero) <= _EXACT // _MOST:
        return _whole(node, multiplied(0, depth))
    return _in_parts(node, depth, _EXACT // _MOST**2, multiplied)


@operator("ConvInteger", inputs=(2, 4), image=True, oldest=10)
def conv_integer(node: OnnxNode) -> Value:
    x, zero = _centred(node, rows=False), node.optional(3)
    w = constant_weights(node, 1, node.input(0))
    axes = conv_axes(node, x.shape[2:], w.shape[2:])
    group, inner = node.integer("group", 1), w.shape[1]
    if not inner:
        raise CrtExportError(f"weights {w.shape} without channels")
    known = zero is None or node.builder.is_constant(zero)

    def multiplied(first: int, count: int) -> Value:
        channels = count if group == 1 else x.shape[1]
        part, weights = section(node, x, 1, first, channels), section(node, w, 1, first, count)
        real = _real(node, weights, zero, 0) if known else _difference(node, weights, zero, w)
        return convolved(node, part, real, None, axes)

    most = max(_EXACT // (_MOST**2 * max(prod(w.shape[2:]), 1)), 1)
    if inner <= most:
        return _whole(node, multiplied(0, inner))
    if group > 1:
        raise CrtExportError(f"{group} groups of {inner} channels: their sums exceed 24 bits")
    return _in_parts(node, inner, most, multiplied)


def _centred(node: OnnxNode, *, rows: bool) -> Value:
    """Returns the first input less its zero point, or that of each of its ``rows``, as float32."""
    real, zero = node.cast(node.input(0), FLOAT), node.optional(2)
    if zero is None:
        return real
    offset = node.cast(zero, FLOAT)
    if not rows or offset.elements == 1:
        offset = node.builder.reshaped(offset, ())
    elif len(offset.shape) == 1:
        offset = node.builder.reshaped(offset, (offset.elements, 1))
    return node.elementwise(Sub(), real, offset)


def _real(node: OnnxNode, x: Value, zero: Value | None, axis: int) -> Value:
    """Returns constant integers less their zero points as real numbers of the scale 1."""
    count = 1 if zero is None else zero.elements
    offset = None if zero is None else node.builder.reshaped(zero, (count,))
    scale = node.constant(np.ones(count, np.float32))
    return dequantized(node, x, scale, offset, axis=axis)


def _difference(
    node: OnnxNode, x: Value, zero: Value | None, weights: Value | None = None
) -> Value:
    real = node.cast(x, FLOAT)
    if zero is None:
        return real
    offset = node.cast(zero, FLOAT)
    if weights is not None:
        shape = (offset.elements, *(1,) * (len(weights.shape) - 1))
        offset = node.builder.reshaped(offset, shape)
    return node.elementwise(Sub(), real, offset)


def _sums(node: OnnxNode, b: Value, zero: Value | None) -> int:
    """Returns the largest sum of the magnitudes of a column of a constant matrix, a zero point
    counted for each."""
    tensor = node.builder.tensors[node.builder.arranged(b)]
    if tensor.constant is None:
        raise ValueError("only constants are known")
    units, at = max(b.shape[-1], 1), 0
    sums = np.zeros(units, np.int64)
    for piece in tensor.constant.chunks():
        values: npt.NDArray[np.int64] = np.frombuffer(piece, tensor.type.dtype.numpy).astype(
            np.int64
        )
        np.add.at(sums, (at + np.arange(len(values))) % units, np.abs(values))
        at += len(values)
    offset = 0 if zero is None else int(np.abs(node.array(zero, "the zero point")).max(initial=0))
    return int(sums.max(initial=0)) + offset * b.shape[-2]


def _whole(node: OnnxNode, sums: Value) -> Value:
    """Returns sums, which are whole numbers, as int32."""
    made = node.unary(Cast(), sums, dtypes=(DType.INT32,))
    node.builder.floats[made.tensor] = sums.tensor
    return made


def _in_parts(
    node: OnnxNode, depth: int, most: int, multiplied: Callable[[int, int], Value]
) -> Value:
    """Returns sums over ``depth`` products, at most ``most`` of them in floats at a time."""
    return combined(node, Add(), (
        _whole(node, multiplied(first, min(most, depth - first)))
        for first in range(0, depth, most)
    ))
