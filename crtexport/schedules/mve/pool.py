"""Pooling on MVE: as many channels at once as a vector has lanes.

Means of integers are sums first, in vectors, and then divided one by one. Those of ONNX Runtime are
sums of floats, each channel's in the order of its window.
"""

from __future__ import annotations

import math

from crtexport.ir.ops import AveragePool2D, MaxPool2D
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import call, cast, f32, flat_index, i32, load, load_vector
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.ops.pool import LOWEST, RealAverage, mean, store_result
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.pooling import At, VectorPool
from crtexport.schedules.mve.requantize import SUFFIXES, limited

_VECTORS = {DType.INT8: Scalar.I8X16, DType.INT16: Scalar.I16X8, DType.FLOAT32: Scalar.F32X4}
_SMALL = 32767 // 128
"""Most int8 values whose sum always has 16 bits."""


def lower(context: Context, op: AveragePool2D | MaxPool2D, *, floats: bool) -> Lowered | None:
    """Returns a pooling that keeps its operator's rules; None where this is no way."""
    dtype = context.input(0).dtype
    average = isinstance(op, AveragePool2D)
    real = dtype is DType.FLOAT32
    if dtype not in _VECTORS or (real and (average or not floats)):
        return None
    if 0 in (*context.input(0).shape, *context.output().shape):
        return None
    vector = _VECTORS[dtype]
    averaged = RealAverage.of(context) if average else None
    if averaged is not None and not floats:
        return None
    if averaged is not None:
        vector = Scalar.F32X4
    elif average:
        small = dtype is DType.INT8 and op.window[0] * op.window[1] <= _SMALL
        vector = Scalar.I16X8 if small else Scalar.I32X4
    if context.input(0).shape[3] < vector.lanes // 2:
        return None
    lowering = Lowering("average_pool2d" if average else "max_pool2d", context)
    _MvePool(lowering, op, vector, averaged).emit()
    return lowering.finish()


class _MvePool(VectorPool):
    def __init__(
        self, lowering: Lowering, op: AveragePool2D | MaxPool2D, vector: Scalar,
        averaged: RealAverage | None,
    ) -> None:
        super().__init__(lowering, op, vector.lanes)
        self.vector, self.averaged = vector, averaged
        if self.average:
            self.sums = lowering.scratch("sums", vector.lane, self.x.shape[3])

    def start(self) -> Expr:
        if self.vector.is_float:
            return self._call("dup", f32(0.0 if self.average else LOWEST))
        return self._call("dup", i32(0 if self.average else self.x.dtype.limits[0]))

    def combined(self, acc: Expr, index: Expr, count: int) -> Expr:
        value: Expr
        if self.averaged is not None:
            source = self.averaged.source
            steps: Expr = load_vector(self.source, index, Scalar.I32X4, count)
            if source.zero_point[0]:
                zero = call("mve_dup_s32", i32(-source.zero_point[0]), type_=Scalar.I32X4)
                steps = call("mve_add_s32", steps, zero, type_=Scalar.I32X4)
            scale = self._call("dup", f32(source.scale[0]))
            value = self._call("mul", call("mve_from_s32", steps, type_=self.vector), scale)
        else:
            value = load_vector(self.source, index, self.vector, count)
        return self._call("add" if self.average else "max", acc, value)

    def finish(self, at: At, cells: Expr, first: Expr, count: int, acc: Expr) -> None:
        del cells
        if self.average:
            self.b.store_vector(self.sums, first, acc, count)
            return
        self.put(at, first, count, self._clamped(acc))

    def _call(self, name: str, *args: Expr) -> Expr:
        return call(f"mve_{name}_{SUFFIXES[self.vector]}", *args, type_=self.vector)

    def _clamped(self, value: Expr) -> Expr:
        """Returns ``value`` within what the activation allows."""
        if self.vector.is_float:
            return limited(value, float_range(self.op.activation), (-math.inf, math.inf))
        bounds = activation_range(self.op.activation, self.y)
        return limited(value, bounds, self.y.dtype.limits)

    def pixel(self, at: At, cells: Expr) -> None:
        """Emits a pixel, whose sums are divided when there are those of all channels."""
        super().pixel(at, cells)
        if not self.average:
            return
        b = self.b
        with b.loop("c", self.y.shape[3]) as c:
            total: Expr = load(self.sums, c)
            if self.averaged is None:
                total = cast(total, Scalar.I32)
            result = b.let("mean", mean(b.let("total", total), cells))
            if self.averaged is not None:
                result = self.averaged.stored(b, result)
            index = flat_index([*at, c], self.y.shape)
            store_result(self.lowering, self.op.activation, self.target, index, result)
