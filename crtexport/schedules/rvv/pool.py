"""Pooling on RISC-V's vectors: lanes are channels; means are divided in vectors, too."""

from __future__ import annotations

from crtexport.ir.ops import AveragePool2D, MaxPool2D
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import cast, flat_index
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.ops.pool import RealAverage
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.pooling import At, VectorPool
from crtexport.schedules.rvv.folds import Fold, Kind

_LEAST = 2
"""Channels from which on vectors are worth it."""


def lower(context: Context, op: AveragePool2D | MaxPool2D, *, floats: bool) -> Lowered | None:
    """Returns a kernel for a pooling that keeps its operator's rules; None for nodes that it isn't
    for."""
    x, average = context.input(0), isinstance(op, AveragePool2D)
    if 0 in (*x.shape, *context.output().shape) or x.shape[3] < _LEAST:
        return None
    if x.dtype is DType.FLOAT32 and not floats:
        return None
    if average and RealAverage.of(context) is not None:
        return None
    kind = Kind.SUM if average else Kind.MAX
    fold = Fold.of(kind, x.dtype, op.window[0] * op.window[1], x.shape[3])
    if fold is None:
        return None
    lowering = Lowering("average_pool2d" if average else "max_pool2d", context)
    _RvvPool(lowering, op, fold).emit()
    return lowering.finish()


class _RvvPool(VectorPool):
    def __init__(
        self, lowering: Lowering, op: AveragePool2D | MaxPool2D, fold: Fold
    ) -> None:
        super().__init__(lowering, op, fold.machine.lanes)
        self.fold = fold
        self.real = self.x.dtype is DType.FLOAT32
        self.bounds: tuple[float, float] = (
            float_range(op.activation) if self.real else activation_range(op.activation, self.y)
        )

    def start(self) -> Expr:
        return self.fold.start()

    def combined(self, acc: Expr, index: Expr, count: int) -> Expr:
        return self.fold.plus(acc, self.source, index, count)

    def finish(self, at: At, cells: Expr, first: Expr, count: int, acc: Expr) -> None:
        machine = self.fold.machine
        if self.average and not self.real:
            value = machine.of_ints("mean", self.fold.whole(acc), cells)
            value = machine.between(value, self.bounds, self.y.dtype.limits)
        else:
            if self.average:
                number = machine.of_reals("fdup", cast(cells, Scalar.F32))
                acc = machine.of_reals("fdiv", acc, number)
            value = self.fold.clamped(acc, self.bounds)
        index = flat_index([*at, first], self.y.shape)
        self.b.store_vector(self.target, index, self.b.let("result", value), count)
