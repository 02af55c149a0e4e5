"""Products of two computed matrices, in loops that compilers vectorize.

int8: dot products of the stored bytes, without zero points, whose part is subtracted at the end
with the sums of rows and columns; where the second matrix isn't contiguous along the depth, a few
of its columns are copied first, for all rows. Floats, where the second matrix isn't contiguous: a
row of accumulators in memory, to which each row of the second matrix is added. For other products
plain loops are as fast.
"""

from __future__ import annotations

from contextlib import ExitStack

from crtexport.ir.types import DType
from crtexport.kir.builder import add, cast, const, i32, load, mul, wrap_add, wrap_mul, wrap_sub
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.computed_product import (
    Matrices,
    Product,
    centred,
    plus,
)
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.candidates import Candidate, single
from crtexport.schedules.common.stepped_products import stepped_product_of

_COLUMNS = 8
"""Columns of the second matrix that are copied at a time."""


def candidates(context: Context) -> list[Candidate]:
    """Returns the variants of a node that multiplies two computed matrices and keeps its operator's
    rules; an empty list where plain loops are as fast."""
    shape = Matrices.of(context)
    if shape.adjoint[0] or not shape.depth:
        return []
    types = (context.input(0).dtype, context.input(1).dtype)
    if types == (DType.INT8, DType.INT8):
        return single("dot products of bytes", _Dots(context, shape).lower())
    if types[0].is_float and shape.adjoint[1] and shape.units > 1:
        return single("rows of sums", _row_sums(context, shape))
    return []


class _Dots:
    """Dot products of int8 values."""

    def __init__(self, context: Context, shape: Matrices) -> None:
        self.lowering, self.shape = Lowering(context.node.operator.lower(), context), shape
        self.b = self.lowering.b
        self.product = stepped_product_of(self.lowering)
        self.columns = min(_COLUMNS, shape.units) if shape.adjoint[1] else shape.units
        self.copied: Buffer | None = None
        self.sums: Buffer | None = None
        if shape.adjoint[1]:
            count = self.columns * shape.depth
            self.copied = self.lowering.scratch("columns", Scalar.I8, count)
        if self.product.zero_point:
            self.sums = self.lowering.scratch("column_sums", Scalar.I32, self.columns)

    def lower(self) -> Lowered:
        """Returns the kernel."""
        b, shape = self.b, self.shape
        whole = shape.units - shape.units % self.columns
        with ExitStack() as loops:
            batch = [loops.enter_context(b.loop("batch", n)) for n in shape.batch]
            with b.loop("block", whole // self.columns) as block:
                self._block(batch, mul(block, const(self.columns)), self.columns)
            if shape.units - whole:
                self._block(batch, const(whole), shape.units - whole)
        return self.lowering.finish()

    def _block(self, batch: list[Expr], first: Expr, count: int) -> None:
        """Emits ``count`` columns from ``first`` on, for all rows."""
        b, product, shape = self.b, self.product, self.shape
        with b.loop("column", count) as column:
            unit = add(first, column)
            if self.copied is not None:
                with b.loop("d", shape.depth) as d:
                    value = load(product.weights, shape.right_index(batch, unit, d))
                    b.store(self.copied, self._copy(column, d), value)
            if self.sums is not None:
                total = b.local("column_sum", i32(0))
                with b.loop("d", shape.depth) as d:
                    b.assign(total, add(total, self._right(batch, unit, column, d)))
                b.store(self.sums, column, total)
        with b.loop("row", shape.rows) as row:
            self._row(batch, row, first, count)

    def _row(self, batch: list[Expr], row: Expr, first: Expr, count: int) -> None:
        b, product, shape = self.b, self.product, self.shape
        zeros = (product.zero_point, product.weight_zero)
        # Of the sum of (x - z) * (w - v): depth * z * v - v * sum of x, alike for all columns.
        fixed: Expr = i32(_wrapped(shape.depth * zeros[0] * zeros[1]))
        if product.weight_zero:
            total = b.local("row_sum", i32(0))
            with b.loop("d", shape.depth) as d:
                b.assign(total, add(total, self._left(batch, row, d)))
            fixed = b.let("fixed", wrap_sub(fixed, wrap_mul(total, i32(product.weight_zero))))
        with b.loop("column", count) as column:
            unit = add(first, column)
            acc = product.start(unit)
            dot = b.local("dot", i32(0))
            with b.loop("d", shape.depth) as d:
                x, w = self._left(batch, row, d), self._right(batch, unit, column, d)
                b.assign(dot, wrap_add(dot, mul(x, w)))
            more: Expr = wrap_add(dot, fixed)
            if self.sums is not None:
                own = wrap_mul(load(self.sums, column), i32(product.zero_point))
                more = wrap_sub(more, own)
            b.assign(acc, wrap_add(acc, more))
            product.finish(acc, unit, shape.result_index(batch, row, unit))

    def _left(self, batch: list[Expr], row: Expr, d: Expr) -> Expr:
        return cast(load(self.product.x, self.shape.left_index(batch, row, d)), Scalar.I32)

    def _right(self, batch: list[Expr], unit: Expr, column: Expr, d: Expr) -> Expr:
        if self.copied is not None:
            return cast(load(self.copied, self._copy(column, d)), Scalar.I32)
        index = self.shape.right_index(batch, unit, d)
        return cast(load(self.product.weights, index), Scalar.I32)

    def _copy(self, column: Expr, d: Expr) -> Expr:
        return add(mul(column, const(self.shape.depth)), d)


def _wrapped(value: int) -> int:
    """Returns a number wrapped to 32 bits."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _row_sums(context: Context, shape: Matrices) -> Lowered:
    lowering = Lowering(context.node.operator.lower(), context)
    b, product = lowering.b, stepped_product_of(lowering)
    sums = lowering.scratch("sums", product.sum, shape.units)
    with ExitStack() as loops:
        batch = [loops.enter_context(b.loop("batch", n)) for n in shape.batch]
        row = loops.enter_context(b.loop("row", shape.rows))
        with b.loop("unit", shape.units) as unit:
            b.store(sums, unit, product.start(unit))
        with b.loop("d", shape.depth) as d:
            x = b.let("x", centred(product, product.x, shape.left_index(batch, row, d)))
            with b.loop("unit", shape.units) as unit:
                _add_to(lowering, product, sums, (unit, x, shape.right_index(batch, unit, d)))
        with b.loop("unit", shape.units) as unit:
            acc = b.local("sum", load(sums, unit))
            product.finish(acc, unit, shape.result_index(batch, row, unit))
    return lowering.finish()


def _add_to(
    lowering: Lowering, product: Product, sums: Buffer, term: tuple[Expr, Expr, Expr]
) -> None:
    unit, x, index = term
    acc = lowering.b.local("sum", load(sums, unit))
    w = centred(product, product.weights, index)
    lowering.b.store(sums, unit, plus(product, acc, x, w))
