"""Elements and slices written, or joined, at positions that are known at run time only."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack

from crtexport.ir.ops import Reduction, ScatterElements, ScatterNd
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    cast,
    flat_index,
    load,
    max_,
    min_,
    mul,
    wrap_add,
    wrap_mul,
)
from crtexport.kir.language import Buffer, Expr
from crtexport.lowering.ops.elementwise import work_type
from crtexport.lowering.ops.gather import INDICES, copy, position, with_axis
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers


def scatter_types(context: Context) -> str | None:
    """The indices must be int16, int32 or int64, the others of one type; sums and products are of
    float32, int32 or int64."""
    data, indices, updates = (context.input(i).dtype for i in range(3))
    same = data is updates is context.output().dtype and data in SCALAR_OF
    op = context.node.op
    joined = isinstance(op, ScatterElements | ScatterNd) and op.reduction is not Reduction.NONE
    numbers = (DType.FLOAT32, DType.INT32, DType.INT64)
    if same and indices in INDICES and (not joined or data in numbers):
        return None
    return f"found {updates.value} into {data.value} by {indices.value}"


def _joining(lowering: Lowering, reduction: Reduction) -> Callable[[Buffer, Expr, Expr], None]:
    """Returns what writes an element over another one, or joins them."""
    b, work = lowering.b, work_type(lowering.context.input(0).dtype)
    real = work.is_float
    functions: dict[Reduction, Callable[[Expr, Expr], Expr]] = {
        Reduction.ADD: add if real else wrap_add, Reduction.MUL: mul if real else wrap_mul,
        Reduction.MIN: min_, Reduction.MAX: max_,
    }

    def write(output: Buffer, at: Expr, value: Expr) -> None:
        if reduction is Reduction.NONE:
            b.store(output, at, value)
            return
        there = b.let("there", cast(load(output, at), work))
        b.store(output, at, cast(functions[reduction](there, cast(value, work)), value.type))

    return write


@lowers(ScatterElements, scatter_types)
def scatter_elements(context: Context) -> Lowered:
    """A copy, then each update in its own place but for one axis, whose number the index is,
    clamped."""
    op = context.op(ScatterElements)
    lowering = Lowering("scatter_elements", context)
    b, shape, part = lowering.b, context.input(0).shape, context.input(1).shape
    source, numbers = lowering.input(0, "input"), lowering.input(1, "indices")
    updates, output = lowering.input(2, "updates"), lowering.output()
    write = _joining(lowering, op.reduction)
    copy(lowering, source, output)
    if not math.prod(part):
        return lowering.finish()
    with ExitStack() as stack:
        at = [stack.enter_context(b.loop("i", count)) for count in part]
        place, moved = with_axis(lowering, numbers, at, part, op.axis, shape[op.axis])
        target = b.let("target", flat_index(moved, shape))
        write(output, target, b.let("update", load(updates, place)))
    return lowering.finish()


@lowers(ScatterNd, scatter_types)
def scatter_nd(context: Context) -> Lowered:
    """A copy, then each slice of the updates at its position; each number is clamped into its axis.
    """
    op = context.op(ScatterNd)
    lowering = Lowering("scatter_nd", context)
    b, shape, indices = lowering.b, context.input(0).shape, context.input(1).shape
    source, numbers = lowering.input(0, "input"), lowering.input(1, "indices")
    updates, output = lowering.input(2, "updates"), lowering.output()
    write = _joining(lowering, op.reduction)
    copy(lowering, source, output)
    depth, count = indices[-1], math.prod(indices[:-1])
    inner = math.prod(shape[depth:])
    if not count * inner:
        return lowering.finish()
    with b.loop("k", count) as k:
        at = position(lowering, numbers, k, shape[:depth])
        with b.loop("i", inner) as i:
            target = b.let("target", flat_index([*at, i], (*shape[:depth], inner)))
            value = b.let("update", load(updates, flat_index([k, i], (count, inner))))
            write(output, target, value)
    return lowering.finish()
