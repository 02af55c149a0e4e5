"""Operators that move elements: slices, concatenations, paddings, repetitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import Concatenation, Gather, MirrorPad, PadV2, Slice, Split, Tile
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError


def common_order(node: OnnxNode, values: Sequence[Value]) -> tuple[int, ...]:
    """Returns the order of axes that most elements of computed values already have."""
    builder = node.builder
    largest = max(
        values, key=lambda v: (not builder.is_constant(v), v.order is not None, v.elements)
    )
    return largest.order or tuple(range(len(largest.axes)))


@operator("Concat", inputs=(1, None), follows=True)
def concat(node: OnnxNode) -> Value:
    values = node.all()
    rank = len(values[0].shape)
    if any(len(value.shape) != rank for value in values):
        raise CrtExportError(f"the inputs {[v.shape for v in values]} differ in their axes")
    return joined(node, values, node.axis(node.integer("axis"), rank))


def joined(node: OnnxNode, values: Sequence[Value], axis: int) -> Value:
    """Returns values concatenated along an axis."""
    if len(values) == 1:
        return values[0]
    order = common_order(node, values)
    tensors = [node.builder.arranged(value, order) for value in values]
    return node.emit(Concatenation(order.index(axis)), *tensors, order=order)


@operator("Split", inputs=(1, 2))
def split(node: OnnxNode) -> list[Value]:
    """Splits into the given sizes, else into equal parts, one for each output."""
    x = node.input(0)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    size = x.shape[axis]
    sizes: tuple[int, ...] = ()
    if node.version >= 13:
        sizes = () if node.optional(1) is None else node.integers(1, "the sizes")
    elif node.has("split"):
        sizes = node.numbers("split")
    count = node.integer("num_outputs", len(node.info.outputs))
    if not sizes:
        if count < 1:
            raise CrtExportError("a split into no parts")
        part = -(-size // count)
        sizes = tuple(max(min(part, size - i * part), 0) for i in range(count))
    tensor, order = node.builder.ordered(x)
    made = node.builder.emit(Split(order.index(axis), sizes), tensor)
    return [stored(t, node.type(t).shape, order) for t in made]


def sliced(
    node: OnnxNode, x: Value, begin: Sequence[int], size: Sequence[int], stride: Sequence[int]
) -> Value:
    """Returns ``size`` elements, ``stride`` apart, of each of ONNX's axes."""
    if tuple(size) == x.shape and all(s == 1 or n <= 1 for s, n in zip(stride, size, strict=True)):
        return x
    tensor, order = node.builder.ordered(x)
    first, count, by = (tuple(numbers[a] for a in order) for numbers in (begin, size, stride))
    return node.emit(Slice(first, count, by, count), tensor, order=order)


def section(
    node: OnnxNode, x: Value, axis: int, first: int, count: int, stride: int = 1
) -> Value:
    """Returns ``count`` elements of one axis, ``stride`` apart, from ``first`` on."""
    rank = len(x.shape)
    begin, size, steps = [0] * rank, list(x.shape), [1] * rank
    begin[axis], size[axis], steps[axis] = first, count, stride
    return sliced(node, x, begin, size, steps)


def element(node: OnnxNode, x: Value, axis: int, index: int) -> Value:
    """Returns the elements at one index of an axis, without that axis."""
    part = section(node, x, axis, index, 1)
    return node.builder.reshaped(part, (*x.shape[:axis], *x.shape[axis + 1 :]))


@operator("Slice", inputs=(1, 5))
def slice_(node: OnnxNode) -> Value:
    x = node.input(0)
    rank = len(x.shape)
    if node.version >= 10:
        starts, ends = node.integers(1, "the starts"), node.integers(2, "the ends")
        axes = tuple(range(len(starts))) if node.optional(3) is None else (
            node.integers(3, "the axes")
        )
        steps = (1,) * len(starts) if node.optional(4) is None else node.integers(4, "the steps")
    else:
        starts, ends = node.numbers("starts"), node.numbers("ends")
        axes = node.numbers("axes", tuple(range(len(starts))))
        steps = (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise CrtExportError(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes")
    axes = node.axes(axes, rank)
    begin, size, stride = [0] * rank, list(x.shape), [1] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise CrtExportError("a step of 0")
        chosen = range(*slice(start, _bounded(end, x.shape[axis], step), step).indices(
            x.shape[axis]
        ))
        begin[axis], size[axis], stride[axis] = (chosen[0] if chosen else 0), len(chosen), step
    return sliced(node, x, begin, size, stride)


def _bounded(end: int, size: int, step: int) -> int | None:
    """Returns an end as in Python; going backwards, the one before the first element is None."""
    return None if step < 0 and end < -size else end


@operator("Pad", inputs=(1, 4))
def pad(node: OnnxNode) -> Value:
    x = node.input(0)
    rank = len(x.shape)
    if node.version >= 11:
        amounts = node.integers(1, "the pads")
        axes = tuple(range(rank)) if node.optional(3) is None else node.axes(
            node.integers(3, "the axes"), rank
        )
        cell = node.optional(2)
    else:
        amounts, axes = node.numbers("pads"), tuple(range(rank))
        value = node.real("value", 0.0)
        cell = node.like(value, x) if value else None
    if len(amounts) != 2 * len(axes):
        raise CrtExportError(f"{len(amounts)} pads for {len(axes)} axes")
    pairs = [(0, 0)] * rank
    for axis, before, after in zip(
        axes, amounts[: len(axes)], amounts[len(axes) :], strict=True
    ):
        pairs[axis] = (before, after)
    mode = node.text("mode", "constant")
    x, pairs = _cut(node, x, pairs)
    if not any(map(any, pairs)):
        return x
    tensor, order = node.builder.ordered(x)
    ordered = tuple(pairs[axis] for axis in order)
    if mode == "constant":
        given = node.like(0, x) if cell is None else cell
        inside = node.builder.reshape(given.tensor, ())
        return node.emit(PadV2(ordered), tensor, inside, order=order)
    if mode == "reflect":
        return node.emit(MirrorPad(ordered), tensor, order=order)
    if mode not in ("edge", "wrap"):
        raise CrtExportError(f"the mode {mode!r} is unknown")
    return _repeated(node, tensor, order, ordered, wrap=mode == "wrap")


def _repeated(
    node: OnnxNode, tensor: int, order: tuple[int, ...], pairs: Sequence[tuple[int, int]], *,
    wrap: bool,
) -> Value:
    """Returns a tensor with elements of its edges, or of its other end, around it."""
    for axis, (before, after) in enumerate(pairs):
        if not before and not after:
            continue
        size = node.type(tensor).shape[axis]
        places = np.arange(-before, size + after)
        places = places % size if wrap else np.clip(places, 0, size - 1)
        (tensor,) = node.builder.emit(
            Gather(axis), tensor, node.constant(places, DType.INT32).tensor
        )
    return stored(tensor, node.type(tensor).shape, order)


def _cut(
    node: OnnxNode, x: Value, pairs: Sequence[tuple[int, int]]
) -> tuple[Value, list[tuple[int, int]]]:
    """Returns the input cropped by negative pads, and the remaining pads."""
    if min(map(min, pairs), default=0) >= 0:
        return x, list(pairs)
    begin = [max(-before, 0) for before, _ in pairs]
    size = [
        n + min(before, 0) + min(after, 0)
        for n, (before, after) in zip(x.shape, pairs, strict=True)
    ]
    if min(size) < 0:
        raise CrtExportError(f"pads {list(pairs)} take more than there is of {x.shape}")
    left = [(max(before, 0), max(after, 0)) for before, after in pairs]
    return sliced(node, x, begin, size, [1] * len(size)), left


@operator("Tile", inputs=(2, 2))
def tile(node: OnnxNode) -> Value:
    x, repeats = node.input(0), node.integers(1, "the repeats")
    if len(repeats) != len(x.shape) or min(repeats, default=1) < 0:
        raise CrtExportError(f"repeats {list(repeats)} of {x.shape}")
    tensor, order = node.builder.ordered(x)
    return node.emit(Tile(tuple(repeats[a] for a in order)), tensor, order=order)

