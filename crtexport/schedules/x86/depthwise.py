"""Depthwise convolutions on x86-64, vectorized over channels, for blocks of neighbouring pixels.

int8 values of a column of a window, four for VPDPBUSD or two for PMADDWD, are brought together in
lanes of 32 bits, once for all pixels of a block whose windows have that column. Of floats, each
vector of weights is read once for a block. Where windows reach beyond the image, bands of it are
copied first, with padding around them.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.types import DType
from crtexport.kir.builder import add, call, const, flat_index, i32, load_vector, mul
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.lowering.weight_packing import Array, Packing
from crtexport.schedules.common.conv_geometry import Windows, WindowWalk
from crtexport.schedules.common.loop_tiling import VectorBlocks, pixels_overlapping
from crtexport.schedules.common.vector_requantize import known
from crtexport.schedules.x86.bands import LIFT, Band, BandCopies, highest
from crtexport.schedules.x86.machine import X86Machine
from crtexport.schedules.x86.requantize import RealFinish, X86Epilogue, finish_of, scales

_PIXELS, _VECTORS = 8, 4
"""The most pixels and vectors of a block."""
_WAITING = 8
"""Sums of floats that are added to while a first one's result isn't there."""
_OTHERS = 4
"""Registers that sums leave to everything else."""
_UNROLLED = 64
"""Products of a block and a group of rows up to which loops over columns are unrolled."""
_EPILOGUE = 14
"""Instructions of the epilogue of a vector, as far as the choice of blocks is concerned."""
_RESULTS = 16
"""Results that are narrowed and stored together."""


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
    """Packs taps x channels of float32, padded to whole vectors of ``lanes``."""

    lanes: int

    @property
    def block(self) -> int:
        return 1

    @property
    def step(self) -> int:
        return self.lanes

    def nbytes(self, rows: int, columns: int) -> int:
        return rows * -(-columns // self.lanes) * self.lanes * 4

    def __call__(self, weights: Array) -> Array:
        return np.pad(weights, ((0, 0), (0, -weights.shape[1] % self.lanes)))


class TapColumns(Packing, frozen=True):
    """Packs taps (``kernel`` rows x columns) x channels as words of ``taps`` weights below each
    other, in 8 or 16 bits: groups of rows, columns, channels, padded to whole vectors of ``lanes``.
    The last group is filled up with zeros."""

    kernel: tuple[int, int]
    taps: int
    lanes: int

    @property
    def block(self) -> int:
        return math.prod(self.kernel)

    def nbytes(self, rows: int, columns: int) -> int:
        groups = -(-rows // self.block) * -(-self.kernel[0] // self.taps)
        return groups * self.kernel[1] * -(-columns // self.lanes) * self.lanes * 4

    def __call__(self, weights: Array) -> Array:
        high, wide = self.kernel
        rows, channels = weights.shape
        filled = np.pad(weights, ((0, -rows % self.block), (0, -channels % self.lanes)))
        windows = filled.reshape(-1, high, wide, filled.shape[1]).astype(f"i{4 // self.taps}")
        padded = np.pad(windows, ((0, 0), (0, -high % self.taps), (0, 0), (0, 0)))
        groups = padded.reshape(-1, self.taps, wide, padded.shape[3])
        return np.ascontiguousarray(np.moveaxis(groups, 1, -1)).view(np.uint32)


def _integers(context: Context, machine: X86Machine, windows: Windows) -> Lowered | None:
    sums = IntegerSums.of(context, 3)
    if sums.weight_zero or not scales(sums, machine):
        return None
    lowering = Lowering("depthwise_conv2d", context)
    x = lowering.input(0, "input")
    packing = TapColumns(windows.kernel, 4 if machine.dots else 2, machine.lanes)
    weights = lowering.packed(
        "weights", Scalar.I32, packing, packing.block, align=machine.nbytes
    )
    if machine.dots:  # sums of lifted values are that many times the weights too large
        sums = replace(sums, folded=sums.folded - LIFT * context.sums(1, 3, 0)[0])
    finish = finish_of(lowering, machine, sums)
    _IntegerWork(lowering, machine, windows, x, weights, finish, sums.zero_point).emit()
    return lowering.finish()


def _reals(context: Context, machine: X86Machine, windows: Windows) -> Lowered | None:
    lowering = Lowering("depthwise_conv2d", context)
    x = lowering.input(0, "input")
    taps = math.prod(windows.kernel)
    weights = lowering.packed(
        "weights", Scalar.F32, Lines(machine.lanes), taps, align=machine.nbytes
    )
    _RealWork(lowering, machine, windows, x, weights, RealFinish(lowering, machine), 0).emit()
    return lowering.finish()


class _DepthwiseWork(WindowWalk, abc.ABC):
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
            self.bands = BandCopies(
                lowering, machine, self.band, x, x.dtype, zero, lifts=self.lifted
            )
            self.x = self.bands.copy
        self.pixels, self.vectors = self._block_size()

    @property
    def lifted(self) -> bool:
        """Returns True where copies have values as uint8."""
        return False

    def _block_size(self) -> tuple[int, VectorBlocks]:
        """Returns how many neighbouring pixels and vectors of channels are computed at once: of
        those whose sums have registers, the cheapest."""
        wide, lanes = self.windows.y[2], self.machine.lanes
        sums = self.machine.registers - _OTHERS
        sizes = [
            (pixels, vectors) for vectors in self.numbers_of_vectors()
            for pixels in range(1, min(wide, _PIXELS, sums // vectors) + 1)
        ]

        def cost(size: tuple[int, int]) -> int:
            pixels, vectors = size
            blocks = -(-wide // pixels) * -(-self.channels // (vectors * lanes))
            return blocks * self.cost(pixels, vectors)

        pixels, vectors = min(sizes, key=cost)
        return pixels, VectorBlocks.at_most(vectors, self.channels, lanes)

    @abc.abstractmethod
    def numbers_of_vectors(self) -> range:
        """Returns how many vectors of channels may be computed at once."""

    @abc.abstractmethod
    def cost(self, pixels: int, vectors: int) -> int:
        """Returns about how many instructions a block of so many pixels and vectors takes."""

    @abc.abstractmethod
    def products(
        self, sums: Sequence[Sequence[Var]], start: Expr, channels: Sequence[Expr]
    ) -> None:
        """Adds the products of a block. ``sums`` has a row for each pixel; the first one's window
        begins at ``start``; ``channels``: the first channel of each vector."""

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
            with (
                b.loop("oy", rows) as oy, self.vectors.each(b) as (_, channel),
                pixels_overlapping(b, windows.y[2], self.pixels, "ox") as ox,
            ):
                row = b.let("row", flat_index(
                    [n, add(first, oy), ox, const(0)], (*windows.y, self.channels)
                ))
                start = b.let("start", add(
                    origin, mul(oy, const(self.pitch * windows.stride[0])),
                    mul(ox, const(self.channels * windows.stride[1])),
                ))
                self._block(row, start, channel)

    def _block(self, row: Expr, start: Expr, channel: Expr) -> None:
        """Emits the block of channels from ``channel`` on of the pixels from ``row`` on."""
        b = self.b
        channels = [add(channel, const(start)) for start in self.vectors.starts()]
        first = [b.let(f"first_v{v}", self.finish.start(at)) for v, at in enumerate(channels)]
        sums = [
            [b.local(f"sum_p{p}_v{v}", value) for v, value in enumerate(first)]
            for p in range(self.pixels)
        ]
        self.products(sums, start, channels)
        rows = [add(row, const(p * self.channels)) for p in range(self.pixels)]
        self.finish.store_block(self.output, rows, sums, channel, self.vectors)


class _RealWork(_DepthwiseWork):
    def numbers_of_vectors(self) -> range:
        return range(1, min(_VECTORS, -(-self.channels // self.machine.lanes)) + 1)

    def cost(self, pixels: int, vectors: int) -> int:
        sums = pixels * vectors
        return math.prod(self.windows.kernel) * (vectors + max(sums, _WAITING)) + 2 * sums

    def products(
        self, sums: Sequence[Sequence[Var]], start: Expr, channels: Sequence[Expr]
    ) -> None:
        b, machine, windows, vector = self.b, self.machine, self.windows, self.machine.reals
        down, right = self.pitch * windows.dilation[0], self.channels * windows.dilation[1]
        pitch = self.weights.size // math.prod(windows.kernel)
        with b.loop("ky", windows.kernel[0]) as ky, b.loop("kx", windows.kernel[1]) as kx:
            seen = b.let("seen", add(start, mul(ky, const(down)), mul(kx, const(right))))
            tap = b.let("tap", mul(add(mul(ky, const(windows.kernel[1])), kx), const(pitch)))
            for v, channel in enumerate(channels):
                weights = b.let(f"w_v{v}", load_vector(self.weights, add(tap, channel), vector))
                for p, line in enumerate(sums):
                    pixel = add(seen, channel, const(p * self.channels * windows.stride[1]))
                    values = load_vector(self.x, pixel, vector, self.vectors.there)
                    x = b.let(f"x_p{p}_v{v}", values)
                    b.assign(line[v], machine.plus_product(line[v], x, weights))


class _IntegerWork(_DepthwiseWork):
    """Words have ``taps`` values of a column of windows below each other."""

    @property
    def taps(self) -> int:
        return 4 if self.machine.dots else 2

    @property
    def lifted(self) -> bool:
        return self.machine.dots

    def numbers_of_vectors(self) -> range:
        """As many as have results that are stored together."""
        lanes = self.machine.lanes
        count = VectorBlocks.fewest(_RESULTS // lanes, self.channels, lanes).count
        return range(count, count + 1)

    def _columns(self, pixels: int) -> list[int]:
        """Returns the columns of the windows of a block, relative to the first one."""
        windows = self.windows
        return sorted({
            p * windows.stride[1] + kx * windows.dilation[1]
            for p in range(pixels) for kx in range(windows.kernel[1])
        })

    def cost(self, pixels: int, vectors: int) -> int:
        high, wide = self.windows.kernel
        groups, products = -(-high // self.taps), pixels * wide
        columns = len(self._columns(pixels)) if self._unrolls(pixels, vectors) else products
        words = groups * (columns * (self.taps + 3) + products)
        return vectors * (words + _EPILOGUE * pixels)

    def _unrolls(self, pixels: int, vectors: int) -> bool:
        return pixels * vectors * self.windows.kernel[1] <= _UNROLLED

    def products(
        self, sums: Sequence[Sequence[Var]], start: Expr, channels: Sequence[Expr]
    ) -> None:
        whole, rest = divmod(self.windows.kernel[0], self.taps)
        with self.b.loop("group", whole) as group:
            self._group(sums, start, channels, group, self.taps)
        if rest:
            self._group(sums, start, channels, const(whole), rest)

    def _group(
        self, sums: Sequence[Sequence[Var]], start: Expr, channels: Sequence[Expr], group: Expr,
        rows: int,
    ) -> None:
        """Adds the products of the first ``rows`` rows of a group."""
        b, windows = self.b, self.windows
        wide, stride = windows.kernel[1], windows.stride[1]
        line = self.taps * windows.dilation[0] * self.pitch
        top = b.let("top", add(start, mul(group, const(line))))
        tap = b.let("tap", mul(group, const(wide * self._tap)))
        if not self._unrolls(len(sums), len(channels)):
            with b.loop("kx", wide) as kx:
                for p, line_of_sums in enumerate(sums):
                    right = add(mul(kx, const(windows.dilation[1])), const(p * stride))
                    at = add(top, mul(right, const(self.channels)))
                    words = self._words(at, channels, rows)
                    self._add(line_of_sums, words, add(tap, mul(kx, const(self._tap))), channels)
            return
        for column in self._columns(len(sums)):
            words = self._words(add(top, const(column * self.channels)), channels, rows)
            for number in range(wide):
                p, left = divmod(column - number * windows.dilation[1], stride)
                if not left and 0 <= p < len(sums):
                    self._add(sums[p], words, add(tap, const(number * self._tap)), channels)

    @property
    def _tap(self) -> int:
        """Returns the number of words of weights of a column and group, of all channels."""
        return -(-self.channels // self.machine.lanes) * self.machine.lanes

    def _words(self, at: Expr, channels: Sequence[Expr], rows: int) -> list[Expr]:
        """Returns ``rows`` values below each other, the first ones at ``at``, for each vector."""
        b, machine = self.b, self.machine
        down = self.pitch * self.windows.dilation[0]
        found = []
        for channel in channels:
            if rows == 1 and self.vectors.there == machine.lanes:
                # Widened values are words, too: weights of what is above are 0.
                words: Expr = load_vector(self.x, add(at, channel), machine.ints)
                found.append(b.let("words", self._as_unsigned(words)))
                continue
            values: list[Expr] = [
                b.let(f"x_y{row}", load_vector(
                    self.x, add(at, channel, const(row * down)), Scalar.I8X16, self.vectors.there
                )) for row in range(rows)
            ]
            zeros = call("x86_dup8_16", i32(0), type_=Scalar.I8X16)
            values += [zeros] * (self.taps - rows)
            words = machine.of_ints(f"interleave{self.taps}", *values)
            found.append(b.let("words", self._as_unsigned(words)))
        return found

    def _as_unsigned(self, words: Expr) -> Expr:
        """Returns words of what VPDPBUSD takes, which copies have already."""
        if self.machine.dots and self.bands is None:
            return self.machine.of_ints("lifted", words)
        return words

    def _add(
        self, sums: Sequence[Var], words: Sequence[Expr], tap: Expr, channels: Sequence[Expr]
    ) -> None:
        """Adds the products of words with the weights from ``tap`` on, for each vector."""
        b, machine = self.b, self.machine
        for total, word, channel in zip(sums, words, channels, strict=True):
            weights = load_vector(self.weights, add(tap, channel), machine.ints)
            if machine.dots:
                b.assign(total, machine.of_ints("dot", total, word, weights))
            else:
                product = machine.of_ints("product", word, weights)
                b.assign(total, machine.of_ints("add", total, product))
