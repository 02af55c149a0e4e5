"""Pooling on x86-64: lanes are channels; sums and maxima have 32 bits, or are floats."""

from __future__ import annotations

import math

from crtexport.ir.ops import AveragePool2D, MaxPool2D
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import cast, load_vector
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.ops.pool import LOWEST, RealAverage
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.pooling import At, VectorPool
from crtexport.schedules.x86.machine import X86Machine

_DTYPES = (DType.INT8, DType.INT16, DType.FLOAT32)


def lower(context: Context, machine: X86Machine) -> Lowered | None:
    """Returns a kernel for a pooling that keeps its operator's rules; None for nodes that it isn't
    for: few channels, and averages as ONNX Runtime's of integers."""
    op = context.node.op
    if not isinstance(op, AveragePool2D | MaxPool2D):
        return None
    x, y = context.input(0), context.output()
    if 0 in (*x.shape, *y.shape) or x.dtype not in _DTYPES:
        return None
    if x.shape[3] < machine.lanes:
        machine = machine.fitting(1)
    if x.shape[3] < machine.lanes:
        return None
    average = isinstance(op, AveragePool2D)
    if average and (RealAverage.of(context) is not None or _may_wrap(op, x.dtype)):
        return None
    lowering = Lowering("average_pool2d" if average else "max_pool2d", context)
    (_X86RealPool if x.dtype is DType.FLOAT32 else _X86IntegerPool)(lowering, op, machine).emit()
    return lowering.finish()


def _may_wrap(op: AveragePool2D | MaxPool2D, dtype: DType) -> bool:
    """Returns whether a sum may need more than 32 bits."""
    return dtype.is_integer and -dtype.limits[0] * math.prod(op.window) >= 1 << 31


class _X86Pool(VectorPool):
    def __init__(
        self, lowering: Lowering, op: AveragePool2D | MaxPool2D, machine: X86Machine
    ) -> None:
        super().__init__(lowering, op, machine.lanes)
        self.machine = machine


class _X86IntegerPool(_X86Pool):
    def start(self) -> Expr:
        return self.machine.int_everywhere(0 if self.average else self.x.dtype.limits[0])

    def combined(self, acc: Expr, index: Expr, count: int) -> Expr:
        value = load_vector(self.source, index, self.machine.ints, count)
        return self.machine.of_ints("add" if self.average else "max", acc, value)

    def finish(self, at: At, cells: Expr, first: Expr, count: int, acc: Expr) -> None:
        value = self.machine.of_ints("mean", acc, cells) if self.average else acc
        bounds, limits = activation_range(self.op.activation, self.y), self.y.dtype.limits
        if bounds != limits:
            value = self.machine.between(value, bounds, limits)
        self.put(at, first, count, value)


class _X86RealPool(_X86Pool):
    def start(self) -> Expr:
        return self.machine.real_everywhere(0.0 if self.average else LOWEST)

    def combined(self, acc: Expr, index: Expr, count: int) -> Expr:
        value = load_vector(self.source, index, self.machine.reals, count)
        return self.machine.of_reals("fadd" if self.average else "fmax", acc, value)

    def finish(self, at: At, cells: Expr, first: Expr, count: int, acc: Expr) -> None:
        machine = self.machine
        if self.average:
            number = machine.of_reals("fdup", cast(cells, Scalar.F32))
            acc = machine.of_reals("fdiv", acc, number)
        for name, bound in zip(("fmax", "fmin"), float_range(self.op.activation), strict=True):
            if math.isfinite(bound):
                acc = machine.of_reals(name, acc, machine.real_everywhere(bound))
        self.put(at, first, count, acc)
