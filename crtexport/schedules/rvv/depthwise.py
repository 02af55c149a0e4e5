"""Depthwise convolutions on RISC-V's vectors: lanes are channels, or pixels times few channels.

Products of bytes have 16 bits. Since weights are known, taps are grouped so that the sums of their
products stay within 16 bits; these are then added to sums of 32 bits. Products of int16 values have
32 bits from the start. Windows are read from padded rows, which are copied once; a few vectors of a
row share the weights that are loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.types import DType
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import KernelBuilder, add, const, load_vector, min_, mul
from crtexport.kir.language import Expr, Scalar, Var
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.lowering.weight_packing import Array
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.padded_row_ring import Ring, geometry
from crtexport.schedules.common.vector_requantize import FloatVectorEpilogue, VectorEpilogue, known
from crtexport.schedules.rvv.dense import LIKELY
from crtexport.schedules.rvv.machine import RvvMachine
from crtexport.schedules.rvv.requantize import finish_of, sums_of

MOST_TAPS = 32
"""Windows up to this size are written out tap by tap."""
_SMALL_SUM = 32767 // 128
"""The largest sum of magnitudes of weights whose products with int8 values fit 16 bits."""
_TOGETHER = {16: 4, 32: 2}
"""Vectors whose sums are in registers at once, by lanes, where weights are read anew for each
pixel. Where a vector has all channels, compilers keep the weights and all else in registers."""
_ROUND, _RESULT = 44, 14
"""Instructions for a block, but for those of its taps, and for a vector of results."""


class RvvDepthwiseTile(Struct, frozen=True):
    """``vectors`` of ``lanes``, side by side: each has all channels of ``pixels`` pixels, or some
    channels of one pixel."""

    lanes: int
    pixels: int
    vectors: int

    @property
    def name(self) -> str:
        """Returns the name among the candidates of a node."""
        return f"{self.vectors} vectors, {self.lanes} lanes"

    @property
    def width(self) -> int:
        """Returns the number of pixels in all vectors."""
        return self.pixels * self.vectors

    def work(self, width: int, channels: int, taps: int) -> int:
        """Returns an estimate of the number of instructions for a row."""
        rounds = -(-width // self.width) * -(-channels // self.lanes)
        return rounds * (_ROUND + 2 * taps + self.vectors * (3 * taps + _RESULT))


def blocks(window: WindowGeometry, *, floats: bool) -> list[RvvDepthwiseTile]:
    """Returns tiles for a window, the best first. Vectors of ``floats`` take as many registers as
    their sums."""
    width, channels = window.y[2], window.x[3]
    taps = window.kernel[0] * window.kernel[1]
    found: list[RvvDepthwiseTile] = []
    for lanes, outputs_per_block in _TOGETHER.items():
        one_vector = channels <= lanes
        if one_vector and found:
            continue
        # Few channels: windows of neighbouring pixels are neighbours as well.
        fits = 2 * channels <= lanes and window.stride[1] == 1
        pixels = min(lanes // channels, width) if fits else 1
        most = 1 if one_vector or (
            floats and lanes == 32
        ) else min(outputs_per_block, width // pixels)
        found += [RvvDepthwiseTile(lanes, pixels, count) for count in range(1, most + 1)]
    return sorted(found, key=lambda block: block.work(width, channels, taps))


def candidates(context: Context, op: DepthwiseConv2D, *, floats: bool) -> list[Candidate]:
    """Returns the variants of a depthwise convolution that keeps its operator's rules, of
    ``floats`` where the processor has vectors of these; an empty list for nodes that they aren't
    for."""
    x, w = context.input(0), context.input(1)
    if (
        op.depth_multiplier != 1 or w.shape[1] * w.shape[2] > MOST_TAPS
        or 0 in (*x.shape, *w.shape, *context.output().shape)
    ):
        return []
    sums: IntegerSums | None = None
    match x.dtype, w.dtype:
        case DType.FLOAT32, DType.FLOAT32 if floats and known(context):
            pass
        case _:
            if (sums := sums_of(context, 3, floats=floats)) is None:
                return []
    window = geometry(context, op)
    return [
        Candidate(block.name, functools.partial(_lower, context, window, sums, block), i >= LIKELY)
        for i, block in enumerate(blocks(window, floats=sums is None))
    ]


def _lower(
    context: Context, window: WindowGeometry, sums: IntegerSums | None, block: RvvDepthwiseTile
) -> Lowered:
    lowering = Lowering("depthwise_conv2d", context)
    _RvvDepthwise(lowering, window, sums, block).emit()
    return lowering.finish()


class _RvvDepthwise:
    def __init__(
        self, lowering: Lowering, window: WindowGeometry, sums: IntegerSums | None,
        block: RvvDepthwiseTile
    ) -> None:
        self.b: KernelBuilder = lowering.b
        self.window, self.channels = window, window.x[3]
        self.machine = RvvMachine(block.lanes)
        source = lowering.input(0, "input")
        self.cell = min(self.channels, block.lanes)
        zero = 0 if sums is None else sums.zero_point
        copies = (RvvMachine(32) if self.channels == self.cell else self.machine).copies
        self.ring = Ring(lowering, source, window, self.cell, zero, copies)
        # A part of a row may be too narrow for all vectors.
        pixels = min(block.pixels, self.ring.width)
        self.block = RvvDepthwiseTile(
            block.lanes, pixels, min(block.vectors, self.ring.width // pixels)
        )
        weights = lowering.context.values(1).reshape(-1, self.channels).T
        self._add = (
            self._reals if sums is None else self._bytes if source.dtype is Scalar.I8
            else self._halves
        )
        self.groups = _groups(weights) if source.dtype is Scalar.I8 else []
        self.weights = lowering.derived(
            "weights", SCALAR_OF[lowering.context.input(1).dtype], self._packed(weights),
            "for each vector of channels: the weights of each tap",
        )
        self.finish: VectorEpilogue = (
            FloatVectorEpilogue(lowering, self.machine, pixels) if sums is None
            else finish_of(lowering, self.machine, _repeated(sums, pixels))
        )
        self.output = lowering.output()

    def _packed(self, weights: Array) -> Array:
        """Returns weights (channels x taps) in the order blocks x taps x lanes."""
        lanes, pixels = self.block.lanes, self.block.pixels
        starts = [
            min(first, self.channels - self.cell) for first in range(0, self.channels, self.cell)
        ]
        packed = np.zeros((len(starts), weights.shape[1], lanes), weights.dtype)
        for number, first in enumerate(starts):
            part = np.tile(weights[first : first + self.cell].T, pixels)
            packed[number, :, : part.shape[1]] = part
        return packed

    def emit(self) -> None:
        """Emits all pixels."""
        b, y, block = self.b, self.window.y, self.block
        width = self.ring.width
        with self.ring.walk() as part:
            line = b.let("line", mul(part.pixel(self.window), const(y[3])))
            with b.loop("column", -(-width // block.width)) as column:
                ox = mul(column, const(block.width))
                if width % block.width:
                    ox = b.let("ox", min_(ox, const(width - block.width)))
                # Weights that are read anew for each pixel need no registers for long.
                with b.loop("channels", self.ring.blocks, unroll=1) as number:
                    starts = self.ring.starts(number, part)
                    first = b.let("first", self.ring.channel(number))
                    self._block(starts, number, ox, first, line)

    def _block(
        self, starts: Sequence[Expr], number: Expr, ox: Expr, first: Expr, line: Expr
    ) -> None:
        """Emits some vectors of results, from column ``ox`` on."""
        b, block = self.b, self.block
        sums = [b.local(f"sum_v{v}", self.finish.start(first)) for v in range(block.vectors)]
        taps = self.window.kernel[0] * self.window.kernel[1]
        weights = b.let("w", mul(number, const(taps * block.lanes)))
        columns = mul(ox, const(self.window.stride[1] * self.cell))
        rows = [b.let(f"start_ky{ky}", add(start, columns)) for ky, start in enumerate(starts)]
        self._add(sums, rows, weights)
        for vector, total in enumerate(sums):
            pixel = add(ox, const(vector * block.pixels))
            at = add(line, mul(pixel, const(self.channels)), first)
            self.finish.store(self.output, at, total, first, block.pixels * self.cell)

    def _value(self, rows: Sequence[Expr], tap: int, vector: int, type_: Scalar) -> Expr:
        """Returns the inputs of a vector of pixels under a tap."""
        ky, kx = divmod(tap, self.window.kernel[1])
        column = vector * self.block.pixels * self.window.stride[1] + kx * self.window.dilation[1]
        at = add(rows[ky], const(column * self.cell))
        return self.b.let(f"value_tap{tap}_v{vector}", load_vector(self.ring.rows, at, type_))

    def _weights(self, first: Expr, tap: int, type_: Scalar) -> Expr:
        at = add(first, const(tap * self.block.lanes))
        return self.b.let(f"weights_tap{tap}", load_vector(self.weights, at, type_))

    def _bytes(self, sums: Sequence[Var], rows: Sequence[Expr], weights: Expr) -> None:
        b, machine = self.b, self.machine
        for group in self.groups:
            short: list[Expr | None] = [None] * len(sums)
            for tap in group:
                w = self._weights(weights, tap, machine.bytes)
                for vector, total in enumerate(short):
                    x = self._value(rows, tap, vector, machine.bytes)
                    short[vector] = b.let(f"products_tap{tap}_v{vector}", (
                        machine.of_halves("short_mul", x, w) if total is None
                        else machine.of_halves("short_mac", total, x, w)
                    ))
            for total, products in zip(sums, short, strict=True):
                if products is not None:
                    b.assign(total, machine.of_ints("widen", total, products))

    def _halves(self, sums: Sequence[Var], rows: Sequence[Expr], weights: Expr) -> None:
        def product(total: Expr, x: Expr, w: Expr) -> Expr:
            return self.machine.of_ints("wide_mac", total, x, w)

        self._taps(sums, rows, weights, self.machine.halves, product)

    def _reals(self, sums: Sequence[Var], rows: Sequence[Expr], weights: Expr) -> None:
        self._taps(sums, rows, weights, self.machine.reals, self.machine.plus_product)

    def _taps(
        self, sums: Sequence[Var], rows: Sequence[Expr], weights: Expr, type_: Scalar,
        plus_product: Callable[[Expr, Expr, Expr], Expr],
    ) -> None:
        """Adds the products of each tap."""
        for tap in range(self.window.kernel[0] * self.window.kernel[1]):
            w = self._weights(weights, tap, type_)
            for vector, total in enumerate(sums):
                x = self._value(rows, tap, vector, type_)
                self.b.assign(total, plus_product(total, x, w))


def _groups(weights: Array) -> list[list[int]]:
    """Yields groups of consecutive taps of weights (channels x taps) whose products can be summed
    in 16 bits."""
    groups: list[list[int]] = []
    total = np.zeros(len(weights), np.int64)
    for tap, size in enumerate(np.abs(weights.astype(np.int64)).T):
        if groups and (total + size).max() <= _SMALL_SUM:
            groups[-1].append(tap)
            total = total + size
        else:
            groups.append([tap])
            total = size
    return groups


def _repeated(sums: IntegerSums, pixels: int) -> IntegerSums:
    """Returns sums whose channels are repeated for some pixels."""
    multiplier = sums.multiplier
    if len(multiplier.mantissas) > 1:
        multiplier = Multiplier(multiplier.mantissas * pixels, multiplier.shifts * pixels)
    return replace(
        sums, folded=np.tile(sums.folded, pixels), magnitudes=np.tile(sums.magnitudes, pixels),
        multiplier=multiplier,
    )
