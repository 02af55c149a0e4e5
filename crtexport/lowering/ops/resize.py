"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

Which pixels a pixel is made of, and in which parts, depends on its row and its column alone: both
are tables computed while exporting with the reference kernels' arithmetic.
"""

from __future__ import annotations

import numpy as np

from crtexport.ir.ops import ResizeBilinear, ResizeNearestNeighbor
from crtexport.ir.resizing import ONE, Blend, float_blend, integer_blend, nearest
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    const,
    div,
    f32,
    flat_index,
    gt,
    load,
    min_,
    mul,
    select,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.strided_copy import CopyAxis, move, strides
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types


def _numbers(lowering: Lowering, name: str, values: list[int]) -> Buffer:
    """Declares a table of rows or columns."""
    return lowering.derived(
        name, Scalar.U16, np.array(values, np.uint16),
        "for each row or column of the output: one of the input",
    )


def _looked_up(b: KernelBuilder, table: Buffer, at: Expr, size: int) -> Expr:
    """Returns an entry of such a table, clamped so that it provably lies inside of the image."""
    return b.let("from", min_(cast(load(table, at), Scalar.INDEX), const(size - 1)))


def image_sizes(context: Context) -> str | None:
    """Images can have up to 65536 rows and columns."""
    found = max(*context.input(0).shape[1:3], *context.output().shape[1:3])
    return f"found {found}" if found > 1 << 16 else None


@lowers(ResizeNearestNeighbor, same_types(*SCALAR_OF), image_sizes)
def resize_nearest_neighbor(context: Context) -> Lowered:
    """The nearest pixel; whole factors need no tables."""
    op = context.op(ResizeNearestNeighbor)
    lowering = Lowering("resize_nearest", context)
    b, x, y = lowering.b, context.input(0).shape, context.output().shape
    found = [nearest(op, x[axis], y[axis]) for axis in (1, 2)]
    factors = [y[axis] // x[axis] for axis in (1, 2)]
    if all(
        n == [i // factor for i in range(x[axis] * factor)]
        for axis, n, factor in zip((1, 2), found, factors, strict=True)
    ):
        source, output = lowering.input(0, "input"), lowering.output()
        move(b, source, output, _whole_factors(x, y, factors))
        return lowering.finish()
    source = lowering.input(0, "input")
    rows = _numbers(lowering, "rows", found[0])
    columns = _numbers(lowering, "columns", found[1])
    output = lowering.output()
    with b.loop("batch", y[0]) as n, b.loop("y", y[1]) as row:
        above = _looked_up(b, rows, row, x[1])
        with b.loop("x", y[2]) as column:
            left = _looked_up(b, columns, column, x[2])
            with b.loop("c", y[3]) as c:
                value = load(source, flat_index([n, above, left, c], x))
                b.store(output, flat_index([n, row, column, c], y), value)
    return lowering.finish()


def _whole_factors(
    x: tuple[int, ...], y: tuple[int, ...], factors: list[int]
) -> list[CopyAxis]:
    source, target = strides(x), strides(y)
    rows, columns = factors
    return [
        CopyAxis(x[0], source[0], target[0]),
        CopyAxis(x[1], source[1], target[1] * rows), CopyAxis(rows, 0, target[1]),
        CopyAxis(x[2], source[2], target[2] * columns), CopyAxis(columns, 0, target[2]),
        CopyAxis(x[3], 1, 1),
    ]


BLENDED = (DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16)


@lowers(ResizeBilinear, same_types(*BLENDED), image_sizes)
def resize_bilinear(context: Context) -> Lowered:
    """Between four pixels, in float32 (float32, uint8) or steps of 1/1024 (int8, int16)."""
    op = context.op(ResizeBilinear)
    lowering = Lowering("resize_bilinear", context)
    b, x, y = lowering.b, context.input(0).shape, context.output().shape
    real = context.input(0).dtype in (DType.FLOAT32, DType.UINT8)
    blend = float_blend if real else integer_blend
    work = Scalar.F32 if real else (
        Scalar.I64 if context.input(0).dtype is DType.INT16 else Scalar.I32
    )
    source = lowering.input(0, "input")
    rows = _Line(lowering, "row", blend(op, x[1], y[1]), work)
    columns = _Line(lowering, "column", blend(op, x[2], y[2]), work)
    output = lowering.output()
    with b.loop("batch", y[0]) as n, b.loop("y", y[1]) as row:
        above, below, top, bottom = rows.at(row, x[1])
        with b.loop("x", y[2]) as column:
            left, right, near, far = columns.at(column, x[2])

            def part(line: Expr, place: Expr, a: Expr, z: Expr, c: Expr) -> Expr:
                value = cast(load(source, flat_index([n, line, place, c], x)), work)
                return mul(mul(value, a), z)

            with b.loop("c", y[3]) as c:
                corners = [
                    part(above, left, top, near, c), part(below, left, bottom, near, c),
                    part(above, right, top, far, c), part(below, right, bottom, far, c),
                ]
                if not real:  # the reference adds integers in another order, to the same sum
                    corners = [b.let("part", corner) for corner in corners]
                value = _finished(b, b.let("sum", add(*corners)), output.dtype)
                b.store(output, flat_index([n, row, column, c], y), value)
    return lowering.finish()


def _finished(b: KernelBuilder, total: Expr, dtype: Scalar) -> Expr:
    """Returns the sum of four parts as an element of the output."""
    if dtype is Scalar.F32:
        return total
    if dtype is Scalar.U8:
        return cast(cast(add(total, f32(0.5)), Scalar.I32), dtype)
    half = ONE * ONE // 2
    work = total.type
    nudge = select(gt(total, const(0, work)), const(half, work), const(-half, work))
    return cast(b.let("mean", div(add(total, nudge), const(ONE * ONE, work))), dtype)


class _Line:
    """The tables of a direction."""

    def __init__(self, lowering: Lowering, name: str, blend: Blend, work: Scalar) -> None:
        self.b, self.work = lowering.b, work
        self.lower = _numbers(lowering, f"{name}_lower", blend.lower)
        self.upper = _numbers(lowering, f"{name}_upper", blend.upper)
        scalar = Scalar.F32 if work is Scalar.F32 else Scalar.I16
        kind = np.float32 if work is Scalar.F32 else np.int16
        self.part = lowering.derived(
            f"{name}_part", scalar, blend.part.astype(kind),
            "for each row or column of the output: the weight of the upper one of the input"
            + ("" if work is Scalar.F32 else f", in {ONE}ths"),
        )

    def at(self, place: Expr, size: int) -> tuple[Expr, Expr, Expr, Expr]:
        """Returns the two neighbours of a row or column, and their weights."""
        b = self.b
        lower = _looked_up(b, self.lower, place, size)
        upper = _looked_up(b, self.upper, place, size)
        second = b.let("second", cast(load(self.part, place), self.work))
        one = f32(1.0) if self.work is Scalar.F32 else const(ONE, self.work)
        return lower, upper, b.let("first", sub(one, second)), second
