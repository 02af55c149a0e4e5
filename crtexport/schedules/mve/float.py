"""float32 convolutions and fully connected layers on MVE with floats: four units, or channels, at
once, each product added with one rounding. Weights of int8 stay that: their scale comes last."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Activation, Conv2D, DepthwiseConv2D, FullyConnected
from crtexport.kir.builder import KernelBuilder, add, call, const, f32, load, load_vector, mul
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.lowering.weight_packing import Array, BlockPacking
from crtexport.schedules.common.float_layers import Floats, Numbers, layer_of
from crtexport.schedules.common.padded_row_ring import Ring, geometry
from crtexport.schedules.common.row_products import RowSegment, cover
from crtexport.schedules.mve.requantize import LANES, limited

SUMS = 6
"""Vectors of sums; two of the eight registers are left for what is multiplied."""
MOST_RUNS = 16
"""Stretches of a window, and taps of a depthwise one, that are written out."""
PIXELS = 4
"""Pixels of a depthwise convolution that share the weights that are loaded."""


def lower(context: Context) -> Lowered | None:
    """Returns a node of float32 tensors, weights perhaps int8, that keeps its operator's rules;
    None where this is no way."""
    op = layer_of(context)
    match op:
        case FullyConnected():
            return _fully_connected(context, op)
        case DepthwiseConv2D():
            return _depthwise(context, op)
        case Conv2D():
            return _convolution(context, op)
        case None:
            return None


class _Table:
    """Vectors of weights in the order in which they are read, and what is done to sums of them."""

    def __init__(
        self, lowering: Lowering, numbers: Numbers, packed: Buffer, lanes: npt.NDArray[np.int64]
    ) -> None:
        """``lanes``: the channel of each lane of all vectors of sums; -1 is none."""
        self.b, self.activation = lowering.b, numbers.activation
        self.whole = numbers.scales is not None
        self._packed = packed

        def spread(values: Floats) -> Floats:
            return np.where(lanes < 0, 0, values[np.maximum(lanes, 0)]).astype(np.float32)

        self._bias = lowering.derived(
            "bias", Scalar.F32, spread(numbers.bias), "for each lane of the sums: bias"
        )
        self._scales = (
            lowering.derived(
                "scales", Scalar.F32, spread(numbers.scales),
                "for each lane of the sums: scale of its weights",
            )
            if numbers.scales is not None else None
        )

    def weights(self, at: Expr) -> Expr:
        """Returns four weights as floats."""
        if not self.whole:
            return self.b.let("weight", load_vector(self._packed, at, Scalar.F32X4))
        stored = load_vector(self._packed, at, Scalar.I32X4)
        return self.b.let("weight", call("mve_from_s32", stored, type_=Scalar.F32X4))

    def start(self, at: Expr) -> Expr:
        """Returns what sums of four channels begin with."""
        if self.whole:
            return self.b.let("start", _vector("dup", f32(0.0)))
        return self.b.let("start", load_vector(self._bias, at, Scalar.F32X4))

    def result(self, acc: Expr, at: Expr) -> Expr:
        """Returns the results for four sums."""
        if self._scales is not None:
            bias = load_vector(self._bias, at, Scalar.F32X4)
            acc = _vector("fma", bias, acc, load_vector(self._scales, at, Scalar.F32X4))
        return finished(self.b, acc, self.activation)


def _vector(name: str, *args: Expr) -> Expr:
    return call(f"mve_{name}_f32", *args, type_=Scalar.F32X4)


def finished(b: KernelBuilder, value: Expr, activation: Activation) -> Expr:
    """Returns ``value`` (f32x4), clamped."""
    return b.let("result", limited(value, float_range(activation), (-math.inf, math.inf)))


def _unroll(extent: int) -> int | None:
    return next((n for n in (4, 3, 2) if extent % n == 0), None)


class MveFloatWeights(BlockPacking, frozen=True):
    """Blocks of units, of which those of zeros fill the last one."""

    def nbytes(self, rows: int, columns: int) -> int:
        return super().nbytes(rows + -rows % self.channels_per_block, columns)

    def __call__(self, weights: Array) -> Array:
        missing = -len(weights) % self.channels_per_block
        return super().__call__(np.pad(weights, ((0, missing), (0, 0))))


class _MveFloatProducts:
    """Some rows times all units: a vector of units times a value of each row."""

    def __init__(
        self, lowering: Lowering, numbers: Numbers, most_rows: int
    ) -> None:
        self.b, self.units = lowering.b, numbers.channels
        stored = lowering.context.input(1)
        self.depth = stored.elements // self.units
        vectors = -(-self.units // LANES)
        shapes = [
            (rows, wide) for rows in range(1, min(SUMS, most_rows) + 1)
            for wide in range(1, SUMS // rows + 1) if vectors % wide == 0
        ]
        # The fewest instructions for a product: what is loaded serves several sums.
        self.high, self.wide = min(shapes, key=lambda s: 1 / s[0] + 1 / s[1])
        self.blocks = vectors // self.wide
        packing = MveFloatWeights(self.wide * LANES, stored.dtype.itemsize)
        packed = lowering.packed("packed", SCALAR_OF[stored.dtype], packing, self.units)
        lanes = np.arange(vectors * LANES)
        lanes[self.units :] = -1
        self._table = _Table(lowering, numbers, packed, lanes)

    def emit(self, segments: Sequence[RowSegment], output: Buffer, targets: Sequence[Expr]) -> None:
        """``targets``: the index of the first unit's result of each row."""
        rest = self.units % (self.wide * LANES)
        whole = self.blocks - 1 if rest else self.blocks
        with self.b.loop("units", whole) as block:
            self._block(segments, output, targets, block, self.wide * LANES)
        if rest:
            self._block(segments, output, targets, const(whole), rest)

    def _block(
        self, segments: Sequence[RowSegment], output: Buffer, targets: Sequence[Expr], block: Expr,
        count: int,
    ) -> None:
        b, step = self.b, self.wide * LANES
        unit = b.let("unit", mul(block, const(step)))
        places = [add(unit, const(i * LANES)) for i in range(self.wide)]
        starts = [self._table.start(place) for place in places]
        accs = [
            [b.local(f"acc_r{row}_v{v}", start) for v, start in enumerate(starts)]
            for row in range(len(targets))
        ]
        base = b.let("w", mul(block, const(self.depth * step)))
        done = 0
        for segment in segments:
            with b.loop("d", segment.depth, unroll=_unroll(segment.depth)) as d:
                at = add(base, mul(add(d, const(done)), const(step)))
                self._step(accs, segment, at, d)
            done += segment.depth
        for row, (line, target) in enumerate(zip(accs, targets, strict=True)):
            for i, acc in enumerate(line):
                stored = min(LANES, count - i * LANES)
                if stored > 0:
                    with b.named(f"r{row}_v{i}"):
                        result = self._table.result(acc, places[i])
                    b.store_vector(output, add(target, places[i]), result, stored)

    def _step(self, accs: list[list[Var]], segment: RowSegment, at: Expr, d: Expr) -> None:
        """Emits one value of each row times all units of the block."""
        b = self.b
        weights = [self._table.weights(add(at, const(i * LANES))) for i in range(self.wide)]
        for row, (line, start) in enumerate(zip(accs, segment.starts, strict=True)):
            x = b.let(f"x_r{row}", load(segment.buffer, add(start, d)))
            for acc, w in zip(line, weights, strict=True):
                b.assign(acc, call("mve_fma_n_f32", acc, w, x, type_=Scalar.F32X4))


def _fully_connected(context: Context, op: FullyConnected) -> Lowered:
    depth = context.input(1).shape[1]
    rows = context.input(0).elements // depth
    return _rows(context, op, "fully_connected", rows, depth)


def _rows(
    context: Context, op: Conv2D | FullyConnected, name: str, rows: int, depth: int
) -> Lowered:
    """Returns all of the input as rows that lie one behind the other."""
    lowering = Lowering(name, context)
    b, x = lowering.b, lowering.input(0, "input")
    product = _MveFloatProducts(lowering, Numbers.of(context, op, 0), rows)
    output = lowering.output()

    def block(first: Expr) -> None:
        lines = [add(first, const(i)) for i in range(product.high)]
        starts = tuple(b.let("row_start", mul(line, const(depth))) for line in lines)
        targets = [b.let("y", mul(line, const(product.units))) for line in lines]
        product.emit([RowSegment(x, starts, depth)], output, targets)

    cover(b, rows, product.high, block)
    return lowering.finish()


def _convolution(context: Context, op: Conv2D) -> Lowered | None:
    x, w, y = context.input(0).shape, context.input(1).shape, context.output().shape
    if w[3] != x[3]:
        return None
    if w[1:3] == (1, 1) and op.stride == (1, 1) and not op.padding.any:
        pixels = y[0] * y[1] * y[2]
        return _rows(context, op, "pointwise_conv2d", pixels, x[3])
    close = op.dilation[1] == 1
    runs = [
        (ky, kx, w[2] if close else 1)
        for ky in range(w[1]) for kx in (range(1) if close else range(w[2]))
    ]
    if len(runs) > MOST_RUNS:
        return None
    lowering = Lowering("conv2d", context)
    b, window = lowering.b, geometry(context, op)
    ring = Ring(lowering, lowering.input(0, "input"), window, x[3])
    product = _MveFloatProducts(lowering, Numbers.of(context, op, 0), ring.width)
    output = lowering.output()
    with ring.walk() as part:
        line = b.let("line", part.pixel(window))
        rows = [b.let("row_start", ring.start(const(0), slot)) for slot in part.slots]

        def block(first: Expr) -> None:
            pixels = [add(first, const(i)) for i in range(product.high)]
            columns = [mul(pixel, const(window.stride[1] * x[3])) for pixel in pixels]
            segments = [
                RowSegment(ring.rows, tuple(
                    b.let("at", add(rows[ky], column, const(kx * window.dilation[1] * x[3])))
                    for column in columns
                ), taps * x[3])
                for ky, kx, taps in runs
            ]
            targets = [b.let("y", mul(add(line, pixel), const(y[3]))) for pixel in pixels]
            product.emit(segments, output, targets)

        cover(b, ring.width, product.high, block)
    return lowering.finish()


def _depthwise(context: Context, op: DepthwiseConv2D) -> Lowered | None:
    x, w, y = context.input(0).shape, context.input(1).shape, context.output().shape
    if op.depth_multiplier != 1 or x[3] < LANES or w[1] * w[2] > MOST_RUNS:
        return None
    lowering = Lowering("depthwise_conv2d", context)
    b, window = lowering.b, geometry(context, op)
    ring = Ring(lowering, lowering.input(0, "input"), window, LANES)
    first = np.minimum(np.arange(ring.blocks) * LANES, x[3] - LANES)
    lanes = first[:, None] + np.arange(LANES)
    numbers = Numbers.of(context, op, 3)
    taps = context.values(1).reshape(-1, x[3])
    packed = lowering.derived(
        "packed", SCALAR_OF[context.input(1).dtype], taps[:, lanes].swapaxes(0, 1),
        f"for each {LANES} channels: the weights of each tap",
    )
    table = _Table(lowering, numbers, packed, lanes.reshape(-1))
    output = lowering.output()
    high = min(PIXELS, ring.width)
    step = window.stride[1] * LANES
    with ring.walk() as part:
        line = b.let("line", part.pixel(window))
        with b.loop("channels", ring.blocks) as block:
            rows = [b.let("row", ring.start(block, slot)) for slot in part.slots]
            base = b.let("w", mul(block, const(len(taps) * LANES)))
            channel = b.let("channel", ring.channel(block))
            lane = b.let("lane", mul(block, const(LANES)))

            def pixels(ox: Expr) -> None:
                start = table.start(lane)
                accs = [b.local(f"acc_x{i}", start) for i in range(high)]
                at = mul(ox, const(step))
                for tap in range(len(taps)):
                    ky, kx = divmod(tap, w[2])
                    weight = table.weights(add(base, const(tap * LANES)))
                    cell = add(rows[ky], at, const(kx * window.dilation[1] * LANES))
                    for i, acc in enumerate(accs):
                        index = add(cell, const(i * step))
                        value = b.let(f"value_tap{tap}_x{i}", load_vector(
                            ring.rows, index, Scalar.F32X4
                        ))
                        b.assign(acc, _vector("fma", acc, value, weight))
                for i, acc in enumerate(accs):
                    index = add(mul(add(line, ox, const(i)), const(y[3])), channel)
                    with b.named(f"x{i}"):
                        result = table.result(acc, lane)
                    b.store_vector(output, index, result)

            cover(b, ring.width, high, pixels)
    return lowering.finish()
