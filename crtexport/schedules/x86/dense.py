"""Convolutions and fully connected layers on x86-64, vectorized over output channels.

Bands of some rows of the image are copied with padding around them, unless floats can be read in
place. For every block of output channels, blocks of pixels then run through their windows: each
step broadcasts a value of each pixel (for int8: a pair, which PMADDWD multiplies at once, or four
values, offset to uint8, for VPDPBUSD) and multiplies it with as many weights as there are lanes,
with all accumulators in registers. Channels are padded to whole vectors with zero weights.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    clamp,
    const,
    div,
    load,
    load_vector,
    load_word,
    mul,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.lowering.weight_packing import Array, Packing, by_blocks
from crtexport.schedules.common.conv_geometry import Windows, windows_of
from crtexport.schedules.common.loop_tiling import VectorBlocks, pixels_overlapping
from crtexport.schedules.common.vector_requantize import known
from crtexport.schedules.x86 import bands as x86_bands
from crtexport.schedules.x86.bands import LIFT, Band, BandCopies
from crtexport.schedules.x86.machine import X86Machine
from crtexport.schedules.x86.requantize import RealFinish, X86Epilogue, finish_of, scales


def lower(context: Context, machine: X86Machine) -> Lowered | None:
    """Returns a kernel in vectors for a node that keeps its operator's rules; None for nodes that
    it isn't for."""
    op = context.node.op
    if not isinstance(op, Conv2D | FullyConnected):
        return None
    windows = windows_of(context)
    if windows is None or not windows.taps or not context.output().elements:
        return None
    machine = machine.fitting(context.output().shape[-1])
    match context.input(0).dtype, context.input(1).dtype:
        case DType.INT8, DType.INT8:
            return _integers(context, machine, windows)
        case DType.FLOAT32, DType.FLOAT32 | DType.INT8 if known(context):
            return _reals(context, machine, windows)
        case _:
            return None


class X86Tile(Struct, frozen=True):
    """``pixels`` x ``vectors`` of accumulators are kept in registers, for one group of pixels of a
    band after the other. A band has ``rows`` rows of pixels."""

    pixels: int
    vectors: int
    rows: int


_VECTORS = 3


@functools.cache
def block_for(windows: Windows, channels: int, machine: X86Machine, *, copied: int) -> X86Tile:
    """Returns the tile that is estimated to be the fastest. ``copied``: the bytes of an element in
    copies, 0 if nothing is copied."""
    if windows.pixels == 1:
        most = 8 if machine.lanes == 8 else 4
        return X86Tile(1, VectorBlocks.fewest(most, channels, machine.lanes).count, 1)
    vectors = -(-channels // machine.lanes)
    # Where instructions overwrite what they take, scaling has few registers beside sums.
    crowded = machine.lanes == 4 and 0 < copied < Scalar.F32.itemsize
    shapes = [
        (count, wide, windows.taps * -(-vectors // wide) * _step(count, wide, crowded=crowded))
        for wide in range(1, min(vectors, _VECTORS) + 1)
        for count in range(1, (machine.registers - 2) // wide)
    ]

    def costs() -> Iterator[tuple[float, X86Tile]]:
        """Yields the cost of each tile, in products of vectors; two products, or two loads, are
        done at a time."""
        for rows in range(1, windows.y[1] + 1):
            band = Band(windows, rows)
            if not x86_bands.fits(band, copied or Scalar.F32.itemsize):
                break
            bands, pixels = -(-windows.y[1] // rows), band.pixels
            if rows > 1 and bands == -(-windows.y[1] // (rows - 1)):
                continue  # as many bands of fewer rows take no longer
            copies = 2 * band.elements / machine.lanes if copied else 0
            for count, wide, steps in shapes:
                if count <= pixels:
                    yield bands * (steps * -(-pixels // count) + copies), X86Tile(count, wide, rows)

    return min(costs(), key=lambda found: (found[0], found[1].rows))[1]


def _step(pixels: int, vectors: int, *, crowded: bool) -> float:
    """Returns the cost of a step of a block: products or loads, whichever take longer, plus a
    constant; fewer than eight accumulators wait for each other. ``crowded``: registers are scarce,
    so that each accumulator adds to the cost, as was measured."""
    steps = max(pixels * vectors, 8, pixels + vectors) + 0.5
    return steps * (1 + pixels * vectors / 64) if crowded else steps


class Panels(Packing, frozen=True):
    """Packs weights (channels x taps) of ``itemsize`` bytes in the order in which they are read:
    blocks of channels, steps of ``taps_per_step`` taps, vectors, lanes, taps of the step. The last
    block has only the vectors that it needs, padded with zeros. Each of several runs of ``run``
    taps is padded with zeros to whole steps."""

    vectors: int
    lanes: int
    taps_per_step: int
    itemsize: int
    run: int = 0

    @property
    def block(self) -> int:
        return self.vectors * self.lanes

    @property
    def step(self) -> int:
        return self.run or self.taps_per_step

    def nbytes(self, rows: int, columns: int) -> int:
        run = self.run or columns
        step = self.taps_per_step
        lanes, taps = -(-rows // self.lanes) * self.lanes, -(-run // step) * step
        return lanes * (columns // run if run else 0) * taps * self.itemsize

    def __call__(self, weights: Array) -> Array:
        channels, columns = weights.shape
        run = self.run or columns
        lanes, steps = -(-channels // self.lanes) * self.lanes, -(-run // self.taps_per_step)
        padded = np.zeros((lanes, columns // run, steps * self.taps_per_step), weights.dtype)
        padded[:channels, :, :run] = weights.reshape(channels, -1, run)
        # What is met in one step moves as one number.
        joined = padded.reshape(lanes, -1).view(f"u{self.taps_per_step * self.itemsize}")
        return by_blocks(joined, self.block)


def _name(context: Context, windows: Windows) -> str:
    if isinstance(context.node.op, FullyConnected):
        return "fully_connected"
    return "pointwise_conv2d" if windows.pointwise else "conv2d"


def _integers(context: Context, machine: X86Machine, windows: Windows) -> Lowered | None:
    dense = isinstance(context.node.op, FullyConnected)
    sums = IntegerSums.of(context, 0, fully_connected=dense)
    if sums.weight_zero or not scales(sums, machine):
        return None
    lowering = Lowering(_name(context, windows), context)
    windows = _in_rows(windows)
    x = lowering.input(0, "input")
    line, step = (Scalar.I8, 4) if machine.dots else (Scalar.I16, 2)
    work = _DenseWork.of(windows, len(sums.folded), machine, step, line.itemsize)
    # In whole words for dots.
    stored = Scalar.I32 if machine.dots else Scalar.I8
    weights = lowering.packed(
        "weights", stored, work.packing(1), len(sums.folded), row_multiple=work.vectors.whole,
        align=machine.nbytes,
    )
    if machine.dots:  # sums of lifted values are that many times the weights too large
        sums = replace(sums, folded=sums.folded - LIFT * context.sums(1, 0, 0)[0])
    finish = finish_of(lowering, machine, sums)
    output = lowering.output()
    # The last step of a run may see what is behind it.
    bands = BandCopies(
        lowering, machine, work.band, x, line, sums.zero_point, behind=step - 1, lifts=machine.dots
    )
    blocks = _DotBlocks if machine.dots else _IntegerBlocks
    blocks(lowering, work, weights, finish, output).emit(bands.copy, bands)
    return lowering.finish()


def _reals(context: Context, machine: X86Machine, windows: Windows) -> Lowered | None:
    lowering = Lowering(_name(context, windows), context)
    windows = _in_rows(windows)
    x = lowering.input(0, "input")
    channels, stored = context.output().shape[-1], context.input(1).dtype
    direct = windows.inside
    work = _DenseWork.of(windows, channels, machine, 1, 0 if direct else Scalar.F32.itemsize)
    weights = lowering.packed(
        "weights", SCALAR_OF[stored], work.packing(stored.itemsize), channels,
        row_multiple=work.vectors.whole, align=machine.nbytes,
    )
    finish = RealFinish(lowering, machine)
    output = lowering.output()
    blocks = _RealBlocks(lowering, work, weights, finish, output)
    if direct:
        blocks.emit(x, None)
        return lowering.finish()
    bands = BandCopies(lowering, machine, work.band, x, Scalar.F32, 0)
    blocks.emit(bands.copy, bands)
    return lowering.finish()


def _in_rows(windows: Windows) -> Windows:
    """Returns the same windows with as many rows of pixels as possible: where images have one row,
    or windows one cell, columns are treated as rows."""
    n, height, width, depth = windows.x
    if windows.pointwise:
        return replace(windows, x=(1, n * height * width, 1, depth), y=(1, windows.pixels, 1))
    if height > 1 or windows.kernel[0] > 1 or windows.y[1] > 1 or windows.pad_before[0]:
        return windows

    def swapped(pair: tuple[int, int]) -> tuple[int, int]:
        return pair[1], 1

    return Windows(
        (n, width, 1, depth), (n, windows.y[2], 1), swapped(windows.kernel),
        swapped(windows.stride), swapped(windows.dilation), (windows.pad_before[1], 0),
        group=windows.group,
    )


class _DenseWork(Struct, frozen=True):
    """The work of a kernel: runs of neighbouring taps, in steps of ``step``."""

    machine: X86Machine
    windows: Windows
    block: X86Tile
    vectors: VectorBlocks
    band: Band
    pitch: int
    """Elements from one row of the image, or its copy, to the next."""
    step: int

    @classmethod
    def of(
        cls, windows: Windows, channels: int, machine: X86Machine, step: int, copied: int
    ) -> _DenseWork:
        block = block_for(windows, channels, machine, copied=copied)
        band = Band(windows, block.rows)
        pitch = band.pitch if copied else windows.x[2] * windows.x[3]
        vectors = VectorBlocks.at_most(block.vectors, channels, machine.lanes)
        return cls(machine, windows, block, vectors, band, pitch, step)

    @property
    def runs(self) -> tuple[int, int]:
        """Returns the number of runs by rows and columns."""
        windows = self.windows
        if windows.dilation[1] > 1:
            return windows.kernel
        row = windows.kernel[1] * windows.x[3]
        joined = windows.dilation[0] == 1 and self.pitch == row
        return 1 if joined else windows.kernel[0], 1

    @property
    def run(self) -> int:
        """Returns the number of taps in a run."""
        return self.windows.taps // math.prod(self.runs)

    @property
    def steps(self) -> int:
        """Returns the number of steps in a run."""
        return -(-self.run // self.step)

    def packing(self, itemsize: int) -> Panels:
        """Returns the packing of the weights."""
        filled = self.run if self.run % self.step and math.prod(self.runs) > 1 else 0
        return Panels(self.vectors.count, self.machine.lanes, self.step, itemsize, filled)


class _DenseBlocks(abc.ABC):
    """Covers pixels x channels with blocks; subclasses implement a step."""

    stored = 1
    """Elements of the weights that these are for a channel and a step."""

    def __init__(
        self, lowering: Lowering, work: _DenseWork, weights: Buffer, finish: X86Epilogue,
        output: Buffer
    ) -> None:
        self.b, self.work, self.machine = lowering.b, work, work.machine
        self.weights, self.finish, self.output = weights, finish, output
        self.channels = lowering.context.output().shape[-1]
        self.x: Buffer = weights

    def emit(self, x: Buffer, bands: BandCopies | None) -> None:
        """Emits all pixels of ``x``, which is the input, or holds one band of it after the other.
        """
        self.x = x
        b, windows, rows = self.b, self.work.windows, self.work.block.rows
        if bands is not None:
            bands.begin()
        with (
            b.loop("n", windows.y[0]) as n,
            pixels_overlapping(b, windows.y[1], rows, "band") as first,
        ):
            pixel = mul(add(mul(n, const(windows.y[1])), first), const(windows.y[2]))
            origin: Expr = const(0)
            if bands is not None:
                bands.emit(n, first)
            else:
                height = add(mul(n, const(windows.x[1])), mul(first, const(windows.stride[0])))
                origin = b.let("origin", mul(height, const(self.work.pitch)))
            self._channels(b.let("pixel", pixel), origin)

    def _channels(self, pixel: Expr, origin: Expr) -> None:
        """Emits all output channels of a band. ``pixel``: the number of its first pixel, whose
        window begins at ``origin``."""
        steps = self.work.steps * math.prod(self.work.runs)
        with self.work.vectors.each(self.b) as (block, channel):
            self._pixels(pixel, origin, channel, mul(block, const(steps * self._step_size)))

    @property
    def _step_size(self) -> int:
        """Returns the number of weights of a block in one step."""
        return self.work.vectors.count * self.machine.lanes * self.stored

    def _pixels(self, pixel: Expr, origin: Expr, channel: Expr, weights: Expr) -> None:
        """Emits all pixels of a band, for the block of channels from ``channel`` on."""
        total, taps_per_step = self.work.band.pixels, self.work.block.pixels
        with pixels_overlapping(self.b, total, taps_per_step) as first:
            starts = [add(origin, start) for start in self._starts(first)]
            row = self.b.let("row", mul(add(pixel, first), const(self.channels)))
            rows = [add(row, const(i * self.channels)) for i in range(taps_per_step)]
            self._block(rows, starts, channel, weights)

    def _starts(self, first: Expr) -> list[Expr]:
        """Returns the positions in a band at which the windows of a block's pixels begin."""
        b, windows, pixels = self.b, self.work.windows, self.work.block.pixels
        wide = windows.y[2]
        down, right = self.work.pitch * windows.stride[0], windows.x[3] * windows.stride[1]
        if wide == 1:
            start = b.let("start", mul(first, const(down)))
            return [add(start, const(i * down)) for i in range(pixels)]
        if self.work.band.rows == 1 or wide % pixels == 0:
            y, x = divided(b, first, wide, wide - pixels)
            start = b.let("start", add(mul(y, const(down)), mul(x, const(right))))
            return [add(start, const(i * right)) for i in range(pixels)]
        starts = []
        for i in range(pixels):
            y, x = divided(b, add(first, const(i)), wide, wide - 1)
            starts.append(b.let(f"start_p{i}", add(mul(y, const(down)), mul(x, const(right)))))
        return starts

    def _block(
        self, rows: list[Expr], starts: Sequence[Expr], channel: Expr, weights: Expr
    ) -> None:
        b, work, wide = self.b, self.work, self._step_size
        channels = [add(channel, const(start)) for start in work.vectors.starts()]
        first = [b.let(f"first_v{v}", self.finish.start(at)) for v, at in enumerate(channels)]
        sums = [
            [b.local(f"sum_p{p}_v{v}", start) for v, start in enumerate(first)]
            for p in range(len(rows))
        ]
        down = work.pitch * work.windows.dilation[0]
        right = work.windows.x[3] * work.windows.dilation[1]
        with b.loop("down", work.runs[0]) as ky, b.loop("right", work.runs[1]) as kx:
            run = b.let("run", add(mul(ky, const(down)), mul(kx, const(right))))
            before = mul(add(mul(ky, const(work.runs[1])), kx), const(work.steps * wide))
            before = b.let("before", add(weights, before))
            with b.loop("step", work.steps) as step:
                self._step(
                    mul(step, const(work.step)), [add(start, run) for start in starts], sums,
                    add(before, mul(step, const(wide))),
                )
        self.finish.store_block(self.output, rows, sums, channel, work.vectors)

    @abc.abstractmethod
    def _step(
        self, tap: Expr, starts: Sequence[Expr], sums: list[list[Var]], first: Expr
    ) -> None:
        """Adds the products of the taps from ``tap`` of a run on with the weights from ``first``
        on."""


def divided(b: KernelBuilder, value: Expr, by: int, most: int) -> tuple[Expr, Expr]:
    """Returns quotient and remainder; the remainder is clamped to ``most``, so that its limits are
    known."""
    quotient = b.let("quotient", div(value, const(by)))
    remainder = sub(value, mul(quotient, const(by)))
    return quotient, b.let("remainder", clamp(remainder, 0, most))


class _IntegerBlocks(_DenseBlocks):
    stored = 2

    def _step(
        self, tap: Expr, starts: Sequence[Expr], sums: list[list[Var]], first: Expr
    ) -> None:
        b, machine = self.b, self.machine
        pairs = machine.pairs
        weights = [
            b.let(f"w_v{v}", load_vector(self.weights, add(first, const(v * pairs.lanes)), pairs))
            for v in range(len(sums[0]))
        ]
        for p, (start, line) in enumerate(zip(starts, sums, strict=True)):
            word = load_word(self.x, add(start, tap))
            x = b.let(f"x_p{p}", machine.spread_pair(word))
            for total, w in zip(line, weights, strict=True):
                b.assign(total, machine.of_ints("add", total, machine.of_ints("madd", x, w)))


class _DotBlocks(_DenseBlocks):
    def _step(
        self, tap: Expr, starts: Sequence[Expr], sums: list[list[Var]], first: Expr
    ) -> None:
        b, machine = self.b, self.machine
        weights = [
            b.let(f"w_v{v}", load_vector(
                self.weights, add(first, const(v * machine.lanes)), machine.ints
            ))
            for v in range(len(sums[0]))
        ]
        for p, (start, line) in enumerate(zip(starts, sums, strict=True)):
            word = load_word(self.x, add(start, tap))
            x = b.let(f"x_p{p}", machine.of_ints("dup", word))
            for total, w in zip(line, weights, strict=True):
                b.assign(total, machine.of_ints("dot", total, x, w))


class _RealBlocks(_DenseBlocks):
    def _step(
        self, tap: Expr, starts: Sequence[Expr], sums: list[list[Var]], first: Expr
    ) -> None:
        b, machine = self.b, self.machine
        weights = [
            b.let(f"w_v{v}", self._weights(add(first, const(v * machine.lanes))))
            for v in range(len(sums[0]))
        ]
        for p, (start, line) in enumerate(zip(starts, sums, strict=True)):
            x = b.let(f"x_p{p}", machine.of_reals("fdup", load(self.x, add(start, tap))))
            for total, w in zip(line, weights, strict=True):
                b.assign(total, machine.plus_product(total, x, w))

    def _weights(self, at: Expr) -> Expr:
        if self.weights.dtype is Scalar.F32:
            return load_vector(self.weights, at, self.machine.reals)
        whole = load_vector(self.weights, at, self.machine.ints)
        return self.machine.of_reals("real", whole)
