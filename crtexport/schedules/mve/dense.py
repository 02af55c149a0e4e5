"""Matrix products of integers on MVE: VMLADAVA over 16 values, or 8 of int16, for several units and
each of a few rows.

Weights are packed while exporting in the order in which they are read: as many values of each unit
of a block, so that one pointer walks over all. Accumulators are general registers, of which
VMLADAVA takes even ones only: six at most, beside the counter of a loop. Where sums need 64 bits
VMLALDAVA has them in pairs, and each is scaled alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from crtexport.kir.assembly.mve.machine_loop import becomes_machine_code
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    call,
    const,
    load_vector,
    mul,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Lowered, Lowering
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.row_products import RowSegment, Rowwise, cover, halves
from crtexport.schedules.mve.chunks import NARROW, Chunk, Chunks
from crtexport.schedules.mve.requantize import LANES, LongScaler, Scaler, Sums, vector
from crtexport.schedules.mve.tiles import MveTile

UNROLL = 4
"""Most chunks that are written one after the other in a loop, where not all are."""
ALIGN = 8
"""Bytes that packed weights are aligned to."""

RowBlock = tuple[list[RowSegment], list[Expr]]
"""Factors of some rows, and the indices of the first unit's results."""


def tile_candidates(
    tiles: Sequence[MveTile], make: Callable[[MveTile], Lowered]
) -> list[Candidate]:
    """Returns a variant for each of ``tiles``, the first one first whose loops become machine code,
    and all others for tuning only."""
    return usual_first([
        Candidate(tile.name, functools.partial(make, tile), rare=True) for tile in tiles
    ])


def usual_first(variants: Sequence[Candidate]) -> list[Candidate]:
    """Returns variants with the first one in front whose loops become machine code, and all others
    for tuning only; as they are where that is no other than the first one, or there is none."""
    usual = next((v for v in variants if becomes_machine_code(v.make().kernel)), variants[0])
    if usual is variants[0] and not usual.rare:
        return [*variants]
    others = [replace(variant, rare=True) for variant in variants if variant is not usual]
    return [replace(usual, rare=False), *others]


class MveProducts:
    """Rows times all units, a few at a time, scaled and stored."""

    def __init__(
        self, lowering: Lowering, sums: Sums, segments: Sequence[tuple[int, bool]], tile: MveTile
    ) -> None:
        """``segments``: the depth of each, and whether it is padded."""
        self.b: KernelBuilder = lowering.b
        self.tile, self.units = tile, sums.channels
        self._lanes = sums.vector.lanes
        self._packing = Chunks(tuple(segments), tile.units, tile.units_at_once, self._lanes)
        self._packed = lowering.packed(
            "packed", Scalar.I8, self._packing, self.units, align=ALIGN
        )
        self._sum, self._long = Scalar.I64 if sums.long else Scalar.I32, sums.long
        self._finish: Scaler | LongScaler
        if sums.long:
            self._finish = LongScaler(lowering, sums)
        else:
            lanes = [
                first + unit for first in range(0, self.units, tile.units) for unit in tile.lanes
            ]
            order = [unit if unit < self.units else -1 for unit in lanes]
            self._finish = Scaler(lowering, sums, order)

    def emit(self, rows_from: Rowwise, rows: int, output: Buffer) -> None:
        """Goes through ``rows``, which ``rows_from`` tells of."""
        b, high, size = self.b, self.tile.rows, self.tile.units
        whole, rest = divmod(self.units, size)
        if self.tile.inner == "rows":

            def all_rows(number: Expr, count: int) -> None:
                halves(b, rows, high, lambda first: self._block(
                    rows_from(first, high), output, number, count
                ))

            with b.loop("units", whole, assembled=whole > 1) as number:
                all_rows(number, size)
            if rest:
                all_rows(const(whole), rest)
            return

        def all_units(first: Expr) -> None:
            block = rows_from(first, high)
            with b.loop("units", whole, assembled=self.tile.machine) as number:
                self._block(block, output, number, size)
            if rest:
                with b.loop("last", 1, assembled=self.tile.machine):
                    self._block(block, output, const(whole), rest)

        cover(b, rows, high, all_units, assembled=self.tile.machine and not rest)

    def _block(self, block: RowBlock, output: Buffer, number: Expr, count: int) -> None:
        """Emits the units of a block, the first ``count`` of which are stored."""
        b, size, stored = self.b, self.tile.units, self.tile.stored
        start = b.let("w", mul(number, const(size * self._packing.size)))
        unit = mul(number, const(size))
        vectors = mul(number, const(size // LANES))
        for first in range(0, count, stored):
            with b.named(f"u{first}"):
                self._units(block, output, (
                    add(start, const(first * self._packing.size)),
                    add(vectors, const(first // LANES)), add(unit, const(first)),
                    min(stored, count - first),
                ))

    def _units(
        self, block: RowBlock, output: Buffer, places: tuple[Expr, Expr, Expr, int]
    ) -> None:
        """Emits units whose results are stored together. ``places``: where their weights begin, the
        number of their first vector of sums, the first of them, and how many are stored."""
        b, units_at_once = self.b, self.tile.units_at_once
        segments, targets = block
        start, number, unit, count = places
        parts = LANES // units_at_once
        results: list[list[Expr]] = [[] for _ in targets]
        for n in range(self.tile.stored // LANES):
            sums: list[list[Var]] = [[] for _ in targets]
            for part in range(n * parts, (n + 1) * parts):
                with b.named(f"part{part}"):
                    at = add(start, const(part * units_at_once * self._packing.size))
                    dots = self._dots(segments, len(targets), at, backwards=part % 2 == 1)
                for line, more in zip(sums, dots, strict=True):
                    line.extend(more)
            for row, line in enumerate(sums):
                with b.named(f"v{n}_r{row}"):
                    results[row].extend(self._results(line, add(number, const(n)), unit, count))
        for row, target in enumerate(targets):
            with b.named(f"r{row}"):
                self._store(results[row], output, add(target, unit), count)

    def _results(
        self, sums: Sequence[Var], number: Expr, unit: Expr, count: int
    ) -> list[Expr]:
        """Returns the results for a vector of sums, ``number``; where each is scaled alone, for
        ``count`` of them, from ``unit`` on."""
        lanes = list(sums)
        if self.tile.units_at_once == 2:
            # The first pair is lanes 0 and 2, which one instruction sets.
            lanes = [sums[j] for j in (0, 2, 1, 3)]
        if isinstance(self._finish, LongScaler):
            return [
                self._finish(acc, add(unit, const(i))) for i, acc in enumerate(lanes[:count])
            ]
        return [self._finish.scaled(self.b.let("sums", vector("lanes_s32", *lanes)), number)]

    def _store(self, results: Sequence[Expr], output: Buffer, target: Expr, count: int) -> None:
        """Stores the first ``count`` results of a row from index ``target`` on."""
        b = self.b
        if isinstance(self._finish, LongScaler):
            for i, value in enumerate(results[:count]):
                b.store(output, add(target, const(i)), value)
            return
        b.store_vector(output, target, self._finish.narrow(*results), count)

    def _dots(
        self, segments: Sequence[RowSegment], rows: int, weights: Expr, *, backwards: bool
    ) -> list[list[Var]]:
        """Returns the sums of each row with each of the units that are multiplied together.
        ``backwards``: the last chunk is the first one, which may still be in registers then."""
        b, units_at_once = self.b, self.tile.units_at_once
        zero = const(0, self._sum)
        accs = [
            [b.local(f"acc_r{row}_u{unit}", zero) for unit in range(units_at_once)]
            for row in range(rows)
        ]
        parts = [
            (segment, chunk)
            for segment, chunks in zip(segments, self._packing.chunks, strict=True)
            for chunk in self._groups(chunks)
        ]
        at = 0
        for segment, chunks in reversed(parts) if backwards else parts:
            self._chunks(accs, segment, add(weights, const(at)), chunks, backwards=backwards)
            at += sum(chunk.lanes for chunk in chunks) * units_at_once
        return accs

    def _groups(self, chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
        """Returns whole vectors, which are multiplied by a loop, and each of what is left."""
        whole = [c for c in chunks if c.lanes == self._lanes == c.end - c.begin]
        return [*([whole] if whole else []), *([c] for c in chunks[len(whole) :])]

    def _chunks(
        self, accs: list[list[Var]], segment: RowSegment, weights: Expr, chunks: Sequence[Chunk], *,
        backwards: bool,
    ) -> None:
        """Emits products of chunks, the last one first if ``backwards``."""
        b, count, lanes = self.b, len(chunks), chunks[0].lanes
        if count == 1:
            self._chunk(accs, segment, weights, const(chunks[0].position), chunks[0])
            return
        unroll = count
        if not self.tile.machine:
            unroll = max(n for n in range(1, UNROLL + 1) if count % n == 0)
        with b.loop("chunk", count, unroll=unroll) as d:
            place = add(weights, mul(d, const(lanes * self.tile.units_at_once)))
            number = sub(const(count - 1), d) if backwards else d
            self._chunk(accs, segment, place, mul(number, const(lanes)), chunks[0])

    def _chunk(
        self, accs: list[list[Var]], segment: RowSegment, at: Expr, position: Expr, chunk: Chunk
    ) -> None:
        """Emits a vector of values of each row times those of each unit."""
        b, dot = self.b, self._dot(chunk)
        type_ = Scalar.I16X8 if chunk.lanes == NARROW else Scalar.I8X16
        xs = [
            b.let(f"values_r{row}", load_vector(
                segment.buffer, add(x, position), type_, chunk.count
            ))
            for row, x in enumerate(segment.starts)
        ]
        ws = [
            b.let(f"weight_u{unit}", load_vector(
                self._packed, add(at, const(unit * chunk.lanes)), type_
            ))
            for unit in range(self.tile.units_at_once)
        ]
        for unit, row in itertools.product(range(len(ws)), range(len(xs))):
            acc = accs[row][unit]
            b.assign(acc, call(dot, acc, xs[row], ws[unit], type_=self._sum))

    def _dot(self, chunk: Chunk) -> str:
        if self._long:
            return "mve_mlaldava_s16"
        return "mve_mladava_s16" if chunk.lanes == NARROW else "mve_mladava_s8"
