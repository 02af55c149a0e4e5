"""Depthwise convolutions on x86-64, vectorized over channels.

int8 values and weights are multiplied in lanes of 32 bits by PMADDWD: weights are stored in 16 bits
and zero-extended, so that the upper halves multiply to 0. Where windows reach beyond the image,
bands of it are copied first, with padding around them.
"""

from __future__ import annotations

import math

import numpy as np

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.types import DType
from crtexport.kir.builder import add, const, flat_index, load_vector, mul
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.lowering.weight_packing import Array, Packing
from crtexport.schedules.common.conv_geometry import Windows, WindowWalk
from crtexport.schedules.common.loop_tiling import VectorBlocks, pixels_overlapping
from crtexport.schedules.common.vector_requantize import known
from crtexport.schedules.x86.bands import Band, BandCopies, highest
from crtexport.schedules.x86.machine import X86Machine
from crtexport.schedules.x86.requantize import RealFinish, X86Epilogue, finish_of, scales

_VECTORS = 4
"""Vectors of channels whose sums are in registers at once."""


def lower(context: Context, machine: X86Machine) -> Lowered | None:
    """Returns a kernel in vectors for a node that keeps its operator's rules; None for nodes that
    it isn't for."""
    op = context.node.op
    if not isinstance(op, DepthwiseConv2D) or not context.output().elements:
        return None
    x, y, w = context.input(0).shape, context.output().shape, context.input(1).shape
    if len(x) != 4 or w[3] != x[3] or not w[1] * w[2]:
        return None
    windows = Windows(
        x, y[:3], (w[1], w[2]), op.stride, op.dilation, (op.padding.top, op.padding.left)
    )
    machine = machine.fitting(x[3])
    match context.input(0).dtype, context.input(1).dtype:
        case DType.INT8, DType.INT8:
            return _integers(context, machine, windows)
        case DType.FLOAT32, DType.FLOAT32 if known(context):
            return _reals(context, machine, windows)
        case _:
            return None


class Lines(Packing, frozen=True):
    """Packs taps x channels, padded to whole vectors of ``lanes`` numbers of ``itemsize`` bytes."""

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


def _integers(context: Context, machine: X86Machine, windows: Windows) -> Lowered | None:
    sums = IntegerSums.of(context, 3)
    if sums.weight_zero or not scales(sums, machine):
        return None
    lowering = Lowering("depthwise_conv2d", context)
    x = lowering.input(0, "input")
    taps = math.prod(windows.kernel)
    weights = lowering.packed("weights", Scalar.U16, Lines(machine.lanes, 2), taps)
    finish = finish_of(lowering, machine, sums)
    work = _DepthwiseWork(lowering, machine, windows, x, weights, finish, sums.zero_point)
    work.emit()
    return lowering.finish()


def _reals(context: Context, machine: X86Machine, windows: Windows) -> Lowered | None:
    lowering = Lowering("depthwise_conv2d", context)
    x = lowering.input(0, "input")
    taps = math.prod(windows.kernel)
    weights = lowering.packed("weights", Scalar.F32, Lines(machine.lanes, 4), taps)
    work = _DepthwiseWork(lowering, machine, windows, x, weights, RealFinish(lowering, machine), 0)
    work.emit()
    return lowering.finish()


class _DepthwiseWork(WindowWalk):
    """Emits the loops over all pixels and channels."""

    def __init__(
        self, lowering: Lowering, machine: X86Machine, windows: Windows, x: Buffer,
        weights: Buffer, finish: X86Epilogue, zero: int,
    ) -> None:
        super().__init__(lowering.b, windows)
        self.machine, self.x = machine, x
        self.weights, self.finish = weights, finish
        self.channels = windows.x[3]
        self.output = lowering.output()
        self.bands: BandCopies | None = None
        self.band = Band(windows, windows.y[1])
        self.pitch = windows.x[2] * windows.x[3]
        if not windows.inside:
            self.band = highest(windows, x.dtype.itemsize)
            self.pitch = self.band.pitch
            self.bands = BandCopies(lowering, machine, self.band, x, x.dtype, zero)
            self.x = self.bands.copy

    def emit(self) -> None:
        """Emits all pixels."""
        b, windows, rows = self.b, self.windows, self.band.rows
        if self.bands is not None:
            self.bands.begin()
        with (
            b.loop("n", windows.y[0]) as n,
            pixels_overlapping(b, windows.y[1], rows, "band") as first,
        ):
            origin: Expr = const(0)
            if self.bands is not None:
                self.bands.emit(n, first)
            else:
                origin = b.let("origin", mul(n, const(windows.x[1] * self.pitch)))
            with b.loop("oy", rows) as oy, b.loop("ox", windows.y[2]) as ox:
                row = b.let("row", flat_index(
                    [n, add(first, oy), ox, const(0)], (*windows.y, self.channels)
                ))
                start = b.let("start", add(
                    origin, mul(oy, const(self.pitch * windows.stride[0])),
                    mul(ox, const(self.channels * windows.stride[1])),
                ))
                self._channels(row, start)

    def _channels(self, row: Expr, start: Expr) -> None:
        vectors = VectorBlocks.fewest(_VECTORS, self.channels, self.machine.lanes)
        with vectors.each(self.b) as (_, channel):
            self._block(row, start, channel, vectors)

    def _block(self, row: Expr, start: Expr, channel: Expr, vectors: VectorBlocks) -> None:
        """Emits the block of channels from ``channel`` on."""
        b, machine, windows, x = self.b, self.machine, self.windows, self.x
        down, right = self.pitch * windows.dilation[0], self.channels * windows.dilation[1]
        channels = [add(channel, const(start)) for start in vectors.starts()]
        sums = [b.local(f"sum_v{v}", self.finish.start(at)) for v, at in enumerate(channels)]
        vector = machine.reals if x.dtype is Scalar.F32 else machine.ints
        pitch = self.weights.size // (windows.kernel[0] * windows.kernel[1])
        with b.loop("ky", windows.kernel[0]) as ky, b.loop("kx", windows.kernel[1]) as kx:
            seen = b.let("seen", add(start, mul(ky, const(down)), mul(kx, const(right))))
            tap = b.let("tap", mul(add(mul(ky, const(windows.kernel[1])), kx), const(pitch)))
            for v, (total, at) in enumerate(zip(sums, channels, strict=True)):
                values = b.let(f"x_v{v}", load_vector(x, add(seen, at), vector, vectors.there))
                weights = b.let(f"w_v{v}", load_vector(self.weights, add(tap, at), vector))
                if vector is machine.reals:
                    b.assign(total, machine.plus_product(total, values, weights))
                else:
                    product = machine.of_ints("product", values, weights)
                    b.assign(total, machine.of_ints("add", total, product))
        self.finish.store_block(self.output, [row], [sums], channel, vectors)
