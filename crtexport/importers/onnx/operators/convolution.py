"""Conv and ConvTranspose: images become NHWC, weights are reordered for the kernels once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from crtexport.importers.onnx.integer_weights import integer_weights, is_real_constant
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.move import element, joined, section
from crtexport.importers.onnx.operators.numbers import combined
from crtexport.importers.onnx.operators.windows import (
    PaddedAxis,
    as_window,
    conv_axes,
    transposed_axes,
)
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, channels_last, stored
from crtexport.ir.ops import (
    Add,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    Gather,
    Padding2D,
    PadV2,
    Split,
    TransposeConv2D,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError


class Image(Struct, frozen=True):
    """An image in the kernels' order: the tensor (N, rows, columns, channels)."""

    tensor: int
    flat: bool
    """Returns whether ONNX's image is one-dimensional; the kernels' image then has one row."""


def image(node: OnnxNode, x: Value) -> Image:
    """Returns an image of ONNX, (N, C, L) or (N, C, H, W), in the kernels' order."""
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


def answer(node: OnnxNode, tensor: int, *, flat: bool) -> Value:
    """Returns an image of the kernels in ONNX's order."""
    batch, rows, columns, channels = node.type(tensor).shape
    if flat:
        return stored(tensor, (batch, columns, channels), channels_last(3))
    return stored(tensor, (batch, rows, columns, channels), channels_last(4))


def _two(value: Value) -> Value:
    """Returns weights of one dimension with a window of one row: (O, I, L) as (O, I, 1, L)."""
    made = value.reshaped((*value.shape[:2], 1, *value.shape[2:]))
    if made is None:
        raise ValueError("an axis of one element is always possible")
    return made


def constant_weights(node: OnnxNode, index: int, x: Value) -> Value:
    """Returns the weights for an image ``x``; they must be constant."""
    value = node.input(index)
    if not node.builder.is_constant(value):
        raise CrtExportError(
            "the weights are computed at run time",
            hint="--bind gives weights that are inputs of the graph their values",
        )
    if len(value.shape) != len(x.shape):
        raise CrtExportError(f"weights {value.shape} for an input {x.shape}")
    return value


@operator("Conv", inputs=(2, 3), image=True)
def conv(node: OnnxNode) -> Value:
    x = node.input(0)
    w, bias = integer_weights(
        node, constant_weights(node, 1, x), node.optional(2), result=_with_added_bias(node)
    )
    return convolved(node, x, w, _arranged(node, bias), conv_axes(node, x.shape[2:], w.shape[2:]))


def _arranged(node: OnnxNode, bias: Value | None) -> int | None:
    return None if bias is None else node.builder.arranged(bias)


def _with_added_bias(node: OnnxNode) -> str | None:
    """Returns the name of the sum with a bias that an Add behind the convolution adds, as ONNX
    Runtime's optimizer finds it; None if there is none."""
    added = node.walk.added(node.info.outputs[0], first=True)
    if added is None or node.optional(2) is not None:
        return None
    bias, units = added[0], node.input(1).shape[0]
    rank = len(node.input(1).shape)
    shape = (units, *(1,) * (rank - 2))
    if bias.shape not in (shape, (1, *shape)) or not is_real_constant(node, bias):
        return None
    return added[1]


def convolved(
    node: OnnxNode, x: Value, w: Value, bias: int | None, axes: Sequence[PaddedAxis]
) -> Value:
    """Returns the convolution of an image with weights (O, I / ``group``, ...); one of volumes is a
    sum of convolutions of their planes."""
    group, units, channels = node.integer("group", 1), w.shape[0], x.shape[1]
    if group < 1 or channels != w.shape[1] * group or units % group:
        raise CrtExportError(f"{group} groups of {channels} channels with weights {w.shape}")
    if len(axes) == 3:
        return _of_volumes(node, x, w, bias, axes)
    window, there = as_window(axes), image(node, x)
    padding = Padding2D(*window.padding)
    if group == channels > 1:
        order = (1, 2, 3, 0)  # (multiplier·I, 1, H, W) as (1, H, W, I·multiplier)
        op: Conv2D | DepthwiseConv2D = DepthwiseConv2D(
            units // channels, window.stride, window.dilation, padding
        )
    else:
        order = (0, 2, 3, 1)
        op = Conv2D(window.stride, window.dilation, padding)
    w = _two(w) if there.flat else w
    inputs = (there.tensor, node.builder.arranged(w, order))
    (made,) = node.builder.emit(op, *inputs, *(() if bias is None else (bias,)))
    return answer(node, made, flat=there.flat)


def _of_volumes(
    node: OnnxNode, x: Value, w: Value, bias: int | None, axes: Sequence[PaddedAxis]
) -> Value:
    """Returns the planes under each tap of the first axis, as images."""
    first = axes[0]
    if not first.taps:
        raise CrtExportError(f"weights {w.shape} without taps")
    pads = ((0, 0), (first.before, first.after), *((0, 0),) * 3)
    order = channels_last(5)
    padded = x if not any(pads[1]) else node.emit(
        PadV2(pads), node.builder.arranged(x, order), node.like(0, x).tensor, order=order
    )

    def summed(tap: int) -> Value:
        under = section(node, padded, 2, tap * first.dilation, first.positions, first.stride)
        weights, once = element(node, w, 2, tap), None if tap else bias
        return convolved(node, _planes(node, under), weights, once, axes[1:])

    return _volumes(node, combined(node, Add(), map(summed, range(first.taps))), x.shape[0])


def _planes(node: OnnxNode, x: Value) -> Value:
    """Returns volumes (N, C, D, H, W) as images (N·D, C, H, W)."""
    batch, channels, depth, *sizes = x.shape
    return node.builder.reshaped(
        x.transposed((0, 2, 1, 3, 4)), (batch * depth, channels, *sizes)
    )


def _volumes(node: OnnxNode, x: Value, batch: int) -> Value:
    """Returns images (N·D, C, H, W) as volumes (N, C, D, H, W)."""
    shape = (batch, x.shape[0] // batch, *x.shape[1:])
    return node.builder.reshaped(x, shape).transposed((0, 2, 1, 3, 4))


@operator("ConvTranspose", inputs=(2, 3), image=True)
def conv_transpose(node: OnnxNode) -> Value:
    """Returns a transposed convolution: each input cell adds its window to the output. Groups are
    separate convolutions."""
    x = node.input(0)
    w, bias = integer_weights(node, constant_weights(node, 1, x), node.optional(2))
    group = node.integer("group", 1)
    if w.shape[0] != x.shape[1] or group < 1 or w.shape[0] % group:
        raise CrtExportError(f"{group} groups, weights {w.shape} for {x.shape}")
    axes = transposed_axes(node, x.shape[2:], w.shape[2:])
    if any(min(axis.before, axis.after) < 0 for axis in axes):
        raise CrtExportError("the padding must not be negative")
    return _transposed(node, x, w, _arranged(node, bias), axes)


def _transposed(
    node: OnnxNode, x: Value, w: Value, bias: int | None, axes: Sequence[PaddedAxis]
) -> Value:
    if len(axes) == 3:
        return _transposed_volumes(node, x, w, bias, axes)
    window, there, group = as_window(axes), image(node, x), node.integer("group", 1)
    w = _dilated(node, _two(w) if there.flat else w, window.dilation)
    top, _, left, _ = window.padding
    op = TransposeConv2D(window.positions, window.stride, (top, left))
    weights = node.builder.arranged(w, (1, 2, 3, 0))
    if group == 1:
        inputs = () if bias is None else (bias,)
        (made,) = node.builder.emit(op, there.tensor, weights, *inputs)
        return answer(node, made, flat=there.flat)
    per = w.shape[0] // group
    images = node.builder.emit(Split(3, (per,) * group), there.tensor)
    parts = node.builder.emit(Split(3, (per,) * group), weights)
    made_parts = [
        node.builder.emit(op, part, weights)[0]
        for part, weights in zip(images, parts, strict=True)
    ]
    (made,) = node.builder.emit(Concatenation(3), *made_parts)
    if bias is not None:
        (made,) = node.builder.emit(Add(), made, bias)
    return answer(node, made, flat=there.flat)


def _transposed_volumes(
    node: OnnxNode, x: Value, w: Value, bias: int | None, axes: Sequence[PaddedAxis]
) -> Value:
    """Returns a transposed convolution of volumes: each plane is a sum of the results of some taps
    of the first axis."""
    first, batch, depth, order = axes[0], x.shape[0], x.shape[2], channels_last(5)
    planes = _planes(node, x)
    found = joined(node, [
        _volumes(node, _transposed(node, planes, element(node, w, 2, tap), None, axes[1:]), batch)
        for tap in range(first.taps)
    ], 2)
    rows = [
        [
            tap * depth + plane for tap in range(first.taps) for plane in range(depth)
            if plane * first.stride + tap * first.dilation - first.before == place
        ]
        for place in range(first.positions)
    ]
    # A plane of zeros at the end, for sums with fewer terms than others.
    none = first.taps * depth
    pads = ((0, 0), (0, 1), *((0, 0),) * 3)
    source = node.emit(PadV2(pads), node.builder.arranged(found, order), node.like(0, x).tensor)
    total: int | None = bias
    for number in range(max(map(len, rows), default=0) or 1):
        places = [row[number] if number < len(row) else none for row in rows]
        (part,) = node.builder.emit(
            Gather(1), source.tensor, node.constant(places, DType.INT32).tensor
        )
        total = part if total is None else node.builder.emit(Add(), part, total)[0]
    if total is None:
        raise ValueError("a sum without terms")
    return stored(total, node.type(total).shape, order)


def _dilated(node: OnnxNode, w: Value, dilation: tuple[int, int]) -> Value:
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
