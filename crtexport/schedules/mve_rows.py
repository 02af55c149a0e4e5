"""The rows of an image that a window looks at, with their padding, in memory of the kernel's own.

A ring holds as many padded rows as a window is high. Each row of the image is copied into it once,
the columns and rows of the padding are filled with the zero point; after that no tap has to ask
whether it lies in the image, and the output may overwrite what has been copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crtexport.ir.ops import Conv2D, DepthwiseConv2D
from crtexport.kernels.build import (
    KernelBuilder,
    add,
    and_,
    call,
    const,
    div,
    ge,
    i32,
    load_vector,
    lt,
    min_,
    mul,
    sub,
)
from crtexport.kernels.ir import Buffer, Expr, Scalar
from crtexport.kernels.registry import Context, Lowering
from crtexport.schedules.mve_scale import BYTES


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution: shapes NHWC, strides, dilations, padding before."""

    x: tuple[int, ...]
    y: tuple[int, ...]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]

    @staticmethod
    def of(context: Context, op: Conv2D | DepthwiseConv2D) -> Window:
        shape = context.input(1).shape
        return Window(
            context.input(0).shape, context.output().shape, (shape[1], shape[2]), op.stride,
            op.dilation, (op.padding.top, op.padding.left),
        )

    def span(self, axis: int) -> int:
        """Rows or columns from the first to the last tap."""
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def reach(self, axis: int) -> int:
        """Rows or columns of the padded image that some window looks at."""
        return (self.y[1 + axis] - 1) * self.stride[axis] + self.span(axis)


class Ring:
    """Padded rows: ``rows[block][slot][column][cell]``.

    A block is ``cell`` neighbouring channels, all of them if it is the only one; the last of many
    may repeat channels of the one before it. Sixteen bytes may be read from every cell.
    """

    def __init__(
        self, lowering: Lowering, source: Buffer, window: Window, cell: int, zero: int
    ) -> None:
        self.b: KernelBuilder = lowering.b
        self.source, self.window, self.cell, self.zero = source, window, cell, zero
        self.channels = window.x[3]
        self.blocks = -(-self.channels // cell)
        self.slots, self.columns = window.span(0), window.reach(1)
        self.line = self.columns * cell
        self.rows = lowering.scratch(
            "lines", Scalar.I8, self.blocks * self.slots * self.line + BYTES
        )

    def channel(self, block: Expr) -> Expr:
        """The first channel of a block."""
        first = mul(block, const(self.cell))
        if self.channels % self.cell == 0:
            return first
        return min_(first, const(self.channels - self.cell))

    def start(self, block: Expr, slot: Expr) -> Expr:
        """The index of the first cell of a row."""
        return mul(add(mul(block, const(self.slots)), slot), const(self.line))

    @contextmanager
    def walk(self) -> Iterator[tuple[Expr, Expr, list[Expr]]]:
        """Loops over the output's rows: (image, row, slot of each row of the window)."""
        b, window = self.b, self.window
        stride = window.stride[0]
        fresh = min(stride, self.slots)
        ahead = -(-(self.slots - fresh) // fresh)  # turns that only copy
        missing = ahead * fresh - (self.slots - fresh)
        self._fill_columns()
        with b.loop("n", window.x[0]) as n, b.loop("turn", window.y[1] + ahead) as turn:
            with b.loop("new", fresh) as new:
                step = fresh if ahead else stride
                row = b.let("padded_row", sub(add(mul(turn, const(step)), new), const(missing)))
                with b.if_(ge(row, const(0)) if missing else None):
                    self._copy(n, row)
            with b.if_(ge(turn, const(ahead)) if ahead else None):
                oy = b.let("oy", sub(turn, const(ahead)))
                slots = [
                    b.let("slot", self._slot(
                        add(mul(oy, const(stride)), const(ky * window.dilation[0]))
                    ))
                    for ky in range(window.kernel[0])
                ]
                yield n, oy, slots

    def _slot(self, row: Expr) -> Expr:
        if self.slots == 1:
            return const(0)
        whole = self.b.let("padded_row", row)
        return sub(whole, mul(div(whole, const(self.slots)), const(self.slots)))

    def _zeros(self) -> Expr:
        return call("mve_dup_s8", i32(self.zero), type_=Scalar.I8X16)

    def _fill_columns(self) -> None:
        """The columns before and behind the image, which stay as they are."""
        b, left = self.b, min(self.window.before[1], self.columns)
        right = self.columns - left - self.window.x[2]
        if left <= 0 and right <= 0:
            return
        with b.loop("line", self.blocks * self.slots) as line:
            start = b.let("start", mul(line, const(self.line)))
            self._fill(start, left)
            self._fill(add(start, const((left + self.window.x[2]) * self.cell)), right)

    def _fill(self, start: Expr, cells: int) -> None:
        count = max(cells, 0) * self.cell
        with self.b.loop("chunk", count // BYTES) as chunk:
            self.b.store_vector(self.rows, add(start, mul(chunk, const(BYTES))), self._zeros())
        if count % BYTES:
            at = add(start, const(count - count % BYTES))
            self.b.store_vector(self.rows, at, self._zeros(), count % BYTES)

    def _copy(self, n: Expr, row: Expr) -> None:
        """A row of the padded image into its slot."""
        b, window = self.b, self.window
        left = min(window.before[1], self.columns)
        width = min(window.x[2], self.columns - left)
        slot = b.let("slot", self._slot(row))
        iy = b.let("iy", sub(row, const(window.before[0])))
        lowest, highest = -window.before[0], window.reach(0) - 1 - window.before[0]
        tests = [ge(iy, const(0))] if lowest < 0 else []
        tests += [lt(iy, const(window.x[1]))] if highest >= window.x[1] else []
        with b.loop("block", self.blocks) as block:
            target = b.let(
                "target", add(self.start(block, slot), const(left * self.cell))
            )
            with b.if_(and_(*tests) if tests else None):
                line = mul(add(mul(n, const(window.x[1])), iy), const(window.x[2]))
                source = add(mul(line, const(self.channels)), self.channel(block))
                self._copy_line(target, b.let("source", source), width)
            if tests:
                with b.else_():
                    self._fill(target, width)

    def _copy_line(self, target: Expr, source: Expr, width: int) -> None:
        b = self.b
        if self.blocks == 1:  # neighbours stay neighbours
            count = width * self.cell
            with b.loop("chunk", count // BYTES, unroll=_unroll(count // BYTES)) as chunk:
                at = mul(chunk, const(BYTES))
                value = load_vector(self.source, add(source, at), Scalar.I8X16)
                b.store_vector(self.rows, add(target, at), value)
            if count % BYTES:
                at = const(count - count % BYTES)
                value = load_vector(self.source, add(source, at), Scalar.I8X16, count % BYTES)
                b.store_vector(self.rows, add(target, at), value, count % BYTES)
            return
        with b.loop("column", width, unroll=_unroll(width)) as column:
            value = load_vector(
                self.source, add(source, mul(column, const(self.channels))), Scalar.I8X16
            )
            b.store_vector(self.rows, add(target, mul(column, const(self.cell))), value)


def _unroll(extent: int) -> int | None:
    return next((n for n in (4, 3, 2) if extent % n == 0), None)
