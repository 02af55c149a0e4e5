"""TFLite_Detection_PostProcess: boxes decoded, then thinned out, without any memory but outputs.

The runtimes sort candidates and mark those that are suppressed. Here each round looks for the best
candidate that follows the last one in their order and that no box found before suppresses: the
same boxes come out, and the only boxes to remember are the ones in the output.
"""

from __future__ import annotations

from collections.abc import Callable

from crtexport.ir.ops import DetectionPostProcess
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    and_,
    cast,
    clamp,
    const,
    div,
    eq,
    f32,
    ge,
    gt,
    i32,
    load,
    lt,
    min_,
    mul,
    or_,
    select,
    sub,
)
from crtexport.kir.language import Expr, Scalar, Var
from crtexport.lowering.numerics import float_math
from crtexport.lowering.ops.detection_boxes import Box, suppressed
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers

_BOXES, _SCORES, _ANCHORS = 0, 1, 2
_ABOVE_ALL = float.fromhex("0x1.fffffep127")
IsSuppressed = Callable[[Box], Expr]
_TAKEN = (DType.FLOAT32, DType.UINT8)


def real_or_uint8(context: Context) -> str | None:
    """Boxes and anchors must both be float32 or both uint8, scores float32 or uint8; the outputs
    are float32."""
    found = [context.input(i).dtype for i in (_BOXES, _ANCHORS, _SCORES)]
    outputs = {context.output(i).dtype for i in range(4)}
    if found[0] is found[1] and {*found} <= {*_TAKEN} and outputs == {DType.FLOAT32}:
        return None
    return "found " + ", ".join(d.value for d in found)


def scaled_uint8(context: Context) -> str | None:
    """Uint8 tensors must carry a scale and a zero point."""
    for position in (_BOXES, _SCORES, _ANCHORS):
        type_ = context.input(position)
        if type_.dtype is DType.UINT8 and type_.quant is None:
            return f"input {position} has none"
    return None


@lowers(DetectionPostProcess, real_or_uint8, scaled_uint8)
def detection(context: Context) -> Lowered:
    """Non-maximum suppression for all classes at once by each box's best class (fast), or for each
    class alone (regular); of equals the first counts. What is not found is 0."""
    return _Detection(context).lowered()


def _var(local: Expr) -> Var:
    """Returns a local, as what can be assigned to."""
    if not isinstance(local, Var):
        raise TypeError(local)
    return local


class _Real:
    """An input as real numbers."""

    def __init__(self, lowering: Lowering, position: int, name: str) -> None:
        type_ = lowering.context.input(position)
        self.width = type_.shape[-1]
        self.buffer = lowering.input(position, name)
        self.quant = None if type_.dtype is DType.FLOAT32 else lowering.context.quant(type_)

    def at(self, row: Expr, column: Expr) -> Expr:
        value = load(self.buffer, add(mul(row, const(self.width)), column))
        if self.quant is None:
            return value
        centred = sub(cast(value, Scalar.I32), i32(self.quant.zero_point[0]))
        return mul(cast(centred, Scalar.F32), f32(self.quant.scale[0]))


class _Detection:
    """One lowering of the operator."""

    def __init__(self, context: Context) -> None:
        if not isinstance(context.node.op, DetectionPostProcess):
            raise TypeError(context.node.op)
        self.op = context.node.op
        self.lowering = Lowering("detection", context)
        self.b = self.lowering.b
        self.count = context.input(_BOXES).shape[1]
        self.encoded = _Real(self.lowering, _BOXES, "encoded")
        self.input_scores = _Real(self.lowering, _SCORES, "class_scores")
        self.anchors = _Real(self.lowering, _ANCHORS, "anchors")
        self.first_class = self.input_scores.width - self.op.num_classes
        names = ("boxes", "classes", "scores", "number")
        self.boxes, self.classes, self.scores, self.number = (
            self.lowering.output(i, name) for i, name in enumerate(names)
        )

    def lowered(self) -> Lowered:
        self._clear()
        found = self._regular() if self.op.regular_nms else self._fast()
        self.b.store(self.number, const(0), cast(found, Scalar.F32))
        return self.lowering.finish()

    def _clear(self) -> None:
        for buffer in (self.boxes, self.classes, self.scores):
            with self.b.loop("i", buffer.size) as i:
                self.b.store(buffer, i, f32(0.0))

    def score(self, row: Expr, class_: Expr) -> Expr:
        """Returns the score of a class; classes are counted without the background."""
        return self.input_scores.at(row, add(const(self.first_class), class_))

    def decoded(self, row: Expr) -> Box:
        """Returns a box, decoded from its encoding and its anchor."""
        b = self.b
        code = [self.encoded.at(row, const(i)) for i in range(4)]
        anchor = [b.let("anchor", self.anchors.at(row, const(i))) for i in range(4)]
        scale = [f32(s) for s in self.op.scale_yxhw]
        middle = [
            b.let("middle", add(mul(div(code[i], scale[i]), anchor[i + 2]), anchor[i]))
            for i in (0, 1)
        ]
        half = [
            b.let("half", mul(mul(f32(0.5), float_math.exp(b, div(code[i], scale[i]))), anchor[i]))
            for i in (2, 3)
        ]
        low = [b.let("low", sub(m, h)) for m, h in zip(middle, half, strict=True)]
        high = [b.let("high", add(m, h)) for m, h in zip(middle, half, strict=True)]
        return Box(low[0], low[1], high[0], high[1])

    # -- all classes at once

    def _fast(self) -> Expr:
        b, op = self.b, self.op
        ranks = min(op.max_classes_per_detection, op.num_classes)
        stride = op.max_classes_per_detection
        found = b.local("found", i32(0))
        last = _Last.at_start(self)
        with b.loop("d", op.max_detections) as d, b.if_(eq(found, cast(d, Scalar.I32))):
            best = _Best(self)
            with b.loop("n", self.count) as n:
                value: Expr = b.local("value", self.score(n, const(0)))
                if op.num_classes > 1:
                    with b.loop("c", op.num_classes - 1) as c:
                        other = b.let("other", self.score(n, add(c, const(1))))
                        b.assign(_var(value), select(gt(other, value), other, value))

                def taken(box: Box, d: Expr = d) -> Expr:
                    return suppressed(
                        b, lambda k: Box.load(b, self.boxes, mul(k, const(stride))),
                        op.max_detections, box, op.iou_threshold,
                        lambda k: lt(k, d),
                    )

                best.consider(n, value, last, taken)
            with b.if_(ge(best.row, i32(0))):
                b.assign(found, add(cast(d, Scalar.I32), i32(1)))
                last.become(best)
                row = b.let("row", cast(clamp(best.row, 0, self.count - 1), Scalar.INDEX))
                self._store_ranked(row, mul(d, const(stride)), ranks, best)
        return found

    def _store_ranked(self, row: Expr, slot: Expr, ranks: int, best: _Best) -> None:
        """Stores a box once for each of its best classes, in their order."""
        b = self.b
        value, class_ = b.local("above", f32(_ABOVE_ALL)), b.local("class", i32(-1))
        with b.loop("k", ranks) as k:
            top, which = b.local("top", f32(-_ABOVE_ALL)), b.local("which", i32(0))
            with b.loop("c", self.op.num_classes) as c:
                other = b.let("other", self.score(row, c))
                number = b.let("number_of_class", cast(c, Scalar.I32))
                follows = or_(lt(other, value), and_(eq(other, value), gt(number, class_)))
                with b.if_(and_(follows, gt(other, top))):
                    b.assign(top, other)
                    b.assign(which, number)
            b.assign(value, top)
            b.assign(class_, which)
            at = b.let("at", add(slot, k))
            best.box.store(b, self.boxes, at)
            b.store(self.classes, at, cast(which, Scalar.F32))
            b.store(self.scores, at, top)

    # -- each class alone

    def _regular(self) -> Expr:
        b, op = self.b, self.op
        rounds = min(op.detections_per_class, op.max_detections, self.count)
        size = b.local("size", i32(0))
        with b.loop("c", op.num_classes) as c:
            class_ = b.let("class", cast(cast(c, Scalar.I32), Scalar.F32))
            last = _Last.at_start(self)
            going = b.local("going", i32(1))
            with b.loop("t", rounds), b.if_(eq(going, i32(1))):
                best = _Best(self)
                with b.loop("n", self.count) as n:
                    value = b.let("value", self.score(n, c))

                    def taken(box: Box, class_: Expr = class_) -> Expr:
                        # A box of this class that is no more in the list stopped its class.
                        return suppressed(
                            b, lambda k: Box.load(b, self.boxes, k), op.max_detections, box,
                            op.iou_threshold,
                            lambda k: and_(
                                lt(cast(k, Scalar.I32), size), eq(load(self.classes, k), class_)
                            ),
                        )

                    best.consider(n, value, last, taken)
                last.become(best)
                room = lt(size, i32(op.max_detections))
                worst = load(self.scores, const(op.max_detections - 1))
                fits = or_(room, gt(best.score, worst))
                b.assign(going, select(and_(ge(best.row, i32(0)), fits), i32(1), i32(0)))
                with b.if_(eq(going, i32(1))):
                    self._insert(best, class_, size)
        return size

    def _insert(self, best: _Best, class_: Expr, size: Var) -> None:
        """Inserts into the sorted list, behind equal scores; a full list loses its last entry."""
        b, most = self.b, self.op.max_detections
        before = b.local("before", i32(0))
        with b.loop("k", most) as k:
            ahead = and_(lt(cast(k, Scalar.I32), size), ge(load(self.scores, k), best.score))
            b.assign(before, add(before, select(ahead, i32(1), i32(0))))
        b.assign(size, min_(add(size, i32(1)), i32(most)))
        with b.loop("r", most) as r:
            k = b.let("to", sub(const(most - 1), r))
            with b.if_(and_(ge(k, const(1)), gt(cast(k, Scalar.I32), before),
                            lt(cast(k, Scalar.I32), size))):
                self._copy(sub(k, const(1)), k)
            with b.else_(), b.if_(eq(cast(k, Scalar.I32), before)):
                best.box.store(b, self.boxes, k)
                b.store(self.classes, k, class_)
                b.store(self.scores, k, best.score)

    def _copy(self, source: Expr, target: Expr) -> None:
        b = self.b
        for i in range(4):
            value = load(self.boxes, add(mul(source, const(4)), const(i)))
            b.store(self.boxes, add(mul(target, const(4)), const(i)), value)
        for buffer in (self.classes, self.scores):
            b.store(buffer, target, load(buffer, source))


class _Last:
    """The candidate found last: its score and row, which those to come follow."""

    def __init__(self, detection: _Detection, score: Var, row: Var) -> None:
        self.b, self.score, self.row = detection.b, score, row

    @staticmethod
    def at_start(detection: _Detection) -> _Last:
        b = detection.b
        return _Last(
            detection, b.local("last_score", f32(_ABOVE_ALL)), b.local("last_row", i32(-1))
        )

    def become(self, best: _Best) -> None:
        self.b.assign(self.score, best.score)
        self.b.assign(self.row, best.row)


class _Best:
    """The best candidate of a round so far; ``row`` is -1 before there is one."""

    def __init__(self, detection: _Detection) -> None:
        b = self.b = detection.b
        self.detection = detection
        self.score = b.local("best_score", f32(0.0))
        self.row = b.local("best_row", i32(-1))
        self.box = Box(*(b.local("best", f32(0.0)) for _ in range(4)))

    def consider(self, n: Expr, score: Expr, last: _Last, is_suppressed: IsSuppressed) -> None:
        """Emits that row ``n`` becomes the best, if it is better and not suppressed.

        ``is_suppressed`` says whether a box found before suppresses its box (i32 1 or 0).
        """
        b = self.b
        row = b.let("row_of_box", cast(n, Scalar.I32))
        enough = ge(score, f32(self.detection.op.score_threshold))
        follows = or_(
            lt(score, last.score), and_(eq(score, last.score), gt(row, last.row))
        )
        better = or_(lt(self.row, i32(0)), gt(score, self.score))
        with b.if_(and_(enough, follows, better)):
            box = self.detection.decoded(n)
            with b.if_(eq(is_suppressed(box), i32(0))):
                b.assign(self.score, score)
                b.assign(self.row, row)
                for old, new in zip(self.box.sides, box.sides, strict=True):
                    b.assign(_var(old), new)
