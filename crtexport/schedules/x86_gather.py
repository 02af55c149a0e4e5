"""Gathers what the windows of some pixels see: one line each, in the order of the weights.

int8 values are widened where lines are int16. Cells of the padding are filled in.
"""

from __future__ import annotations

from collections.abc import Callable

from crtexport.fixedpoint import wrap
from crtexport.kernels.build import (
    KernelBuilder,
    add,
    call,
    cast,
    clamp,
    const,
    div,
    i32,
    load,
    load_vector,
    mul,
    sub,
)
from crtexport.kernels.ir import Buffer, Expr, Scalar
from crtexport.schedules.geometry import Walk, Windows
from crtexport.schedules.x86_machine import Machine

LIFT = 128
"""What makes int8 values uint8."""


class Gather(Walk):
    """Emits lines of ``pitch`` elements of ``lines`` each; ``zero`` stands for the padding."""

    def __init__(
        self, b: KernelBuilder, machine: Machine, windows: Windows, x: Buffer, lines: Buffer,
        pitch: int, zero: int, *, lifts: bool = False,
    ) -> None:
        """``lifts``: int8 values become the bytes of uint8 ones."""
        super().__init__(b, windows)
        self.x, self.lines, self.pitch = x, lines, pitch
        self._vector = {
            Scalar.F32: machine.reals, Scalar.I16: machine.pairs, Scalar.I8: Scalar.I8X16,
        }[lines.dtype]
        self._lifts = lifts
        if lifts:
            zero = wrap(zero + LIFT, 8)
        self._zero = const(float(zero) if lines.dtype is Scalar.F32 else zero, lines.dtype)

    def emit(self, together: int, pixel: Callable[[Expr], Expr]) -> None:
        """``together`` lines; ``pixel`` has the number of the pixel for each of them."""
        with self.b.loop("line", together) as line:
            self._line(self.b.let("pixel", pixel(line)), mul(line, const(self.pitch)))

    def _line(self, pixel: Expr, start: Expr) -> None:
        b, windows = self.b, self.windows
        if windows.pointwise:
            self._copy(mul(pixel, const(windows.x[3])), start, windows.x[3])
            return
        n, y0, x0 = self.corner(pixel)
        limits = self.limits(y0, x0)
        with b.if_(limits):
            self._whole(n, y0, x0, start)
        if limits is not None:
            with b.else_():
                self.cut(n, y0, x0, start)

    def corner(self, pixel: Expr) -> tuple[Expr, Expr, Expr]:
        """(image, row, column) of the first cell of a pixel's window, maybe outside."""
        b, windows = self.b, self.windows
        line, column = self._divided(pixel, windows.y[2])
        n, row = self._divided(line, windows.y[1])
        first_y, first_x = (
            b.let(name, sub(mul(at, const(windows.stride[i])), const(windows.before[i])))
            for i, (name, at) in enumerate((("first_y", row), ("first_x", column)))
        )
        return n, first_y, first_x

    def _divided(self, value: Expr, by: int) -> tuple[Expr, Expr]:
        """Quotient and remainder; the limits of the remainder are said, not only true."""
        quotient = self.b.let("quotient", div(value, const(by)))
        remainder = sub(value, mul(quotient, const(by)))
        return quotient, self.b.let("remainder", clamp(remainder, 0, by - 1))

    def _whole(self, n: Expr, y0: Expr, x0: Expr, start: Expr) -> None:
        b, windows = self.b, self.windows
        joined = windows.dilation[1] == 1
        columns, run = (1, windows.kernel[1] * windows.x[3]) if joined else (
            windows.kernel[1], windows.x[3]
        )
        with b.loop("ky", windows.kernel[0]) as ky, b.loop("kx", columns) as kx:
            source = b.let("source", self.cell(n, y0, x0, ky, kx))
            unit = mul(add(mul(ky, const(columns)), kx), const(run))
            self._copy(source, add(start, unit), run)

    def cut(self, n: Expr, y0: Expr, x0: Expr, start: Expr) -> None:
        """A line of a window that sticks out of the image."""
        b, windows = self.b, self.windows
        channels = windows.x[3]
        with b.loop("cut_ky", windows.kernel[0]) as ky, b.loop("cut_kx", windows.kernel[1]) as kx:
            iy = b.let("iy", self.tap(y0, ky, 0))
            ix = b.let("ix", self.tap(x0, kx, 1))
            unit = mul(add(mul(ky, const(windows.kernel[1])), kx), const(channels))
            target = b.let("target", add(start, unit))
            with b.if_(self.in_image(iy, ix)):
                source = b.let("source", self.index(n, iy, ix))
                self._copy(source, target, channels)
            with b.else_(), b.loop("fill", channels) as fill:
                b.store(self.lines, add(target, fill), self._zero)

    def _copy(self, source: Expr, target: Expr, count: int) -> None:
        """``count`` neighbours, in vectors and what is left one by one."""
        b, lanes = self.b, self._vector.lanes
        if count >= lanes:
            with b.loop("chunk", count // lanes) as chunk:
                at = mul(chunk, const(lanes))
                whole: Expr = load_vector(self.x, add(source, at), self._vector)
                if self._lifts:
                    whole = call("x86_lift", whole, type_=self._vector)
                b.store_vector(self.lines, add(target, at), whole)
        done = count - count % lanes
        with b.loop("single", count % lanes) as single:
            at = add(const(done), single)
            value: Expr = load(self.x, add(source, at))
            if self._lifts:
                value = add(cast(value, Scalar.I32), i32(LIFT))
            value = cast(value, self.lines.dtype)
            b.store(self.lines, add(target, at), value)
