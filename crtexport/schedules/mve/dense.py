"""Matrix products of integers on MVE: VMLADAVA over 16 values, or 8 of int16, for several units and
each of a few rows.

Weights are packed while exporting in the order in which they are read: as many values of each unit
of a block, so that one pointer walks over all. Accumulators are general registers, of which
VMLADAVA takes even ones only: six at most, beside the counter of a loop. Where sums need 64 bits
VMLALDAVA has them in pairs, and each is scaled alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    call,
    const,
    load_vector,
    mul,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Lowered, Lowering
from crtexport.lowering.weight_packing import Array, ByteLanes, Packing
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.row_products import Segment
from crtexport.schedules.mve.requantize import LANES, LongScaler, Scaler, Sums, vector

LONE_CHUNKS = (3, 4)
"""Chunks of a row, if it is of one piece, with which rows are better alone: they are all written
out, so that compilers make the sums of two rows at a time and run out of registers."""
UNROLL = 4
"""Most chunks of sixteen values that are written one after the other in a loop, usually."""
UNROLLS = (1, 2, 4, 8)
"""Other such numbers."""
MOST_ROWS = 3
"""Rows for which, times two units, there are accumulators."""
MOST_LONG_ROWS = 2
"""The same of 64 bits."""


class MveTile(Struct, frozen=True):
    """``rows`` share the weights that are loaded; up to ``chunks`` of sixteen values are written
    one after the other."""

    rows: int
    chunks: int

    @property
    def name(self) -> str:
        """Name among the candidates of a node."""
        return f"{self.rows} rows, {self.chunks} chunks"


def block_candidates(
    found: Sequence[MveTile], make: Callable[[MveTile], Lowered]
) -> list[Candidate]:
    """Returns a variant for each of ``found``, those with other rows than the first for tuning
    only."""
    return [
        Candidate(
            block.name, functools.partial(make, block), rare=block.rows != found[0].rows
        )
        for block in found
    ]


class MveProducts:
    """``high`` rows times all units at a time, scaled and stored."""

    def __init__(
        self, lowering: Lowering, sums: Sums, segments: Sequence[tuple[int, bool]], block: MveTile
    ) -> None:
        """``segments``: the depth of each, and whether it is padded."""
        self.b: KernelBuilder = lowering.b
        high = self.high = block.rows
        self.unroll = block.chunks
        self.units = sums.channels
        self.units_per_step = LANES if high == 1 else 2
        self._vector, self._lanes = sums.vector, sums.vector.lanes
        self._sum, self._dot = Scalar.I32, {
            Scalar.I8X16: "mve_mladava_s8", Scalar.I16X8: "mve_mladava_s16"
        }[sums.vector]
        packing = Chunks(tuple(segments), self.units_per_step, self._lanes)
        self._sizes = packing.sizes
        self._packed = lowering.packed("packed", Scalar.I8, packing, self.units)
        self._finish: Scaler | LongScaler
        if sums.long:
            self._sum, self._dot = Scalar.I64, "mve_mlaldava_s16"
            self._finish = LongScaler(lowering, sums)
        else:
            order = [u if u < self.units else -1 for u in range(-(-self.units // LANES) * LANES)]
            self._finish = Scaler(lowering, sums, order)

    def emit(self, segments: Sequence[Segment], output: Buffer, targets: Sequence[Expr]) -> None:
        """``targets``: the index of the first unit's result of each row."""
        whole, rest = divmod(self.units, LANES)
        with self.b.loop("units", whole) as block:
            self._block(segments, output, targets, block, LANES)
        if rest:
            self._block(segments, output, targets, const(whole), rest)

    def _block(
        self, segments: Sequence[Segment], output: Buffer, targets: Sequence[Expr], block: Expr,
        count: int,
    ) -> None:
        """Four units, of which ``count`` are stored."""
        b = self.b
        step = sum(self._sizes) * self._lanes * self.units_per_step
        start = b.let("w", mul(block, const(LANES // self.units_per_step * step)))
        sums: list[list[Var]] = [[] for _ in targets]
        for part in range(LANES // self.units_per_step):
            with b.named(f"part{part}"):
                found = self._dots(segments, len(targets), add(start, const(part * step)))
            for line, more in zip(sums, found, strict=True):
                line.extend(more)
        for row, (line, target) in enumerate(zip(sums, targets, strict=True)):
            # Two units at a time: the first pair is lanes 0 and 2, which one instruction sets.
            lanes = [line[i] for i in ((0, 2, 1, 3) if self.units_per_step == 2 else range(LANES))]
            if isinstance(self._finish, LongScaler):
                for i, acc in enumerate(lanes[:count]):
                    unit = add(mul(block, const(LANES)), const(i))
                    b.store(output, add(target, unit), self._finish(acc, unit))
                continue
            with b.named(f"r{row}"):
                sums_ = b.let("sums", vector("lanes_s32", *lanes))
                result = self._finish(sums_, block)
            b.store_vector(output, add(target, mul(block, const(LANES))), result, count)

    def _dots(self, segments: Sequence[Segment], rows: int, weights: Expr) -> list[list[Var]]:
        """The sums of each row with each of the units that are multiplied together."""
        b, lanes = self.b, self._lanes
        step = lanes * self.units_per_step
        zero = const(0, self._sum)
        accs = [
            [b.local(f"acc_r{row}_u{unit}", zero) for unit in range(self.units_per_step)]
            for row in range(rows)
        ]
        done = 0
        for segment, chunks in zip(segments, self._sizes, strict=True):
            rest = 0 if segment.padded else segment.depth % lanes
            whole = chunks - 1 if rest else chunks
            unroll = max(n for n in range(1, self.unroll + 1) if whole % n == 0)
            first = add(weights, const(done * step))
            with b.loop("chunk", whole, unroll=unroll) as d:
                self._chunk(accs, segment, add(first, mul(d, const(step))), mul(d, const(lanes)))
            if rest:
                # The last values, of which those multiplied before have weights of 0.
                last = const(max(segment.depth - lanes, 0))
                at = add(first, const(whole * step))
                self._chunk(accs, segment, at, last, min(segment.depth, lanes))
            done += chunks
        return accs

    def _chunk(
        self, accs: list[list[Var]], segment: Segment, at: Expr, position: Expr,
        count: int | None = None,
    ) -> None:
        """A vector of values of each row times those of each unit."""
        b = self.b
        xs = [
            b.let(
                f"values_r{row}", load_vector(segment.buffer, add(x, position), self._vector, count)
            )
            for row, x in enumerate(segment.starts)
        ]
        for unit in range(self.units_per_step):
            index = add(at, const(unit * self._lanes))
            w = b.let(f"weight_u{unit}", load_vector(self._packed, index, self._vector))
            for x, line in zip(xs, accs, strict=True):
                acc = line[unit]
                b.assign(acc, call(self._dot, acc, x, w, type_=self._sum))


def blocks(rows: int, depths: Sequence[int], sums: Sums) -> list[MveTile]:
    """Returns how ``rows`` of segments of ``depths`` may be multiplied, the usual way first."""
    lanes = sums.vector.lanes
    lone = len(depths) == 1 and -(-depths[0] // lanes) in LONE_CHUNKS
    usual = MveTile(1 if lone or rows == 1 else 2, UNROLL)
    most = max(-(-depth // lanes) for depth in depths)
    high_most = min(rows, MOST_LONG_ROWS if sums.long else MOST_ROWS)
    others = [
        MveTile(high, chunks) for high in range(1, high_most + 1) for chunks in UNROLLS
        if chunks <= max(most, 1) or chunks == UNROLL
    ]
    return [usual, *(block for block in others if block != usual)]


class Chunks(Packing, frozen=True):
    """int8[units, depth] as [block of 4 units][part][chunk][unit of the part][value]: ``lanes``
    values each.

    ``segments``: the depth of each, one behind the other, and whether it is padded. Units of zeros
    fill a block. The last chunk of a segment holds what is left, then zeros; unless padded it is
    the last ``lanes`` values, with 0 for those of the chunk before it. Parts take units 0 and 2,
    then 1 and 3, when two are multiplied ``units_per_step``.
    """

    segments: tuple[tuple[int, bool], ...]
    units_per_step: int
    lanes: int

    @property
    def block(self) -> int:
        return LANES

    @property
    def byte_lanes(self) -> ByteLanes:
        return ByteLanes()

    @property
    def sizes(self) -> list[int]:
        """Chunks of each segment."""
        return [-(-depth // self.lanes) for depth, _ in self.segments]

    def nbytes(self, rows: int, columns: int) -> int:
        del columns
        return -(-rows // LANES) * LANES * sum(self.sizes) * self.lanes

    def __call__(self, weights: Array) -> Array:
        found, first = [], 0
        for depth, padded in self.segments:
            found.append(self._segment(weights[:, first : first + depth], padded))
            first += depth
        return np.concatenate(found, axis=2)

    def _segment(self, weights: Array, padded: bool) -> Array:
        (units, depth), lanes = weights.shape, self.lanes
        blocks, chunks = -(-units // LANES), -(-depth // lanes)
        full = np.zeros((blocks * LANES, chunks * lanes), np.int8)
        rest = depth % lanes
        if rest and depth > lanes and not padded:
            full[:units, : depth - rest] = weights[:, : depth - rest]
            full[:units, -rest:] = weights[:, -rest:]
        else:
            full[:units, :depth] = weights
        cells = full.reshape(
            blocks, LANES // self.units_per_step, self.units_per_step, chunks, lanes
        )
        if self.units_per_step == 2:  # units 0 2 | 1 3
            cells = full.reshape(blocks, 2, 2, chunks, lanes).swapaxes(1, 2)
        return cells.swapaxes(2, 3)
