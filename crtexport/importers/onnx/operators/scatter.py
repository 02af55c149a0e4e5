"""Gathers and scatters at computed positions, TopK, triangles of matrices, sequences."""

from __future__ import annotations

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.gather import wrapped
from crtexport.importers.onnx.operators.numbers import FLOAT, WHOLE, computed
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import (
    Add,
    Equal,
    FloorMod,
    Gather,
    GatherElements,
    LessEqual,
    Reduction,
    ScatterElements,
    ScatterNd,
    Select,
    Sub,
    TopK,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_NUMBERS = (FLOAT, *WHOLE)


@operator("GatherElements", inputs=(2, 2))
def gather_elements(node: OnnxNode) -> Value:
    x = node.input(0)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    indices = wrapped(node, node.input(1), x.shape[axis])
    order = x.order or tuple(range(len(x.shape)))
    return node.emit(
        GatherElements(order.index(axis)), node.builder.arranged(x, order),
        node.builder.arranged(indices, order), order=order,
    )


def _reduction(node: OnnxNode) -> Reduction:
    name = node.text("reduction", "none")
    try:
        return Reduction(name)
    except ValueError:
        raise CrtExportError(f"the reduction {name!r} is unknown") from None


@operator("ScatterElements", "Scatter", inputs=(3, 3), follows=True)
def scatter_elements(node: OnnxNode) -> Value:
    x, updates = node.input(0), node.input(2)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    indices = wrapped(node, node.input(1), x.shape[axis])
    reduction = _reduction(node)
    order = x.order or tuple(range(len(x.shape)))

    def put(data: Value, updates: Value) -> Value:
        return node.emit(
            ScatterElements(order.index(axis), reduction), node.builder.arranged(data, order),
            node.builder.arranged(indices, order), node.builder.arranged(updates, order),
            order=order,
        )

    if reduction is Reduction.NONE:
        return put(x, updates)
    return computed(node, put, _NUMBERS, x, updates)


@operator("ScatterND", inputs=(3, 3), follows=True)
def scatter_nd(node: OnnxNode) -> Value:
    x, indices, updates = node.all()
    reduction = _reduction(node)
    places = wrapped(node, indices, x.shape[: indices.shape[-1]])

    def put(data: Value, updates: Value) -> Value:
        return node.emit(
            ScatterNd(reduction), node.builder.arranged(data), node.builder.arranged(places),
            node.builder.arranged(updates),
        )

    if reduction is Reduction.NONE:
        return put(x, updates)
    return computed(node, put, _NUMBERS, x, updates)


@operator("TopK", inputs=(1, 2))
def top_k(node: OnnxNode) -> list[Value]:
    x = node.input(0)
    node.ignore("sorted")
    axis = node.axis(node.integer("axis", -1), len(x.shape))
    count = node.integer("k") if node.version < 10 else int(node.number(1, "the count"))
    largest = bool(node.integer("largest", 1))
    if not 0 <= count <= x.shape[axis]:
        raise CrtExportError(f"the count {count} of {x.shape[axis]}")
    tensor, order = node.builder.ordered(x)
    made = node.builder.emit(TopK(order.index(axis), count, largest), tensor)
    return [stored(t, node.type(t).shape, order) for t in made]


@operator("OneHot", inputs=(3, 3))
def one_hot(node: OnnxNode) -> Value:
    """Returns rows of off with one on; an index outside of the depth gives a row of off."""
    indices, values = node.input(0), node.input(2)
    depth = int(node.number(1, "the depth"))
    axis = node.axis(node.integer("axis", -1), len(indices.shape) + 1)
    numbers = indices
    if node.dtype(indices) not in (FLOAT, *WHOLE):
        numbers = node.cast(indices, DType.INT32)
    shape = (*indices.shape[:axis], 1, *indices.shape[axis:])
    places = wrapped(node, numbers, depth)
    sizes = [1] * len(shape)
    sizes[axis] = depth
    row = node.constant(np.arange(depth), node.dtype(places), tuple(sizes))
    hot = node.elementwise(Equal(), node.builder.reshaped(places, shape), row)
    flat = node.builder.plain(values)
    off, on = (
        node.emit(Gather(0), flat.tensor, node.constant(i, DType.INT32).tensor) for i in (0, 1)
    )
    return node.elementwise(Select(), hot, on, off)


@operator("Trilu", inputs=(1, 2), follows=True)
def triangle(node: OnnxNode) -> Value:
    """Returns the upper or lower triangle of matrices; the rest is 0."""
    x = node.input(0)
    if len(x.shape) < 2:
        raise CrtExportError(f"{x.shape} is no matrix")
    k = int(node.number(1, "the diagonal", 0))
    rows, columns = x.shape[-2:]
    distance = np.arange(columns) - np.arange(rows)[:, None]
    kept = distance >= k if node.integer("upper", 1) else distance <= k
    if kept.all():
        return x
    return node.elementwise(Select(), node.constant(kept, DType.BOOL), x, node.like(0, x))


@operator("ReverseSequence", inputs=(2, 2))
def reverse_sequence(node: OnnxNode) -> Value:
    """Reverses the first elements of each sequence, up to its length."""
    x, lengths = node.all()
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    if {time, batch} != {0, 1} or len(x.shape) < 2:
        raise CrtExportError(f"time_axis {time} and batch_axis {batch} must be 0 and 1")
    order = (batch, time, *range(2, len(x.shape)))
    sequences = x.transposed(order)
    steps = node.constant(np.arange(sequences.shape[1]), DType.INT32, (1, sequences.shape[1]))
    length = node.builder.reshaped(node.cast(lengths, DType.INT32), (lengths.elements, 1))
    last = node.elementwise(Sub(), length, node.constant(1, DType.INT32))
    inside = node.elementwise(LessEqual(), steps, last)
    places = node.elementwise(
        Select(), inside, node.elementwise(Sub(), last, steps), steps
    )
    made = node.emit(
        Gather(1, 1), node.builder.arranged(sequences), node.builder.arranged(places)
    )
    return made.transposed(order)


@operator("TensorScatter", inputs=(2, 3))
def tensor_scatter(node: OnnxNode) -> Value:
    """Writes an update into each sample of a cache, from its index of an axis on."""
    cache, update = node.input(0), node.input(1)
    rank = len(cache.shape)
    axis = node.axis(node.integer("axis", -2), rank)
    mode = node.text("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        raise CrtExportError(f"axis {axis}, mode {mode!r}")
    size, count = cache.shape[axis], update.shape[axis]
    start = node.optional(2) or node.constant(np.zeros(cache.shape[0]), DType.INT64)
    shape = [1] * rank
    shape[0] = cache.shape[0]
    start = node.builder.reshaped(start, shape)
    steps = [1] * rank
    steps[axis] = count
    places = node.elementwise(
        Add(), start, node.constant(np.arange(count), node.dtype(start), tuple(steps))
    )
    if mode == "circular":
        places = node.elementwise(FloorMod(), places, node.like(size, places))
    zeros = node.constant(np.zeros(update.shape), node.dtype(places))
    indices = node.elementwise(Add(), places, zeros)
    return node.emit(
        ScatterElements(axis), *(node.builder.arranged(v) for v in (cache, indices, update))
    )

