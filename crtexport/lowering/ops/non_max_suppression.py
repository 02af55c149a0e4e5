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
    return _Suppression(context).lowered()


class _Suppression:
    """One lowering of the operator."""

    def __init__(self, context: Context) -> None:
        self.op = context.op(NonMaxSuppression)
        self.lowering = Lowering("non_max_suppression", context)
        self.b = self.lowering.b
        self.boxes = self.lowering.input(0, "boxes")
        self.scores = self.lowering.input(1, "scores")
        self.chosen = self.lowering.output(0, "chosen")
        self.sizes = context.input(1).shape
        self.rows = context.output().shape[0]
        self.rounds = min(self.op.most_per_class, self.sizes[2])

    def lowered(self) -> Lowered:
        b, (batches, classes, _) = self.b, self.sizes
        with b.loop("i", self.chosen.size) as i:
            b.store(self.chosen, i, i32(-1))
        found = b.local("found", i32(0))
        with b.loop("batch", batches) as batch, b.loop("class", classes) as class_:
            start, going = b.local("start", found), b.local("going", i32(1))
            last_score, last_row = b.local("last_score", f32(0.0)), b.local("last_row", i32(-1))
            with b.loop("t", self.rounds), b.if_(eq(going, i32(1))):
                score, row = self._best(batch, class_, (last_score, last_row), (start, found))
                with b.if_(ge(row, i32(0))):
                    at = b.let("at", cast(clamp(found, 0, self.rows - 1), Scalar.INDEX))
                    numbers = (cast(batch, Scalar.I32), cast(class_, Scalar.I32), row)
                    for column, number in enumerate(numbers):
                        b.store(
                            self.chosen, flat_index([at, const(column)], (self.rows, 3)), number
                        )
                    b.assign(found, add(found, i32(1)))
                    b.assign(last_score, score)
                    b.assign(last_row, row)
                with b.else_():
                    b.assign(going, i32(0))
        return self.lowering.finish()

    def _best(
        self, batch: Expr, class_: Expr, last: tuple[Expr, Expr], selected: tuple[Expr, Expr]
    ) -> tuple[Expr, Expr]:
        """Returns score (f32) and number (i32) of the best box after ``last``, in the order of
        scores, that no selected box suppresses. ``selected`` is (first row, end) of the class's
        rows in the output. The number is -1 if there is no such box."""
        b, (last_score, last_row), (start, end) = self.b, last, selected
        best_score, best_row = b.local("best_score", f32(0.0)), b.local("best_row", i32(-1))
        with b.loop("n", self.sizes[2]) as n:
            at = flat_index([batch, class_, n], self.sizes)
            score = b.let("score", load(self.scores, at))
            row = b.let("row", cast(n, Scalar.I32))
            after = and_(eq(score, last_score), gt(row, last_row))
            follows = or_(lt(last_row, i32(0)), or_(lt(score, last_score), after))
            better = or_(lt(best_row, i32(0)), gt(score, best_score))
            enough = gt(score, f32(self.op.score_threshold))
            with b.if_(and_(enough, follows, better)):
                taken = suppressed(
                    b, lambda k: self._found(batch, add(start, cast(k, Scalar.I32))), self.rounds,
                    self._box(batch, n), self.op.iou_threshold,
                    lambda k: lt(add(start, cast(k, Scalar.I32)), end),
                )
                with b.if_(eq(taken, i32(0))):
                    b.assign(best_score, score)
                    b.assign(best_row, row)
        return best_score, best_row

    def _found(self, batch: Expr, place: Expr) -> Box:
        """Returns the box of a row of the output."""
        row = cast(clamp(place, 0, self.rows - 1), Scalar.INDEX)
        number = load(self.chosen, flat_index([row, const(2)], (self.rows, 3)))
        inside = cast(clamp(number, 0, self.sizes[2] - 1), Scalar.INDEX)
        return self._box(batch, self.b.let("other_row", inside))

    def _box(self, batch: Expr, row: Expr) -> Box:
        b, (batches, _, count) = self.b, self.sizes
        sides = Box.load(b, self.boxes, flat_index([batch, row], (batches, count))).sides
        first, second, third, fourth = sides
        if self.op.centered:  # column before row
            wide, tall = (b.let("half", mul(f32(0.5), side)) for side in (third, fourth))
            edges = sub(second, tall), sub(first, wide), add(second, tall), add(first, wide)
        else:
            edges = (
                min_(first, third), min_(second, fourth), max_(first, third), max_(second, fourth),
            )
        return Box(*(b.let("side", edge) for edge in edges))
