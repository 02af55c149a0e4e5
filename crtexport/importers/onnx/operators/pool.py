"""Pools over windows, and over whole images.

Windows of one and two axes without gaps have kernels. The others are put together of strided parts
of the image: the cells under the first tap of each window, those under the second, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.convolution import answer, image
from crtexport.importers.onnx.operators.windows import PaddedAxis, as_window, window_axes
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, channels_last, stored
from crtexport.ir.ops import (
    Abs,
    Add,
    AveragePool2D,
    Div,
    Greater,
    Maximum,
    MaxPool2D,
    Mean,
    Op,
    Padding2D,
    PadV2,
    Pow,
    ReduceMax,
    Select,
    Slice,
    Sqrt,
    Square,
    Sum,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError


def _windows(node: OnnxNode) -> list[PaddedAxis]:
    kernel = node.numbers("kernel_shape")
    shape = node.input(0).shape[2:]
    if len(kernel) != len(shape) or min(kernel, default=0) < 1:
        raise CrtExportError(f"kernel_shape {list(kernel)} for an image {list(shape)}")
    return window_axes(node, shape, kernel, ceil=bool(node.integer("ceil_mode", 0)))


def _has_kernel(axes: Sequence[PaddedAxis]) -> bool:
    return len(axes) <= 2 and all(axis.dilation == 1 for axis in axes)


class _Taps:
    """The cells of an image (N, ..., C) under each tap of windows; ``value`` is what is around it.
    """

    def __init__(
        self, node: OnnxNode, tensor: int, axes: Sequence[PaddedAxis], value: float
    ) -> None:
        self.node, self._axes = node, axes
        pads = ((0, 0), *((axis.before, axis.after) for axis in axes), (0, 0))
        if any(map(any, pads)):
            cell = node.constant(value, node.type(tensor).dtype)
            (tensor,) = node.builder.emit(PadV2(pads), tensor, cell.tensor)
        self._tensor = tensor
        batch, channels = node.type(tensor).shape[0], node.type(tensor).shape[-1]
        self.shape = (batch, *(axis.positions for axis in axes), channels)

    def cells(self) -> list[int]:
        """Returns a tensor for each tap, in row order."""
        stride = (1, *(axis.stride for axis in self._axes), 1)
        return [
            self.node.builder.emit(
                Slice((0, *begin, 0), self.shape, stride, self.shape), self._tensor
            )[0]
            for begin in product(*(
                range(0, axis.taps * axis.dilation, axis.dilation) for axis in self._axes
            ))
        ]

    def joined(self, op: Op) -> int:
        """Returns all taps combined by an operator of two inputs."""
        first, *others = self.cells()
        for other in others:
            (first,) = self.node.builder.emit(op, first, other)
        return first


def _channels_last(node: OnnxNode, x: Value) -> int:
    return node.builder.arranged(x, channels_last(len(x.shape)))


def _answer(node: OnnxNode, tensor: int) -> Value:
    shape = node.type(tensor).shape
    return stored(tensor, shape, channels_last(len(shape)))


@operator("MaxPool", image=True)
def max_pool(node: OnnxNode) -> Value | list[Value]:
    """Returns the largest element of each window, and their positions, counted over all of the
    input; ``storage_order`` 1 counts columns first."""
    x, axes = node.input(0), _windows(node)
    by_columns = bool(node.integer("storage_order", 0))
    if len(node.info.outputs) > 1:
        return _with_positions(node, x, axes, by_columns=by_columns)
    dtype = node.dtype(x)
    if _has_kernel(axes):
        # Bytes without scales have no kernel; floats hold them exactly.
        scaled = node.type(x.tensor).quant is not None
        there = image(node, x if scaled else node.cast(x, DType.FLOAT32))
        found = as_window(axes)
        (made,) = node.builder.emit(
            MaxPool2D(found.kernel, found.stride, Padding2D(*found.padding)), there.tensor
        )
        return node.cast(answer(node, made, flat=there.flat), dtype)
    lowest = -np.inf if dtype.is_float else dtype.limits[0]
    taps = _Taps(node, _channels_last(node, x), axes, lowest)
    return _answer(node, taps.joined(Maximum()))


def _with_positions(
    node: OnnxNode, x: Value, axes: Sequence[PaddedAxis], *, by_columns: bool
) -> list[Value]:
    x = node.cast(x, DType.FLOAT32)
    sizes = x.shape[2:]
    inner = np.arange(prod(sizes)).reshape(sizes[::-1] if by_columns else sizes)
    inner = inner.T if by_columns else inner
    outer = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * len(sizes)) * prod(sizes)
    numbers = np.moveaxis(outer + inner, 1, -1)
    if numbers.max(initial=0) >= 1 << 31:
        raise CrtExportError(f"positions in {x.shape} don't fit into 32 bits")
    places = node.constant(numbers, DType.INT32)
    values = _Taps(node, _channels_last(node, x), axes, -np.inf).cells()
    indices = _Taps(node, places.tensor, axes, 0).cells()
    best, where = values[0], indices[0]
    for value, index in zip(values[1:], indices[1:], strict=True):
        (better,) = node.builder.emit(Greater(), value, best)
        (best,) = node.builder.emit(Select(), better, value, best)
        (where,) = node.builder.emit(Select(), better, index, where)
    dtype = node.dtype(node.input(0))
    return [
        node.cast(_answer(node, best), dtype), node.cast(_answer(node, where), DType.INT64)
    ]


@operator("AveragePool", image=True)
def average_pool(node: OnnxNode) -> Value:
    """Returns the mean of each window. ``count_include_pad``: padded cells count as zeros, those
    that only ``ceil_mode`` adds don't."""
    x, axes = node.input(0), _windows(node)
    counted = bool(node.integer("count_include_pad", 0))
    padded = counted and any(axis.before or axis.after for axis in axes)
    if _has_kernel(axes) and not (padded and any(axis.after > axis.asked for axis in axes)):
        found, there = as_window(axes), image(node, x)
        top, bottom, left, right = found.padding
        tensor, padding = there.tensor, Padding2D(*found.padding)
        if padded:
            border, zero = ((0, 0), (top, bottom), (left, right), (0, 0)), node.like(0, x).tensor
            (tensor,) = node.builder.emit(PadV2(border), tensor, zero)
            padding = Padding2D(0, 0, 0, 0)
        (made,) = node.builder.emit(AveragePool2D(found.kernel, found.stride, padding), tensor)
        return answer(node, made, flat=there.flat)
    tensor = _channels_last(node, x)
    cells = np.ones((1, *x.shape[2:], 1), np.float32)
    if counted:
        pads = [(0, 0), *((axis.before, min(axis.after, axis.asked)) for axis in axes), (0, 0)]
        cells = np.pad(cells, pads, constant_values=1)
        rest = [(0, 0), *((0, axis.after - pad[1]) for axis, pad in zip(
            axes, pads[1:-1], strict=True
        )), (0, 0)]
        inside = [PaddedAxis(a.taps, a.stride, a.dilation, 0, 0, a.positions) for a in axes]
        ones = node.constant(np.pad(cells, rest), DType.FLOAT32).tensor
        count = _Taps(node, ones, inside, 0.0).joined(Add())
    else:
        ones = node.constant(cells, DType.FLOAT32).tensor
        count = _Taps(node, ones, axes, 0.0).joined(Add())
    total = _Taps(node, tensor, axes, 0.0).joined(Add())
    (made,) = node.builder.emit(Div(), total, count)
    return _answer(node, made)


@operator("LpPool", image=True)
def lp_pool(node: OnnxNode) -> Value:
    """Returns the p-norm of each window."""
    x, p = node.input(0), node.integer("p", 2)
    tensor = _channels_last(node, _power(node, x, p))
    total = _Taps(node, tensor, _windows(node), 0.0).joined(Add())
    return _root(node, _answer(node, total), p)


def _power(node: OnnxNode, x: Value, p: int) -> Value:
    if p == 2:
        return node.unary(Square(), x)
    size = node.unary(Abs(), x)
    return size if p == 1 else node.elementwise(Pow(), size, node.like(p, x))


def _root(node: OnnxNode, x: Value, p: int) -> Value:
    if p in (1, 2):
        return x if p == 1 else node.unary(Sqrt(), x)
    return node.elementwise(Pow(), x, node.like(1 / p, x))


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", image=True)
def global_pool(node: OnnxNode) -> Value:
    x = node.input(0)
    axes = range(2, len(x.shape))
    if not axes:
        raise CrtExportError(f"an image must have rows beside batch and channels, found {x.shape}")
    if node.info.operator == "GlobalLpPool":
        p = node.integer("p", 2)
        return _root(node, node.reduce(Sum, _power(node, x, p), axes), p)
    return node.reduce(Mean if node.info.operator == "GlobalAveragePool" else ReduceMax, x, axes)
