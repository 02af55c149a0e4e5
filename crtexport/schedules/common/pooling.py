"""Pooling with vectors of any instruction set: a vector has as many channels as lanes."""

from __future__ import annotations

import abc

from crtexport.ir.ops import AveragePool2D, MaxPool2D
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import add, const, flat_index, i32
from crtexport.kir.builder import mul as times
from crtexport.kir.language import Expr
from crtexport.lowering.ops.conv import window_taps
from crtexport.lowering.registry import Lowering

At = tuple[Expr, Expr, Expr]
"""A pixel of the output: image, row, column."""


class VectorPool(abc.ABC):
    """Pools pixel by pixel, ``lanes`` channels at a time."""

    def __init__(
        self, lowering: Lowering, op: AveragePool2D | MaxPool2D, lanes: int
    ) -> None:
        self.lowering, self.b, self.op, self.lanes = lowering, lowering.b, op, lanes
        context = lowering.context
        self.x, self.y = context.input(0), context.output()
        self.window = WindowGeometry.of(op, self.x.shape, self.y.shape, op.window)
        self.source, self.target = lowering.input(0, "input"), lowering.output()
        self.average = isinstance(op, AveragePool2D)

    def emit(self) -> None:
        """Emits all pixels."""
        b, y = self.b, self.y.shape
        with b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy, b.loop("ox", y[2]) as ox:
            at = n, oy, ox
            self.pixel(at, self._cells(at) if self.average else i32(1))

    def pixel(self, at: At, cells: Expr) -> None:
        """Emits all channels of a pixel whose window has ``cells`` cells in the image."""
        b = self.b
        whole, rest = divmod(self.y.shape[3], self.lanes)
        with b.loop("block", whole) as block:
            first = b.let("first", times(block, const(self.lanes)))
            self._channels(at, cells, first, self.lanes)
        if rest:
            self._channels(at, cells, const(whole * self.lanes), rest)

    def _cells(self, at: At) -> Expr:
        """Returns how many cells of the window of a pixel lie in the image."""
        b = self.b
        if not self.op.padding.any:
            return i32(self.op.window[0] * self.op.window[1])
        count = b.local("count", i32(0))

        def inside(_ky: Expr, _kx: Expr, _iy: Expr, _ix: Expr) -> None:
            b.assign(count, add(count, i32(1)))

        window_taps(b, self.window, at[1:], inside, None)
        return count

    def _channels(self, at: At, cells: Expr, first: Expr, count: int) -> None:
        """Emits ``count`` channels from ``first`` on."""
        b = self.b
        acc = b.local("acc", self.start())

        def inside(_ky: Expr, _kx: Expr, iy: Expr, ix: Expr) -> None:
            index = flat_index([at[0], iy, ix, first], self.x.shape)
            b.assign(acc, self.combined(acc, index, count))

        window_taps(b, self.window, at[1:], inside, None)
        self.finish(at, cells, first, count, acc)

    def put(self, at: At, first: Expr, count: int, value: Expr) -> None:
        """Stores the results of ``count`` channels from ``first`` on."""
        index = flat_index([*at, first], self.y.shape)
        self.b.store_vector(self.target, index, self.b.let("result", value), count)

    @abc.abstractmethod
    def start(self) -> Expr:
        """Returns the initial value of a sum or a maximum."""

    @abc.abstractmethod
    def combined(self, acc: Expr, index: Expr, count: int) -> Expr:
        """Returns ``acc`` combined with ``count`` values of the input from ``index`` on."""

    @abc.abstractmethod
    def finish(self, at: At, cells: Expr, first: Expr, count: int, acc: Expr) -> None:
        """Emits the end of ``count`` channels from ``first`` on; ``cells``: the number of cells
        that were summed."""
