"""Depthwise convolutions on x86-64: vectors over channels.

int8 values and weights meet in lanes of 32 bits, where PMADDWD multiplies them in one step: weights
are stored in 16 bits and loaded without their sign, so that the upper halves multiply to nothing.
A window that sticks out of the image is gathered first; the others are read where they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from crtexport.frozen import dataclass
from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.types import DType
from crtexport.kernels.build import add, const, flat_index, load_vector, mul
from crtexport.kernels.ir import Buffer, Expr, Scalar
from crtexport.kernels.packing import Array, Packing
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.kernels.sums import IntegerSums
from crtexport.schedules.geometry import Walk, Windows
from crtexport.schedules.lanes_finish import (
    Finish,
    IntegerFinish,
    RealFinish,
    known,
    scales,
)
from crtexport.schedules.x86_gather import Gather
from crtexport.schedules.x86_machine import Machine

_VECTORS = 4
"""Vectors of channels whose sums are in registers at once."""

Source = Callable[[Expr, Expr], Expr]
"""The index of a tap's first channel, from its row and column in the window."""


def lower(context: Context, machine: Machine) -> Lowered | None:
    """A node that keeps its operator's rules in vectors; None where it can't be."""
    op = context.node.op
    if not isinstance(op, DepthwiseConv2D) or not context.output().elements:
        return None
    x, y, w = context.input(0).shape, context.output().shape, context.input(1).shape
    if len(x) != 4 or w[3] != x[3] or not w[1] * w[2]:
        return None
    windows = Windows(
        (x[0], x[1], x[2], x[3]), (y[0], y[1], y[2]), (w[1], w[2]), op.stride, op.dilation,
        (op.padding.top, op.padding.left),
    )
    match context.input(0).dtype, context.input(1).dtype:
        case DType.INT8, DType.INT8:
            return _integers(context, machine, windows)
        case DType.FLOAT32, DType.FLOAT32 if known(context):
            return _reals(context, machine, windows)
        case _:
            return None


@dataclass(frozen=True)
class Lines(Packing):
    """taps x channels, filled up to whole vectors of ``lanes`` numbers of ``itemsize`` bytes."""

    lanes: int
    itemsize: int

    @property
    def block(self) -> int:
        return 1

    @property
    def step(self) -> int:
        return self.lanes

    def nbytes(self, rows: int, columns: int) -> int:
        return rows * -(-columns // self.lanes) * self.lanes * self.itemsize

    def __call__(self, weights: Array) -> Array:
        channels = weights.shape[1]
        wide = weights.astype(f"{weights.dtype.kind}{self.itemsize}")
        return np.pad(wide, ((0, 0), (0, -channels % self.lanes)))


def _integers(context: Context, machine: Machine, windows: Windows) -> Lowered | None:
    sums = IntegerSums.of(context, 3)
    if sums.weight_zero or not scales(sums, machine):
        return None
    lowering = Lowering("depthwise_conv2d", context)
    x = lowering.input(0, "input")
    taps = math.prod(windows.kernel)
    weights = lowering.packed("weights", Scalar.U16, Lines(machine.lanes, 2), taps)
    finish = IntegerFinish(lowering, machine, sums)
    work = _Work(lowering, machine, windows, x, weights, finish, sums.zero_point)
    work.emit()
    return lowering.finish()


def _reals(context: Context, machine: Machine, windows: Windows) -> Lowered | None:
    lowering = Lowering("depthwise_conv2d", context)
    x = lowering.input(0, "input")
    taps = math.prod(windows.kernel)
    weights = lowering.packed("weights", Scalar.F32, Lines(machine.lanes, 4), taps)
    work = _Work(lowering, machine, windows, x, weights, RealFinish(lowering, machine), 0)
    work.emit()
    return lowering.finish()


class _Work(Walk):
    """Goes through all pixels and channels."""

    def __init__(
        self, lowering: Lowering, machine: Machine, windows: Windows, x: Buffer,
        weights: Buffer, finish: Finish, zero: int,
    ) -> None:
        super().__init__(lowering.b, windows)
        self.machine, self.x = machine, x
        self.weights, self.finish = weights, finish
        self.channels = windows.x[3]
        self.output = lowering.output()
        self.gather: Gather | None = None
        if not (windows.inside(0) and windows.inside(1)):
            size = windows.taps
            lines = lowering.scratch("line", x.dtype, size)
            self.gather = Gather(lowering.b, machine, windows, x, lines, zero)

    def emit(self) -> None:
        """All pixels."""
        b, windows = self.b, self.windows
        with (
            b.loop("n", windows.y[0]) as n, b.loop("oy", windows.y[1]) as oy,
            b.loop("ox", windows.y[2]) as ox,
        ):
            row = b.let("row", flat_index([n, oy, ox, const(0)], (*windows.y, self.channels)))
            y0, x0 = (
                b.let(name, add(mul(at, const(windows.stride[i])), const(-windows.before[i])))
                for i, (name, at) in enumerate((("first_y", oy), ("first_x", ox)))
            )
            limits = self.limits(y0, x0)
            with b.if_(limits):
                self._channels(row, self.x, lambda ky, kx: self.cell(n, y0, x0, ky, kx))
            if self.gather is not None:
                with b.else_():
                    self.gather.cut(n, y0, x0, const(0))
                    self._channels(row, self.gather.copy, lambda ky, kx: mul(
                        add(mul(ky, const(windows.kernel[1])), kx), const(self.channels)
                    ))

    def _channels(self, row: Expr, x: Buffer, source: Source) -> None:
        lanes = self.machine.lanes
        wide = _VECTORS * lanes
        whole = self.channels // wide
        with self.b.loop("block", whole) as block:
            self._block(row, x, source, mul(block, const(wide)), [lanes] * _VECTORS)
        left = self.channels - whole * wide
        if left:
            counts = [min(lanes, left - at) for at in range(0, left, lanes)]
            self._block(row, x, source, const(whole * wide), counts)

    def _block(
        self, row: Expr, x: Buffer, source: Source, channel: Expr, counts: list[int]
    ) -> None:
        """A vector of channels for each of ``counts``, of which that many lanes are there."""
        b, machine, windows = self.b, self.machine, self.windows
        channels = [add(channel, const(i * machine.lanes)) for i in range(len(counts))]
        sums = [b.local("sum", self.finish.start(c)) for c in channels]
        vector = machine.reals if x.dtype is Scalar.F32 else machine.ints
        pitch = self.weights.size // (windows.kernel[0] * windows.kernel[1])
        with b.loop("ky", windows.kernel[0]) as ky, b.loop("kx", windows.kernel[1]) as kx:
            start = b.let("start", source(ky, kx))
            tap = b.let("tap", mul(add(mul(ky, const(windows.kernel[1])), kx), const(pitch)))
            for total, at, count in zip(sums, channels, counts, strict=True):
                values = b.let("x", load_vector(x, add(start, at), vector, count))
                weights = b.let("w", load_vector(self.weights, add(tap, at), vector))
                if vector is machine.reals:
                    b.assign(total, machine.plus_product(total, values, weights))
                else:
                    product = machine.of_ints("product", values, weights)
                    b.assign(total, machine.of_ints("add", total, product))
        for total, at, count in zip(sums, channels, counts, strict=True):
            self.finish.store(self.output, add(row, at), total, at, count)
