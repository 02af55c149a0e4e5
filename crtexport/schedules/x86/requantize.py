"""Epilogues on x86-64: neighbouring vectors of results are narrowed and stored together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from crtexport.ir.types import DType
from crtexport.kir.builder import add, call, const, i32
from crtexport.kir.intrinsics.x86_saturate import SCALED_BELOW
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Lowering
from crtexport.schedules.common import vector_requantize
from crtexport.schedules.common.loop_tiling import VectorBlocks
from crtexport.schedules.x86.machine import X86Machine
from crtexport.support.fixedpoint import Rounding

_TOGETHER = {16: Scalar.I8X16, 8: Scalar.I16X8}
"""Results that one vector may have, and its type, the more the better."""


class X86Epilogue(Protocol):
    """The epilogue of blocks of output channels."""

    def start(self, channel: Expr) -> Expr:
        """Returns the initial accumulators of ``channel`` and those behind it."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: VectorBlocks,
    ) -> None:
        """Emits the results of a block of channels from ``channel`` on. ``rows``: the index of each
        pixel's first channel, with a row of ``sums`` for each."""


class RealFinish(vector_requantize.FloatVectorEpilogue):
    """The epilogue of floats, one vector at a time."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: VectorBlocks,
    ) -> None:
        for number, start in enumerate(vectors.starts()):
            at = add(channel, const(start))
            for row, line in zip(rows, sums, strict=True):
                self.store(output, add(row, at), line[number], at, vectors.there)


class IntegerFinish(vector_requantize.IntegerVectorEpilogue):
    """The epilogue of integers, as many neighbouring vectors at a time as there are."""

    def store_block(
        self, output: Buffer, rows: Sequence[Expr], sums: Sequence[Sequence[Expr]], channel: Expr,
        vectors: VectorBlocks,
    ) -> None:
        b, lanes, starts = self.b, self.machine.lanes, vectors.starts()
        channels = [add(channel, const(start)) for start in starts]
        for first, count in self._beside(starts):
            values: list[list[Expr]] = [[] for _ in rows]
            for number in range(first, first + count):
                factors = [
                    b.let(f"{name}_v{number}", table.at(channels[number]))
                    for name, table in self._tables.items()
                ]
                for p, (row, line, several) in enumerate(zip(rows, sums, values, strict=True)):
                    # One vector after the other: its factors are in registers meanwhile.
                    several.append(b.let(
                        f"scaled_p{p}_v{number}", self._scaled(line[number], *factors)
                    ))
                    if len(several) == count:
                        stored = count * lanes if count > 1 else vectors.there
                        at = add(row, channels[first])
                        b.store_vector(output, at, self._narrowed(several), stored)

    def _beside(self, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yields the vectors that are narrowed together: the number of the first one, and how many.
        """
        lanes, first = self.machine.lanes, 0
        while first < len(starts):
            count = next((
                n for n in (results // lanes for results in _TOGETHER)
                if starts[first : first + n] == [starts[first] + i * lanes for i in range(n)]
            ), 1)
            yield first, count
            first += count

    def _scaled(self, total: Expr, *factors: Expr) -> Expr:
        low, top = self._range
        zero, limits = self._zero, DType.INT8.limits
        value = self._multiple(total, *factors)
        if self._range == limits:
            return value
        widest = limits[0] - zero, limits[1] - zero
        return self.machine.between(value, (low - zero, top - zero), widest)

    def _multiple(self, total: Expr, *factors: Expr) -> Expr:
        mantissas, places = factors
        return self.machine.scaled(total, mantissas, places, signed=self._range[0] < self._zero)

    def _narrowed(self, values: Sequence[Expr]) -> Expr:
        """Returns all of ``values`` plus the zero point, saturated to 8 bits."""
        lanes = self.machine.lanes
        packed = _TOGETHER.get(len(values) * lanes)
        if packed is None:
            (value,) = values
            return self.machine.between(self.machine.plus(value, self._zero), DType.INT8.limits)
        name = f"x86_results{packed.lanes}_{lanes}"
        return call(name, *values, i32(self._zero), type_=packed)


class FloatScaledFinish(IntegerFinish):
    """The epilogue of integers that ONNX Runtime scales in float32, which vectors do, too."""

    def _scaling(self, sums: IntegerSums) -> dict[str, vector_requantize.ChannelTable]:
        note = "for each output channel: scale"
        return {"scales": self._table("scales", Scalar.F32, sums.multiplier.reals, note)}

    def _multiple(self, total: Expr, *factors: Expr) -> Expr:
        (scale,) = factors
        return self.machine.of_ints("scaled", total, scale)


def scales(sums: IntegerSums, machine: X86Machine) -> bool:
    """Returns whether vectors can requantize the sums."""
    if sums.rounding is not Rounding.FLOAT:
        return vector_requantize.scales(sums, machine)
    most = sums.bound * float(sums.multiplier.reals.max())
    return not sums.wide and sums.bound < 1 << 31 and most < SCALED_BELOW


def finish_of(lowering: Lowering, machine: X86Machine, sums: IntegerSums) -> IntegerFinish:
    """Returns the epilogue of ``sums``, for which :func:`scales` holds."""
    floats = sums.rounding is Rounding.FLOAT
    return (FloatScaledFinish if floats else IntegerFinish)(lowering, machine, sums)
