"""The output type of every operator from the types of its inputs: the meaning of shapes, once.

Scales and zero points are the model's choice and never inferred: the results carry none.
"""

from __future__ import annotations

from typing import assert_never

from crtexport.errors import CrtExportError
from crtexport.ir.ops import (
    Add,
    AveragePool2D,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    Dequantize,
    FullyConnected,
    Logistic,
    MaxPool2D,
    Mean,
    Mul,
    Op,
    Pad,
    Padding2D,
    Quantize,
    Relu,
    Relu6,
    Reshape,
    Softmax,
    Sub,
    Tanh,
)
from crtexport.ir.types import DType, TensorType

Inputs = tuple[TensorType | None, ...]

QUANTIZED = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.INT32})
"""What Quantize may produce and Dequantize may read."""


def infer(op: Op, inputs: Inputs, *, quantized: DType = DType.INT8) -> tuple[TensorType, ...]:
    """Output types (dtype and static shape, no quantization) of ``op``.

    ``inputs`` has None for an optional input left out; optional inputs at the end may be missing.
    ``quantized`` is the type that Quantize produces, which is the model's choice as scales are.
    Raises CrtExportError, without a location, when the inputs don't fit the operator.
    """
    required, most = arity(op)
    if len(inputs) < required or (most is not None and len(inputs) > most):
        raise CrtExportError(f"expected {_counted(required, most)}, found {len(inputs)}")
    given = [type_ for type_ in inputs[:required] if type_ is not None]
    if len(given) < required:
        raise CrtExportError(f"input {inputs.index(None)} is missing, and it is not optional")
    return (_infer(op, inputs, given, quantized),)


def arity(op: Op) -> tuple[int, int | None]:
    """How many inputs an operator must have, and at most (None: any number)."""
    match op:
        case Conv2D() | DepthwiseConv2D() | FullyConnected():
            return 2, 3
        case Add() | Sub() | Mul():
            return 2, 2
        case Concatenation():
            return 1, None
        case (
            AveragePool2D()
            | MaxPool2D()
            | Reshape()
            | Pad()
            | Mean()
            | Softmax()
            | Logistic()
            | Tanh()
            | Relu()
            | Relu6()
            | Quantize()
            | Dequantize()
        ):
            return 1, 1
        case _:
            assert_never(op)


def _counted(required: int, most: int | None) -> str:
    if most is None:
        return f"at least {required} inputs"
    count = f"{required}" if most == required else f"{required} or {most}"
    return f"{count} input" if most == 1 else f"{count} inputs"


def _infer(op: Op, inputs: Inputs, given: list[TensorType], quantized: DType) -> TensorType:
    first = given[0]
    bias = inputs[2] if len(inputs) > 2 else None
    match op:
        case Conv2D():
            return _conv2d(op, first, given[1], bias)
        case DepthwiseConv2D():
            return _depthwise(op, first, given[1], bias)
        case FullyConnected():
            return _fully_connected(op, first, given[1], bias)
        case AveragePool2D() | MaxPool2D():
            return _pool(op, first)
        case Add() | Sub() | Mul():
            return _broadcast(first, given[1])
        case Reshape():
            return _reshape(op, first)
        case Pad():
            return _pad(op, first)
        case Mean():
            return _mean(op, first)
        case Concatenation():
            if any(type_ is None for type_ in inputs):
                raise CrtExportError("inputs of a concatenation are not optional")
            return _concatenation(op, [type_ for type_ in inputs if type_ is not None])
        case Softmax():
            if not first.shape:
                raise CrtExportError("softmax of a scalar has no axis to run along")
            return _same(first)
        case Logistic() | Tanh() | Relu() | Relu6():
            return _same(first)
        case Quantize():
            if quantized not in QUANTIZED or not (
                first.dtype is DType.FLOAT32 or first.dtype in QUANTIZED
            ):
                raise CrtExportError(f"{first.dtype.value} can't be quantized to {quantized.value}")
            return TensorType(quantized, first.shape)
        case Dequantize():
            if first.dtype is not DType.FLOAT16 and first.dtype not in QUANTIZED:
                raise CrtExportError(f"{first.dtype.value} can't be dequantized")
            return TensorType(DType.FLOAT32, first.shape)
        case _:
            assert_never(op)


def _same(type_: TensorType) -> TensorType:
    return TensorType(type_.dtype, type_.shape)


def _conv2d(
    op: Conv2D, image: TensorType, weights: TensorType, bias: TensorType | None
) -> TensorType:
    batch, height, width, channels = _four(image, "the input")
    units, kernel_h, kernel_w, depth = _four(weights, "the weights")
    if depth != channels:
        raise CrtExportError(
            f"the input has {channels} channels, the weights have {depth} per filter"
            " (grouped convolutions are not supported)"
        )
    _weighted(image, weights, bias, units)
    out_h, out_w = _grid((height, width), (kernel_h, kernel_w), op.stride, op.dilation, op.padding)
    return TensorType(image.dtype, (batch, out_h, out_w, units))


def _depthwise(
    op: DepthwiseConv2D, image: TensorType, weights: TensorType, bias: TensorType | None
) -> TensorType:
    batch, height, width, channels = _four(image, "the input")
    one, kernel_h, kernel_w, units = _four(weights, "the weights")
    if one != 1:
        raise CrtExportError(f"the first dimension of depthwise weights must be 1, found {one}")
    if units != channels * op.depth_multiplier or op.depth_multiplier < 1:
        raise CrtExportError(
            f"{channels} input channels with depth multiplier {op.depth_multiplier}"
            f" don't give the weights' {units} channels"
        )
    _weighted(image, weights, bias, units)
    out_h, out_w = _grid((height, width), (kernel_h, kernel_w), op.stride, op.dilation, op.padding)
    return TensorType(image.dtype, (batch, out_h, out_w, units))


def _fully_connected(
    op: FullyConnected, data: TensorType, weights: TensorType, bias: TensorType | None
) -> TensorType:
    if len(weights.shape) != 2:
        raise CrtExportError(f"the weights must have 2 dimensions, found {weights}")
    units, depth = weights.shape
    _weighted(data, weights, bias, units)
    if op.keep_num_dims:
        if not data.shape or data.shape[-1] != depth:
            raise CrtExportError(f"the input {data} must end in the weights' depth {depth}")
        return TensorType(data.dtype, (*data.shape[:-1], units))
    if depth == 0 or data.elements % depth:
        raise CrtExportError(
            f"the input's {data.elements} elements are not rows of the weights' depth {depth}"
        )
    return TensorType(data.dtype, (data.elements // depth, units))


def _weighted(data: TensorType, weights: TensorType, bias: TensorType | None, units: int) -> None:
    """Element types of an operator with weights, and the shape of its bias."""
    accepted = {data.dtype}
    if data.dtype in (DType.FLOAT32, DType.INT16):
        accepted.add(DType.INT8)  # hybrid networks, and 16-bit activations
    if weights.dtype not in accepted:
        raise CrtExportError(
            f"{weights.dtype.value} weights don't go with {data.dtype.value} input"
        )
    if bias is None:
        return
    if data.dtype.is_float:
        sums = {data.dtype}
    else:
        sums = {DType.INT32, DType.INT64} if data.dtype is DType.INT16 else {DType.INT32}
    if bias.dtype not in sums:
        raise CrtExportError(f"a {bias.dtype.value} bias doesn't go with {data.dtype.value} input")
    if bias.elements != units or len(bias.shape) != 1:
        raise CrtExportError(f"the bias must have {units} elements in one dimension, found {bias}")


def _pool(op: AveragePool2D | MaxPool2D, image: TensorType) -> TensorType:
    batch, height, width, channels = _four(image, "the input")
    pad = op.padding
    if max(pad.top, pad.bottom) >= op.window[0] or max(pad.left, pad.right) >= op.window[1]:
        raise CrtExportError("padding as large as the window leaves windows without any cell")
    out_h, out_w = _grid((height, width), op.window, op.stride, (1, 1), pad)
    return TensorType(image.dtype, (batch, out_h, out_w, channels))


def _grid(
    image: tuple[int, int],
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    padding: Padding2D,
) -> tuple[int, int]:
    """How many windows fit into an image: rows and columns."""
    added = (padding.top, padding.bottom, padding.left, padding.right)
    if min(*window, *stride, *dilation) < 1 or min(added) < 0:
        raise CrtExportError(
            f"window {window}, stride {stride} and dilation {dilation} must be at least 1,"
            f" padding {added} at least 0"
        )
    counts = []
    padded = (image[0] + padding.top + padding.bottom, image[1] + padding.left + padding.right)
    for axis in (0, 1):
        extent = (window[axis] - 1) * dilation[axis] + 1
        if padded[axis] < extent:
            what = ("rows", "columns")[axis]
            raise CrtExportError(f"a window of {extent} {what} doesn't fit into {padded[axis]}")
        counts.append((padded[axis] - extent) // stride[axis] + 1)
    return counts[0], counts[1]


def _four(type_: TensorType, what: str) -> tuple[int, int, int, int]:
    if len(type_.shape) != 4:
        raise CrtExportError(f"{what} must have 4 dimensions, found {type_}")
    a, b, c, d = type_.shape
    return a, b, c, d


def _broadcast(left: TensorType, right: TensorType) -> TensorType:
    if left.dtype is not right.dtype:
        raise CrtExportError(f"the inputs differ in type: {left} and {right}")
    rank = max(len(left.shape), len(right.shape))
    shape = []
    for a, b in zip(_leading(left.shape, rank), _leading(right.shape, rank), strict=True):
        if a != b and 1 not in (a, b):
            raise CrtExportError(f"shapes {left} and {right} don't broadcast")
        shape.append(b if a == 1 else a)
    return TensorType(left.dtype, tuple(shape))


def _leading(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _reshape(op: Reshape, data: TensorType) -> TensorType:
    result = TensorType(data.dtype, op.shape)
    if min(op.shape, default=0) < 0 or result.elements != data.elements:
        raise CrtExportError(
            f"{data} has {data.elements} elements and can't become {list(op.shape)}"
        )
    return result


def _pad(op: Pad, data: TensorType) -> TensorType:
    if len(op.paddings) != len(data.shape):
        raise CrtExportError(f"{len(op.paddings)} pairs of paddings for {data}")
    if any(amount < 0 for pair in op.paddings for amount in pair):
        raise CrtExportError("paddings must not be negative")
    shape = tuple(
        before + size + after for size, (before, after) in zip(data.shape, op.paddings, strict=True)
    )
    return TensorType(data.dtype, shape)


def _mean(op: Mean, data: TensorType) -> TensorType:
    rank = len(data.shape)
    if not op.axes or list(op.axes) != sorted({axis for axis in op.axes if 0 <= axis < rank}):
        raise CrtExportError(
            f"axes {list(op.axes)} must be one or more of 0 to {rank - 1}, ascending"
        )
    if any(data.shape[axis] == 0 for axis in op.axes):
        raise CrtExportError("the mean of no elements is undefined")
    shape = tuple(
        1 if axis in op.axes else size
        for axis, size in enumerate(data.shape)
        if op.keep_dims or axis not in op.axes
    )
    return TensorType(data.dtype, shape)


def _concatenation(op: Concatenation, parts: list[TensorType]) -> TensorType:
    first = parts[0]
    if not 0 <= op.axis < len(first.shape):
        raise CrtExportError(f"axis {op.axis} is not one of the {len(first.shape)} of {first}")
    for part in parts[1:]:
        if part.dtype is not first.dtype:
            raise CrtExportError(f"the inputs differ in type: {first} and {part}")
        if _without(part.shape, op.axis) != _without(first.shape, op.axis):
            raise CrtExportError(f"{first} and {part} can't be joined along axis {op.axis}")
    total = sum(part.shape[op.axis] for part in parts)
    return TensorType(first.dtype, (*first.shape[: op.axis], total, *first.shape[op.axis + 1 :]))


def _without(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return shape[:axis], shape[axis + 1 :]
