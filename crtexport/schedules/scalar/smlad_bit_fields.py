"""int8 sums on Armv7E-M with packed weights: fields of 4 or 2 bits in each half of a word.

A word of weights has the same fields in both halves: each is the weight of one output channel for
one value of a line, plus 8 or 2, so that none is negative. AND leaves one field of both halves
where it is, and SMLAD adds its products with two input values: 2**place times what belongs into the
sum. At the end it is shifted back, which is exact as long as the sum so shifted has 32 bits: known
while exporting. What was added to weights is in sums as often as the input values, whose sum is
known when they are gathered (:mod:`crtexport.schedules.common.im2col_lines`): sums begin with so
much less. The channel of the highest field needs no AND: its products are taken with all the
others', by SMLALD in 64 bits, and their sums subtracted at the end.

So four channels of 4 bits, or eight of 2, cost a load, three (seven) AND and four (eight) SMLAD for
two values: as many instructions as those of 8 bits. Sums of so many channels and two pixels find no
registers, though: for several pixels a half has fields of two channels, of two or four values.
"""

from __future__ import annotations

import functools

import numpy as np
from msgspec import Struct

from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    call,
    cast,
    const,
    i32,
    load,
    mul,
    shl,
    shr,
    sub,
    wrap_mul,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered
from crtexport.lowering.weight_packing import Array, Packing, grouped
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.common.conv_geometry import IntegerSumLayer, Windows
from crtexport.schedules.common.im2col_lines import MOST_LEFT, Im2colGather, LineTotals
from crtexport.schedules.common.loop_tiling import in_steps
from crtexport.schedules.scalar.blocked_products import BlockedProducts
from crtexport.schedules.scalar.int8_epilogue import int8_epilogue
from crtexport.schedules.scalar.requantize_int8 import Int8Epilogue

STEPS = (1, 2, 4, 8, 16)
"""Words of weights that may be multiplied in one go; all of them are another choice."""
MOST_WHOLE = 64
"""Longer lines are never multiplied in one go."""
_BOTH = 0x10001
"""The same in both halves of a word."""


class Fields(Struct, frozen=True):
    """Fields of ``bits`` bits in a half of 16: ``places`` values of a line, those of the first in
    the lowest bits; of each ``channels`` channels."""

    bits: int
    places: int

    @property
    def place_bits(self) -> int:
        return 16 // self.places

    @property
    def channels(self) -> int:
        return self.place_bits // self.bits

    @property
    def lift(self) -> int:
        """Returns the number that is added to weights."""
        return 1 << self.bits - 1

    @property
    def signed(self) -> int:
        """Returns the highest bits of halves, and of bytes where those are extended: as signed
        numbers, whose highest field is the weight itself."""
        return {1: 0x8000, 2: 0x8080}.get(self.places, 0)

    @property
    def below(self) -> int:
        """Returns the sum of ones in all fields of a place that are lifted."""
        return sum(1 << self.bits * i for i in range(self.channels - bool(self.signed)))

    @property
    def largest(self) -> int:
        """Returns the magnitude of sums of 32 bits, where those of single channels have that of
        1."""
        return sum(1 << self.bits * i for i in range(self.channels - (self.places == 1)))

    @property
    def last(self) -> Scalar:
        """Returns the type of the sums of the highest field with all those below."""
        return Scalar.I64 if self.places == 1 else Scalar.I32

    def words(self, windows: Windows) -> int:
        """Returns the words of weights for a line."""
        return -(-windows.words // self.places)

    def steps(self, windows: Windows) -> list[int]:
        """Returns the numbers of those that may be multiplied in one go."""
        words = self.words(windows)
        found = [step for step in STEPS if 2 * step <= words]
        return [*found, words] if windows.words <= MOST_WHOLE or not found else found


class FieldTile(Struct, frozen=True):
    """``pixels`` with a word's channels; ``step`` words are multiplied in one go."""

    fields: Fields
    pixels: int
    step: int

    @property
    def name(self) -> str:
        """Returns the name among the candidates of a node."""
        return f"fields {self.pixels}x{self.fields.channels}, {self.step} words"


def candidates(context: Context) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules and has packed weights, if it
    can be."""
    layer = IntegerSumLayer.of(context, DType.INT8, group=4)
    if layer is None or context.packed_bits is None:
        return []
    scaling = int8_epilogue(context, layer.sums, layer.op.activation)
    if scaling is None or len(layer.windows.leftover_taps) > MOST_LEFT:
        return []
    return [
        Candidate(tile.name, functools.partial(_lower, layer, scaling, tile), rare, objects)
        for tile, rare, objects in _tiles(layer, context.packed_bits)
    ]


def _tiles(layer: IntegerSumLayer, bits: int) -> list[tuple[FieldTile, bool, bool]]:
    """Returns the tiles in which sums are exact, each with whether it is seldom the best one, and
    whether compilers of C make slow code of it: of sums of 64 bits, which they order themselves,
    gcc loads more at once than there are registers for."""
    most = int(layer.sums.reach.max(initial=0))
    pairs, many = Fields(bits, 8 // bits), Fields(bits, 1)
    one = layer.windows.pixels == 1
    sizes = [(many, 1), (pairs, 1)] if one else [(pairs, 2), (many, 1), (pairs, 1), (many, 2)]
    tiles = [
        FieldTile(fields, pixels, step)
        for fields, pixels in sizes if most * fields.largest < 1 << 31
        for step in fields.steps(layer.windows)
    ]
    usual = tiles[0].fields
    small = usual if one or bits == 4 else many
    in_c = [t for t in tiles if t.fields == small and t.step <= (8 // bits if one else 1)]
    first = max(in_c, key=lambda tile: tile.step, default=tiles[0])
    return [
        (
            tile, tile.fields != usual or tile.step > (16 if one else 2 * bits),
            tile != first and tile.fields.last is Scalar.I64,
        )
        for tile in dict.fromkeys((first, *tiles))
    ]


def _lower(layer: IntegerSumLayer, scaling: Int8Epilogue, tile: FieldTile) -> Lowered:
    windows, lowering, fields, pixels = layer.windows, layer.begin(), tile.fields, tile.pixels
    x = lowering.input(0, "input")
    weights = lowering.packed(
        "weights", Scalar.I32, FieldWords(windows, fields), layer.channels,
        note=f"in each half word {fields.bits} bits for each of {fields.channels} channels and "
        f"{fields.places} inputs",
    )
    scaling.begin(lowering)
    # Lines that a store to the output might change are loaded anew for each block of channels;
    # compilers would keep them on the stack instead.
    output = lowering.output(noalias=False)
    lines = lowering.scratch("lines", Scalar.I32, (windows.words + 1) * pixels, noalias=False)
    gather = Im2colGather(
        lowering.b, windows, x, lines, pixels, layer.sums.zero_point,
        LineTotals(lines, windows.words * pixels, -fields.lift),
    )
    _FieldProducts(lowering.b, layer, (weights, lines, output), scaling, tile).emit(gather)
    return lowering.finish()


class FieldWords(Packing, frozen=True):
    """channels x taps as words with fields, of windows' lines; channels that are missing in the
    last words have the field of 0."""

    windows: Windows
    fields: Fields

    @property
    def block(self) -> int:
        return self.fields.channels

    def nbytes(self, rows: int, columns: int) -> int:
        del columns
        return -(-rows // self.block) * self.fields.words(self.windows) * 4

    def __call__(self, weights: Array) -> Array:
        fields, taps = self.fields, weights.shape[1]
        words = fields.words(self.windows)
        pairs = np.full((words * fields.places, 2), -1)
        pairs[: self.windows.words] = self.windows.pairs()
        groups = np.zeros((-(-len(weights) // self.block), self.block, taps + 1), np.int64)
        groups[..., :-1] = grouped(weights, self.block)
        lifted = (groups + fields.lift).take(pairs.reshape(-1), axis=2)
        lifted = lifted.reshape(-1, self.block, words, fields.places, 2)
        channel, place = np.ogrid[: self.block, : fields.places]
        shifts = channel * fields.bits + place * fields.place_bits
        halves = (lifted << shifts[:, None, :, None]).sum((1, 3))
        joined: Array = (halves ^ fields.signed).astype("<u2").reshape(-1).view("<i4")
        return joined


class _FieldProducts(BlockedProducts):
    """Values of pixels times the fields of words."""

    def __init__(
        self, b: KernelBuilder, layer: IntegerSumLayer, buffers: tuple[Buffer, Buffer, Buffer],
        scaling: Int8Epilogue, tile: FieldTile,
    ) -> None:
        super().__init__(b, layer.windows, layer.channels, tile.pixels)
        self.scaling, self.fields, self.step = scaling, tile.fields, tile.step
        self.weights, self.lines, self.output = buffers

    def all_channels(self, pixels: list[Expr]) -> None:
        rows = self.rows(pixels)
        if self.fields.last is Scalar.I64:
            self._all_channels(rows)
            return
        with self.b.loop("channels", 1, assembled=True):
            self._all_channels(rows)

    def _all_channels(self, rows: list[Expr]) -> None:
        several = self.fields.channels
        whole, rest = divmod(self.channels, several)
        with self.b.loop("block", whole) as block:
            self._block(rows, block, several)
        if rest:
            self._block(rows, const(whole), rest)

    def _block(self, rows: list[Expr], block: Expr, count: int) -> None:
        """Emits ``count`` channels of all pixels, whose weights are the words of ``block``."""
        b, fields, lines = self.b, self.fields, self.windows.words
        start = b.let("first", mul(block, const(fields.words(self.windows))))
        sums = [self._begun(p, count) for p in range(len(rows))]
        words = functools.partial(self._words, sums, start)
        whole, rest = divmod(lines, fields.places)
        in_steps(b, whole, self.step, functools.partial(words, places=fields.places))
        if rest:
            words(const(whole), 1, places=rest)
        for i in range(count):
            channel = add(mul(block, const(fields.channels)), const(i))
            with b.named(f"c{i}"):
                constants = self.scaling.channel(channel)
            for p, (row, line) in enumerate(zip(rows, sums, strict=True)):
                with b.named(f"p{p}_c{i}"):
                    whole_sum = b.let("whole", add(self._sum(line, i), constants.bias))
                    result = self.scaling.result(whole_sum, constants)
                    b.store(self.output, add(row, channel), result)

    def _sum(self, sums: list[Var], number: int) -> Expr:
        """Returns the sum of a channel, moved as the epilogue wants it."""
        total: Expr = sums[number]
        if not number:
            return self.scaling.moved(total)
        if number == self.fields.channels - 1:
            others = self.b.let("others", add(*sums[:number]))
            total = sub(total, cast(others, total.type))
        apart = self.fields.bits * number
        if self.scaling.places > apart:
            return self.scaling.moved(cast(shr(total, const(apart, total.type)), Scalar.I32))
        place = const(apart - self.scaling.places, total.type)
        return cast(shr(total, place), Scalar.I32)

    def _begun(self, pixel: int, count: int) -> list[Var]:
        """Returns the sums of a pixel, less what their fields are lifted by."""
        b, fields = self.b, self.fields
        at = const(self.windows.words * self.pixels_per_block + pixel)
        lift = b.let(f"lift_p{pixel}", load(self.lines, at))
        starts = [shl(lift, i32(fields.bits * i)) for i in range(count)]
        if count == fields.channels:
            starts[-1] = wrap_mul(cast(lift, fields.last), const(fields.below, fields.last))
        return [b.local(f"sum_p{pixel}_c{i}", one) for i, one in enumerate(starts)]

    def _words(
        self, sums: list[list[Var]], start: Expr, word: Expr, count: int, places: int
    ) -> None:
        """Emits ``count`` words from ``word`` on, of which ``places`` are multiplied."""
        b, pixels = self.b, self.pixels_per_block
        for number in range(count):
            packed = b.let(f"weights{number}", load(self.weights, add(start, word, const(number))))
            for place in range(places):
                with b.named(f"{number}_at{place}"):
                    at = mul(add(word, const(number)), const(self.fields.places))
                    first = mul(add(at, const(place)), const(pixels))
                    xs = [
                        b.let(f"values_p{p}", load(self.lines, add(first, const(p))))
                        for p in range(pixels)
                    ]
                    self._place(sums, xs, packed, place)

    def _place(self, sums: list[list[Var]], xs: list[Expr], packed: Expr, place: int) -> None:
        """Adds the products of a place's fields."""
        b, fields = self.b, self.fields
        whole = packed
        if fields.places == 2:
            name = ("arm_sxtb16", "arm_sxtb16_ror8")[place]
            whole = b.let("fields", call(name, packed, type_=Scalar.I32))
        elif fields.places == 4:
            lowest = shr(packed, i32(fields.place_bits * place))
            whole = b.let("fields", and_(lowest, i32(0xF * _BOTH)))
        for i in range(len(sums[0])):
            field = whole
            if i < fields.channels - 1:
                mask = ((1 << fields.bits) - 1) << fields.bits * i
                field = b.let(f"field_c{i}", and_(whole, i32(mask * _BOTH)))
            for x, line in zip(xs, sums, strict=True):
                product = "arm_smlad" if line[i].type is Scalar.I32 else "arm_smlald"
                b.assign(line[i], call(product, field, x, line[i], type_=line[i].type))
