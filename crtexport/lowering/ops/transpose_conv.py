"""TRANSPOSE_CONV, gathered: each output cell looks for the input cells that reach it.

TensorFlow Lite scatters into an accumulator for the whole output; gathering needs no such memory.
Along an axis, output cell o is reached by tap k of input cell (o + crop - k) / stride where that
divides evenly: taps r, r + stride, r + 2*stride ... with r the remainder of o + crop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import TransposeConv2D
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    const,
    div,
    flat_index,
    ge,
    lt,
    mul,
    sub,
)
from crtexport.kir.language import Expr
from crtexport.lowering.numerics.weighted_layer import Weighted
from crtexport.lowering.numerics.weighted_rules import WEIGHTED_RULES
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import rank


class _TransposedAxis(Struct, frozen=True):
    """One spatial axis: input cells, taps, and how they meet."""

    name: str
    extent: int
    taps: int
    stride: int
    crop: int

    def phase(self, b: KernelBuilder, out: Expr) -> tuple[Expr, Expr]:
        """Returns the last input cell that may contribute to ``out``, and the tap by which it does.
        """
        at = b.let(f"at_{self.name}", add(out, const(self.crop)))
        newest = div(at, const(self.stride)) if self.stride > 1 else at
        first = sub(at, mul(newest, const(self.stride))) if self.stride > 1 else const(0)
        return b.let(f"newest_{self.name}", newest), b.let(f"first_{self.name}", first)

    @contextmanager
    def cells(
        self, b: KernelBuilder, phase: tuple[Expr, Expr]
    ) -> Iterator[tuple[Expr, Expr]]:
        """Loops over the pairs (tap, input cell) that contribute to an output cell."""
        newest, first = phase
        with b.loop(f"step_{self.name}", -(-self.taps // self.stride)) as step:
            tap = b.let(f"k{self.name}", add(first, mul(step, const(self.stride))))
            cell = b.let(f"i{self.name}", sub(newest, step))
            inside = and_(ge(cell, const(0)), lt(cell, const(self.extent)))
            if self.taps % self.stride:
                inside = and_(lt(tap, const(self.taps)), inside)
            with b.if_(inside):
                yield tap, cell


def micro_bias(context: Context) -> str | None:
    """With the numerics of TensorFlow Lite Micro, which reads it so, the bias of int16 is int64."""
    if context.numerics is not Numerics.TFLM or context.input(0).dtype is not DType.INT16:
        return None
    if not context.has(2) or context.input(2).dtype is DType.INT64:
        return None
    return f"found {context.input(2).dtype.value}"


@lowers(TransposeConv2D, rank(4), *WEIGHTED_RULES, micro_bias)
def transpose_conv2d(context: Context) -> Lowered:
    """for each pixel and output channel: bias + sum over the input cells that reach it."""
    op = context.op(TransposeConv2D)
    lowering = Lowering("transpose_conv2d", context)
    b, x, w, y = lowering.b, context.input(0).shape, context.input(1).shape, context.output().shape
    weighted = Weighted(lowering, 0, op.activation, every_tap=False)
    rows = _TransposedAxis("y", x[1], w[1], op.stride[0], op.crop[0])
    columns = _TransposedAxis("x", x[2], w[2], op.stride[1], op.crop[1])
    with b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy:
        row_phase = rows.phase(b, oy)
        with b.loop("ox", y[2]) as ox:
            column_phase = columns.phase(b, ox)
            with b.loop("oc", y[3]) as oc:
                acc = weighted.start(oc)
                with (
                    rows.cells(b, row_phase) as (ky, iy),
                    columns.cells(b, column_phase) as (kx, ix), b.loop("ic", x[3]) as ic,
                ):
                    weighted.accumulate(
                        acc, flat_index([n, iy, ix, ic], x), flat_index([oc, ky, kx, ic], w)
                    )
                weighted.finish(acc, oc, flat_index([n, oy, ox, oc], y))
    return lowering.finish()
