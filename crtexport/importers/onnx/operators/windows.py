"""Windows of convolutions and pools: strides, dilations and paddings as ONNX writes them.

Sizes are per image axis; one-dimensional images get a row of one cell in front.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from crtexport.importers.onnx.node import OnnxNode
from crtexport.support.errors import CrtExportError

Pair = tuple[int, int]


class WindowAttributes(Struct, frozen=True):
    """Pairs are (rows, columns); ``padding`` is (top, bottom, left, right). ``positions`` are those
    of the window, the size of the output."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: tuple[int, int, int, int]
    positions: Pair


def _attribute(node: OnnxNode, name: str, axes: int) -> tuple[int, ...]:
    found = node.numbers(name, (1,) * axes)
    if len(found) != axes or min(found) < 1:
        raise CrtExportError(f"{name} {list(found)} for {axes} axes of at least 1")
    return found


def _pads(node: OnnxNode, axes: int) -> list[Pair] | None:
    """Returns the cells before and after each axis; None where ``auto_pad`` gives them."""
    auto = node.text("auto_pad", "NOTSET")
    pads = node.numbers("pads", (0,) * (2 * axes))
    if len(pads) != 2 * axes:
        raise CrtExportError(f"{len(pads)} pads for {axes} axes")
    if auto == "NOTSET":
        return list(zip(pads[:axes], pads[axes:], strict=True))
    if auto == "VALID":
        return [(0, 0)] * axes
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise CrtExportError(f"auto_pad {auto!r} is unknown")
    return None


def halves(total: int, node: OnnxNode) -> Pair:
    """Returns a padding in two parts; an odd cell is at the end that ``auto_pad`` names."""
    less, more = total // 2, total - total // 2
    return (more, less) if node.text("auto_pad", "NOTSET") == "SAME_LOWER" else (less, more)


class PaddedAxis(Struct, frozen=True):
    """The padding of one axis of an image for windows of ``taps`` elements. ``before`` and
    ``after`` are the padded elements that windows reach, ``asked`` the padding after the axis as in
    the file."""

    taps: int
    stride: int
    dilation: int
    before: int
    after: int
    positions: int
    asked: int = 0


def window_axes(
    node: OnnxNode, image: Sequence[int], kernel: Sequence[int], *, ceil: bool = False
) -> list[PaddedAxis]:
    """Returns the axes of windows that slide over an ``image``.

    ``ceil``: a last position that begins in the image or its leading padding counts even if it ends
    behind the padding.
    """
    axes = len(image)
    strides, spread = _attribute(node, "strides", axes), _attribute(node, "dilations", axes)
    pads = _pads(node, axes)
    padded_axes = []
    for axis in range(axes):
        size, taps, stride, by = image[axis], kernel[axis], strides[axis], spread[axis]
        extent = (taps - 1) * by + 1
        if pads is None:
            count = -(-size // stride)
            pair = halves(max((count - 1) * stride + extent - size, 0), node)
        else:
            pair = pads[axis]
            room = size + sum(pair) - extent
            if room < 0:
                raise CrtExportError(f"a window of {extent} doesn't fit into {size + sum(pair)}")
            count = room // stride + 1
            if ceil and room % stride and count * stride < size + pair[0]:
                count += 1
        # What the last window reaches, no more and no less.
        after = max((count - 1) * stride + extent - size - pair[0], 0)
        padded_axes.append(PaddedAxis(taps, stride, by, pair[0], after, count, pair[1]))
    return padded_axes


def as_window(axes: Sequence[PaddedAxis]) -> WindowAttributes:
    """Returns windows of one or two axes as the kernels have them, of two."""
    if len(axes) not in (1, 2):
        raise CrtExportError(f"{len(axes)} axes beside batch and channels; 1 or 2 are supported")
    rows = axes[0] if len(axes) == 2 else PaddedAxis(1, 1, 1, 0, 0, 1)
    columns = axes[-1]
    return WindowAttributes(
        (rows.taps, columns.taps), (rows.stride, columns.stride),
        (rows.dilation, columns.dilation),
        (rows.before, rows.after, columns.before, columns.after),
        (rows.positions, columns.positions),
    )


def conv_axes(node: OnnxNode, image: Sequence[int], kernel: Sequence[int]) -> list[PaddedAxis]:
    """Returns the axes of a convolution's windows, whose ``kernel_shape`` must be the weights'."""
    _check_kernel(node, kernel)
    found = window_axes(node, image, kernel)
    if any(min(axis.before, axis.after) < 0 for axis in found):
        raise CrtExportError(
            f"the padding {[(axis.before, axis.after) for axis in found]} must not be negative"
        )
    return found


def _check_kernel(node: OnnxNode, kernel: Sequence[int]) -> None:
    said = node.numbers("kernel_shape", kernel)
    if tuple(said) != tuple(kernel):
        raise CrtExportError(f"kernel_shape {list(said)} with weights of {list(kernel)}")


def transposed_axes(
    node: OnnxNode, image: Sequence[int], kernel: Sequence[int]
) -> list[PaddedAxis]:
    """Returns the axes of a transposed convolution: ``positions`` are the size of its output,
    ``before`` and ``after`` what is cut off of all that the windows reach."""
    axes = len(image)
    _check_kernel(node, kernel)
    strides, spread = _attribute(node, "strides", axes), _attribute(node, "dilations", axes)
    extra = node.numbers("output_padding", (0,) * axes)
    output_shape = node.numbers("output_shape", ())
    if len(extra) != axes or len(output_shape) not in (0, axes, axes + 2):
        raise CrtExportError(f"output_padding {list(extra)}, output_shape {list(output_shape)}")
    output_shape = output_shape[-axes:] if output_shape else ()
    pads = _pads(node, axes)
    padded_axes = []
    for axis in range(axes):
        stride = strides[axis]
        extent = (kernel[axis] - 1) * spread[axis] + 1
        unpadded = (image[axis] - 1) * stride + extent + extra[axis]
        if output_shape:
            before, after = halves(max(unpadded - output_shape[axis], 0), node)
            upper = node.text("auto_pad", "NOTSET") == "SAME_UPPER"
            pair = (before, after) if upper else (max(before, after), min(before, after))
            size = output_shape[axis]
        elif pads is None:
            size = image[axis] * stride
            pair = halves(max(unpadded - size, 0), node)
        else:
            pair = pads[axis]
            size = unpadded - sum(pair)
        padded_axes.append(PaddedAxis(kernel[axis], stride, spread[axis], *pair, size))
    return padded_axes
