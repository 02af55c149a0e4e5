"""Windows over images."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers
from crtexport.ir.ops import AveragePool2D, L2Pool2D, MaxPool2D, Padding2D
from crtexport.ir.types import TensorType


@infers(AveragePool2D, MaxPool2D, L2Pool2D)
def pool(op: AveragePool2D | MaxPool2D | L2Pool2D, given: Given) -> tuple[TensorType, ...]:
    image = given[0]
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


def four(type_: TensorType, what: str) -> tuple[int, int, int, int]:
    """The sizes of a type that must have four dimensions."""
    if len(type_.shape) != 4:
        raise CrtExportError(f"{what} must have 4 dimensions, found {type_}")
    a, b, c, d = type_.shape
    return a, b, c, d
