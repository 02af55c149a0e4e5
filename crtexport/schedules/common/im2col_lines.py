"""Gathers the values of a window, padding included, into a line of words (im2col).

A line serves all output channels, whose inner loops then run through it from end to end without
computing indices. With DSP instructions, SXTB16 makes two words of four neighbouring bytes (bytes 0
and 2, bytes 1 and 3); the values of a run that don't fill groups of four come last, in pairs, and
weights are packed in the same order. int16 values stay in pairs. Without DSP instructions, and for
floats, each value is a word, in the order of the weights.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from crtexport.kir.analysis.affine_index import divided
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    call,
    cast,
    const,
    i32,
    load,
    load_word,
    min_,
    mul,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.schedules.common.conv_geometry import FEW, Windows, WindowWalk

MOST_LEFT = 32
"""Most values outside of words of four that are worth gathering one by one."""


class LineTotals(Struct, frozen=True):
    """Stores the sum of each line's values times ``times``, from element ``first`` of the i32
    ``buffer`` on."""

    buffer: Buffer
    first: int
    times: int


class Im2colGather(WindowWalk):
    """Emits the gathering of lines. The lines of ``pixels_per_block`` pixels are interleaved word
    by word."""

    def __init__(
        self, b: KernelBuilder, windows: Windows, x: Buffer, lines: Buffer, pixels_per_block: int,
        zero_point: int, totals: LineTotals | None = None, lift: int = 0,
    ) -> None:
        """``lift`` is added to each value outside of groups."""
        super().__init__(b, windows)
        self.x, self.lines = x, lines
        self.pixels_per_block, self.zero = pixels_per_block, zero_point + lift
        self.totals, self.lift = totals, lift
        self._total: Var | None = None

    def emit(self, pixel: Callable[[Expr], Expr]) -> None:
        """Emits the gathering of all lines; ``pixel`` holds the number of each line's pixel."""
        if self._neighbours:
            self._together(pixel)
            return
        with self.b.loop("line", self.pixels_per_block) as line:
            number = self.b.let("pixel", pixel(line))
            if self.totals is None:
                self._line(number, line)
                return
            self._total = self.b.local("total", i32(0))
            self._line(number, line)
            product = mul(self._total, i32(self.totals.times))
            self.b.store(self.totals.buffer, add(const(self.totals.first), line), product)

    def _line(self, pixel: Expr, line: Expr) -> None:
        b, windows = self.b, self.windows
        if windows.pointwise:
            start = b.let("start", mul(pixel, const(windows.x[3])))
            self._words(start, windows.run, const(0), line)
            self._leftovers(line, lambda k: load(self.x, add(start, const(k[2]))))
            return
        n, y0, x0 = self._corner(pixel)
        limits = self.limits(y0, x0)
        with b.if_(limits):
            self._whole(n, y0, x0, line)
        if limits is not None:
            with b.else_():
                self._cut(n, y0, x0, line)

    def _corner(self, pixel: Expr) -> tuple[Expr, Expr, Expr]:
        """Returns (image, row, column) of the first cell of a pixel's window, which may lie outside
        of the image."""
        b, windows = self.b, self.windows
        row, column = divided(pixel, windows.y[2])
        row = b.let("row", row)
        n: Expr = const(0)
        if windows.y[0] > 1:
            n, row = divided(row, windows.y[1])
        starts = [
            b.let(name, sub(mul(at, const(windows.stride[i])), const(windows.pad_before[i])))
            for i, (name, at) in enumerate((("first_y", row), ("first_x", column)))
        ]
        return n, starts[0], starts[1]

    # -- windows of two neighbouring pixels

    @property
    def _neighbours(self) -> bool:
        """True where the pixels of each block are two neighbours of a row, most columns of whose
        windows are the same, and at least half of such pairs of windows lie in the image: others
        are gathered tap by tap."""
        windows, columns = self.windows, self.windows.columns
        if not (
            self.pixels_per_block == 2 and windows.y[2] % 2 == 0 and self.totals is None
            and windows.group == 4 and windows.x[3] % 4 == 0
            and windows.kernel[1] > 1 and windows.stride[1] == windows.dilation[1] == 1
        ):
            return False
        starts = range(-windows.pad_before[1], windows.y[2] - windows.pad_before[1], 2)
        inside = sum(0 <= start <= windows.x[2] - columns.span - 1 for start in starts)
        return 2 * inside >= len(starts)

    def _together(self, pixel: Callable[[Expr], Expr]) -> None:
        """Emits the gathering of two lines, which loads and widens each value once where all are in
        the image."""
        b = self.b
        n, y0, x0 = self._corner(b.let("pixel", pixel(const(0))))
        columns = self.windows.columns
        if columns.inside:
            # Always so, because a row's last pixel is never the first of two.
            x0 = b.let("both_x", min_(x0, const(self.windows.x[2] - columns.span - 1)))
        limits = self.limits(y0, x0, more_columns=1)
        with b.if_(limits):
            self._both(n, y0, x0)
        if limits is not None:
            with b.else_(), b.loop("line", 2) as line:
                self._cut(n, y0, b.let("line_x", add(x0, line)), line)

    def _both(self, n: Expr, y0: Expr, x0: Expr) -> None:
        b, windows = self.b, self.windows
        channels, columns, words = windows.x[3], windows.kernel[1], windows.words_of(windows.x[3])
        with b.loop("ky", windows.kernel[0]) as ky:
            start = b.let("start", self.cell(n, y0, x0, ky, const(0)))
            with b.loop("group", channels // 4, unroll=1) as group:
                at = add(start, mul(group, const(4)))
                values = [
                    b.let(f"bytes{column}", load_word(self.x, add(at, const(column * channels))))
                    for column in range(columns + 1)
                ]
                for column, value in enumerate(values):
                    halves = [
                        b.let(f"{name}{column}", call(half, value, type_=Scalar.I32))
                        for name, half in (("even", "arm_sxtb16"), ("odd", "arm_sxtb16_ror8"))
                    ]
                    for line in range(2):
                        tap = column - line
                        if 0 <= tap < columns:
                            cell = add(mul(ky, const(columns)), const(tap))
                            word = add(mul(cell, const(words)), mul(group, const(2)))
                            for further, half in enumerate(halves):
                                self._store(word, further, const(line), half)

    # -- windows that lie in the image

    def _whole(self, n: Expr, y0: Expr, x0: Expr, line: Expr) -> None:
        b, windows = self.b, self.windows
        columns = 1 if windows.row_runs else windows.kernel[1]
        if windows.run_words:
            with b.loop("ky", windows.kernel[0]) as ky, b.loop("kx", columns) as kx:
                start = b.let("start", self.cell(n, y0, x0, ky, kx))
                unit = mul(add(mul(ky, const(columns)), kx), const(windows.run_words))
                self._words(start, windows.run, unit, line)

        def value(tap: tuple[int, int, int]) -> Expr:
            cell = self.cell(n, y0, x0, const(tap[0]), const(tap[1]))
            return load(self.x, add(cell, const(tap[2])))

        self._leftovers(line, value)

    def _words(self, start: Expr, count: int, first: Expr, line: Expr) -> None:
        """Emits the whole groups of ``count`` neighbouring values, from word ``first`` of a line
        on."""
        b = self.b
        if self.windows.group == 1:
            with b.loop("value", count) as one:
                value: Expr = load(self.x, add(start, one))
                if self.lift:
                    value = add(cast(value, Scalar.I32), i32(self.lift))
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
        position = add(
            mul(at, const(self.pixels_per_block)), line, const(further * self.pixels_per_block)
        )
        if self._total is not None:
            value = self.b.let("stored", cast(value, Scalar.I32))
            self.b.assign(self._total, (
                add(self._total, value) if self.windows.group == 1
                else call("arm_smlad", value, i32(0x10001), self._total, type_=Scalar.I32)
            ))
        self.b.store(self.lines, position, cast(value, self.lines.dtype))

    def _leftovers(
        self, line: Expr, value: Callable[[tuple[int, int, int]], Expr]
    ) -> None:
        """Emits pairs of single values; ``value`` returns the load of one."""
        left = self.windows.leftover_taps
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
                iy = b.let("iy", self.tap(y0, ky, 0))
                ix = b.let("ix", self.tap(x0, kx, 1))
                cell = add(mul(ky, const(columns)), kx)
                first = b.let("word", mul(cell, const(words)))
                with b.if_(self.in_image(iy, ix)):
                    start = b.let("start", self.index(n, iy, ix))
                    self._words(start, channels, first, line)
                with b.else_(), b.loop("fill", words) as fill:
                    self._store(add(first, fill), 0, line, filler)
        self._leftovers(line, lambda tap: self._padded(
            n, self.tap(y0, const(tap[0]), 0), self.tap(x0, const(tap[1]), 1), tap[2]
        ))

    def _padded(self, n: Expr, iy: Expr, ix: Expr, channel: int) -> Expr:
        """Returns a value of the image, or the zero point outside of it."""
        b = self.b
        value = b.local("value", i32(self.zero))
        iy, ix = b.let("iy", iy), b.let("ix", ix)
        with b.if_(self.in_image(iy, ix)):
            cell = add(self.index(n, iy, ix), const(channel))
            b.assign(value, cast(load(self.x, cell), Scalar.I32))
        return value

    def _cut_rows(self, n: Expr, y0: Expr, x0: Expr, line: Expr) -> None:
        """Emits whole groups of values from rows of cells that have few channels."""
        b, windows = self.b, self.windows
        channels, size = windows.x[3], windows.group
        groups, words = windows.run // size, size // 2
        if not groups:
            return
        with b.loop("cut_ky", windows.kernel[0]) as ky:
            iy = b.let("iy", self.tap(y0, ky, 0))
            for group in range(groups):
                values = []
                for j in range(size * group, size * group + size):
                    with b.named(f"at{j}"):
                        column = add(x0, const(j // channels))
                        values.append(self._padded(n, iy, column, j % channels))
                at = add(mul(ky, const(words * groups)), const(words * group))
                for odd in range(words):
                    word = call(
                        "arm_pkhbt", values[odd], values[odd + words], type_=Scalar.I32
                    )
                    self._store(at, odd, line, word)
