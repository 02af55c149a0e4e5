"""GATHER and GATHER_ND: positions that are known at run time only, kept inside by clamping."""

from __future__ import annotations

import math
from contextlib import ExitStack

from crtexport.ir.ops import Gather, GatherNd
from crtexport.ir.types import DType
from crtexport.kernels.build import add, cast, clamp, const, flat_index, load, mul
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.registry import SCALAR_OF, Context, Lowered, Lowering, lowers

INDICES = (DType.INT16, DType.INT32, DType.INT64)


def gather_types(context: Context) -> str | None:
    """The indices must be int16, int32 or int64, and input and output of one type."""
    data, indices, output = (
        t.dtype for t in (context.input(0), context.input(1), context.output())
    )
    if data is output and data in SCALAR_OF and indices in INDICES:
        return None
    return f"found {data.value} by {indices.value} to {output.value}"


def _index(lowering: Lowering, value: Expr, size: int) -> Expr:
    """An index as given, clamped into an axis of ``size``."""
    wide = value if value.type in (Scalar.I32, Scalar.I64) else cast(value, Scalar.I32)
    name = lowering.b.let("given", wide)
    return lowering.b.let("index", cast(clamp(name, 0, size - 1), Scalar.INDEX))


@lowers(Gather, gather_types)
def gather(context: Context) -> Lowered:
    """Slices along an axis; indices below 0 or past the end take the nearest slice."""
    op = context.node.op
    if not isinstance(op, Gather):
        raise TypeError(op)
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
        index = _index(lowering, given, x[op.axis])
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
        at = [
            _index(
                lowering, load(numbers, add(mul(k, const(depth)), const(axis))), x[axis]
            )
            for axis in range(depth)
        ]
        i = stack.enter_context(b.loop("i", inner))
        read = flat_index([*at, i], (*x[:depth], inner))
        b.store(output, flat_index([k, i], (count, inner)), load(source, read))
    return lowering.finish()
