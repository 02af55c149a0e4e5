"""Bands of images: some rows, copied with the cells of the padding filled in.

int8 values are widened where copies are int16, or offset to uint8.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from crtexport.kir.builder import (
    add,
    and_,
    call,
    cast,
    const,
    ge,
    i32,
    load,
    load_vector,
    lt,
    mul,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.registry import Lowering
from crtexport.schedules.common.conv_geometry import Windows, WindowWalk
from crtexport.schedules.x86.machine import X86Machine
from crtexport.support.fixedpoint import wrap

LIFT = 128
"""Added to int8 values, makes them uint8."""
MOST = 2 << 10
"""Bytes of a band of int8 values that has more than one row of pixels; of floats it may have four
times as many. That is little enough to find room beside tensors."""


class Band(Struct, frozen=True):
    """The rows and columns of an image that the windows of ``rows`` rows of pixels cover."""

    windows: Windows
    rows: int

    @property
    def pitch(self) -> int:
        """Returns the number of elements from one row to the next."""
        return self.windows.columns.covered(self.windows.y[2]) * self.windows.x[3]

    @property
    def seen(self) -> int:
        """Returns the number of rows, of the image and of the padding."""
        return self.windows.rows.covered(self.rows)

    @property
    def pixels(self) -> int:
        return self.rows * self.windows.y[2]

    @property
    def elements(self) -> int:
        return self.seen * self.pitch

    @property
    def only(self) -> bool:
        """Returns True where an image has a single band."""
        return self.rows >= self.windows.y[1]


def fits(band: Band, itemsize: int) -> bool:
    """Returns whether a band, with elements of ``itemsize`` bytes, is small enough to be copied."""
    return band.rows <= 1 or band.elements * itemsize <= MOST * (1 if itemsize < 4 else 4)


def highest(windows: Windows, itemsize: int) -> Band:
    """Returns the windows' bands such that there are as few as possible that are small enough, or
    have one row of pixels, and all have about the same height. Elements have ``itemsize`` bytes."""
    rows = windows.y[1]
    while not fits(Band(windows, rows), itemsize):
        rows -= 1
    count = -(-windows.y[1] // rows)
    return Band(windows, -(-windows.y[1] // count))


def _everywhere(machine: X86Machine, value: int, dtype: Scalar) -> Expr:
    """Returns a vector with ``value`` in all lanes."""
    if dtype is Scalar.F32:
        return machine.real_everywhere(value)
    if dtype is Scalar.I16:
        return call("x86_dup16_8", i32(value), type_=Scalar.I16X8)
    return call("x86_dup8_16", i32(value), type_=Scalar.I8X16)


class BandCopies(WindowWalk):
    """Copies bands like ``band`` of ``x``; ``zero`` is the value of the padding."""

    def __init__(
        self, lowering: Lowering, machine: X86Machine, band: Band, x: Buffer, dtype: Scalar,
        zero: int, *, behind: int = 0, lifts: bool = False,
    ) -> None:
        """``dtype``: the element type of copies, which at least ``behind`` further elements follow;
        ``lifts``: int8 values become uint8 values by adding 128."""
        super().__init__(lowering.b, band.windows)
        self.band, self.x = band, x
        self._vector = {
            Scalar.F32: machine.reals, Scalar.I16: machine.pairs, Scalar.I8: Scalar.I8X16,
        }[dtype]
        self._lifts = lifts
        if lifts:
            zero = wrap(zero + LIFT, 8)
        self._zero = const(float(zero) if dtype is Scalar.F32 else zero, dtype)
        self._zeros = _everywhere(machine, zero, dtype)
        _, _, width, channels = band.windows.x
        self._left = min(band.windows.pad_before[1] * channels, band.pitch)
        self._middle = min(width * channels, band.pitch - self._left)
        fills = self._whole(band.elements) if self._padded else 0
        self.copy = lowering.scratch("band", dtype, max(band.elements + behind, fills))

    @property
    def _padded(self) -> bool:
        """Returns True where there is padding that stays the same in all bands: left and right,
        and, where there is a single band, above and below."""
        band = self.band
        return self._middle < band.pitch or (band.only and not self.windows.rows.inside)

    def begin(self) -> None:
        """Fills the padding that stays the same, together with the rest of the band."""
        if self._padded:
            self._fill(const(0), self._whole(self.band.elements))

    def emit(self, n: Expr, first: Expr) -> None:
        """Copies the band of image ``n`` that begins with row ``first`` of the pixels."""
        b, windows, band, pitch = self.b, self.windows, self.band, self.band.pitch
        _, height, width, channels = windows.x
        above, inside = windows.pad_before[0], band.only or windows.rows.inside
        top: Expr = const(0)
        before, rows = above * pitch, max(min(height, band.seen - above), 0)
        if not band.only:
            top = add(mul(first, const(windows.stride[0])), const(-above))
            before, rows = 0, band.seen
        if inside and pitch == self._middle == width * channels:
            self._copied(self.index(n, top, const(0)), const(before), rows * pitch)
            return
        with b.loop("copied", rows) as row:
            y = b.let("y", add(top, row))
            start = add(mul(row, const(pitch)), const(before + self._left))
            with b.if_(None if inside else and_(ge(y, const(0)), lt(y, const(height)))):
                self._copied(self.index(n, y, const(0)), start, self._middle)
            if not inside:
                with b.else_():
                    self._fill(start, self._middle)

    def _whole(self, elements: int) -> int:
        """Returns a number of elements rounded up to whole vectors."""
        return -(-elements // self._vector.lanes) * self._vector.lanes

    def _fill(self, target: Expr, count: int) -> None:
        """Fills ``count`` cells of the padding."""
        b = self.b

        def several(at: Expr) -> None:
            b.store_vector(self.copy, add(target, at), self._zeros)

        def one(at: Expr) -> None:
            b.store(self.copy, add(target, at), self._zero)

        self._neighbours(count, self._zeros.type.lanes, several, one)

    def _copied(self, source: Expr, target: Expr, count: int) -> None:
        """Copies ``count`` neighbouring elements."""
        b = self.b

        def several(at: Expr) -> None:
            values: Expr = load_vector(self.x, add(source, at), self._vector)
            if self._lifts:
                values = call("x86_lift", values, type_=self._vector)
            b.store_vector(self.copy, add(target, at), values)

        def one(at: Expr) -> None:
            value: Expr = load(self.x, add(source, at))
            if self._lifts:
                value = add(cast(value, Scalar.I32), i32(LIFT))
            value = cast(value, self.copy.dtype)
            b.store(self.copy, add(target, at), value)

        self._neighbours(count, self._vector.lanes, several, one)

    def _neighbours(
        self, count: int, lanes: int, several: Callable[[Expr], None], one: Callable[[Expr], None]
    ) -> None:
        """Emits the positions of ``count`` elements in vectors of ``lanes``, the last of which may
        overlap the one before it; one by one where there are fewer elements than lanes."""
        if count < lanes:
            with self.b.loop("single", count) as single:
                one(single)
            return
        with self.b.loop("chunk", count // lanes) as chunk:
            several(mul(chunk, const(lanes)))
        if count % lanes:
            several(const(count - lanes))
