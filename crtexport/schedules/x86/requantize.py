"""From vectors of sums to results on x86-64: those that lie beside each other are narrowed and
stored together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from crtexport.ir.types import DType
from crtexport.kir.builder import add, call, const, i32
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.schedules.common import vector_requantize
from crtexport.schedules.common.loop_tiling import VectorBlocks

_TOGETHER = {16: Scalar.I8X16, 8: Scalar.I16X8}
"""Results that one vector may have, and its type, the more the better."""


class X86Epilogue(Protocol):
    """Epilogue of the sums of blocks of output channels."""

    def start(self, channel: Expr) -> Expr:
        """The sums before the first product: of ``channel`` and those behind it."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: VectorBlocks,
    ) -> None:
        """Stores the results of a block of channels from ``channel`` on: a line of ``sums`` for
        each of ``rows``, where the channels of a pixel begin."""


class RealFinish(vector_requantize.FloatVectorEpilogue):
    """Floats, one vector at a time."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: VectorBlocks,
    ) -> None:
        for number, start in enumerate(vectors.starts()):
            at = add(channel, const(start))
            for row, line in zip(rows, sums, strict=True):
                self.store(output, add(row, at), line[number], at, vectors.there)


class IntegerFinish(vector_requantize.IntegerVectorEpilogue):
    """Integers, as many vectors at a time as there are beside each other."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: VectorBlocks,
    ) -> None:
        b, lanes, starts = self.b, self.machine.lanes, vectors.starts()
        channels = [add(channel, const(start)) for start in starts]
        for first, count in self._beside(starts):
            values: list[list[Expr]] = [[] for _ in rows]
            for number in range(first, first + count):
                mantissas = b.let(f"multipliers_v{number}", self._mantissas.at(channels[number]))
                places = b.let(f"places_v{number}", self._places.at(channels[number]))
                for p, (row, line, several) in enumerate(zip(rows, sums, values, strict=True)):
                    # One vector after the other: its factors are in registers meanwhile.
                    several.append(b.let(
                        f"scaled_p{p}_v{number}", self._scaled(line[number], mantissas, places)
                    ))
                    if len(several) == count:
                        stored = count * lanes if count > 1 else vectors.there
                        at = add(row, channels[first])
                        b.store_vector(output, at, self._narrowed(several), stored)

    def _beside(self, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Vectors that are narrowed together: the number of the first one, and how many."""
        lanes, first = self.machine.lanes, 0
        while first < len(starts):
            count = next((
                n for n in (results // lanes for results in _TOGETHER)
                if starts[first : first + n] == [starts[first] + i * lanes for i in range(n)]
            ), 1)
            yield first, count
            first += count

    def _scaled(self, total: Expr, mantissas: Expr, places: Expr) -> Expr:
        low, top = self._range
        zero, limits = self._zero, DType.INT8.limits
        value = self.machine.scaled(total, mantissas, places, signed=low < zero)
        if self._range == limits:
            return value
        widest = limits[0] - zero, limits[1] - zero
        return self.machine.between(value, (low - zero, top - zero), widest)

    def _narrowed(self, values: Sequence[Expr]) -> Expr:
        """Returns what all of ``values`` is plus the zero point, within 8 bits."""
        lanes = self.machine.lanes
        packed = _TOGETHER.get(len(values) * lanes)
        if packed is None:
            (value,) = values
            return self.machine.between(self.machine.plus(value, self._zero), DType.INT8.limits)
        name = f"x86_results{packed.lanes}_{lanes}"
        return call(name, *values, i32(self._zero), type_=packed)
