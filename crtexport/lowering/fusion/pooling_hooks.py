"""Pooling fused into a layer: results are folded over windows that don't overlap.

A maximum is updated with each result, starting from the lowest number, so results that a schedule
stores twice do no harm. A mean has a running sum for each channel and each window of a row of
windows, to which each result is added once. If there is only one row of windows, the sums become
means at the end; else each one does when its window is complete, and is then reset to 0 for the
next row.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Activation, AveragePool2D, MaxPool2D, Mean, ReduceMax
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.ir.window import WindowAxis
from crtexport.kir.analysis.affine_index import divided
from crtexport.kir.analysis.single_store import Results, types_stored
from crtexport.kir.builder import (
    add,
    and_,
    cast,
    const,
    div,
    eq,
    i32,
    load,
    load_vector,
    lt,
    max_,
    min_,
    mul,
    sub,
)
from crtexport.kir.language import LANE_SOURCES, Buffer, Expr, Scalar, Store, StoreVector
from crtexport.lowering.fusion.store_hooks import FusionNotPossibleError, StoreHook, VectorOps
from crtexport.lowering.ops.elementwise import work_type
from crtexport.lowering.ops.pool import lowest, mean, store_result
from crtexport.lowering.ops.reduce import mean_of
from crtexport.lowering.registry import Context, Lowered

PoolingOp = MaxPool2D | ReduceMax | AveragePool2D | Mean
"""Operators that fold windows."""


class PoolingAxis(WindowAxis, frozen=True):
    """Windows that don't overlap, along one side of an image."""

    @property
    def filled(self) -> bool:
        """Returns True where all windows have pixels."""
        return self.pad_before < self.window and self.end - self.window < self.size

    @property
    def rest(self) -> bool:
        """Returns True where there are pixels that belong to no window."""
        return self.end < self.size

    @property
    def one(self) -> bool:
        """Returns True where all pixels belong to one window."""
        return self.positions == 1 and not self.rest

    def cell(self, pixel: Expr) -> Expr:
        """Returns the number of the window that a pixel belongs to; for pixels of no window a
        number behind the last one."""
        if self.one:
            return const(0)
        if self.window == 1:
            return pixel
        return div(add(pixel, const(self.pad_before)), const(self.window))

    def behind(self, cell: Expr) -> Expr:
        """Returns the pixel behind a window's last pixel."""
        end = add(mul(cell, const(self.window)), const(self.window - self.pad_before))
        return end if self.end <= self.size else min_(end, const(self.size))

    def pixels(self, cell: Expr) -> Expr:
        """Returns the number of pixels in a window."""
        if self.inside:
            return const(self.window)
        first = sub(mul(cell, const(self.window)), const(self.pad_before))
        return sub(self.behind(cell), max_(first, const(0)))


def pooling_axes(graph: Graph, node: Node) -> tuple[PoolingAxis, PoolingAxis] | None:
    """Returns height and width of the image that an operator pools, with its windows; None for
    other operators, and for windows that overlap or leave gaps."""
    x, y = (graph.type(t).shape for t in (graph.required(node, 0), node.outputs[0]))
    if len(x) != 4 or x[0] != 1 or 0 in (*x, *y):
        return None
    match node.op:
        case MaxPool2D() | AveragePool2D() as op:
            apart = any(
                count > 1 and window != stride
                for count, window, stride in zip(y[1:3], op.window, op.stride, strict=True)
            )
            before = op.padding.top, op.padding.left
            windows, cells = op.window, (y[1], y[2])
        case Mean(axes=axes) | ReduceMax(axes=axes):
            apart, before = not axes or not set(axes) <= {1, 2}, (0, 0)
            windows = x[1] if 1 in axes else 1, x[2] if 2 in axes else 1
            cells = x[1] // windows[0], x[2] // windows[1]
        case _:
            return None
    if apart:
        return None
    rows, columns = (
        PoolingAxis(x[1 + i], cells[i], windows[i], stride=windows[i], pad_before=before[i])
        for i in range(2)
    )
    return (rows, columns) if rows.filled and columns.filled else None


class PoolingHook(StoreHook):
    """Finds the window of each result."""

    def __init__(
        self, context: Context, layer: Lowered, output: Buffer, vectors: VectorOps | None
    ) -> None:
        super().__init__(context, layer, output, vectors)
        sides = pooling_axes(context.graph, self.second)
        if sides is None:
            raise FusionNotPossibleError
        self.rows, self.columns = sides
        self.y = context.output()
        self.channels = context.graph.type(context.node.parts[0].outputs[0]).shape[3]
        self.target = replace(output, size=self.y.elements)

    def pixel(self, stmt: Store | StoreVector) -> tuple[tuple[Expr, Expr], Expr]:
        """Returns row, column and channel of a result; row and column are 0 where there is a single
        window."""
        neighbours = stmt.count - 1 if isinstance(stmt, StoreVector) else 0
        found = self.known.divided(stmt.index, self.channels)
        if found is None or not self.known.inside(found[1], self.channels - neighbours):
            raise FusionNotPossibleError
        pixel, channel = found
        if self.rows.one and self.columns.one:
            return (const(0), const(0)), channel
        height, width = self.rows.size, self.columns.size
        lines = self.known.divided(pixel, width)
        if lines is None:
            if not self.known.inside(pixel, height * width):
                raise FusionNotPossibleError
            row, column = divided(self.b.let("pixel", pixel), width)
            lines = (
                row if self.rows.one else self.b.let("pixel_row", row),
                column if self.columns.one else self.b.let("pixel_column", column),
            )
        elif not self.known.inside(lines[0], height):
            raise FusionNotPossibleError
        return lines, channel

    def cell(self, lines: tuple[Expr, Expr]) -> tuple[tuple[Expr, Expr], Expr | None]:
        """Returns row and column of the window that a pixel belongs to, and the condition that it
        belongs to one."""
        sides = self.rows, self.columns
        first, second = (
            self.b.let(name, side.cell(at))
            for name, side, at in zip(("cell_row", "cell_column"), sides, lines, strict=True)
        )
        limits = [
            lt(cell, const(side.positions))
            for cell, side in zip((first, second), sides, strict=True) if side.rest
        ]
        return (first, second), and_(*limits) if limits else None


class MaxPoolHook(PoolingHook):
    """Keeps the largest result of each window."""

    def __init__(
        self, context: Context, layer: Lowered, output: Buffer, vectors: VectorOps | None,
        op: MaxPool2D | ReduceMax,
    ) -> None:
        super().__init__(context, layer, output, vectors)
        self.activation = op.activation if isinstance(op, MaxPool2D) else Activation.NONE

    def begin(self) -> None:
        """Emits the initial maxima: the lowest number, for integers the lowest that the activation
        allows."""
        first = lowest(self.y.dtype)
        if self.y.dtype.is_integer:
            first = i32(activation_range(self.activation, self.y)[0])
        with self.b.loop("cell", self.y.elements) as cell:
            self.b.store(self.target, cell, cast(first, self.target.dtype))

    def _clamps(self) -> bool:
        """Returns whether maxima must be clamped at the end, because they started from the lowest
        number."""
        if not self.y.dtype.is_integer:
            return self.activation is not Activation.NONE
        return activation_range(self.activation, self.y)[1] < self.y.dtype.limits[1]

    def store(self, stmt: Store | StoreVector) -> None:
        b, type_ = self.b, stmt.value.type
        lines, channel = self.pixel(stmt)
        (row, column), limits = self.cell(lines)
        result = b.let("result", stmt.value)
        with b.if_(limits):
            cell = add(mul(row, const(self.columns.positions)), column)
            place = b.let("place", add(mul(cell, const(self.channels)), channel))
            if isinstance(stmt, Store):
                work = work_type(self.y.dtype)
                before, after = cast(load(self.target, place), work), cast(result, work)
                value = max_(b.let("largest", before), b.let("result", after))
                store_result(self.lowering, self.activation, self.target, place, value)
                return
            compute = self.vectors.largest(type_) if self.vectors else None
            if compute is None or self._clamps():
                raise FusionNotPossibleError
            largest = b.let("largest", load_vector(self.target, place, type_, stmt.count))
            b.store_vector(self.target, place, compute(largest, result), stmt.count)

    def end(self) -> None:
        """Emits nothing."""


class MeanPoolHook(PoolingHook):
    """Computes the mean of each window's results."""

    def __init__(
        self, context: Context, layer: Lowered, output: Buffer, vectors: VectorOps | None,
        op: AveragePool2D | Mean,
    ) -> None:
        super().__init__(context, layer, output, vectors)
        dtype = self.y.dtype
        own = context.numerics is Numerics.ORT and dtype is not DType.FLOAT32
        if own and isinstance(op, AveragePool2D):  # of real numbers, in their order
            raise FusionNotPossibleError
        self.at_end = self.rows.positions == 1
        results = Results(
            output, self.rows.size * self.columns.size, self.channels,
            ordered=dtype is DType.FLOAT32 or not self.at_end,
        )
        kernel = results.stored_once(layer.kernel)
        if kernel is None:
            raise FusionNotPossibleError
        self.layer = replace(layer, kernel=kernel)
        self.sums = self.lowering.scratch(
            "sums", self._summed(dtype), self.columns.positions * self.channels
        )
        self.mean = self._means(op)

    def _summed(self, dtype: DType) -> Scalar:
        """Returns the type of the sums: the smallest that they fit and that vectors can be loaded
        from."""
        if dtype is DType.FLOAT32:
            return Scalar.F32
        most = self.rows.window * self.columns.window * max(map(abs, dtype.limits))
        if most >= 1 << 31:
            raise FusionNotPossibleError
        short = most < 1 << 15 and all(
            Scalar.I16 in LANE_SOURCES[type_]
            for type_ in types_stored(self.layer.kernel, self.output) if type_.is_vector
        )
        return Scalar.I16 if short else Scalar.I32

    def _means(self, op: AveragePool2D | Mean) -> Callable[[Expr, Expr, tuple[Expr, Expr]], None]:
        """Returns a function that stores the mean of a window's sum at an index of the output."""
        if isinstance(op, Mean):
            finished = mean_of(self.lowering)
            return lambda place, total, _: self.b.store(self.target, place, finished(total))

        def store(place: Expr, total: Expr, cell: tuple[Expr, Expr]) -> None:
            rows, columns = self.rows.pixels(cell[0]), self.columns.pixels(cell[1])
            value = self.b.let("mean", mean(total, cast(mul(rows, columns), Scalar.I32)))
            store_result(self.lowering, op.activation, self.target, place, value)

        return store

    def begin(self) -> None:
        """Emits the initial sums, 0."""
        with self.b.loop("sum", self.sums.size) as place:
            self._keep(place, const(0, self._work))

    def store(self, stmt: Store | StoreVector) -> None:
        b = self.b
        lines, channel = self.pixel(stmt)
        cell, limits = self.cell(lines)
        with b.if_(limits):
            place = b.let("place", add(mul(cell[1], const(self.channels)), channel))
            self._add(stmt, place)
            if self.at_end:
                return
            last = [
                eq(line, sub(side.behind(at), const(1)))
                for line, side, at in zip(lines, (self.rows, self.columns), cell, strict=True)
                if side.window > 1
            ]
            with b.if_(and_(*last) if last else None):
                row = b.let("row", mul(cell[0], const(self.sums.size)))
                count = stmt.count if isinstance(stmt, StoreVector) else 1
                with b.loop("lane", count) as lane:
                    at = add(place, lane)
                    self._finish(at, add(row, at), cell)
                    self._keep(at, const(0, self._work))

    def _add(self, stmt: Store | StoreVector, place: Expr) -> None:
        """Emits the addition of results to their sums."""
        b, type_ = self.b, stmt.value.type
        if isinstance(stmt, Store):
            result = cast(b.let("result", stmt.value), self._work)
            self._keep(place, add(self._sum(place), result))
            return
        compute = self.vectors.total(type_) if self.vectors else None
        if compute is None:
            raise FusionNotPossibleError
        total = b.let("total", load_vector(self.sums, place, type_, stmt.count))
        b.store_vector(
            self.sums, place, compute(total, b.let("result", stmt.value)), stmt.count
        )

    def end(self) -> None:
        """Emits the means of the only row of windows."""
        if not self.at_end:
            return
        b = self.b
        with b.loop("cell", self.columns.positions) as cell, b.loop("c", self.channels) as channel:
            place = b.let("place", add(mul(cell, const(self.channels)), channel))
            self._finish(place, place, (const(0), cell))

    def _finish(self, place: Expr, target: Expr, cell: tuple[Expr, Expr]) -> None:
        self.mean(target, self.b.let("total", self._sum(place)), cell)

    @property
    def _work(self) -> Scalar:
        return Scalar.F32 if self.sums.dtype.is_float else Scalar.I32

    def _sum(self, place: Expr) -> Expr:
        return cast(load(self.sums, place), self._work)

    def _keep(self, place: Expr, value: Expr) -> None:
        self.b.store(self.sums, place, cast(value, self.sums.dtype))
