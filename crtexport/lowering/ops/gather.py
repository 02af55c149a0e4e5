"""GATHER, GATHER_ND, single elements, DYNAMIC_UPDATE_SLICE: positions of run time, which are kept
inside by clamping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from crtexport.ir.ops import DynamicUpdateSlice, Gather, GatherElements, GatherNd
from crtexport.ir.types import DType
from crtexport.kir.builder import add, cast, clamp, const, flat_index, load, mul
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers

INDICES = (DType.INT16, DType.INT32, DType.INT64)


def gather_types(context: Context) -> str | None:
    """The indices must be int16, int32 or int64, and input and output of one type."""
    data, indices, output = (
        t.dtype for t in (context.input(0), context.input(1), context.output())
    )
    if data is output and data in SCALAR_OF and indices in INDICES:
        return None
    return f"found {data.value} by {indices.value} to {output.value}"


def clamped_index(lowering: Lowering, value: Expr, size: int) -> Expr:
    """Returns an index clamped into an axis of ``size``."""
    wide = value if value.type in (Scalar.I32, Scalar.I64) else cast(value, Scalar.I32)
    name = lowering.b.let("given", wide)
    return lowering.b.let("index", cast(clamp(name, 0, size - 1), Scalar.INDEX))


def position(
    lowering: Lowering, numbers: Buffer, row: Expr, sizes: Sequence[int]
) -> list[Expr]:
    """Returns a row of ``numbers``, one for each of the axes that have these ``sizes``, clamped."""
    depth = len(sizes)
    return [
        clamped_index(lowering, load(numbers, add(mul(row, const(depth)), const(axis))), size)
        for axis, size in enumerate(sizes)
    ]


def with_axis(
    lowering: Lowering, numbers: Buffer, at: list[Expr], shape: tuple[int, ...], axis: int,
    size: int,
) -> tuple[Expr, list[Expr]]:
    """Returns the flat index of an element ``at`` of ``shape``, and its position with another
    number of ``axis``: the one in ``numbers``, clamped into ``size``."""
    place = lowering.b.let("place", flat_index(at, shape))
    moved = [*at]
    moved[axis] = clamped_index(lowering, load(numbers, place), size)
    return place, moved


def copy(lowering: Lowering, source: Buffer, output: Buffer) -> None:
    """Copies an input of the output's shape, over which parts are written then."""
    with lowering.b.loop("i", lowering.context.output().elements) as i:
        lowering.b.store(output, i, load(source, i))


@lowers(Gather, gather_types)
def gather(context: Context) -> Lowered:
    """Slices along an axis; indices below 0 or past the end take the nearest slice."""
    op = context.op(Gather)
    lowering = Lowering("gather", context)
    b, x, indices = lowering.b, context.input(0).shape, context.input(1).shape
    source, numbers = lowering.input(0, "input"), lowering.input(1, "indices")
    output = lowering.output()
    if context.output().elements == 0:
        return lowering.finish()
    sizes = (
        math.prod(x[: op.batch_dims]), math.prod(x[op.batch_dims : op.axis]),
        math.prod(indices[op.batch_dims :]), math.prod(x[op.axis + 1 :]),
    )
    batches, outer, count, inner = sizes
    with b.loop("batch", batches) as n, b.loop("o", outer) as o, b.loop("k", count) as k:
        given = load(numbers, flat_index([n, k], (batches, count)))
        index = clamped_index(lowering, given, x[op.axis])
        with b.loop("i", inner) as i:
            read = flat_index([n, o, index, i], (batches, outer, x[op.axis], inner))
            b.store(output, flat_index([n, o, k, i], sizes), load(source, read))
    return lowering.finish()


@lowers(GatherNd, gather_types)
def gather_nd(context: Context) -> Lowered:
    """Slices at positions of several axes; each number is clamped into its axis."""
    lowering = Lowering("gather_nd", context)
    b, x, indices = lowering.b, context.input(0).shape, context.input(1).shape
    source, numbers = lowering.input(0, "input"), lowering.input(1, "indices")
    output = lowering.output()
    if context.output().elements == 0:
        return lowering.finish()
    depth, count = indices[-1], math.prod(indices[:-1])
    inner = math.prod(x[depth:])
    with ExitStack() as stack:
        k = stack.enter_context(b.loop("k", count))
        at = position(lowering, numbers, k, x[:depth])
        i = stack.enter_context(b.loop("i", inner))
        read = flat_index([*at, i], (*x[:depth], inner))
        b.store(output, flat_index([k, i], (count, inner)), load(source, read))
    return lowering.finish()


@lowers(GatherElements, gather_types)
def gather_elements(context: Context) -> Lowered:
    """For each index the element in its own place but for one axis, whose number it is, clamped."""
    op = context.op(GatherElements)
    lowering = Lowering("gather_elements", context)
    b, x, indices = lowering.b, context.input(0).shape, context.input(1).shape
    source, numbers = lowering.input(0, "input"), lowering.input(1, "indices")
    output = lowering.output()
    if context.output().elements == 0:
        return lowering.finish()
    with ExitStack() as stack:
        at = [stack.enter_context(b.loop("i", count)) for count in indices]
        place, moved = with_axis(lowering, numbers, at, indices, op.axis, x[op.axis])
        b.store(output, place, load(source, flat_index(moved, x)))
    return lowering.finish()


def update_types(context: Context) -> str | None:
    """Both inputs and the output must be of one type; the position must be int32 or int64."""
    data, update, start = (context.input(i).dtype for i in range(3))
    result = context.output().dtype
    same = data is update is result and data in SCALAR_OF
    if same and start in (DType.INT32, DType.INT64):
        return None
    return f"found {update.value} in {data.value} at {start.value} to {result.value}"


@lowers(DynamicUpdateSlice, update_types)
def dynamic_update_slice(context: Context) -> Lowered:
    """A copy, then the update over a part of it, which is moved inside where it would stick out."""
    lowering = Lowering("dynamic_update_slice", context)
    b, shape, part = lowering.b, context.input(0).shape, context.input(1).shape
    source, update = lowering.input(0, "input"), lowering.input(1, "update")
    start, output = lowering.input(2, "start"), lowering.output()
    copy(lowering, source, output)
    if not math.prod(part):
        return lowering.finish()
    first = [
        clamped_index(lowering, load(start, const(axis)), size - count + 1)
        for axis, (size, count) in enumerate(zip(shape, part, strict=True))
    ]
    with ExitStack() as stack:
        at = [stack.enter_context(b.loop("i", count)) for count in part]
        target = [add(begin, i) for begin, i in zip(first, at, strict=True)]
        value = load(update, flat_index(at, part))
        b.store(output, flat_index(target, shape), value)
    return lowering.finish()
