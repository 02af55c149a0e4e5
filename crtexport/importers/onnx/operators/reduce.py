"""Reductions over axes, positions of extremes, running sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.numbers import FLOAT, WHOLE, computed
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import (
    Abs,
    Add,
    ArgMax,
    ArgMin,
    CumProd,
    CumSum,
    Exp,
    Log,
    Mean,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    Slice,
    Sqrt,
    Square,
    Sub,
    Sum,
)
from crtexport.ir.types import DType

_NUMBERS = (FLOAT, *WHOLE)
_AXES_INPUT = {"ReduceSum": 13}
"""The opset from which on axes are an input; 18 for operators not listed."""


def _axes(node: OnnxNode) -> tuple[int, ...] | None:
    """Returns the axes to reduce over; None if nothing is reduced."""
    rank = len(node.input(0).shape)
    nothing = bool(node.integer("noop_with_empty_axes", 0))
    if node.version >= _AXES_INPUT.get(node.info.operator, 18):
        given = () if node.optional(1) is None else node.integers(1, "the axes")
    else:
        given = node.numbers("axes", ())
    if not given:
        return None if nothing else tuple(range(rank))
    return tuple(sorted(node.axes(given, rank)))


_EMPTY = {
    "ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceL1": 0,
    "ReduceL2": 0, "ReduceLogSum": -np.inf, "ReduceLogSumExp": -np.inf, "ReduceSumSquare": 0,
}
"""The results of reductions over no elements."""


def _log_sum_exp(node: OnnxNode, x: Value, axes: Sequence[int]) -> Value:
    """Returns log(sum(exp(x))), computed relative to the largest element so that nothing overflows.
    """
    largest = node.reduce(ReduceMax, x, axes)
    powers = node.unary(Exp(), node.elementwise(Sub(), x, largest))
    return node.elementwise(Add(), node.unary(Log(), node.reduce(Sum, powers, axes)), largest)


def _reduction(node: OnnxNode, x: Value, axes: Sequence[int]) -> Value:
    match node.info.operator:
        case "ReduceSum":
            return node.reduce(Sum, x, axes)
        case "ReduceMean":
            return node.reduce(Mean, x, axes)
        case "ReduceMax":
            return node.reduce(ReduceMax, x, axes)
        case "ReduceMin":
            return node.reduce(ReduceMin, x, axes)
        case "ReduceProd":
            return node.reduce(ReduceProd, x, axes)
        case "ReduceL1":
            return node.reduce(Sum, node.unary(Abs(), x), axes)
        case "ReduceL2":
            return node.unary(Sqrt(), node.reduce(Sum, node.unary(Square(), x), axes))
        case "ReduceSumSquare":
            return node.reduce(Sum, node.unary(Square(), x), axes)
        case "ReduceLogSum":
            return node.unary(Log(), node.reduce(Sum, x, axes))
        case _:
            return _log_sum_exp(node, x, axes)


@operator(
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", inputs=(1, 2), follows=True,
)
def reduction(node: OnnxNode) -> Value:
    x, axes = node.input(0), _axes(node)
    keep = bool(node.integer("keepdims", 1))
    if axes is None:
        # A reduction of single elements still applies the functions before and after the sum.
        return computed(node, lambda y: _each(node, y), _NUMBERS, x)
    shape = tuple(
        1 if axis in axes else size for axis, size in enumerate(x.shape)
        if keep or axis not in axes
    )
    if 0 in x.shape and 0 not in shape:
        dtype = node.dtype(x)
        value = _EMPTY.get(node.info.operator, np.nan)
        if not dtype.is_float and abs(value) == np.inf:
            low, high = (0, 1) if dtype is DType.BOOL else dtype.limits
            value = low if value < 0 else high
        return node.constant(np.full(shape, value), dtype)
    if node.dtype(x) is DType.BOOL:
        made = node.cast(_reduction(node, node.cast(x, DType.INT32), axes), DType.BOOL)
    else:
        made = computed(node, lambda y: _reduction(node, y, axes), _NUMBERS, x)
    return made if keep else made.without(axes)


def _each(node: OnnxNode, x: Value) -> Value:
    match node.info.operator:
        case "ReduceL1" | "ReduceL2":
            return node.unary(Abs(), x)
        case "ReduceSumSquare":
            return node.unary(Square(), x)
        case "ReduceLogSum":
            return node.unary(Log(), x)
        case _:
            return x


@operator("ArgMax", "ArgMin", follows=True)
def position(node: OnnxNode) -> Value:
    """Returns the position of the largest or smallest element of an axis; ``select_last_index``
    searches from the end."""
    x = node.input(0)
    rank = len(x.shape)
    axis = node.axis(node.integer("axis", 0), rank)
    last = bool(node.integer("select_last_index", 0))
    tensor, order = node.builder.ordered(x)
    place = order.index(axis)
    shape = node.type(tensor).shape
    kind = ArgMax if node.info.operator == "ArgMax" else ArgMin
    if last:
        begin = tuple(size - 1 if i == place else 0 for i, size in enumerate(shape))
        stride = tuple(-1 if i == place else 1 for i in range(rank))
        (tensor,) = node.builder.emit(Slice(begin, shape, stride, shape), tensor)
    (made,) = node.builder.emit(kind(place), tensor, dtypes=(DType.INT64,))
    kept = node.builder.reshape(made, (*shape[:place], 1, *shape[place + 1 :]))
    value = stored(kept, node.type(kept).shape, order)
    if last:
        end = node.constant(shape[place] - 1, DType.INT64)
        value = node.elementwise(Sub(), end, value)
    return value if node.integer("keepdims", 1) else value.without((axis,))


@operator("CumSum", "CumProd", inputs=(2, 2), follows=True)
def running(node: OnnxNode) -> Value:
    x = node.input(0)
    axis = node.axis(int(node.number(1, "the axis")), len(x.shape))
    exclusive, backwards = bool(node.integer("exclusive", 0)), bool(node.integer("reverse", 0))

    kind = CumSum if node.info.operator == "CumSum" else CumProd

    def along(y: Value) -> Value:
        tensor, order = node.builder.ordered(y)
        return node.emit(kind(order.index(axis), exclusive, backwards), tensor, order=order)

    return computed(node, along, _NUMBERS, x)
