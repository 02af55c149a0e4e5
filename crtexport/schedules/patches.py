"""Gathers what a window sees into a line of words, padding filled in.

A line serves all output channels, which then run through it from end to end without asking where
they are. With DSP instructions, four neighbouring bytes become two words by SXTB16 (bytes 0 and 2,
bytes 1 and 3); what is left of a run of neighbours goes behind, in pairs; weights are packed in the
same order. int16 values stay in pairs. Without DSP instructions, and of floats, each value is a
word, in the order of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Conv2D, FullyConnected
from crtexport.kernels.build import (
    KernelBuilder,
    add,
    and_,
    call,
    cast,
    const,
    div,
    flat_index,
    ge,
    i32,
    load,
    load_word,
    lt,
    mul,
    sub,
)
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.registry import Context

MOST_LEFT = 32
"""Most values outside of words of four that are worth gathering one by one."""
FEW = 4
"""Input channels up to which whole rows of a window are neighbours that are worth a run."""


@dataclass(frozen=True)
class Windows:
    """Windows of ``kernel`` cells over an NHWC image ``x``, one for each pixel of ``y``.

    ``group``: values that are gathered at once: 4 bytes in pairs, 2 halves in a word, or 1 in a
    word of its own.
    """

    x: tuple[int, int, int, int]
    y: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)
    group: int = 4

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.x[3]

    @property
    def pixels(self) -> int:
        return self.y[0] * self.y[1] * self.y[2]

    @property
    def pointwise(self) -> bool:
        """Whether each pixel sees the cell with its own number."""
        return (
            self.kernel == (1, 1) and self.stride == (1, 1) and self.before == (0, 0)
            and self.x[:3] == self.y
        )

    def inside(self, axis: int) -> bool:
        """Whether no window sticks out of the image along an axis (0: rows, 1: columns)."""
        reach = (self.kernel[axis] - 1) * self.dilation[axis]
        last = (self.y[1 + axis] - 1) * self.stride[axis] - self.before[axis] + reach
        return self.before[axis] == 0 and last < self.x[1 + axis]

    @property
    def row_runs(self) -> bool:
        """Whether the cells of a window's row are gathered as one run of neighbours."""
        return self.dilation[1] == 1 and (self.x[3] % self.group == 0 or self.x[3] < FEW)

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """(ky, kx) where each run begins."""
        columns = (0,) if self.row_runs else tuple(range(self.kernel[1]))
        return tuple((ky, kx) for ky in range(self.kernel[0]) for kx in columns)

    @property
    def run(self) -> int:
        """Values of a run."""
        return self.x[3] * (self.kernel[1] if self.row_runs else 1)

    @property
    def left(self) -> tuple[tuple[int, int, int], ...]:
        """(ky, kx, ic) of the values that don't fill groups of four, in order."""
        first, channels = self.run - self.run % self.group, self.x[3]
        return tuple(
            (ky, kx + j // channels, j % channels)
            for ky, kx in self.runs for j in range(first, self.run)
        )

    @property
    def words(self) -> int:
        """Words of a line."""
        return len(self.runs) * self.run_words + -(-len(self.left) // 2)

    @property
    def run_words(self) -> int:
        """Words of the whole groups of a run."""
        return self.words_of(self.run)

    def words_of(self, count: int) -> int:
        """Words that the whole groups of ``count`` neighbours become."""
        return count // self.group * (2 if self.group == 4 else 1)

    def pairs(self) -> npt.NDArray[np.int64]:
        """words x 2: which tap each half of a line's words is, -1 for none."""
        found: list[tuple[int, int]] = []
        group = self.group
        for ky, kx in self.runs:
            first = (ky * self.kernel[1] + kx) * self.x[3]
            for k in range(first, first + self.run - self.run % group, group):
                found += [(k + i, k + i + group // 2) for i in range(group // 2)]
        left = [(ky * self.kernel[1] + kx) * self.x[3] + ic for ky, kx, ic in self.left]
        left += [-1] * (len(left) % 2)
        found += zip(left[::2], left[1::2], strict=True)
        return np.array(found, np.int64).reshape(-1, 2)


def windows_of(context: Context, group: int = 4) -> Windows | None:
    """The windows of a node that sums over all its input channels; None for another."""
    op, shape, weights = context.node.op, context.input(0).shape, context.input(1).shape
    match op:
        case FullyConnected():
            depth = weights[1]
            rows = context.input(0).elements // depth if depth else 0
            return Windows((1, 1, rows, depth), (1, 1, rows), (1, 1), group=group)
        case Conv2D() if len(shape) == 4 and weights[3] == shape[3]:
            y = context.output().shape
            return Windows(
                (shape[0], shape[1], shape[2], shape[3]), (y[0], y[1], y[2]),
                (weights[1], weights[2]), op.stride, op.dilation,
                (op.padding.top, op.padding.left), group,
            )
        case _:
            return None


class Gather:
    """Emits the gathering of lines: those of ``together`` pixels lie interleaved word by word."""

    def __init__(
        self, b: KernelBuilder, windows: Windows, x: Buffer, lines: Buffer, together: int,
        zero_point: int, times: int | None = None,
    ) -> None:
        """``times``: what the sum of each line's values is multiplied with and stored behind the
        lines, where values are not in groups."""
        self.b, self.windows, self.x, self.lines = b, windows, x, lines
        self.together, self.zero, self.times = together, zero_point, times
        self._total: Var | None = None

    def emit(self, pixel: Callable[[Expr], Expr]) -> None:
        """Gathers all lines; ``pixel`` has the number of the pixel for each of them."""
        with self.b.loop("line", self.together) as line:
            number = self.b.let("pixel", pixel(line))
            if self.times is not None:
                self._total = self.b.local("total", i32(0))
            self._line(number, line)
            if self.times is not None and self._total is not None:
                behind = add(const(self.windows.words * self.together), line)
                self.b.store(self.lines, behind, mul(self._total, i32(self.times)))

    def _line(self, pixel: Expr, line: Expr) -> None:
        b, windows = self.b, self.windows
        if windows.pointwise:
            start = b.let("start", mul(pixel, const(windows.x[3])))
            self._words(start, windows.run, const(0), line)
            self._leftovers(line, lambda k: load(self.x, add(start, const(k[2]))))
            return
        n, y0, x0 = self._corner(pixel)
        limits = [
            self._within(at, axis, (windows.kernel[axis] - 1) * windows.dilation[axis])
            for axis, at in enumerate((y0, x0)) if not windows.inside(axis)
        ]
        with b.if_(and_(*limits) if limits else None):
            self._whole(n, y0, x0, line)
        if limits:
            with b.else_():
                self._cut(n, y0, x0, line)

    def _corner(self, pixel: Expr) -> tuple[Expr, Expr, Expr]:
        """(image, row, column) of the first cell of a pixel's window, maybe outside."""
        b, windows = self.b, self.windows
        row, column = _split(pixel, windows.y[2])
        row = b.let("row", row)
        n: Expr = const(0)
        if windows.y[0] > 1:
            n, row = _split(row, windows.y[1])
        starts = [
            b.let(name, sub(mul(at, const(windows.stride[i])), const(windows.before[i])))
            for i, (name, at) in enumerate((("first_y", row), ("first_x", column)))
        ]
        return n, starts[0], starts[1]

    def _within(self, at: Expr, axis: int, reach: int) -> Expr:
        """Whether the cells from ``at`` to ``reach`` further on lie in the image."""
        return and_(
            ge(at, const(0)), lt(at, const(self.windows.x[1 + axis] - reach))
        )

    # -- windows that lie in the image

    def _whole(self, n: Expr, y0: Expr, x0: Expr, line: Expr) -> None:
        b, windows = self.b, self.windows
        columns = 1 if windows.row_runs else windows.kernel[1]
        if windows.run_words:
            with b.loop("ky", windows.kernel[0]) as ky, b.loop("kx", columns) as kx:
                start = b.let("start", self._cell(n, self._tap(y0, ky, 0), self._tap(x0, kx, 1)))
                unit = mul(add(mul(ky, const(columns)), kx), const(windows.run_words))
                self._words(start, windows.run, unit, line)

        def value(tap: tuple[int, int, int]) -> Expr:
            cell = self._cell(
                n, self._tap(y0, const(tap[0]), 0), self._tap(x0, const(tap[1]), 1)
            )
            return load(self.x, add(cell, const(tap[2])))

        self._leftovers(line, value)

    def _tap(self, first: Expr, tap: Expr, axis: int) -> Expr:
        return add(first, mul(tap, const(self.windows.dilation[axis])))

    def _cell(self, n: Expr, iy: Expr, ix: Expr) -> Expr:
        """The index of a cell's first channel."""
        return flat_index([n, iy, ix, const(0)], self.windows.x)

    def _words(self, start: Expr, count: int, first: Expr, line: Expr) -> None:
        """The whole groups of ``count`` neighbours, from word ``first`` of a line on."""
        b = self.b
        if self.windows.group == 1:
            with b.loop("value", count) as one:
                value = cast(load(self.x, add(start, one)), self.lines.dtype)
                self._store(add(first, one), 0, line, value)
            return
        if self.windows.group == 2:
            with b.loop("pair", count // 2) as pair:
                two = load_word(self.x, add(start, mul(pair, const(2))))
                self._store(add(first, pair), 0, line, two)
            return
        with b.loop("group", count // 4) as group:
            word = b.let("bytes", load_word(self.x, add(start, mul(group, const(4)))))
            at = add(first, mul(group, const(2)))
            self._store(at, 0, line, call("arm_sxtb16", word, type_=Scalar.I32))
            self._store(at, 1, line, call("arm_sxtb16_ror8", word, type_=Scalar.I32))

    def _store(self, at: Expr, further: int, line: Expr, value: Expr) -> None:
        position = add(mul(at, const(self.together)), line, const(further * self.together))
        if self._total is not None:
            value = self.b.let("stored", value)
            self.b.assign(self._total, add(self._total, value))
        self.b.store(self.lines, position, value)

    def _leftovers(
        self, line: Expr, value: Callable[[tuple[int, int, int]], Expr]
    ) -> None:
        """Pairs of single values; ``value`` loads one."""
        left = self.windows.left
        first = self.windows.words - -(-len(left) // 2)
        for number in range(0, len(left), 2):
            halves = [cast(value(tap), Scalar.I32) for tap in left[number : number + 2]]
            word = halves[0] if len(halves) == 1 else call(
                "arm_pkhbt", *halves, type_=Scalar.I32
            )
            self._store(const(first + number // 2), 0, line, word)

    # -- windows that stick out

    def _cut(self, n: Expr, y0: Expr, x0: Expr, line: Expr) -> None:
        b, windows = self.b, self.windows
        channels = windows.x[3]
        if windows.group > 1 and channels < FEW and windows.row_runs:
            self._cut_rows(n, y0, x0, line)
        elif channels >= windows.group:
            words, columns = windows.words_of(channels), windows.kernel[1]
            pair = (self.zero & 0xFFFF) | self.zero << 16
            filler = const(pair if windows.group > 1 else self.zero, self.lines.dtype)
            with b.loop("cut_ky", windows.kernel[0]) as ky, b.loop("cut_kx", columns) as kx:
                iy = b.let("iy", self._tap(y0, ky, 0))
                ix = b.let("ix", self._tap(x0, kx, 1))
                cell = add(mul(ky, const(columns)), kx)
                first = b.let("word", mul(cell, const(words)))
                with b.if_(self._in_image(iy, ix)):
                    start = b.let("start", self._cell(n, iy, ix))
                    self._words(start, channels, first, line)
                with b.else_(), b.loop("fill", words) as fill:
                    self._store(add(first, fill), 0, line, filler)
        self._leftovers(line, lambda tap: self._padded(
            n, self._tap(y0, const(tap[0]), 0), self._tap(x0, const(tap[1]), 1), tap[2]
        ))

    def _in_image(self, iy: Expr, ix: Expr) -> Expr:
        return and_(self._within(iy, 0, 0), self._within(ix, 1, 0))

    def _padded(self, n: Expr, iy: Expr, ix: Expr, channel: int) -> Expr:
        """A value of the image, or the zero point outside of it."""
        b = self.b
        value = b.local("value", i32(self.zero))
        iy, ix = b.let("iy", iy), b.let("ix", ix)
        with b.if_(self._in_image(iy, ix)):
            cell = add(self._cell(n, iy, ix), const(channel))
            b.assign(value, cast(load(self.x, cell), Scalar.I32))
        return value

    def _cut_rows(self, n: Expr, y0: Expr, x0: Expr, line: Expr) -> None:
        """Whole groups out of rows of cells with few channels."""
        b, windows = self.b, self.windows
        channels, size = windows.x[3], windows.group
        groups, words = windows.run // size, size // 2
        if not groups:
            return
        with b.loop("cut_ky", windows.kernel[0]) as ky:
            iy = b.let("iy", self._tap(y0, ky, 0))
            for group in range(groups):
                values = [
                    self._padded(n, iy, add(x0, const(j // channels)), j % channels)
                    for j in range(size * group, size * group + size)
                ]
                at = add(mul(ky, const(words * groups)), const(words * group))
                for odd in range(words):
                    word = call(
                        "arm_pkhbt", values[odd], values[odd + words], type_=Scalar.I32
                    )
                    self._store(at, odd, line, word)


def _split(value: Expr, divisor: int) -> tuple[Expr, Expr]:
    """Quotient and remainder."""
    if divisor == 1:
        return value, const(0)
    quotient = div(value, const(divisor))
    return quotient, sub(value, mul(quotient, const(divisor)))
