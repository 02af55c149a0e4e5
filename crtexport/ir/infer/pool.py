"""Pooling over windows of images."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.ops import AverageOfSums, ChannelSums, Padding2D, Pool2D
from crtexport.ir.types import DType, TensorType
from crtexport.ir.window import WindowAxis
from crtexport.support.errors import CrtExportError


@infers(Pool2D)
def pool(op: Pool2D, inputs: InputTypes) -> tuple[TensorType, ...]:
    image = inputs[0]
    batch, height, width, channels = four(image, "the input")
    pad = op.padding
    if max(pad.top, pad.bottom) >= op.window[0] or max(pad.left, pad.right) >= op.window[1]:
        raise CrtExportError("padding as large as the window leaves windows without any cell")
    out_h, out_w = grid((height, width), op.window, op.stride, (1, 1), pad)
    return (TensorType(image.dtype, (batch, out_h, out_w, channels)),)


def grid(
    image: tuple[int, int],
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    padding: Padding2D,
) -> tuple[int, int]:
    """Returns the number of windows that fit into an image: rows and columns."""
    added = (padding.top, padding.bottom, padding.left, padding.right)
    if min(*window, *stride, *dilation) < 1 or min(added) < 0:
        raise CrtExportError(
            f"window {window}, stride {stride} and dilation {dilation} must be at least 1,"
            f" padding {added} at least 0"
        )
    counts = []
    sides = (padding.top, padding.bottom), (padding.left, padding.right)
    for number, what in enumerate(("rows", "columns")):
        before, after = sides[number]
        axis = WindowAxis(
            image[number], 0, window[number], stride[number], dilation[number], before, after
        )
        if axis.fitting < 1:
            padded = axis.size + before + after
            raise CrtExportError(f"a window of {axis.span} {what} doesn't fit into {padded}")
        counts.append(axis.fitting)
    return counts[0], counts[1]


def four(type_: TensorType, role: str) -> tuple[int, int, int, int]:
    """Returns the sizes of a type that must have four dimensions."""
    if len(type_.shape) != 4:
        raise CrtExportError(f"{role} must have 4 dimensions, found {type_}")
    a, b, c, d = type_.shape
    return a, b, c, d


@infers(ChannelSums, required=1, most=2)
def channel_sums(_op: ChannelSums, inputs: InputTypes) -> tuple[TensorType, ...]:
    batch, _, _, channels = four(inputs[0], "the input")
    sums = TensorType(DType.INT32, (batch, 1, 1, channels))
    if any((type_.dtype, type_.shape) != (sums.dtype, sums.shape) for type_ in inputs.all()[1:]):
        raise CrtExportError(f"the second input must be {sums}")
    return (sums,)


@infers(AverageOfSums)
def average_of_sums(op: AverageOfSums, inputs: InputTypes) -> tuple[TensorType, ...]:
    four(inputs[0], "the input")
    if inputs[0].dtype is not DType.INT32 or op.cells < 1:
        raise CrtExportError(f"expected int32 sums of some cells, found {inputs[0]}")
    return (TensorType(inputs.declared[0], inputs[0].shape),)
