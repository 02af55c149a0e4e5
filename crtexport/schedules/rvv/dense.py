"""Convolutions and fully connected layers on RISC-V's vectors: lanes are output channels.

A step multiplies one value of each of a few pixels, from a general register, with the weights of as
many channels as a vector has lanes; all accumulators stay in registers. Windows are read in place:
from the input, or from padded rows that are copied once. Weights are packed in the order in which
they are read; the last channels aren't padded further than a vector reads.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.ir.types import DType
from crtexport.kir.builder import add, cast, const, load, load_vector, mul
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.lowering.weight_packing import Array, BlockPacking
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.padded_row_ring import Ring, RingRows, geometry
from crtexport.schedules.common.row_products import RowSegment, multiply_rows, multiply_windows
from crtexport.schedules.common.vector_requantize import FloatVectorEpilogue, VectorEpilogue, known
from crtexport.schedules.rvv.machine import RvvMachine
from crtexport.schedules.rvv.requantize import finish_of, sums_of

LIKELY = 2
"""The best blocks, between which the cost model decides; the others are for tuning."""
UNROLLS = (4, 3, 5, 2)
"""Steps that are written one after the other in a loop, the best first."""
_REGISTERS = 30
"""Of 128 bits, for sums and weights."""
_STEP, _RESULT = 3, 14
"""Instructions of a step but for those of its pixels, of which each has two; and of a result."""


class RvvTile(Struct, frozen=True):
    """Accumulators of ``pixels`` times a vector of ``lanes`` channels are kept in registers."""

    pixels: int
    lanes: int

    @property
    def name(self) -> str:
        """Returns the name among the candidates of a node."""
        return f"{self.pixels} pixels, {self.lanes} lanes"

    def work(self, pixels: int, channels: int, depth: int) -> int:
        """Returns an estimate of the number of instructions."""
        rounds = -(-pixels // self.pixels) * -(-channels // self.lanes)
        return rounds * (depth * (_STEP + 2 * self.pixels) + _RESULT * self.pixels)


def blocks(pixels: int, channels: int, depth: int, *, floats: bool) -> list[RvvTile]:
    """Returns the tiles whose accumulators and weights fit the registers, the best first."""
    found = []
    for lanes in (16, 32):
        size = lanes // 4
        weights = size if floats else size // 2 + size // 4
        most = min((_REGISTERS - weights) // size, pixels)
        found += [RvvTile(count, lanes) for count in range(1, most + 1)]
    return sorted(found, key=lambda block: (block.work(pixels, channels, depth), block.lanes))


def candidates(
    context: Context, op: Conv2D | FullyConnected, *, floats: bool
) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, of ``floats`` where the
    processor has vectors of these; an empty list for nodes that they aren't for."""
    x, w, y = context.input(0), context.input(1), context.output()
    if 0 in (*x.shape, *w.shape, *y.shape):
        return []
    rows = RingRows.of(context)
    sums: IntegerSums | None = None
    if rows is None and not (isinstance(op, Conv2D) and w.shape[3] == x.shape[3]):
        return []
    match x.dtype, w.dtype:
        case DType.FLOAT32, DType.FLOAT32 | DType.INT8 if floats and known(context):
            pass
        case _:
            dense = isinstance(op, FullyConnected)
            sums = sums_of(context, 0, fully_connected=dense, floats=floats)
            if sums is None:
                return []
    width = rows.counts[1] if rows is not None else y.shape[2]
    depth = w.elements // w.shape[0]
    found = blocks(width, w.shape[0], depth, floats=sums is None)
    return [
        Candidate(block.name, functools.partial(_lower, context, rows, sums, block), i >= LIKELY)
        for i, block in enumerate(found)
    ]


def _lower(
    context: Context, rows: RingRows | None, sums: IntegerSums | None, block: RvvTile
) -> Lowered:
    if rows is None:
        return _Convolution(context, sums, block).emit()
    lowering = Lowering(rows.name, context)
    x = lowering.input(0, "input")
    product = RvvProducts.of(lowering, sums, block)
    output = lowering.output()
    multiply_rows(
        lowering.b, rows, x, (product.channels, product.depth), block.pixels,
        lambda segments, targets: product.emit(segments, output, targets),
    )
    return lowering.finish()


class _Convolution:
    """A convolution whose windows are read from padded rows."""

    def __init__(self, context: Context, sums: IntegerSums | None, block: RvvTile) -> None:
        op = context.op(Conv2D)
        self.window = geometry(context, op)
        self.lowering = lowering = Lowering("conv2d", context)
        zero = 0 if sums is None else sums.zero_point
        source = lowering.input(0, "input")
        self.channels = self.window.x[3]
        self.ring = Ring(lowering, source, self.window, self.channels, zero, RvvMachine(32).copies)
        self.block = RvvTile(min(block.pixels, self.ring.width), block.lanes)
        rows, columns = self.window.kernel
        self.taps = columns if self.window.dilation[1] == 1 else 1
        self.parts = [(ky, kx) for ky in range(rows) for kx in range(0, columns, self.taps)]
        self.product = RvvProducts.of(lowering, sums, self.block)
        self.output = lowering.output()

    def emit(self) -> Lowered:
        """Emits the products of all pixels. Returns the kernel."""
        multiply_windows(self.ring, self.block.pixels, "p", lambda starts, pixels, targets: (
            self.product.emit(self._segments(starts, pixels), self.output, targets)
        ))
        return self.lowering.finish()

    def _segments(self, starts: Sequence[Expr], pixels: Sequence[Expr]) -> list[RowSegment]:
        """Returns the segments that are multiplied for some pixels of a row."""
        b, window, channels = self.lowering.b, self.window, self.channels
        columns = [mul(pixel, const(window.stride[1] * channels)) for pixel in pixels]
        return [
            RowSegment(
                self.ring.rows,
                tuple(
                    b.let(f"x_ky{ky}_kx{kx}_p{p}", add(
                        starts[ky], column, const(kx * window.dilation[1] * channels)
                    )) for p, column in enumerate(columns)
                ),
                self.taps * channels,
            )
            for ky, kx in self.parts
        ]


class RvvWeights(BlockPacking, frozen=True):
    """Packs blocks of channels, with padding for the last vector that is read."""

    @property
    def step(self) -> int:
        return 0

    def nbytes(self, rows: int, columns: int) -> int:
        return super().nbytes(rows, columns) + -rows % self.channels_per_block * self.itemsize

    def __call__(self, weights: Array) -> Array:
        filling = np.zeros(-len(weights) % self.channels_per_block, weights.dtype)
        return np.concatenate([super().__call__(weights), filling])


class RvvProducts(abc.ABC):
    """Products of ``pixels`` with all channels at a time."""

    def __init__(self, lowering: Lowering, machine: RvvMachine, finish: VectorEpilogue) -> None:
        weights = lowering.context.input(1)
        self.b, self.machine, self.finish = lowering.b, machine, finish
        self.channels = weights.shape[0]
        self.depth = weights.elements // self.channels
        packing = RvvWeights(machine.lanes, weights.dtype.itemsize)
        self.weights = lowering.packed(
            "weights", SCALAR_OF[weights.dtype], packing, self.channels
        )

    @staticmethod
    def of(lowering: Lowering, sums: IntegerSums | None, block: RvvTile) -> RvvProducts:
        """Returns the products of integers if there are ``sums``, else of floats."""
        machine = RvvMachine(block.lanes)
        if sums is None:
            return _RvvFloatProducts(lowering, machine, FloatVectorEpilogue(lowering, machine))
        return _Integers(lowering, machine, finish_of(lowering, machine, sums))

    def emit(self, segments: Sequence[RowSegment], output: Buffer, targets: Sequence[Expr]) -> None:
        """Emits the products and their epilogue. ``targets``: the index of each pixel's first
        result."""
        lanes = self.machine.lanes
        whole, rest = divmod(self.channels, lanes)
        with self.b.loop("channels", whole) as number:
            self._block(segments, output, targets, number, lanes)
        if rest:
            self._block(segments, output, targets, const(whole), rest)

    def _block(
        self, segments: Sequence[RowSegment], output: Buffer, targets: Sequence[Expr], number: Expr,
        count: int,
    ) -> None:
        """Emits a vector of channels, of which ``count`` exist."""
        b, lanes = self.b, self.machine.lanes
        channel = b.let("channel", mul(number, const(lanes)))
        start = b.let("first", mul(channel, const(self.depth)))
        sums = [
            b.local(f"sum_p{p}", self.finish.start(channel)) for p in range(len(targets))
        ]
        done = 0
        for segment in segments:
            # Not as a whole: what doesn't change would be computed before, for want of registers.
            unroll = next((n for n in UNROLLS if segment.depth % n == 0 and n < segment.depth), 1)
            with b.loop("tap", segment.depth, unroll=unroll) as tap:
                at = add(start, mul(add(tap, const(done)), const(count)))
                weights = b.let("w", self._weights(at))
                for total, first in zip(sums, segment.starts, strict=True):
                    value = load(segment.buffer, add(first, tap))
                    b.assign(total, self._plus_product(total, value, weights))
            done += segment.depth
        for total, target in zip(sums, targets, strict=True):
            self.finish.store(output, add(target, channel), total, channel, count)

    @abc.abstractmethod
    def _weights(self, at: Expr) -> Expr:
        """Returns the weights of a vector of channels."""

    @abc.abstractmethod
    def _plus_product(self, total: Expr, value: Expr, weights: Expr) -> Expr:
        """Returns accumulators plus one value times a vector of weights."""


class _Integers(RvvProducts):
    def _weights(self, at: Expr) -> Expr:
        return load_vector(self.weights, at, self.machine.halves)

    def _plus_product(self, total: Expr, value: Expr, weights: Expr) -> Expr:
        return self.machine.of_ints("mac", total, cast(value, Scalar.I32), weights)


class _RvvFloatProducts(RvvProducts):
    def _weights(self, at: Expr) -> Expr:
        if self.weights.dtype is Scalar.F32:
            return load_vector(self.weights, at, self.machine.reals)
        return self.machine.of_reals("real", load_vector(self.weights, at, self.machine.ints))

    def _plus_product(self, total: Expr, value: Expr, weights: Expr) -> Expr:
        return self.machine.plus_product(total, self.machine.of_reals("fdup", value), weights)
