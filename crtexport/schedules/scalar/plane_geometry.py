"""Depthwise convolutions channel by channel: bands of rows, and taps that meet words of a plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.window import WindowGeometry
from crtexport.kir.language import Scalar
from crtexport.lowering.registry import Context
from crtexport.schedules.common.scratch_room import beside_in_place
from crtexport.schedules.scalar.requantize_int8 import RequantMethod

MOST_TAPS = 32
"""Windows up to which each tap has an instruction of its own."""
TALL = 6
"""Most rows of outputs in a band: where the input dies, the output trails it by a band."""
_WIDE = 6
"""Most neighbouring outputs whose sums leave registers for what they are made of."""

_PAIRS = 3
"""The same for pairs of outputs, each of which has two sums."""
_FEW = 2
"""Blocks of a row up to which each has instructions of its own."""
_NEAR = 40
"""Words behind an address that are near enough where loads have short offsets: those of Armv6-M
reach 31, and few are as far as the farthest."""


class PlaneLayout(Struct, frozen=True):
    """Planes of integers for a machine.

    ``columns``: of a ``value`` of the plane, where the input is int8. ``outputs_per_block``:
    neighbouring outputs that are made at once, by preference: the first that divides a row; none
    where any number may be. ``held``: most weights of a window that are kept in registers.
    ``paired``: words have two columns that are far from each other (:class:`PairedGeometry`).
    ``name``: of its variants. ``few_registers``: there are eight, so that values are used up one by
    one, and loads reach few words, so that planes are kept by columns where that puts what a window
    sees closer together.
    """

    columns: int
    value: Scalar
    outputs_per_block: tuple[int, ...]
    held: int
    method: RequantMethod
    paired: bool = False
    name: str = "planes"
    few_registers: bool = False


PAIRS = PlaneLayout(2, Scalar.I32, (), 0, RequantMethod.DSP)
FLOAT_PAIRS = PlaneLayout(2, Scalar.I32, (), 0, RequantMethod.FPU)
WORDS = PlaneLayout(1, Scalar.I32, (), 0, RequantMethod.MUL64)
LONE_WORDS = PlaneLayout(1, Scalar.I32, (2,), 0, RequantMethod.MUL32_ONLY, few_registers=True)
HELD_WORDS = replace(LONE_WORDS, held=MOST_TAPS, name="held planes")
"""The same for compilers of C: they put values on the stack that have no registers, which takes
fewer instructions than addresses of scratch."""
I386_WORDS = replace(HELD_WORDS, method=RequantMethod.MUL64)
BYTES = PlaneLayout(1, Scalar.I8, (4, 5, 3), 12, RequantMethod.MUL64_SHIFT)
PAIRED_WORDS = PlaneLayout(
    1, Scalar.I32, (), 0, RequantMethod.MUL64, paired=True, name="paired planes"
)


class PlaneGeometry(WindowGeometry, frozen=True, kw_only=True):
    """A depthwise convolution band by band; ``band``: rows of outputs of a band; ``per_word``:
    columns of a word; ``outputs_per_block``: neighbouring outputs of a row, which share words.
    ``by_columns``: the plane has words of a column one after the other, else those of a row."""

    band: int
    per_word: int
    outputs_per_block: int
    by_columns: bool = False

    @classmethod
    def banded(
        cls, context: Context, op: DepthwiseConv2D, per_word: int, outputs_per_block: int,
        band: int = 0,
    ) -> PlaneGeometry:
        """Returns the geometry with bands of ``band`` rows, or of those that take the fewest
        cycles."""
        x, y, w = context.input(0).shape, context.output().shape, context.input(1).shape
        found = cls(
            x, y, (w[1], w[2]), op.stride, op.dilation, (op.padding.top, op.padding.left),
            band=band or 1, per_word=per_word, outputs_per_block=outputs_per_block,
        )
        if band:
            return found
        bands = range(1, min(y[1], TALL) + 1)
        return min((replace(found, band=rows) for rows in bands), key=lambda one: one.cycles)

    @property
    def band_rows(self) -> int:
        """Returns the rows of input that a band needs."""
        return self.rows.covered(self.band)

    @property
    def bands(self) -> int:
        """Returns their number."""
        return -(-self.y[1] // self.band)

    @property
    def rows_inside(self) -> range:
        """Returns the rows of a band that lie in the image, whichever band it is."""
        last = (self.y[1] - self.band) * self.stride[0] - self.pad_before[0]
        first = min(self.pad_before[0], self.band_rows)
        return range(first, max(min(self.x[1] - last, self.band_rows), first))

    @property
    def places(self) -> int:
        """Returns the number of columns in a row of the plane at which windows begin."""
        return self.y[2]

    @property
    def lone(self) -> int:
        """Returns the number of places, at the end of a row, that have an output less."""
        return 0

    @property
    def offsets(self) -> tuple[int, ...]:
        """Returns the distances of the columns of a word from the first one."""
        return tuple(range(self.per_word))

    @property
    def words(self) -> int:
        """Returns the words of a row of the plane."""
        last = (self.places - 1) * self.stride[1] + self.kernel[1] - 1
        return last // self.per_word + 1

    @property
    def blocks(self) -> int:
        """Returns the blocks of ``outputs_per_block`` in a row of outputs, but for what is left."""
        return (self.places - self.lone) // self.outputs_per_block

    @property
    def unrolled(self) -> bool:
        """Returns whether each block of a row has instructions of its own."""
        return self.blocks <= _FEW

    @property
    def reach(self) -> int:
        """Returns the words between the first and the last one of a plane that are loaded from one
        address: by a block of outputs, or by all of a row that have instructions of their own."""
        starts = self.words if self.unrolled else self.starts[-1] + self.kernel[1]
        rows = (self.kernel[0] - 1) * self.dilation[0]
        return (starts - 1) * self.word_step + rows * self.row_step

    @property
    def row_step(self) -> int:
        """Returns how far a word of the plane is from that above it, in words."""
        return 1 if self.by_columns else self.words

    @property
    def word_step(self) -> int:
        """Returns how far a word of the plane is from that before it, in words."""
        return self.band_rows if self.by_columns else 1

    def place(self, row: int, word: int) -> int:
        """Returns how far a word of the plane is from its first one, in words."""
        return row * self.row_step + word * self.word_step

    def nbytes(self, size: int) -> int:
        """Returns the bytes of a plane of values of ``size``."""
        return self.band_rows * self.words * size

    @property
    def multiplier(self) -> int:
        """Returns the output channels of an input channel."""
        return self.y[3] // self.x[3]

    @property
    def ends_in_words(self) -> bool:
        """Returns whether each block of a row's outputs begins where a word does."""
        return (
            self.outputs_per_block >= self.places
            or self.outputs_per_block * self.stride[1] % self.per_word == 0
        )

    @property
    def starts(self) -> tuple[int, ...]:
        """Returns where, in columns, the windows of neighbouring outputs begin."""
        return tuple(i * self.stride[1] for i in range(self.outputs_per_block))

    # ---- about how much work it is

    def _block(self, count: int) -> tuple[int, int]:
        """Returns (products, loads) of ``count`` neighbouring outputs."""
        pairs = weight_pairs(self)
        products = [row_products(self, start, pairs) for start in self.starts[:count]]
        words = {one.word for row in products for one in row}
        return (
            self.kernel[0] * sum(map(len, products)), self.kernel[0] * (len(words) + len(pairs)) + 3
        )

    @property
    def cycles(self) -> float:
        """Returns the cycles of a channel, by rough count, of instructions that are ordered
        well."""
        columns, most = self.places, self.outputs_per_block
        row = 0.0
        for count, times in ((most, columns // most), (columns % most, 1 if columns % most else 0)):
            if times:
                products, loads = self._block(count)
                row += times * (products + 4 * count + _LOAD * loads + _BLOCK)
        inside = self.words * (_LOAD * len(self.offsets) + len(self.offsets)) + _ROW
        edges = (self.band_rows - len(self.rows_inside)) * _EDGE * (self.bands > 1)
        taps = self.kernel[0] * self.kernel[1] * _TAP + _CHANNEL
        spread = self.band_rows if self.bands > 1 else len(self.rows_inside)
        return self.bands * (self.band * (row + _ROW) + spread * inside + edges + taps)


class PairedGeometry(PlaneGeometry, frozen=True, kw_only=True):
    """Words of two columns, so far from each other that windows of the first column's output and of
    one behind half of the row see the halves of the same words: ``outputs_per_block`` neighbouring
    words make twice as many outputs."""

    @property
    def places(self) -> int:
        return -(-self.y[2] // 2)

    @property
    def lone(self) -> int:
        return self.y[2] % 2

    @property
    def offsets(self) -> tuple[int, ...]:
        return 0, self.places * self.stride[1]

    def _block(self, count: int) -> tuple[int, int]:
        taps, words = self.kernel[0] * self.kernel[1], self.starts[count - 1] + self.kernel[1]
        products = count * (2 * taps + 2 * -(-taps // 2) + 4)
        return products, self.kernel[0] * (words + self.kernel[1]) + 3


_LOAD, _BLOCK, _ROW, _EDGE, _TAP, _CHANNEL = 1.25, 9, 5, 8, 3, 25
"""Cycles of a load; of what else there is for a block, a row, one that may be outside, a tap, a
channel."""


class TapProduct(Struct, frozen=True):
    """Taps of a row times a word of the plane: both halves, or ``halves`` (of the word, of the
    weights)."""

    word: int
    weights: int
    halves: tuple[int, int] | None


def row_products(
    shape: PlaneGeometry, start: int, pairs: Sequence[tuple[int, int]]
) -> list[TapProduct]:
    """Returns how the taps of a row that begins at column ``start`` of the words meet them."""
    width = shape.kernel[1]
    if shape.per_word == 1:
        return [TapProduct(start + tap, tap, None) for tap in range(width)]
    found, tap = [], 0
    while tap < width:
        word, half = divmod(start + tap, 2)
        if half == 0 and tap + 1 < width:
            found.append(TapProduct(word, pairs.index((tap, tap + 1)), None))
            tap += 2
        else:
            number = next(i for i, pair in enumerate(pairs) if tap in pair)
            found.append(TapProduct(word, number, (half, pairs[number].index(tap))))
            tap += 1
    return found


def weight_pairs(shape: PlaneGeometry) -> list[tuple[int, int]]:
    """Pairs of taps that a row needs in one word, wherever it begins; -1 where one is alone."""
    width = shape.kernel[1]
    pairs = {
        (tap, tap + 1) for start in shape.starts for tap in range(start % 2, width - 1, 2)
        if shape.per_word == 2
    }
    pairs |= {(tap, -1) for tap in range(width) if not any(tap in pair for pair in pairs)}
    return sorted(pairs)


def geometries(context: Context, op: DepthwiseConv2D, layout: PlaneLayout) -> list[PlaneGeometry]:
    """Returns what may be chosen from, the usual one first."""
    columns, rows = context.output().shape[2], context.output().shape[1]
    kind = PairedGeometry if layout.paired else PlaneGeometry
    columns = -(-columns // 2) if layout.paired else columns
    if layout.outputs_per_block:
        counts = layout.outputs_per_block
        most = next((n for n in counts if columns % n == 0), counts[0])
        usual = kind.banded(context, op, layout.columns, most)
        others = range(1, min(rows, TALL) + 1)
        by_rows = [usual, *(replace(usual, band=n) for n in others if n != usual.band)]
        return [_arranged(one) for one in by_rows] if layout.few_registers else by_rows
    bands = {*range(1, min(rows, TALL) + 1), *_whole(context, op, layout)}
    wide = _PAIRS if layout.paired else _WIDE
    found = (
        kind.banded(context, op, layout.columns, count, band)
        for count in range(1, min(columns, wide) + 1) for band in sorted(bands)
    )
    return sorted((one for one in found if one.ends_in_words), key=lambda one: one.cycles)


def _arranged(by_rows: PlaneGeometry) -> PlaneGeometry:
    """Returns a geometry with its plane by columns, or by rows where more loads reach what they
    read so."""
    by_columns = replace(by_rows, by_columns=True)
    return by_columns if by_columns.reach <= max(by_rows.reach, _NEAR) else by_rows


def _whole(context: Context, op: DepthwiseConv2D, layout: PlaneLayout) -> Iterator[int]:
    """Yields the rows of the whole output, if a plane of them takes no more memory: where bands
    make the output trail the input, a whole one lets it replace that, channel by channel."""
    rows = context.output().shape[1]
    kind = PairedGeometry if layout.paired else PlaneGeometry
    whole = kind.banded(context, op, layout.columns, 1, rows)
    banded = kind.banded(context, op, layout.columns, 1)
    _, _, width, channels = whole.x
    behind = (banded.band_rows - banded.band * whole.stride[0]) // 2 * width * channels
    size = layout.value.itemsize
    if whole.nbytes(size) <= max(beside_in_place(context), banded.nbytes(size) + behind):
        yield rows
