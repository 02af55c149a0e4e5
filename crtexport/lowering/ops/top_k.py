"""The largest elements along an axis, with their positions."""

from __future__ import annotations

import math

from crtexport.ir.ops import TopK
from crtexport.kir.builder import and_, cast, const, eq, flat_index, gt, i32, load, lt, max_, or_
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.ops.elementwise import ANY_NUMBER, work_type
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers


def ordered_numbers(context: Context) -> str | None:
    """The input must be float32, int8, uint8, int16, int32 or int64."""
    found = context.input(0).dtype
    return None if found in ANY_NUMBER else f"found {found.value}"


@lowers(TopK, ordered_numbers)
def top_k(context: Context) -> Lowered:
    """Each next one is the best of those that come after the last: a worse number, or an equal one
    further back."""
    op = context.op(TopK)
    lowering = Lowering("top_k", context)
    b, x = lowering.b, context.input(0)
    work = work_type(x.dtype)
    source = lowering.input(0, "input")
    values, places = lowering.output(0), lowering.output(1, "places")
    outer, extent = math.prod(x.shape[: op.axis]), x.shape[op.axis]
    after = math.prod(x.shape[op.axis + 1 :])
    if 0 in (outer, extent, after, op.count):
        return lowering.finish()
    better, first = (gt, _largest(work)) if op.largest else (lt, _smallest(work))
    with b.loop("o", outer) as o, b.loop("i", after) as i:
        last, last_place = b.local("last", first), b.local("last_place", i32(-1))
        with b.loop("k", op.count) as k:
            best, best_place = b.local("best", first), b.local("best_place", i32(-1))
            with b.loop("r", extent) as r:
                at = flat_index([o, r, i], (outer, extent, after))
                value = b.let("value", cast(load(source, at), work))
                place = b.let("place", cast(r, Scalar.I32))
                left = or_(better(last, value), and_(eq(value, last), gt(place, last_place)))
                found = or_(lt(best_place, i32(0)), better(value, best))
                with b.if_(and_(left, found)):
                    b.assign(best, value)
                    b.assign(best_place, place)
            b.assign(last, best)
            b.assign(last_place, best_place)
            to = b.let("to", flat_index([o, k, i], (outer, op.count, after)))
            b.store(values, to, cast(best, SCALAR_OF[x.dtype]))
            # NaN is neither larger nor smaller: where only such are left, the first place is said.
            b.store(places, to, cast(max_(best_place, i32(0)), places.dtype))
    return lowering.finish()


def _largest(work: Scalar) -> Expr:
    if work.is_float:
        return const(math.inf, work)
    return const((1 << 63) - 1 if work is Scalar.I64 else (1 << 31) - 1, work)


def _smallest(work: Scalar) -> Expr:
    if work.is_float:
        return const(-math.inf, work)
    return const(-(1 << 63) if work is Scalar.I64 else -(1 << 31), work)
