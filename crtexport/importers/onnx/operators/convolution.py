"""Conv and ConvTranspose: images become NHWC, weights are put in the kernels' order once."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from crtexport.importers.onnx.node import Source
from crtexport.importers.onnx.operators.windows import (
    conv_window,
    transposed_window,
)
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, channels_last, stored
from crtexport.ir.ops import (
    Add,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    Padding2D,
    Split,
    TransposeConv2D,
)
from crtexport.support.errors import CrtExportError


class Image(Struct, frozen=True):
    """An image as the kernels have it: the tensor (N, rows, columns, channels)."""

    tensor: int
    flat: bool
    """Returns whether ONNX has no rows: the kernels' images have one then."""


def image(node: Source, x: Value) -> Image:
    """Returns an image of ONNX's, (N, C, L) or (N, C, H, W), in the kernels' order."""
    rank = len(x.shape)
    if rank not in (3, 4):
        raise CrtExportError(
            f"images must have one or two dimensions beside batch and channels, found {x.shape}"
        )
    tensor = node.builder.arranged(x, channels_last(rank))
    if rank == 4:
        return Image(tensor, False)
    batch, length, channels = node.type(tensor).shape
    return Image(node.builder.reshape(tensor, (batch, 1, length, channels)), True)


def answer(node: Source, tensor: int, *, flat: bool) -> Value:
    """Returns an image of the kernels' as ONNX has it."""
    batch, rows, columns, channels = node.type(tensor).shape
    if flat:
        made = node.builder.reshape(tensor, (batch, columns, channels))
        return stored(made, (batch, columns, channels), channels_last(3))
    return stored(tensor, (batch, rows, columns, channels), channels_last(4))


def _two(value: Value) -> Value:
    """Returns weights of one dimension with a window of one row: (O, I, L) as (O, I, 1, L)."""
    made = value.reshaped((*value.shape[:2], 1, *value.shape[2:]))
    if made is None:
        raise ValueError("an axis of one element is always possible")
    return made


def _weights(node: Source, index: int) -> Value:
    value = node.input(index)
    if not node.builder.is_constant(value):
        raise CrtExportError(
            "the weights are computed at run time",
            hint="--bind gives weights that are inputs of the graph their values",
        )
    return _two(value) if len(value.shape) == 3 else value


@operator("Conv", inputs=(2, 3), image=True)
def conv(node: Source) -> Value:
    x, w = node.input(0), _weights(node, 1)
    if len(w.shape) != 4 or len(node.input(1).shape) != len(x.shape):
        raise CrtExportError(f"weights {node.input(1).shape} for an input {x.shape}")
    group = node.integer("group", 1)
    window = conv_window(node, x.shape[2:], node.input(1).shape[2:])
    there = image(node, x)
    units, channels = w.shape[0], x.shape[1]
    if group < 1 or channels != w.shape[1] * group or units % group:
        raise CrtExportError(f"{group} groups of {channels} channels with weights {w.shape}")
    bias = () if node.optional(2) is None else (node.builder.arranged(node.input(2)),)
    top, bottom, left, right = window.padding
    padding = Padding2D(top, bottom, left, right)
    if group == channels > 1:
        order = (1, 2, 3, 0)  # (multiplier·I, 1, H, W) as (1, H, W, I·multiplier)
        op: Conv2D | DepthwiseConv2D = DepthwiseConv2D(
            units // channels, window.stride, window.dilation, padding
        )
    else:
        order = (0, 2, 3, 1)
        op = Conv2D(window.stride, window.dilation, padding)
    (made,) = node.builder.emit(op, there.tensor, node.builder.arranged(w, order), *bias)
    return answer(node, made, flat=there.flat)


@operator("ConvTranspose", inputs=(2, 3), image=True)
def conv_transpose(node: Source) -> Value:
    """Each input cell adds its window to the output; groups are convolutions of their own."""
    x, w = node.input(0), _weights(node, 1)
    group = node.integer("group", 1)
    if len(w.shape) != 4 or w.shape[0] != x.shape[1] or group < 1 or w.shape[0] % group:
        raise CrtExportError(f"{group} groups, weights {node.input(1).shape} for {x.shape}")
    window = transposed_window(node, x.shape[2:], node.input(1).shape[2:])
    there = image(node, x)
    size = (window.positions[0], window.positions[1])
    top, _, left, _ = window.padding
    w = _dilated(node, w, window.dilation)
    op = TransposeConv2D(size, window.stride, (max(top, 0), max(left, 0)))
    if min(window.padding) < 0:
        raise CrtExportError(f"the padding {window.padding} must not be negative")
    bias = node.optional(2)
    if group == 1:
        inputs = () if bias is None else (node.builder.arranged(bias),)
        (made,) = node.builder.emit(
            op, there.tensor, node.builder.arranged(w, (1, 2, 3, 0)), *inputs
        )
        return answer(node, made, flat=there.flat)
    per = w.shape[0] // group
    images = node.builder.emit(Split(3, (per,) * group), there.tensor)
    parts = node.builder.emit(Split(3, (per,) * group), node.builder.arranged(w, (1, 2, 3, 0)))
    made_parts = [
        node.builder.emit(op, part, weights)[0]
        for part, weights in zip(images, parts, strict=True)
    ]
    (made,) = node.builder.emit(Concatenation(3), *made_parts)
    if bias is not None:
        (made,) = node.builder.emit(Add(), made, node.builder.arranged(bias))
    return answer(node, made, flat=there.flat)


def _dilated(node: Source, w: Value, dilation: tuple[int, int]) -> Value:
    """Returns weights (I, O, H, W) with zeros between their taps."""
    if dilation == (1, 1):
        return w
    tensor = node.builder.tensors[node.builder.arranged(w)]
    if tensor.constant is None:
        raise ValueError("weights are constants")
    array = tensor.constant.array(tensor.type)
    rows, columns = ((n - 1) * d + 1 for n, d in zip(array.shape[2:], dilation, strict=True))
    spread = np.zeros((*array.shape[:2], rows, columns), array.dtype)
    spread[:, :, :: dilation[0], :: dilation[1]] = array
    return node.constant(spread, node.dtype(w))
