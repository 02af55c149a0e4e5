"""Pooling on RISC-V's vectors: lanes are channels; means are divided in vectors, too.

Averages of integers as ONNX Runtime's are those of sums where these decide on all of them, else of
floats, each channel's in the order of its window.
"""

from __future__ import annotations

from crtexport.ir.ops import AveragePool2D, MaxPool2D
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import cast, load_vector
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.real_average import AverageSteps
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.ops.pool import FAR, RealAverage
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.pooling import At, VectorPool
from crtexport.schedules.rvv.folds import Fold, FoldKind
from crtexport.schedules.rvv.machine import RvvMachine

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
    real = RealAverage.of(context) if isinstance(op, AveragePool2D) else None
    if real is not None and x.dtype is DType.INT8 and context.output().dtype is DType.INT8:
        return _as_floats(context, real, floats=floats)
    if real is not None:
        return None
    kind = FoldKind.SUM if average else FoldKind.MAX
    fold = Fold.of(kind, x.dtype, op.window[0] * op.window[1], x.shape[3])
    if fold is None:
        return None
    lowering = Lowering("average_pool2d" if average else "max_pool2d", context)
    _RvvPool(lowering, op, fold).emit()
    return lowering.finish()


def _as_floats(context: Context, real: RealAverage, *, floats: bool) -> Lowered | None:
    """Returns a kernel for averages as of floats; None where they take floats and there are none.
    """
    op, x = context.op(AveragePool2D), context.input(0)
    steps = real.steps(op)
    fold = Fold.of(FoldKind.SUM, x.dtype, op.window[0] * op.window[1], x.shape[3])
    lowering = Lowering("average_pool2d", context)
    if steps is not None and steps.decided and fold is not None:
        _DecidedPool(lowering, op, fold, steps).emit()
    elif floats:
        _RealPool(lowering, op, RvvMachine(32 if x.shape[3] > 16 else 16), real).emit()
    else:
        return None
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
        self.put(at, first, count, value)


class _DecidedPool(_RvvPool):
    """``steps`` tell the averages of floats from sums of integers."""

    def __init__(
        self, lowering: Lowering, op: AveragePool2D, fold: Fold, steps: AverageSteps
    ) -> None:
        super().__init__(lowering, op, fold)
        self.steps = steps

    def finish(self, at: At, cells: Expr, first: Expr, count: int, acc: Expr) -> None:
        del cells
        machine, steps = self.fold.machine, self.steps
        total = machine.raised(self.fold.whole(acc), steps.places)
        high = machine.upper(machine.plus(total, steps.addend), steps.factor)
        # Shifts of vectors round.
        lower = machine.plus(self.b.let("high", high), -(1 << steps.shift - 1))
        value = machine.rounded(lower, steps.shift)
        self.put(at, first, count, machine.between(value, self.bounds))


class _RealPool(_RvvPool):
    """Adds floats, divides and rounds them."""

    def __init__(
        self, lowering: Lowering, op: AveragePool2D, machine: RvvMachine, averaged: RealAverage
    ) -> None:
        super().__init__(lowering, op, Fold(FoldKind.SUM, DType.FLOAT32, 0, machine))
        self.averaged = averaged

    def combined(self, acc: Expr, index: Expr, count: int) -> Expr:
        machine, source = self.fold.machine, self.averaged.source
        steps: Expr = load_vector(self.source, index, machine.ints, count)
        number = machine.of_reals("real", machine.plus(steps, -source.zero_point[0]))
        scale = machine.real_everywhere(source.scale[0])
        return machine.of_reals("fadd", acc, machine.of_reals("fmul", number, scale))

    def finish(self, at: At, cells: Expr, first: Expr, count: int, acc: Expr) -> None:
        machine, target, less = self.fold.machine, self.averaged.target, self.averaged.less
        value = machine.of_reals("fdiv", acc, machine.of_reals("fdup", cast(cells, Scalar.F32)))
        value = machine.of_reals("fdiv", value, machine.real_everywhere(target.scale[0]))
        for name, end in (("fmax", -FAR), ("fmin", FAR)):
            value = machine.of_reals(name, value, machine.real_everywhere(end))
        zero = machine.real_everywhere(float(target.zero_point[0] + less))
        rounded = machine.of_ints("nearest", machine.of_reals("fadd", value, zero))
        self.put(at, first, count, machine.between(machine.plus(rounded, -less), self.bounds))
