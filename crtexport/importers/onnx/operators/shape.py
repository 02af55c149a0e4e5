"""Operators that change axes but move no elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import BroadcastTo
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError


@operator("Identity", follows=True)
def identity(node: OnnxNode) -> Value:
    return node.input(0)


@operator("Dropout", inputs=(1, 3), follows=True)
def dropout(node: OnnxNode) -> Sequence[Value]:
    """Returns the input, since dropout does nothing outside of training, and a mask of ones."""
    node.ignore("ratio", "seed")
    training = node.optional(2) is not None and node.number(2, "training_mode")
    if training or (node.version < 7 and not node.integer("is_test", 0)):
        raise CrtExportError("training is not supported: export the model for inference")
    x = node.input(0)
    outputs = [x]
    if len(node.info.outputs) > 1:
        outputs.append(node.constant(True, DType.BOOL) if not x.shape else _all_true(node, x))
    return outputs


def _all_true(node: OnnxNode, x: Value) -> Value:
    return node.emit(BroadcastTo(x.shape), node.constant(True, DType.BOOL).tensor)


@operator("Reshape", inputs=(2, 2))
def reshape(node: OnnxNode) -> Value:
    """Returns the input in another shape. A size of 0 is the input's (unless ``allowzero``), -1 is
    computed from the others."""
    x, sizes = node.input(0), list(node.integers(1, "the shape"))
    if not node.integer("allowzero", 0):
        for place, size in enumerate(sizes):
            if size == 0:
                if place >= len(x.shape):
                    raise CrtExportError(f"the shape {sizes} copies axis {place} of {x.shape}")
                sizes[place] = x.shape[place]
    if sizes.count(-1) > 1 or min(sizes, default=0) < -1:
        raise CrtExportError(f"{sizes} is no shape")
    if -1 in sizes:
        known = -prod(sizes)
        if known == 0 or x.elements % known:
            raise CrtExportError(f"{x.shape} can't become {sizes}")
        sizes[sizes.index(-1)] = x.elements // known
    if prod(sizes) != x.elements:
        raise CrtExportError(f"{x.shape} has {x.elements} elements and can't become {sizes}")
    return node.builder.reshaped(x, sizes)


@operator("Flatten")
def flatten(node: OnnxNode) -> Value:
    return flattened(node, node.input(0), node.integer("axis", 1))


def flattened(node: OnnxNode, x: Value, axis: int) -> Value:
    """Returns a matrix: the axes before ``axis`` are its rows, the others its columns."""
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise CrtExportError(f"axis {axis} of a tensor with {rank} dimensions")
    axis = axis + rank if axis < 0 else axis
    return node.builder.reshaped(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _axes(node: OnnxNode, rank: int, role: str) -> tuple[int, ...] | None:
    """Returns the axes of Squeeze and Unsqueeze, an input since opset 13; None if omitted."""
    if node.version >= 13:
        given = None if node.optional(1) is None else node.integers(1, role)
    else:
        given = node.numbers("axes") if node.has("axes") else None
    return None if given is None else node.axes(given, rank)


@operator("Squeeze", inputs=(1, 2))
def squeeze(node: OnnxNode) -> Value:
    x = node.input(0)
    axes = _axes(node, len(x.shape), "the axes")
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    if any(x.shape[axis] != 1 for axis in axes):
        raise CrtExportError(f"axes {list(axes)} of {x.shape} have more than one element")
    return x.without(axes)


@operator("Unsqueeze", inputs=(1, 2))
def unsqueeze(node: OnnxNode) -> Value:
    x = node.input(0)
    given = node.integers(1, "the axes") if node.version >= 13 else node.numbers("axes")
    count = len(given)
    new = _axes(node, len(x.shape) + count, "the axes") or ()
    sizes = list(x.shape)
    for axis in sorted(new):
        sizes.insert(axis, 1)
    return node.builder.reshaped(x, sizes)


@operator("Transpose")
def transpose(node: OnnxNode) -> Value:
    x = node.input(0)
    rank = len(x.shape)
    order = node.numbers("perm", tuple(reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise CrtExportError(f"perm {list(order)} for {rank} axes")
    return x.transposed(order)
