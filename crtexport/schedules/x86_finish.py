"""From vectors of sums to results on x86-64: those that lie beside each other are narrowed and
stored together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from crtexport.ir.types import DType
from crtexport.kernels.build import add, call, const, i32
from crtexport.kernels.ir import Buffer, Expr, Scalar
from crtexport.schedules import lanes_finish
from crtexport.schedules.covering import Vectors

_TOGETHER = {16: Scalar.I8X16, 8: Scalar.I16X8}
"""How many results there may be in one vector, and its type, the more the better."""


class Finish(Protocol):
    """What becomes of the sums of blocks of output channels."""

    def start(self, channel: Expr) -> Expr:
        """The sums before the first product: of ``channel`` and those behind it."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: Vectors,
    ) -> None:
        """Stores the results of a block of channels from ``channel`` on: a line of ``sums`` for
        each of ``rows``, where the channels of a pixel begin."""


class RealFinish(lanes_finish.RealFinish):
    """Floats, one vector at a time."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: Vectors,
    ) -> None:
        for number, start in enumerate(vectors.starts()):
            at = add(channel, const(start))
            for row, line in zip(rows, sums, strict=True):
                self.store(output, add(row, at), line[number], at, vectors.there)


class IntegerFinish(lanes_finish.IntegerFinish):
    """Integers, as many vectors at a time as there are beside each other."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: Vectors,
    ) -> None:
        b, lanes, starts = self.b, self.machine.lanes, vectors.starts()
        channels = [add(channel, const(start)) for start in starts]
        for first, count in self._beside(starts):
            values: list[list[Expr]] = [[] for _ in rows]
            for number in range(first, first + count):
                mantissas = b.let("multipliers", self._mantissas.at(channels[number]))
                places = b.let("places", self._places.at(channels[number]))
                for row, line, several in zip(rows, sums, values, strict=True):
                    # One vector after the other: its factors are in registers meanwhile.
                    several.append(b.let("scaled", self._scaled(line[number], mantissas, places)))
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
        """What all of ``values`` is plus the zero point, within 8 bits."""
        lanes = self.machine.lanes
        together = _TOGETHER.get(len(values) * lanes)
        if together is None:
            (value,) = values
            return self.machine.between(self.machine.plus(value, self._zero), DType.INT8.limits)
        name = f"x86_results{together.lanes}_{lanes}"
        return call(name, *values, i32(self._zero), type_=together)
