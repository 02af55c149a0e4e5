"""Networks of floats in double precision, with NumPy: what rounding to float32 is measured by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir import ops
from crtexport.ir.evaluate import move
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Activation, Op, Padding2D
from crtexport.ir.types import DType

Array = npt.NDArray[Any]

_LARGEST = float(np.finfo(np.float32).max)

_UNARY: Mapping[type[Op], Callable[[Array], Array]] = {
    ops.Dequantize: lambda x: x, ops.Exp: np.exp, ops.Log: np.log, ops.Sqrt: np.sqrt,
    ops.Rsqrt: lambda x: 1 / np.sqrt(x), ops.Tanh: np.tanh,
    ops.Logistic: lambda x: 1 / (1 + np.exp(-x)),
    ops.Relu: lambda x: np.maximum(x, 0), ops.Relu6: lambda x: np.clip(x, 0, 6),
}

_BINARY: Mapping[type[Op], Callable[[Array, Array], Array]] = {
    ops.Add: np.add, ops.Sub: np.subtract, ops.Mul: np.multiply, ops.Div: np.divide,
    ops.Maximum: np.maximum, ops.Minimum: np.minimum, ops.Pow: np.power,
    ops.SquaredDifference: lambda x, y: (x - y) ** 2,
    ops.Prelu: lambda x, slope: np.where(x < 0, x * slope, x),
}

_RANGES = {
    Activation.NONE: (-_LARGEST, _LARGEST), Activation.RELU: (0.0, _LARGEST),
    Activation.RELU6: (0.0, 6.0), Activation.RELU_N1_TO_1: (-1.0, 1.0),
}
"""TensorFlow Lite's kernels clamp to the largest numbers where there is no activation."""


class UnknownOperatorError(Exception):
    """There is no evaluation in double precision of this operator or type."""


def evaluate(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of ``graph`` for ``inputs``: only what is beyond float32 is rounded, to
    an infinity. Raises UnknownOperatorError."""
    values: dict[int, Array] = dict(zip(graph.inputs, map(_wide, inputs), strict=True))

    def value(tensor: int) -> Array:
        if tensor not in values:
            constant = graph.constant(tensor)
            if constant is None or graph.type(tensor).quant is not None:
                raise UnknownOperatorError(graph.tensors[tensor].name)
            values[tensor] = _wide(constant.array(graph.type(tensor)))
        return values[tensor]

    with np.errstate(all="ignore"):
        for node in graph.nodes:
            given = [value(tensor) for tensor in node.inputs if tensor is not None]
            for tensor, found in zip(node.outputs, _computed(node.op, given), strict=True):
                type_ = graph.type(tensor)
                if type_.dtype is not DType.FLOAT32 or found.shape != type_.shape:
                    raise UnknownOperatorError(str(node))
                beyond = np.abs(found) > _LARGEST
                values[tensor] = np.where(beyond, np.copysign(np.inf, found), found)
    return [values[tensor] for tensor in graph.outputs]


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _computed(op: Op, given: Sequence[Array]) -> Sequence[Array]:
    moved = move(op, given)
    if moved is not None:
        return moved
    result = _result(op, *given)
    activation = getattr(op, "activation", None)
    return [result if activation is None else np.clip(result, *_RANGES[activation])]


def _result(op: Op, x: Array, *more: Array) -> Array:
    match op:
        case _ if type(op) in _UNARY:
            return _UNARY[type(op)](x)
        case _ if type(op) in _BINARY:
            return _BINARY[type(op)](x, *more)
        case ops.FullyConnected(keep_num_dims=keep):
            rows = x if keep else x.reshape(-1, more[0].shape[1])
            return _biased(rows @ more[0].T, more)
        case ops.Conv2D():
            return _biased(_convolved(op, x, more[0]), more)
        case ops.DepthwiseConv2D(depth_multiplier=1):
            return _biased(_convolved(op, x, more[0]), more)
        case ops.TransposeConv2D():
            return _biased(_spread(op, x, more[0]), more)
        case ops.Pad(paddings=paddings):
            return np.pad(x, paddings)
        case ops.Mean(axes=axes, keep_dims=keep):
            return np.mean(x, axes, keepdims=keep)
        case ops.MaxPool2D():
            padded = _framed(x, op.padding, -np.inf)
            return np.maximum.reduce([*_taps(padded, op.window, op.stride, (1, 1)).values()])
        case ops.ResizeBilinear(size=size):
            return _resized(op, _resized(op, x, 1, size[0]), 2, size[1])
        case _:
            raise UnknownOperatorError(type(op).__name__)


def _biased(result: Array, more: Sequence[Array]) -> Array:
    return result + more[1] if len(more) > 1 else result


def _framed(x: Array, padding: Padding2D, value: float) -> Array:
    around = ((0, 0), (padding.top, padding.bottom), (padding.left, padding.right), (0, 0))
    return np.pad(x, around, constant_values=value)


def _taps(
    x: Array, window: Sequence[int], stride: tuple[int, int], dilation: tuple[int, int]
) -> dict[tuple[int, int], Array]:
    """Returns, by place in the window, the cells under it in all positions of the window."""
    rows, columns = (
        range(0, size - (cells - 1) * apart, step)
        for size, cells, apart, step in zip(x.shape[1:3], window, dilation, stride, strict=True)
    )
    return {
        (i, j): x[:, i * dilation[0] :][:, rows.start : rows.stop : rows.step][
            :, :, j * dilation[1] :][:, :, columns.start : columns.stop : columns.step]
        for i, j in np.ndindex(*window)
    }


def _convolved(op: ops.Conv2D | ops.DepthwiseConv2D, x: Array, weights: Array) -> Array:
    if isinstance(op, ops.Conv2D) and weights.shape[3] != x.shape[3]:
        raise UnknownOperatorError("Conv2D of groups")
    x = _framed(x, op.padding, 0.0)
    result: Any = 0.0
    for (i, j), cells in _taps(x, weights.shape[1:3], op.stride, op.dilation).items():
        tap = weights[:, i, j]
        result = result + (cells @ tap.T if isinstance(op, ops.Conv2D) else cells * tap[0])
    return np.asarray(result)


def _spread(op: ops.TransposeConv2D, x: Array, weights: Array) -> Array:
    cells = [(n - 1) * step for n, step in zip(x.shape[1:3], op.stride, strict=True)]
    whole = np.zeros((
        len(x), *(max(c + k, crop + size) for c, k, crop, size in zip(
            cells, weights.shape[1:3], op.crop, op.size, strict=True)), len(weights),
    ))
    for i, j in np.ndindex(*weights.shape[1:3]):
        whole[
            :, i : i + cells[0] + 1 : op.stride[0], j : j + cells[1] + 1 : op.stride[1]
        ] += x @ weights[:, i, j].T
    top, left = op.crop
    return whole[:, top : top + op.size[0], left : left + op.size[1]]


def _resized(op: ops.ResizeBilinear, x: Array, axis: int, wanted: int) -> Array:
    size = x.shape[axis]
    corners = op.align_corners and wanted > 1
    ratio = (size - 1) / (wanted - 1) if corners else size / wanted
    half = 0.5 if op.half_pixel_centers else 0.0
    place = (np.arange(wanted) + half) * ratio - half
    lower = np.clip(np.floor(place), 0, size - 1).astype(int)
    upper = np.clip(np.ceil(place), 0, size - 1).astype(int)
    part = (place - lower).reshape([wanted if i == axis else 1 for i in range(x.ndim)])
    return x.take(lower, axis) * (1 - part) + x.take(upper, axis) * part
