"""Means, sums, minima and maxima on RISC-V's vectors, over all axes but the last ones, along which
the lanes lie."""

from __future__ import annotations

from contextlib import ExitStack

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Mean, ReduceMax, ReduceMin, Sum
from crtexport.ir.types import DType
from crtexport.kir.builder import const, f32, mul
from crtexport.kir.language import Expr
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.numerics.result_steps import TwoProducts
from crtexport.lowering.ops.reduce import (
    ReductionLoops,
    float_steps,
    folded_count,
    mean_multiplier,
    walk_of,
)
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.rvv.folds import Fold, FoldKind

Reduction = Mean | Sum | ReduceMax | ReduceMin
_NAMES = {Mean: "mean", Sum: "sum", ReduceMax: "reduce_max", ReduceMin: "reduce_min"}
_KINDS = {Mean: FoldKind.SUM, Sum: FoldKind.SUM, ReduceMax: FoldKind.MAX, ReduceMin: FoldKind.MIN}
_LEAST = 6
"""Channels from which on vectors are worth it: of fewer, compilers make vectors of other kinds."""


def lower(context: Context, op: Reduction, *, floats: bool) -> Lowered | None:
    """Returns a kernel for a reduction that keeps its operator's rules; None for nodes that it
    isn't for."""
    x, walk = context.input(0), walk_of(context)
    if 0 in x.shape or len(walk.groups) < 2 or (x.dtype is DType.FLOAT32 and not floats):
        return None
    channels, folded = walk.groups[-1]
    if folded or channels < _LEAST:
        return None
    fold = Fold.of(_KINDS[type(op)], x.dtype, folded_count(context), channels)
    if fold is None:
        return None
    scaling: Multiplier | TwoProducts | None = None
    if fold.kind is FoldKind.SUM and x.dtype is not DType.FLOAT32:
        scaling = _scaling(context, op)
        if scaling is None:
            return None
    lowering = Lowering(_NAMES[type(op)], context)
    _Reduction(lowering, fold, walk, scaling).emit()
    return lowering.finish()


def _scaling(context: Context, op: Reduction) -> Multiplier | TwoProducts | None:
    """Returns what scales the sums; None where they aren't scaled, or vectors can't do it."""
    x, y = context.input(0), context.output()
    if x.quant is None:
        return None
    count = folded_count(context)
    if context.numerics is Numerics.ORT:
        if x.dtype is not DType.INT8 or not isinstance(op, Mean):
            return None
        found = float_steps(context.quant(x), context.quant(y), count, y.dtype.limits)
        return None if found is None or found.rounded else found
    ratio = context.quant(x).scale[0] / context.quant(y).scale[0]
    return mean_multiplier(ratio, count) if isinstance(op, Mean) else Multiplier.of([ratio])


class _Reduction:
    def __init__(
        self, lowering: Lowering, fold: Fold, walk: ReductionLoops,
        scaling: Multiplier | TwoProducts | None,
    ) -> None:
        self.b, self.fold, self.walk, self.scaling = lowering.b, fold, walk, scaling
        self.context = lowering.context
        self.source, self.target = lowering.input(0, "input"), lowering.output()

    def emit(self) -> None:
        b, lanes, last = self.b, self.fold.machine.lanes, len(self.walk.groups) - 1
        whole, rest = divmod(self.walk.groups[last][0], lanes)
        with ExitStack() as stack:
            at = {
                g: stack.enter_context(b.loop("o", extent))
                for g, (extent, folded) in enumerate(self.walk.groups[:last]) if not folded
            }
            with b.loop("block", whole) as block:
                self._part(at | {last: b.let("first", mul(block, const(lanes)))}, lanes)
            if rest:
                self._part(at | {last: const(whole * lanes)}, rest)

    def _part(self, at: dict[int, Expr], count: int) -> None:
        """Emits ``count`` neighbouring elements of the output."""
        b, fold = self.b, self.fold
        acc = b.local("acc", fold.start())
        with self.walk.inner(b) as inside:
            index = self.walk.source(at | inside)
            b.assign(acc, fold.plus(acc, self.source, index, count))
        result = b.let("result", self._result(acc))
        b.store_vector(self.target, self.walk.target(at), result, count)

    def _result(self, acc: Expr) -> Expr:
        context, machine, count = self.context, self.fold.machine, folded_count(self.context)
        if isinstance(self.scaling, TwoProducts):
            limits = context.output().dtype.limits
            return machine.by_two_products(self.b, self.fold.whole(acc), self.scaling, limits)
        if self.scaling is not None:
            before, after = context.quant(context.input(0)), context.quant(context.output())
            centred = machine.plus(self.fold.whole(acc), -before.zero_point[0] * count)
            limits, zero = context.output().dtype.limits, after.zero_point[0]
            value = machine.multiplied(
                self.b, centred, self.scaling, signed=limits[0] < zero
            )
            return machine.between(machine.plus(value, zero), limits)
        if isinstance(context.node.op, Mean):
            return machine.of_reals("fdiv", acc, machine.of_reals("fdup", f32(float(count))))
        return acc
