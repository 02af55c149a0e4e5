"""Depthwise convolutions where products have 32 bits: two outputs of a channel at once.

A word of the plane is the value of a column plus 2**16 times that of another one, half of a row of
outputs behind it. Times a weight it is the product of the first value plus 2**16 times that of the
second. The windows of two outputs that are as far from each other see the same words, so that a
product of 32 bits serves both.

Sums of two products of int8 have 16 bits. Below 0, the lower one would take 1 from the upper one,
so that each sum of two begins with 2**15. These words are summed up, wrapping, and their upper
halves once more, which gives the sums of the second output; these, times 2**16, and what the words
began with, taken from the first, leave those of the first output.
"""

from __future__ import annotations

import numpy as np

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    const,
    i32,
    mul,
    shl,
    shr,
    wrap_add,
    wrap_sub,
)
from crtexport.kir.language import Const, Expr
from crtexport.lowering.registry import Context
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.scalar import depthwise_planes
from crtexport.schedules.scalar.depthwise_planes import IntegerPlanes
from crtexport.schedules.scalar.plane_geometry import PlaneLayout

_HALF = i32(16)
_BEGIN = 1 << 15
"""The beginning of sums of two products."""
_TOGETHER = 2
"""Products that are summed up before their sum is taken apart."""
_MOST = 255
"""Magnitudes of weights times values of int8 that have 16 bits."""


def candidates(context: Context, layout: PlaneLayout) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, by such planes; none where it
    can't be."""
    if not isinstance(context.node.op, DepthwiseConv2D) or context.output().shape[2] < 2:
        return []
    if context.input(0).dtype is not DType.INT8 or context.input(1).dtype is not DType.INT8:
        return []
    if 0 in context.output().shape or not _fits(context):
        return []
    return depthwise_planes.candidates(context, layout, PairedPlanes)


def _fits(context: Context) -> bool:
    """Returns whether sums of two products have 16 bits: always, but where both weights are -128.
    """
    _, height, width, _ = context.input(1).shape
    taps = context.matrix(height * width)
    for first in range(0, taps.rows, _TOGETHER):
        some = range(first, min(first + _TOGETHER, taps.rows))
        magnitudes = np.abs(taps.part(some, range(taps.columns)).astype(np.int16))
        if magnitudes.sum(axis=0).max(initial=0) > _MOST:
            return False
    return True


class PairedPlanes(IntegerPlanes):
    """Words of two columns times weights as they are."""

    def joined(self, first: Expr, second: Expr) -> Expr:
        if isinstance(second, Const):
            return add(first, i32(int(second.value) << 16))
        return add(first, shl(second, _HALF))

    def padding(self) -> Expr:
        return self.joined(self.zero, self.zero)

    def weight(self, value: Expr) -> Expr:
        return value

    def outputs_block(self, begin: Expr, to: Expr, count: int, *, lone: int = 0) -> None:
        b, shape = self.b, self.shape
        begin = b.let("begin", begin)
        height, width = shape.kernel
        words: dict[tuple[int, int], Expr] = {}

        def word(ky: int, at: int) -> Expr:
            if (ky, at) not in words:
                words[ky, at] = b.let(f"values_ky{ky}_at{at}", self.word(begin, ky, at))
            return words[ky, at]

        sums: dict[int, tuple[Expr, Expr]] = {}
        taps = [(ky, kx) for ky in range(height) for kx in range(width)]
        for first in range(0, len(taps), _TOGETHER):
            some = range(first, min(first + _TOGETHER, len(taps)))
            weights = [b.let(f"weight_tap{tap}", self.kept[tap]) for tap in some]
            for i, start in enumerate(shape.starts[:count]):
                with b.named(f"x{i}"):
                    total: Expr = i32(_BEGIN)
                    for tap, weight in zip(some, weights, strict=True):
                        ky, kx = taps[tap]
                        total = add(total, mul(word(ky, start + kx), weight))
                    sums[i] = self._added(sums.get(i), b.let(f"total_tap{first}", total))
        begun = -(-len(taps) // _TOGETHER) * _BEGIN
        constants = self.constants()
        for i, (both, upper) in sums.items():
            lower = wrap_sub(wrap_sub(both, shl(upper, _HALF)), i32(begun))
            alone = lone and i == count - 1
            for half, total in enumerate((lower,) if alone else (lower, upper)):
                with b.named(f"x{i}_{half}"):
                    result = self.scaling.finished(b.let("total", total), constants)
                at = (half * shape.places + i) * shape.y[3]
                b.store(self.output, add(to, const(at)), result)

    def _added(self, sums: tuple[Expr, Expr] | None, total: Expr) -> tuple[Expr, Expr]:
        """Returns the sums of words and of upper halves, one of each more."""
        upper = shr(total, _HALF)
        if sums is None:
            return total, self.b.let("upper", upper)
        both = self.b.let("both", wrap_add(sums[0], total))
        return both, self.b.let("upper", add(sums[1], upper))
