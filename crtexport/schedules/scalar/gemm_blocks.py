"""int8 matrix products in blocks: several rows of the input times several units at once.

A plain dot product loads two bytes per multiplication. In a block each loaded value serves a whole
row or column of accumulators, which stay in registers. It is used for FULLY_CONNECTED and for
CONV_2D with 1x1 windows, whose pixels are the rows.
"""

from __future__ import annotations

from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.ir.types import DType
from crtexport.kir.builder import add, const, mul
from crtexport.kir.language import Expr
from crtexport.lowering.numerics.weighted_layer import Weighted
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.scalar.dot_product_step import DotProductStep


def lower(context: Context, step: DotProductStep) -> Lowered | None:
    """Returns a node that keeps its operator's rules as blocks of dot products; None where it isn't
    one, or isn't worth it."""
    op = context.node.op
    if not isinstance(op, FullyConnected | Conv2D):
        return None
    shape = _matrix(context, op)
    if shape is None:
        return None
    rows, depth, units = shape
    if depth < 2 * step.width or units < 2:
        return None
    lowering = Lowering(
        "fully_connected" if isinstance(op, FullyConnected) else "pointwise_conv2d", context
    )
    weighted = Weighted(
        lowering, 0, op.activation, fully_connected=isinstance(op, FullyConnected)
    )
    if not weighted.plain_int8:
        return None
    _GemmBlocks(lowering, weighted, step, depth, units).emit(rows)
    return lowering.finish()


def _matrix(context: Context, op: FullyConnected | Conv2D) -> tuple[int, int, int] | None:
    """Returns (rows, depth, units) of a node that is a matrix product of int8 values."""
    if context.input(0).dtype is not DType.INT8 or context.input(1).dtype is not DType.INT8:
        return None
    weights = context.input(1).shape
    if isinstance(op, Conv2D):
        plain = weights[1:3] == (1, 1) and op.stride == (1, 1) and not op.padding.any
        if not plain or weights[3] != context.input(0).shape[3]:
            return None
    units, depth = weights[0], weights[-1]
    return (context.input(0).elements // depth if depth else 0), depth, units


class _GemmBlocks:
    """Covers rows x units with blocks: the large ones first, then the edges."""

    def __init__(
        self, lowering: Lowering, weighted: Weighted, step: DotProductStep, depth: int, units: int
    ) -> None:
        self.b, self.weighted, self.step = lowering.b, weighted, step
        self.depth, self.units = depth, units

    def emit(self, rows: int) -> None:
        """Emits all blocks."""
        rows_per_block = self.step.rows
        if rows >= rows_per_block > 1:
            self._rows(const(0), rows // rows_per_block, rows_per_block, self.step.units)
            if rows % rows_per_block:
                self._rows(
                    const(rows - rows % rows_per_block), rows % rows_per_block, 1,
                    self.step.units_of_one_row
                )
        else:
            self._rows(const(0), rows, 1, self.step.units_of_one_row)

    def _rows(self, first: Expr, count: int, rows_per_block: int, units_per_block: int) -> None:
        with self.b.loop("row_block", count) as block:
            row = add(first, mul(block, const(rows_per_block)))
            rows = [add(row, const(i)) for i in range(rows_per_block)]
            with self.b.loop("unit_block", self.units // units_per_block) as unit_block:
                unit = mul(unit_block, const(units_per_block))
                self._block(rows, [add(unit, const(i)) for i in range(units_per_block)])
            if self.units % units_per_block:
                first_unit = self.units - self.units % units_per_block
                with self.b.loop("unit", self.units % units_per_block) as last:
                    self._block(rows, [add(const(first_unit), last)])

    def _block(self, rows: list[Expr], units: list[Expr]) -> None:
        b, width = self.b, self.step.width
        accs = [[self.weighted.start(unit) for unit in units] for _ in rows]
        with b.loop("d", self.depth // width) as d:
            at = mul(d, const(width))
            xs = [
                self.step.load(b, f"x_r{r}", self.weighted.x, self._at(row, at))
                for r, row in enumerate(rows)
            ]
            for column, unit in enumerate(units):
                w = self.step.load(b, f"w_u{column}", self.weighted.weights, self._at(unit, at))
                for acc, x in zip((line[column] for line in accs), xs, strict=True):
                    self.step.multiply(b, acc, x, w)
        for tail in range(self.depth - self.depth % width, self.depth):
            for row, line in zip(rows, accs, strict=True):
                for acc, unit in zip(line, units, strict=True):
                    self.weighted.accumulate(
                        acc, self._at(row, const(tail)), self._at(unit, const(tail))
                    )
        for row, line in zip(rows, accs, strict=True):
            for acc, unit in zip(line, units, strict=True):
                index = add(mul(row, const(self.units)), unit)
                self.weighted.finish(acc, unit, index)

    def _at(self, line: Expr, position: Expr) -> Expr:
        return add(mul(line, const(self.depth)), position)
