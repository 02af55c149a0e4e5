"""int8 convolutions of 3x3 taps on Armv7E-M by Winograd's F(2x2, 3x3), exactly.

For two rows of pixels, columns of four cells are transformed, two channels in a word (SADD16,
SSUB16); then, for some tiles of these rows, rows of four cells. For a block of output channels,
each of the 16 parts is then a matrix product, whose sums SMLAD adds in registers, and of these
the pixels are made (:mod:`crtexport.schedules.scalar.winograd_tiles`).

Where they gain, cycles are 0.5 to 0.8 of those of sums over windows, on a Cortex-M4. Weights take
32 bytes for each pair of channels instead of 9.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from crtexport.ir.ops import Conv2D
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    and_,
    call,
    const,
    flat_index,
    ge,
    i32,
    load,
    load_word,
    lt,
    max_,
    min_,
    mul,
    or_,
    select,
    shl,
    shr,
    wrap_add,
    wrap_sub,
)
from crtexport.kir.language import Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common import scratch_room
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.conv_geometry import IntegerSumLayer, Windows
from crtexport.schedules.common.loop_tiling import in_steps
from crtexport.schedules.scalar.int8_epilogue import int8_epilogue
from crtexport.schedules.scalar.requantize_int8 import (
    ChannelConstants,
    Int8Epilogue,
    RequantMethod,
)
from crtexport.schedules.scalar.winograd_tiles import (
    CELLS,
    PARTS,
    SHIFT,
    SIDE,
    TAPS,
    Sizes,
    WinogradBlock,
    WinogradWords,
    channel_pairs,
)
from crtexport.support.fixedpoint import wrap32

_LEAST_DEPTH = 8
"""Input channels; of fewer, the products don't pay for the transforms."""
_SCRATCH = 32 << 10
"""Bytes of scratch that are few enough; more only beside four times as many of tensors."""
_WEIGHTS = 1 << 20
"""Bytes of the parts of taps of a layer that are few enough."""
_WORTH = 0.6
"""The most products, of those that windows need, that are left where tiles overlap."""
_WHOLE = 16
"""Words of two input channels that may be multiplied in one go: more don't fit a cache of code."""
BLOCKS = (WinogradBlock(4, 2), WinogradBlock(2, 4))


def candidates(context: Context, *, floats: bool = False) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules; none where it isn't such a
    layer. ``floats``: sums of ONNX Runtime are scaled in them."""
    op = context.node.op
    if not isinstance(op, Conv2D) or context.input(1).shape[1:3] != (TAPS, TAPS):
        return []
    layer = IntegerSumLayer.of(context, DType.INT8, group=4)
    if layer is None or not _fits(op, layer.windows):
        return []
    if int(layer.sums.reach.max(initial=0)) << SHIFT >= 1 << 31:
        return []
    method = RequantMethod.FPU if floats else RequantMethod.DSP
    scaling = int8_epilogue(context, layer.sums, op.activation, method)
    if scaling is None:
        return []
    return [
        Candidate(block.name, functools.partial(_lower, layer, scaling, block), larger=True)
        for block in _blocks(layer)
    ]


def _fits(op: Conv2D, windows: Windows) -> bool:
    return (
        op.stride == (1, 1) and op.dilation == (1, 1) and windows.x[3] >= _LEAST_DEPTH
        and windows.y[1] >= SIDE and max(windows.pad_before) < TAPS
    )


def _blocks(layer: IntegerSumLayer) -> list[WinogradBlock]:
    """Returns the one that computes the fewest tiles, of equal ones the first, if it is worth it.
    """
    windows, held = layer.windows, scratch_room.held(layer.context)
    words = len(channel_pairs(windows.x[3]))
    if -(-layer.channels // 2) * 2 * PARTS * words * 4 > _WEIGHTS:
        return []
    wide, high = windows.y[2], -(-windows.y[1] // SIDE)
    found = {
        block: Sizes.of(windows, block) for block in BLOCKS
        if block.tiles <= wide // SIDE and block.channels <= layer.channels
    }
    worth = {
        block: high * sizes.computed for block, sizes in found.items()
        if high * sizes.computed * PARTS <= _WORTH * TAPS * TAPS * windows.y[1] * wide
        and sizes.scratch(block) <= max(_SCRATCH, held // 4)
    }
    return [min(worth, key=lambda block: worth[block])] if worth else []


def _lower(layer: IntegerSumLayer, scaling: Int8Epilogue, block: WinogradBlock) -> Lowered:
    lowering = layer.begin()
    _Winograd(lowering, layer, scaling, block).emit()
    return lowering.finish()


class _Winograd:
    """Emits the loops over all pixels and channels."""

    def __init__(
        self, lowering: Lowering, layer: IntegerSumLayer, scaling: Int8Epilogue,
        block: WinogradBlock,
    ) -> None:
        self.b, self.windows, self.channels = lowering.b, layer.windows, layer.channels
        self.scaling, self.block, self.depth = scaling, block, layer.windows.x[3]
        self.sizes = Sizes.of(layer.windows, block)
        self.words = self.sizes.words
        self.zero = layer.sums.zero_point
        self.x = lowering.input(0, "input")
        self.weights = lowering.packed(
            "weights", Scalar.I32, WinogradWords(self.depth, block.channels), self.channels,
            row_multiple=block.channels,
            note="Winograd's parts of two input channels' taps, in halves",
        )
        scaling.begin(lowering)
        self.output = lowering.output(noalias=False)
        self.tiles, self.row, self.part = self.sizes.tiles, self.sizes.row, self.sizes.part
        self.lines = lowering.scratch("lines", Scalar.I32, CELLS * self.row)
        self.parts = lowering.scratch("parts", Scalar.I32, PARTS * self.part)
        self.sums = lowering.scratch("sums", Scalar.I32, PARTS * self.tiles * block.channels)

    def emit(self) -> None:
        """Emits all pixels."""
        b, (images, high, wide) = self.b, self.windows.y
        self._fill_sides()
        with b.loop("n", images) as n, b.loop("band", -(-high // SIDE)) as band:
            oy = mul(band, const(SIDE))
            if high % SIDE:
                oy = b.let("oy", min_(oy, const(high - SIDE)))
            self._see(n, oy)
            with b.loop("some", -(-wide // (SIDE * self.tiles))) as some:
                column = mul(some, const(SIDE * self.tiles))
                if wide % (SIDE * self.tiles):
                    column = b.let("column", min_(column, const(wide - SIDE * self.tiles)))
                self._transform(column)
                self._channels(flat_index([n, oy, column], self.windows.y))

    # ---- columns of four cells

    @property
    def _left(self) -> int:
        """Columns of padding before the image."""
        return self.windows.pad_before[1]

    @property
    def _inside(self) -> int:
        """Columns of the image that windows see."""
        return min(self.windows.x[2], self.sizes.columns - self._left)

    def _fill_sides(self) -> None:
        """Stores the parts of columns in the padding, which stay as they are."""
        b, words = self.b, self.words
        # Differences of four equal cells are 0.
        values = [0, _pair(2 * self.zero), 0, 0]
        behind = self._left + self._inside
        for name, first, count in (
            ("left", 0, self._left), ("right", behind, self.sizes.columns - behind)
        ):
            with b.loop(name, count * words) as at:
                for line, value in enumerate(values):
                    where = add(at, const(line * self.row + first * words))
                    b.store(self.lines, where, i32(value))

    def _see(self, n: Expr, oy: Expr) -> None:
        """Transforms the columns of the four rows that two rows of pixels from ``oy`` on see."""
        b, windows = self.b, self.windows
        top = b.let("top", add(oy, const(-windows.pad_before[0])))
        if windows.rows.inside:
            self._rows(flat_index([n, top, const(0), const(0)], windows.x))
            return
        with b.if_(and_(ge(top, const(0)), lt(top, const(windows.x[1] - CELLS + 1)))):
            self._rows(flat_index([n, top, const(0), const(0)], windows.x))
        with b.else_():
            self._rows_at_edges(n, top)

    def _rows(self, first: Expr) -> None:
        """Transforms four rows of the image from element ``first`` on."""
        b = self.b
        line = self.windows.x[2] * self.depth
        with b.loop("rows", 1, assembled=True), self._fours() as (at, target):
            cells = [
                b.let(f"cells_{row}", load_word(self.x, add(first, at, const(row * line))))
                for row in range(CELLS)
            ]
            self._column(cells, target)

    def _rows_at_edges(self, n: Expr, top: Expr) -> None:
        """Does the same where some rows, of which the first is ``top``, aren't in the image: their
        words are masked, and others are put in their place."""
        b, windows = self.b, self.windows
        starts, masks, fills = [], [], []
        zero = i32(wrap32((self.zero & 0xFF) * 0x01010101))
        for row in range(CELLS):
            with b.named(f"row{row}"):
                y = b.let("y", add(top, const(row)))
                inside = and_(ge(y, const(0)), lt(y, const(windows.x[1])))
                near = b.let("near", min_(max_(y, const(0)), const(windows.x[1] - 1)))
                start = flat_index([n, near, const(0), const(0)], windows.x)
                starts.append(b.let("start", start))
                masks.append(b.let("mask", select(inside, i32(-1), i32(0))))
                fills.append(b.let("fill", select(inside, i32(0), zero)))
        with self._fours() as (at, target):
            cells = [
                b.let(f"cells_{row}", or_(and_(load_word(self.x, add(start, at)), mask), fill))
                for row, (start, mask, fill) in enumerate(zip(starts, masks, fills, strict=True))
            ]
            self._column(cells, target)

    @contextmanager
    def _fours(self) -> Iterator[tuple[Expr, Expr]]:
        """Loops over four channels of the cells of a row; yields the first one's position in a row
        of the image, and that of their words in a line of parts."""
        b, depth = self.b, self.depth
        inside, first = self._inside, self._left * self.words
        if depth % 4 == 0:
            with b.loop("four", inside * depth // 4, unroll=1) as four:
                yield mul(four, const(4)), add(mul(four, const(2)), const(first))
            return
        with b.loop("x", inside) as x, b.loop("four", self.words // 2, unroll=1) as four:
            begin = min_(mul(four, const(4)), const(depth - 4))
            target = add(mul(x, const(self.words)), mul(four, const(2)), const(first))
            yield add(mul(x, const(depth)), begin), target

    def _column(self, cells: list[Expr], target: Expr) -> None:
        """Stores the parts of four cells of four channels each, one above the other."""
        for half, name in enumerate(("arm_sxtb16", "arm_sxtb16_ror8")):
            with self.b.named(f"half{half}"):
                pairs = [self.b.let("pair", _i32(name, cell)) for cell in cells]
                for line, part in enumerate(self._parts_of(pairs)):
                    self.b.store(self.lines, add(target, const(line * self.row + half)), part)

    def _parts_of(self, d: list[Expr]) -> list[Expr]:
        """Returns the parts of four cells, of two channels in a word."""
        return [
            self.b.let("part", _i32(f"arm_{operation}16", x, y)) for operation, x, y in (
                ("ssub", d[0], d[2]), ("sadd", d[1], d[2]), ("ssub", d[2], d[1]),
                ("ssub", d[1], d[3]),
            )
        ]

    # ---- rows of four cells

    def _transform(self, column: Expr) -> None:
        """Transforms the rows of the tiles from a column on."""
        b, words, tiles = self.b, self.words, self.block.tiles
        with (
            b.loop("tiles", 1, assembled=True), b.loop("line", CELLS) as line,
            b.loop("tiles", self.tiles // tiles) as some, b.loop("word", words, unroll=1) as word,
        ):
            left = add(column, mul(some, const(SIDE * tiles)))
            first = add(mul(line, const(self.row)), mul(left, const(words)), word)
            cells = [
                b.let(f"cells_{x}", load(self.lines, add(first, const(x * words))))
                for x in range(SIDE * tiles + TAPS - 1)
            ]
            target = add(
                mul(line, const(CELLS * self.part)), mul(some, const(tiles * words)), word
            )
            for tile in range(tiles):
                seen = cells[SIDE * tile : SIDE * tile + CELLS]
                for number, part in enumerate(self._parts_of(seen)):
                    at = add(target, const(number * self.part + tile * words))
                    b.store(self.parts, at, part)

    # ---- products

    def _channels(self, pixel: Expr) -> None:
        """Emits all output channels of the tiles, whose first pixel has the number ``pixel``."""
        b, count = self.b, self.block.channels
        row = b.let("row", mul(pixel, const(self.channels)))
        with b.loop("block", -(-self.channels // count)) as block:
            channel = mul(block, const(count))
            if self.channels % count:
                channel = b.let("channel", min_(channel, const(self.channels - count)))
            with b.loop("channels", 1, assembled=True):
                self._products(mul(block, const(PARTS * self.words * count)))
                self._pixels(row, channel)

    def _products(self, weights: Expr) -> None:
        """Emits the sums of all parts, with the weights from ``weights`` on."""
        b, words, tiles, channels = self.b, self.words, self.block.tiles, self.block.channels
        step = -(-words // -(-words // _WHOLE))
        with (
            b.loop("part", PARTS, unroll=1) as part,
            b.loop("tiles", self.tiles // tiles, unroll=1) as some,
        ):
            sums = [
                [b.local(f"sum_t{tile}_c{channel}", i32(0)) for channel in range(channels)]
                for tile in range(tiles)
            ]
            first = add(mul(part, const(self.part)), mul(some, const(tiles * words)))
            start = add(weights, mul(part, const(words * channels)))
            in_steps(b, words, step, functools.partial(self._words, sums, first, start))
            for tile, line in enumerate(sums):
                for channel, total in enumerate(line):
                    number = add(
                        mul(part, const(self.tiles)), mul(some, const(tiles)), const(tile)
                    )
                    b.store(self.sums, add(mul(number, const(channels)), const(channel)), total)

    def _words(
        self, sums: list[list[Var]], first: Expr, start: Expr, word: Expr, count: int
    ) -> None:
        """Emits ``count`` words of the parts from ``word`` on, times those of the channels."""
        tiles, channels = self.block.tiles, self.block.channels
        for place in range(count):
            at = add(word, const(place))
            with self.b.named(f"at{place}"):
                xs = [add(first, at, const(tile * self.words)) for tile in range(tiles)]
                ws = [
                    add(start, mul(at, const(channels)), const(channel))
                    for channel in range(channels)
                ]
                self._products_of(sums, xs, ws)

    def _products_of(self, sums: list[list[Var]], xs: list[Expr], ws: list[Expr]) -> None:
        """Emits the products of one word of each tile, at ``xs``, and of each channel, at ``ws``.
        Of these the fewer are kept, and of the others one at a time."""
        b = self.b
        x, w = [
            [functools.partial(b.let, f"{name}{number}", load(buffer, index))
             for number, index in enumerate(indices)]
            for name, buffer, indices in (("x_t", self.parts, xs), ("w_c", self.weights, ws))
        ]
        by_tile = len(xs) > len(ws)
        kept = [one() for one in (w if by_tile else x)]
        for outer, make in enumerate(x if by_tile else w):
            value = make()
            for inner, other in enumerate(kept):
                tile, channel = (outer, inner) if by_tile else (inner, outer)
                total = sums[tile][channel]
                b.assign(total, _i32("arm_smlad", value, other, total))

    # ---- pixels

    def _pixels(self, row: Expr, first: Expr) -> None:
        """Makes the pixels of all tiles, of the channels from ``first`` on, of the sums."""
        b, channels = self.b, self.block.channels
        with b.loop("channel", channels) as number:
            channel = add(first, number)
            constants = self.scaling.channel(channel)
            with b.loop("tile", self.tiles, unroll=1) as tile:
                at = add(mul(tile, const(channels)), number)
                lines = [
                    self._columns([
                        b.let(f"sum_{y}_{x}", load(self.sums, add(at, const(
                            (y * CELLS + x) * self.tiles * channels
                        ))))
                        for y in range(CELLS)
                    ])
                    for x in range(CELLS)
                ]
                target = add(row, mul(tile, const(SIDE * self.channels)), channel)
                for y, line in enumerate(zip(*lines, strict=True)):
                    for x, total in enumerate(self._columns(list(line))):
                        with b.named(f"{y}_{x}"):
                            value = self._result(total, constants)
                        cell = const((y * self.windows.y[2] + x) * self.channels)
                        b.store(self.output, add(target, cell), value)

    def _columns(self, m: list[Expr]) -> list[Expr]:
        """Returns two sums of the sums of four parts."""
        both = self.b.let("both", wrap_add(m[1], m[2]))
        apart = self.b.let("apart", wrap_sub(m[1], m[2]))
        return [
            self.b.let("upper", wrap_add(m[0], both)), self.b.let("lower", wrap_sub(apart, m[3]))
        ]

    def _result(self, total: Expr, constants: ChannelConstants) -> Expr:
        moved = self.scaling.places - SHIFT
        total = shl(total, i32(moved)) if moved > 0 else shr(total, i32(-moved))
        whole = self.b.let("whole", add(total, constants.bias))
        return self.scaling.result(whole, constants)


def _pair(value: int) -> int:
    """Returns a word with a value in both halves."""
    return wrap32(value & 0xFFFF | value << 16)


def _i32(name: str, *args: Expr) -> Expr:
    return call(name, *args, type_=Scalar.I32)
