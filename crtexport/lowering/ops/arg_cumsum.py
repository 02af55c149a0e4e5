"""ARG_MAX and ARG_MIN, CUMSUM and running products: walks along one axis in order."""

from __future__ import annotations

import math

from crtexport.ir.ops import ArgMax, ArgMin, CumProd, CumSum
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    cast,
    const,
    flat_index,
    gt,
    i32,
    load,
    lt,
    mul,
    sub,
    wrap_add,
    wrap_mul,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.running_sums import RunningSum, one_input_scale
from crtexport.lowering.ops.reduce import working_type
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

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
    """Position along an axis of the first of the largest elements."""
    return _arg(context, "arg_max")


@lowers(ArgMin, ordered_input, position_type)
def arg_min(context: Context) -> Lowered:
    """Position along an axis of the first of the smallest elements."""
    return _arg(context, "arg_min")


def _around(context: Context, axis: int) -> tuple[int, int, int]:
    """Returns the input's shape as (axes before ``axis``, ``axis``, axes behind it)."""
    shape = context.input(0).shape
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _arg(context: Context, name: str) -> Lowered:
    op = context.op(ArgMax, ArgMin)
    better = gt if isinstance(op, ArgMax) else lt
    lowering = Lowering(name, context)
    b, work = lowering.b, working_type(context.input(0).dtype)
    source, output = lowering.input(0, "input"), lowering.output()
    shape = outer, extent, after = _around(context, op.axis)
    if 0 in shape:
        return lowering.finish()
    with b.loop("o", outer) as o, b.loop("i", after) as i:
        best = b.local("best", cast(load(source, flat_index([o, const(0), i], shape)), work))
        where = b.local("where", i32(0))
        # The first element beats nothing, so that the loop needs no other start.
        with b.loop("r", extent) as r:
            value = b.let("value", cast(load(source, flat_index([o, r, i], shape)), work))
            with b.if_(better(value, best)):
                b.assign(best, value)
                b.assign(where, cast(r, where.type))
        b.store(
            output, flat_index([o, i], (outer, after)),
            cast(where, SCALAR_OF[context.output().dtype]),
        )
    return lowering.finish()


@lowers(CumSum, same_types(DType.FLOAT32, DType.INT32, DType.INT64, DType.INT8), one_input_scale)
def cumsum(context: Context) -> Lowered:
    """Sums of the elements up to each one, from either end of an axis; integers wrap, but int8,
    which is scaled as in TFLite Micro."""
    return _running(context, "cumsum")


@lowers(CumProd, same_types(DType.FLOAT32, DType.INT32, DType.INT64))
def cumprod(context: Context) -> Lowered:
    """Products of the elements up to each one, from either end of an axis; integers wrap."""
    return _running(context, "cumprod")


def _running(context: Context, name: str) -> Lowered:
    op = context.op(CumSum, CumProd)
    lowering = Lowering(name, context)
    b, work = lowering.b, SCALAR_OF[context.input(0).dtype]
    source, output = lowering.input(0, "input"), lowering.output()
    shape = outer, extent, after = _around(context, op.axis)
    scaled = RunningSum(lowering) if work is Scalar.I8 else None
    neutral = 0 if isinstance(op, CumSum) else 1
    join = (add, mul)[neutral] if work.is_float else (wrap_add, wrap_mul)[neutral]
    if 0 in shape:
        return lowering.finish()

    def keep(at: Expr) -> None:
        b.store(output, at, total if scaled is None else scaled.result(total))

    with b.loop("o", outer) as o, b.loop("i", after) as i:
        total = b.local("total", const(neutral, work) if scaled is None else scaled.start)
        with b.loop("r", extent) as r:
            step: Expr = sub(const(extent - 1), r) if op.reverse else r
            at = b.let("at", flat_index([o, step, i], shape))
            value = b.let("value", load(source, at))
            if op.exclusive:
                keep(at)
            b.assign(total, join(total, value if scaled is None else scaled.term(value)))
            if not op.exclusive:
                keep(at)
    return lowering.finish()
