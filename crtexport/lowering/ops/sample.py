"""Sample: pixels at computed places, nearest or interpolated along each axis."""

from __future__ import annotations

import numpy as np

from crtexport.ir.ops import Interpolation, Outside, Sample
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    and_,
    cast,
    clamp,
    const,
    div,
    f32,
    flat_index,
    ge,
    le,
    load,
    mul,
    select,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.float_exact import floor, round_half_even
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

_CUBIC = -0.75
"""The slope of the cubic kernel at 1, as in ONNX and PyTorch."""
_BEYOND = 4
"""Pixels beyond the edge up to which places are told apart."""


@lowers(Sample, same_types(DType.FLOAT32))
def sample(context: Context) -> Lowered:
    """Sums over the product of the axes' neighbours."""
    op = context.op(Sample)
    lowering = Lowering("sample", context)
    b, x, y = lowering.b, context.input(0).shape, context.output().shape
    sizes = x[1:-1]
    source, places = lowering.input(0, "input"), lowering.input(1, "places")
    lines = [_SampledLine(lowering, op, size) for size in sizes]
    output = lowering.output()
    with b.loop("batch", y[0]) as n, b.loop("point", y[1]) as point:
        taps = [
            line.taps(load(places, flat_index(
                [n, point, const(len(sizes) - 1 - axis)], (*y[:2], len(sizes))
            )))
            for axis, line in enumerate(lines)
        ]

        def value(at: list[Expr], c: Expr) -> Expr:
            axis = len(at)
            if axis == len(sizes):
                return load(source, flat_index([n, *at, c], x))
            return add(*(mul(value([*at, index], c), weight) for index, weight in taps[axis]))

        with b.loop("c", y[2]) as c:
            b.store(output, flat_index([n, point, c], y), value([], c))
    return lowering.finish()


class _SampledLine:
    """An axis of ``size`` pixels."""

    def __init__(self, lowering: Lowering, op: Sample, size: int) -> None:
        self.b, self.op, self.size = lowering.b, op, size
        self.period = 0
        self.table: Buffer | None = None
        if op.outside in (Outside.REFLECTION, Outside.MIRROR):
            mirror = op.outside is Outside.MIRROR
            self.period = max(2 * (size - 1 if mirror else size), 1)
            number = np.arange(-1, self.period + 3) % self.period
            last = self.period if mirror else self.period - 1
            folded = np.minimum(np.minimum(number, last - number), size - 1)
            self.table = lowering.derived("folded", Scalar.U16, folded.astype(np.uint16))

    def taps(self, place: Expr) -> list[tuple[Expr, Expr]]:
        """Returns the pixels around a place, and their weights."""
        b = self.b
        x = b.let("place", place)
        if self.period:
            turns = floor(b, div(x, f32(self.period)))
            x = b.let("within", sub(x, mul(turns, f32(self.period))))
            low, high = 0.0, float(self.period)
        else:
            low, high = float(-_BEYOND), float(self.size + _BEYOND)
        # Comparisons that don't hold for NaN: it becomes a number.
        x = b.let("above", select(ge(x, f32(low)), x, f32(low)))
        x = b.let("inside", select(le(x, f32(high)), x, f32(high)))
        if self.op.interpolation is Interpolation.NEAREST:
            first = b.let("first", cast(round_half_even(b, x), Scalar.I32))
            return [self._tap(first, 0, f32(1.0))]
        whole = b.let("whole", floor(b, x))
        first = b.let("first", cast(whole, Scalar.I32))
        r = b.let("ratio", sub(x, whole))
        if self.op.interpolation is Interpolation.LINEAR:
            return [self._tap(first, 0, sub(f32(1.0), r)), self._tap(first, 1, r)]
        rest = b.let("rest", sub(f32(1.0), r))
        weights = (_far(add(r, f32(1.0))), _near(r), _near(rest), _far(add(rest, f32(1.0))))
        return [self._tap(first, i - 1, weight) for i, weight in enumerate(weights)]

    def _tap(self, first: Expr, offset: int, weight: Expr) -> tuple[Expr, Expr]:
        b = self.b
        number = b.let("number", add(first, const(offset, Scalar.I32)))
        if self.table is not None:
            at = cast(clamp(add(number, const(1, Scalar.I32)), 0, self.table.size - 1),
                      Scalar.INDEX)
            folded = cast(load(self.table, at), Scalar.INDEX)
            return b.let("pixel", clamp(folded, 0, self.size - 1)), b.let("weight", weight)
        pixel = b.let("pixel", cast(clamp(number, 0, self.size - 1), Scalar.INDEX))
        if self.op.outside is Outside.ZEROS:
            there = and_(
                ge(number, const(0, Scalar.I32)), le(number, const(self.size - 1, Scalar.I32))
            )
            weight = select(there, weight, f32(0.0))
        return pixel, b.let("weight", weight)


def _near(x: Expr) -> Expr:
    """Returns Keys' cubic convolution kernel at distances up to 1."""
    inner = sub(mul(f32(_CUBIC + 2), x), f32(_CUBIC + 3))
    return add(mul(mul(inner, x), x), f32(1.0))


def _far(x: Expr) -> Expr:
    """Returns Keys' cubic convolution kernel at distances from 1 to 2."""
    a = f32(_CUBIC)
    inner = add(mul(sub(mul(a, x), f32(5 * _CUBIC)), x), f32(8 * _CUBIC))
    return sub(mul(inner, x), f32(4 * _CUBIC))
