"""Non-maximum suppression: the numbers of the best boxes, without any memory but the output."""

from __future__ import annotations

from crtexport.ir.ops import NonMaxSuppression
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    and_,
    cast,
    clamp,
    const,
    eq,
    f32,
    flat_index,
    ge,
    gt,
    i32,
    load,
    lt,
    max_,
    min_,
    mul,
    or_,
    sub,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.ops.detection_boxes import Box, suppressed
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers


def real_boxes(context: Context) -> str | None:
    """Boxes and scores must be float32; the output is int32."""
    found = [context.input(0).dtype, context.input(1).dtype, context.output().dtype]
    if found == [DType.FLOAT32, DType.FLOAT32, DType.INT32]:
        return None
    return "found " + ", ".join(d.value for d in found)


@lowers(NonMaxSuppression, real_boxes)
def non_max_suppression(context: Context) -> Lowered:
    """Each round looks for the best box that follows the last one found, of equal scores in the
    order of their numbers, and that no box found before for its class suppresses."""
    op = context.op(NonMaxSuppression)
    lowering = Lowering("non_max_suppression", context)
    b = lowering.b
    boxes, scores = lowering.input(0, "boxes"), lowering.input(1, "scores")
    chosen = lowering.output(0, "chosen")
    batches, classes, count = context.input(1).shape
    rows, rounds = context.output().shape[0], min(op.most_per_class, count)
    with b.loop("i", chosen.size) as i:
        b.store(chosen, i, i32(-1))
    found = b.local("found", i32(0))
    with b.loop("batch", batches) as batch, b.loop("class", classes) as class_:
        start = b.local("start", found)
        last_score, last_row = b.local("last_score", f32(0.0)), b.local("last_row", i32(-1))
        going = b.local("going", i32(1))

        def box(row: Expr, batch: Expr = batch) -> Box:
            at = flat_index([batch, row], (batches, count))
            first, second, third, fourth = Box.load(b, boxes, at).sides
            if op.centered:  # column before row
                half = [b.let("half", mul(f32(0.5), side)) for side in (third, fourth)]
                return Box(*(
                    b.let("side", side) for side in (
                        sub(second, half[1]), sub(first, half[0]),
                        add(second, half[1]), add(first, half[0]),
                    )
                ))
            return Box(*(
                b.let("side", side) for side in (
                    min_(first, third), min_(second, fourth),
                    max_(first, third), max_(second, fourth),
                )
            ))

        def box_found(k: Expr, start: Expr = start) -> Box:
            row = cast(clamp(add(start, cast(k, Scalar.I32)), 0, rows - 1), Scalar.INDEX)
            number = load(chosen, flat_index([row, const(2)], (rows, 3)))
            return box(b.let("other_row", cast(clamp(number, 0, count - 1), Scalar.INDEX)))

        def counts(k: Expr, start: Expr = start) -> Expr:
            return lt(add(start, cast(k, Scalar.I32)), found)

        with b.loop("t", rounds), b.if_(eq(going, i32(1))):
            best_score, best_row = b.local("best_score", f32(0.0)), b.local("best_row", i32(-1))
            with b.loop("n", count) as n:
                score = b.let("score", load(
                    scores, flat_index([batch, class_, n], (batches, classes, count))
                ))
                row = b.let("row", cast(n, Scalar.I32))
                after = and_(eq(score, last_score), gt(row, last_row))
                follows = or_(lt(last_row, i32(0)), or_(lt(score, last_score), after))
                better = or_(lt(best_row, i32(0)), gt(score, best_score))
                enough = gt(score, f32(op.score_threshold))
                with b.if_(and_(enough, follows, better)):
                    taken = suppressed(
                        b, box_found, rounds, box(n), op.iou_threshold, counts
                    )
                    with b.if_(eq(taken, i32(0))):
                        b.assign(best_score, score)
                        b.assign(best_row, row)
            with b.if_(ge(best_row, i32(0))):
                at = b.let("at", cast(clamp(found, 0, rows - 1), Scalar.INDEX))
                numbers = (cast(batch, Scalar.I32), cast(class_, Scalar.I32), best_row)
                for column, number in enumerate(numbers):
                    b.store(chosen, flat_index([at, const(column)], (rows, 3)), number)
                b.assign(found, add(found, i32(1)))
                b.assign(last_score, best_score)
                b.assign(last_row, best_row)
            with b.else_():
                b.assign(going, i32(0))
    return lowering.finish()
