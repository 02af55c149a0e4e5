"""Pooling on MVE: as many channels at once as a vector has lanes.

Means of integers are sums first, in vectors, and then divided one by one.
"""

from __future__ import annotations

import math

from crtexport.ir.ops import AveragePool2D, MaxPool2D
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kernels.build import add, call, cast, const, f32, flat_index, i32, load, load_vector
from crtexport.kernels.build import mul as times
from crtexport.kernels.conv import image_axes, window_taps
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.pool import LOWEST, rounded_mean, store_result
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.kernels.requantize import float_range
from crtexport.schedules.mve_scale import SUFFIXES, limited

_VECTORS = {DType.INT8: Scalar.I8X16, DType.INT16: Scalar.I16X8, DType.FLOAT32: Scalar.F32X4}
_SMALL = 32767 // 128
"""Most int8 values whose sum always has 16 bits."""


def lower(context: Context, op: AveragePool2D | MaxPool2D, *, floats: bool) -> Lowered | None:
    """A pooling that keeps its operator's rules; None where this is no way."""
    dtype = context.input(0).dtype
    average = isinstance(op, AveragePool2D)
    real = dtype is DType.FLOAT32
    if dtype not in _VECTORS or (real and (average or not floats)):
        return None
    if 0 in (*context.input(0).shape, *context.output().shape):
        return None
    vector = _VECTORS[dtype]
    if average:
        small = dtype is DType.INT8 and op.window[0] * op.window[1] <= _SMALL
        vector = Scalar.I16X8 if small else Scalar.I32X4
    if context.input(0).shape[3] < vector.lanes // 2:
        return None
    lowering = Lowering("average_pool2d" if average else "max_pool2d", context)
    _Pool(lowering, op, vector).emit()
    return lowering.finish()


class _Pool:
    def __init__(
        self, lowering: Lowering, op: AveragePool2D | MaxPool2D, vector: Scalar
    ) -> None:
        self.lowering, self.b, self.op, self.vector = lowering, lowering.b, op, vector
        context = lowering.context
        self.x, self.y = context.input(0), context.output()
        self.axes = image_axes(self.x.shape, op.stride, (1, 1), op.padding)
        self.source, self.target = lowering.input(0, "input"), lowering.output()
        self.average = isinstance(op, AveragePool2D)
        if self.average:
            self.sums = lowering.scratch("sums", vector.lane, self.x.shape[3])

    def emit(self) -> None:
        """Pixel by pixel."""
        b, y = self.b, self.y.shape
        with b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy, b.loop("ox", y[2]) as ox:
            whole, rest = divmod(y[3], self.vector.lanes)
            with b.loop("block", whole) as block:
                first = b.let("first", times(block, const(self.vector.lanes)))
                self._channels((n, oy, ox), first, self.vector.lanes)
            if rest:
                self._channels((n, oy, ox), const(whole * self.vector.lanes), rest)
            if self.average:
                self._means((n, oy, ox))

    def _channels(self, at: tuple[Expr, Expr, Expr], first: Expr, count: int) -> None:
        """``count`` channels from ``first`` on: the largest values, or the sums into scratch."""
        b, real = self.b, self.vector.is_float
        lowest = f32(LOWEST) if real else i32(0 if self.average else self.x.dtype.limits[0])
        acc = b.local("acc", self._call("dup", lowest))

        def inside(_ky: Expr, _kx: Expr, iy: Expr, ix: Expr) -> None:
            index = flat_index([at[0], iy, ix, first], self.x.shape)
            value = load_vector(self.source, index, self.vector, count)
            b.assign(acc, self._call("add" if self.average else "max", acc, value))

        window_taps(b, self.axes, self.op.window, at[1:], inside, None)
        if self.average:
            b.store_vector(self.sums, first, acc, count)
            return
        index = flat_index([*at, first], self.y.shape)
        b.store_vector(self.target, index, self._clamped(acc), count)

    def _call(self, name: str, *args: Expr) -> Expr:
        return call(f"mve_{name}_{SUFFIXES[self.vector]}", *args, type_=self.vector)

    def _clamped(self, value: Expr) -> Expr:
        """``value`` within what the activation allows."""
        if self.vector.is_float:
            value = limited(value, float_range(self.op.activation), (-math.inf, math.inf))
        else:
            bounds = activation_range(self.op.activation, self.y)
            value = limited(value, bounds, self.y.dtype.limits)
        return self.b.let("result", value)

    def _means(self, at: tuple[Expr, Expr, Expr]) -> None:
        """Divides the sums of a pixel."""
        b = self.b
        cells: Expr = i32(self.op.window[0] * self.op.window[1])
        if self.op.padding.any:
            count = b.local("count", i32(0))

            def inside(_ky: Expr, _kx: Expr, _iy: Expr, _ix: Expr) -> None:
                b.assign(count, add(count, i32(1)))

            window_taps(b, self.axes, self.op.window, at[1:], inside, None)
            cells = count
        with b.loop("c", self.y.shape[3]) as c:
            total = b.let("total", cast(load(self.sums, c), Scalar.I32))
            mean = b.let("mean", rounded_mean(total, cells))
            index = flat_index([*at, c], self.y.shape)
            store_result(self.lowering, self.op.activation, self.target, index, mean)
