"""Elements by their positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import Add, Concatenation, Gather, GatherNd, Less, Select


def wrapped(node: OnnxNode, indices: Value, sizes: int | Sequence[int]) -> Value:
    """Returns indices counted from the front: negative ones count from the end of ``sizes``, one
    for each element of the last axis, or one for all."""
    if indices.tensor in node.builder.counts:
        return indices
    negative = node.elementwise(Less(), indices, node.like(0, indices))
    whole = node.constant(sizes, node.dtype(indices))
    return node.elementwise(Select(), negative, node.elementwise(Add(), indices, whole), indices)


@operator("Gather", inputs=(2, 2))
def gather(node: OnnxNode) -> Value:
    x = node.input(0)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    indices = wrapped(node, node.input(1), x.shape[axis])
    tensor, order = node.builder.ordered(x)
    place = order.index(axis)
    (made,) = node.builder.emit(Gather(place), tensor, node.builder.arranged(indices))
    # The axes of the indices take the place of the axis.
    many = len(indices.shape)
    starts = {a: a + (many - 1 if a > axis else 0) for a in range(len(x.shape))}
    result: list[int] = []
    for a in order:
        result += range(axis, axis + many) if a == axis else [starts[a]]
    return stored(made, node.type(made).shape, result)


@operator("GatherND", inputs=(2, 2))
def gather_nd(node: OnnxNode) -> Value:
    x, indices = node.all()
    batch = node.integer("batch_dims", 0)
    depth = indices.shape[-1]
    places = wrapped(node, indices, x.shape[batch : batch + depth])
    if batch:
        front = indices.shape[:batch]
        rows = np.indices(front).reshape(batch, -1).T
        rows = rows.reshape(*front, *(1,) * (len(indices.shape) - batch - 1), batch)
        shape = (*indices.shape[:-1], batch)
        before = node.constant(np.broadcast_to(rows, shape), node.dtype(indices))
        places = node.emit(
            Concatenation(len(shape) - 1), before.tensor, node.builder.arranged(places)
        )
    return node.emit(GatherNd(), node.builder.arranged(x), node.builder.arranged(places))
