"""ARG_MAX and ARG_MIN, and CUMSUM: operators that walk along one axis in order."""

from __future__ import annotations

import math

from crtexport.ir.ops import ArgMax, ArgMin, CumSum
from crtexport.ir.types import DType
from crtexport.kernels.build import add, cast, const, flat_index, gt, i32, load, lt, sub, wrap_add
from crtexport.kernels.ir import Expr
from crtexport.kernels.reduce import working_type
from crtexport.kernels.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.kernels.rules import same_types

_ORDERED = (DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT32, DType.BOOL)


def ordered_input(context: Context) -> str | None:
    """The input must be float32, int8, uint8, int32 or bool."""
    found = context.input(0).dtype
    return None if found in _ORDERED else f"found {found.value}"


def position_type(context: Context) -> str | None:
    """The output must be int32 or int64."""
    found = context.output().dtype
    return None if found in (DType.INT32, DType.INT64) else f"found {found.value}"


@lowers(ArgMax, ordered_input, position_type)
def arg_max(context: Context) -> Lowered:
    """Where along an axis the first of the largest elements is."""
    return _arg(context, "arg_max")


@lowers(ArgMin, ordered_input, position_type)
def arg_min(context: Context) -> Lowered:
    """Where along an axis the first of the smallest elements is."""
    return _arg(context, "arg_min")


def _around(context: Context, axis: int) -> tuple[int, int, int]:
    """The input's shape as (before the axis, the axis, after it)."""
    shape = context.input(0).shape
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _arg(context: Context, name: str) -> Lowered:
    op = context.node.op
    if not isinstance(op, ArgMax | ArgMin):
        raise TypeError(op)
    better = gt if isinstance(op, ArgMax) else lt
    lowering = Lowering(name, context)
    b, work = lowering.b, working_type(context.input(0).dtype)
    source, output = lowering.input(0, "input"), lowering.output()
    shape = before, extent, after = _around(context, op.axis)
    if 0 in shape:
        return lowering.finish()
    with b.loop("o", before) as o, b.loop("i", after) as i:
        best = b.local("best", cast(load(source, flat_index([o, const(0), i], shape)), work))
        where = b.local("where", i32(0))
        # The first element beats nothing, so that the loop needs no other start.
        with b.loop("r", extent) as r:
            value = b.let("value", cast(load(source, flat_index([o, r, i], shape)), work))
            with b.if_(better(value, best)):
                b.assign(best, value)
                b.assign(where, cast(r, where.type))
        b.store(
            output, flat_index([o, i], (before, after)),
            cast(where, SCALAR_OF[context.output().dtype]),
        )
    return lowering.finish()


@lowers(CumSum, same_types(DType.FLOAT32, DType.INT32, DType.INT64))
def cumsum(context: Context) -> Lowered:
    """Sums of the elements up to each one, from either end of an axis; integers wrap."""
    op = context.node.op
    if not isinstance(op, CumSum):
        raise TypeError(op)
    lowering = Lowering("cumsum", context)
    b, work = lowering.b, SCALAR_OF[context.input(0).dtype]
    source, output = lowering.input(0, "input"), lowering.output()
    shape = before, extent, after = _around(context, op.axis)
    plus = add if work.is_float else wrap_add
    if 0 in shape:
        return lowering.finish()
    with b.loop("o", before) as o, b.loop("i", after) as i:
        total = b.local("total", const(0, work))
        with b.loop("r", extent) as r:
            step: Expr = sub(const(extent - 1), r) if op.reverse else r
            at = b.let("at", flat_index([o, step, i], shape))
            value = b.let("value", load(source, at))
            if op.exclusive:
                b.store(output, at, total)
            b.assign(total, plus(total, value))
            if not op.exclusive:
                b.store(output, at, total)
    return lowering.finish()
