"""Convolutions and matrix products."""

from __future__ import annotations

import numpy as np

from crtexport.ir import ops
from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.infer.pool import four, grid
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


@infers(ops.Conv2D, required=2, most=3)
def conv2d(op: ops.Conv2D, inputs: InputTypes) -> tuple[TensorType, ...]:
    channels = four(inputs[0], "the input")[3]
    units, kernel_h, kernel_w, depth = four(inputs[1], "the weights")
    groups = channels // depth if depth and channels % depth == 0 else 0
    if depth != channels and not (groups and units % groups == 0):
        raise CrtExportError(
            f"the input's {channels} channels and {units} filters are no groups for weights of"
            f" {depth} channels per filter"
        )
    return _convolved(op, inputs, units, (kernel_h, kernel_w))


def _convolved(
    op: ops.Conv2D | ops.DepthwiseConv2D, inputs: InputTypes, units: int, kernel: tuple[int, int]
) -> tuple[TensorType, ...]:
    """Returns the type of a convolution's output, which has ``units`` channels; ``kernel`` is the
    height and width of the filters. Raises CrtExportError for types of inputs that don't fit."""
    image = inputs[0]
    batch, height, width, _ = four(image, "the input")
    _weighted(image, inputs[1], inputs.optional(2), units)
    out_h, out_w = grid((height, width), kernel, op.stride, op.dilation, op.padding)
    return (TensorType(image.dtype, (batch, out_h, out_w, units)),)


@infers(ops.DepthwiseConv2D, required=2, most=3)
def depthwise(op: ops.DepthwiseConv2D, inputs: InputTypes) -> tuple[TensorType, ...]:
    channels = four(inputs[0], "the input")[3]
    one, kernel_h, kernel_w, units = four(inputs[1], "the weights")
    if one != 1:
        raise CrtExportError(f"the first dimension of depthwise weights must be 1, found {one}")
    if units != channels * op.depth_multiplier or op.depth_multiplier < 1:
        raise CrtExportError(
            f"{channels} input channels with depth multiplier {op.depth_multiplier}"
            f" don't give the weights' {units} channels"
        )
    return _convolved(op, inputs, units, (kernel_h, kernel_w))


@infers(ops.FullyConnected, required=2, most=3)
def fully_connected(op: ops.FullyConnected, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, weights = inputs[0], inputs[1]
    if len(weights.shape) != 2:
        raise CrtExportError(f"the weights must have 2 dimensions, found {weights}")
    units, depth = weights.shape
    _weighted(data, weights, inputs.optional(2), units)
    if op.keep_num_dims:
        if not data.shape or data.shape[-1] != depth:
            raise CrtExportError(f"the input {data} must end in the weights' depth {depth}")
        return (TensorType(data.dtype, (*data.shape[:-1], units)),)
    if depth == 0 or data.elements % depth:
        raise CrtExportError(
            f"the input's {data.elements} elements are not rows of the weights' depth {depth}"
        )
    return (TensorType(data.dtype, (data.elements // depth, units)),)


@infers(ops.TransposeConv2D, required=2, most=3)
def transpose_conv2d(op: ops.TransposeConv2D, inputs: InputTypes) -> tuple[TensorType, ...]:
    image, weights = inputs[0], inputs[1]
    batch, _, _, channels = four(image, "the input")
    units, kernel_h, kernel_w, depth = four(weights, "the weights")
    if depth != channels:
        raise CrtExportError(
            f"the input has {channels} channels, the weights have {depth} per filter"
        )
    if min(kernel_h, kernel_w, *op.stride, *op.size) < 1 or min(op.crop) < 0:
        raise CrtExportError(
            f"window {(kernel_h, kernel_w)}, stride {op.stride} and size {op.size} must be at"
            f" least 1, crop {op.crop} at least 0"
        )
    _weighted(image, weights, inputs.optional(2), units)
    return (TensorType(image.dtype, (batch, *op.size, units)),)


@infers(ops.BatchMatMul, required=2)
def batch_matmul(op: ops.BatchMatMul, inputs: InputTypes) -> tuple[TensorType, ...]:
    first, second = inputs[0], inputs[1]
    if min(len(first.shape), len(second.shape)) < 2:
        raise CrtExportError(f"both inputs must have 2 dimensions, found {first} and {second}")
    if first.dtype is not second.dtype:
        raise CrtExportError(f"the inputs {first} and {second} differ in their element types")
    rows, depth = first.shape[-2:] if not op.adj_x else first.shape[:-3:-1]
    other, columns = second.shape[-2:] if not op.adj_y else second.shape[:-3:-1]
    if depth != other:
        raise CrtExportError(f"{rows}x{depth} and {other}x{columns} matrices can't be multiplied")
    try:
        batch = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    except ValueError:
        raise CrtExportError(f"batches of {first} and {second} don't broadcast") from None
    return (TensorType(first.dtype, (*batch, rows, columns)),)


@infers(ops.EmbeddingLookup, required=2)
def embedding_lookup(_op: ops.EmbeddingLookup, inputs: InputTypes) -> tuple[TensorType, ...]:
    indices, table = inputs[0], inputs[1]
    if len(indices.shape) != 1 or indices.dtype is not DType.INT32:
        raise CrtExportError(f"the indices must be int32 in one dimension, found {indices}")
    if len(table.shape) < 2 or table.shape[0] < 1:
        raise CrtExportError(f"the table must have rows in 2 dimensions or more, found {table}")
    # The model says whether rows are turned into real numbers on the way.
    real = table.dtype is DType.INT8 and inputs.declared[:1] == (DType.FLOAT32,)
    dtype = DType.FLOAT32 if real else table.dtype
    return (TensorType(dtype, (*indices.shape, *table.shape[1:])),)


def _weighted(data: TensorType, weights: TensorType, bias: TensorType | None, units: int) -> None:
    """Checks element types of an operator with weights, and the shape of its bias."""
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
