"""Scaling sums to int8 in the fewest instructions that round as TFLite does.

TFLite's ``MultiplyByQuantizedMultiplier`` rounds twice: ``high = (sum * m + 2**30) >> 31``, then
high / 2**s to nearest, halves away from zero. The rounded upper word of the doubled sum's product
is the first. The second with halves up is the upper word of a product, too, by 2**(32-s), or a
shift; less 1 from negative numbers, halves go away from zero. Where the result is clamped from the
zero point up, as after a ReLU, all negative numbers end there, however they were rounded.

SMMLAR takes a sum as it is: the doubled multiplier is 2**32 more than a number of 32 bits, whose
product's upper word and the sum itself are what the doubled sum's product would have.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.kir.builder import (
    add,
    and_,
    call,
    cast,
    clamp,
    const,
    i32,
    load,
    mul,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context, Lowering
from crtexport.schedules.scalar.paired_table import PairedTable
from crtexport.support.fixedpoint import Rounding, multiply_by_quantized_multiplier, wrap32

_LEAST, _MOST = 2, 31
"""Right shifts that SMMLAR can do."""

_LIMIT = 1 << 30
"""Sums below it can be doubled."""


class RequantMethod(enum.Enum):
    """Instructions by which a target requantizes sums."""

    DSP = "SMMLAR, which adds the sum or the zero point, of Armv7E-M"
    FPU = "floats, for sums that are scaled in them; else those of DSP"
    MUL64 = "two 64-bit products, where one is an instruction"
    MUL64_SHIFT = "a 64-bit product of a signed and an unsigned factor, and a shift"
    MUL32_ONLY = "products of 16 bits, where there are none of 64, and a shift"

    @property
    def places(self) -> int:
        """Returns by how many places sums are moved: one, where multipliers can't be doubled."""
        return 0 if self in (RequantMethod.DSP, RequantMethod.MUL64_SHIFT) else 1


def constants_of(
    sums: IntegerSums, zero_point: int, limits: tuple[int, int]
) -> npt.NDArray[np.int32] | None:
    """Returns channels x (twice the bias, multiplier, power of two); None if these instructions
    can't.

    A channel without weights has one result, whatever its bias and scale are: its constants are
    chosen to make it. ``zero_point`` and ``limits`` are those of the output.
    """
    if sums.rounding is not Rounding.DOUBLE:
        return None
    count = len(sums.raw)
    reach = sums.reach.tolist()
    rows: list[tuple[int, int, int]] = []
    for channel in range(count):
        one = min(channel, len(sums.multiplier.mantissas) - 1)
        mantissa, shift = sums.multiplier.mantissas[one], sums.multiplier.shifts[one]
        bias = int(sums.folded[channel])
        possible = abs(bias) + reach[channel] < _LIMIT and (
            mantissa == 0 or _LEAST <= -shift <= _MOST
        )
        if possible:
            rows.append((2 * bias, mantissa, 1 << (32 + shift) if mantissa else 0))
        elif not reach[channel]:
            scaled = multiply_by_quantized_multiplier(wrap32(bias), mantissa, shift)
            result = min(max(zero_point + scaled, limits[0]), limits[1])
            rows.append((16 * (result - zero_point), 1 << 30, 1 << 30))
        else:
            return None
    return np.array(rows, np.int64).astype(np.int32).reshape(count, 3)


class ChannelConstants(Struct, frozen=True):
    """Constants of one output channel: twice its bias, its multiplier, its power of two, instead
    of which MUL32_ONLY has its right shift. With MUL64_SHIFT: its bias, twice its multiplier, its
    right shift. With DSP: its bias, twice its multiplier less 2**32, its power of two. ``more``:
    what other epilogues have."""

    bias: Expr
    mantissa: Expr
    power: Expr
    more: tuple[Expr, ...] = ()


class ScalarEpilogue(abc.ABC):
    """Emits results of sums, with a table of what belongs to each output channel, its bias first.

    ``places``: by how many places sums and biases are moved.
    """

    paired: PairedTable | None = None
    """The order of the table where it isn't that of channels."""

    def __init__(
        self, constants: npt.NDArray[np.int32], method: RequantMethod, places: int
    ) -> None:
        """``constants``: channels x words."""
        self.method, self.places = method, places
        self._constants = constants
        self._alike = bool((constants[:, 1:] == constants[:1, 1:]).all())

    @property
    def count(self) -> int:
        """Returns the number of constants of a channel."""
        return int(self._constants.shape[1])

    @property
    def stored(self) -> tuple[tuple[str, str], ...]:
        """Returns the name of each word of a channel in the table, and what it is."""
        return self.words

    @property
    @abc.abstractmethod
    def words(self) -> tuple[tuple[str, str], ...]:
        """The name of each constant of a channel, and what it is."""

    def begin(self, lowering: Lowering) -> None:
        """Adds the table of what differs between channels to a kernel."""
        self.b = lowering.b
        self._common: tuple[Expr, ...] = ()
        values, meanings = self._constants, [meaning for _, meaning in self.stored]
        width = self._constants.shape[1]
        note = f"for each output channel: {', '.join(meanings[:width])}"
        if self._alike:
            # Behind the biases, so that layers of one shape can have one kernel.
            values = np.concatenate([self._constants[:, 0], self._constants[0, 1:]])
            note = f"for each output channel: {meanings[0]}; for all of them: " + ", ".join(
                meanings[1:width]
            )
        if self.paired is not None:
            values, note = self.paired.arranged(self._constants), f"{note}; in blocks of channels"
        self._table: Buffer = lowering.derived("scaling", Scalar.I32, values, note)

    def load_common(self) -> None:
        """Loads what all channels have in common, for what follows."""
        if self._alike:
            words = range(1, self._constants.shape[1])
            self._common = tuple(self.value(const(0), word) for word in words)

    def value(self, number: Expr, word: int) -> Expr:
        """Returns a word of an output channel (index) in the table, loaded."""
        place = add(mul(number, const(self._constants.shape[1])), const(word))
        if self._alike:
            place = const(len(self._constants) + word - 1) if word else number
        return self._loaded(place, word)

    def _loaded(self, place: Expr, word: int) -> Expr:
        if word and self._common:
            return self._common[word - 1]
        return self.b.let(self.stored[word][0], load(self._table, place))

    def values(self, number: Expr) -> tuple[Expr, ...]:
        """Returns all constants of an output channel (index), loaded."""
        return tuple(self.value(number, word) for word in range(self._constants.shape[1]))

    def start(self, values: Sequence[Expr]) -> Expr:
        """Returns what sums of a channel with these constants begin with."""
        return values[0]

    def finished(self, total: Expr, values: Sequence[Expr]) -> Expr:
        """Returns the output element of a sum (i32) that began at 0; ``values`` are the constants
        of its channel."""
        moved = self.moved(total)
        return self.made(self.b.let("whole", add(moved, self.start(values))), values)

    def moved(self, total: Expr) -> Expr:
        """Returns ``total`` (i32) shifted left by ``places`` bits, as the multipliers expect it."""
        return shl(total, i32(self.places)) if self.places else total

    @abc.abstractmethod
    def made(self, total: Expr, values: Sequence[Expr]) -> Expr:
        """Returns the output element of a sum (i32) that includes its bias and is shifted as by
        :meth:`moved`; ``values`` are the constants of its channel."""

    def _product(self, a: Expr, b: Expr) -> Expr:
        """Returns the upper word of a product, rounded."""
        if self.method is RequantMethod.DSP:
            return _i32("arm_smmulr", a, b)
        if self.method is RequantMethod.MUL64_SHIFT:
            product = self.b.let(
                "product", mul(cast(a, Scalar.I64), cast(cast(b, Scalar.U32), Scalar.I64))
            )
            upper = cast(shr(product, const(32, Scalar.I64)), Scalar.I32)
            rounding = shr(cast(product, Scalar.U32), const(31, Scalar.U32))
            return add(upper, cast(rounding, Scalar.I32))
        if self.method is RequantMethod.MUL32_ONLY:
            return self._product_of_pieces(a, b)
        product = mul(cast(a, Scalar.I64), cast(b, Scalar.I64))
        nudged = add(product, const(1 << 31, Scalar.I64))
        return cast(shr(nudged, const(32, Scalar.I64)), Scalar.I32)

    def _product_of_pieces(self, a: Expr, b: Expr, rounding: int = 1 << 15) -> Expr:
        """The same for b >= 0, rounded down if ``rounding`` is 0. With a = A * 2**16 + c and
        b = B * 2**16 + d it is A*B + (A*d + c*B + (c*d >> 16) + 2**15 >> 16), of which the sum in
        brackets may have 33 bits; so the upper half of A*d stays out of it."""

        def halves(value: Expr) -> tuple[Expr, Expr]:
            low = and_(cast(value, Scalar.U32), const(0xFFFF, Scalar.U32))
            return let("upper", shr(value, i32(16))), let("lower", low)

        let = self.b.let
        half = const(16, Scalar.U32)
        (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
        cross = let("cross", mul(a_high, cast(b_low, Scalar.I32)))
        rest = add(
            mul(a_low, cast(b_high, Scalar.U32)), shr(mul(a_low, b_low), half),
            and_(cast(cross, Scalar.U32), const(0xFFFF, Scalar.U32)),
            *([const(rounding, Scalar.U32)] if rounding else []),
        )
        return add(
            mul(a_high, b_high), shr(cross, i32(16)), cast(shr(rest, half), Scalar.I32)
        )


class Int8Epilogue(ScalarEpilogue):
    """int8 results."""

    def __init__(
        self, context: Context, constants: npt.NDArray[np.int32], activation: Activation,
        method: RequantMethod,
    ) -> None:
        super().__init__(_constants(constants, method), method, method.places)
        self._zero = context.quant(context.output()).zero_point[0]
        self._range = activation_range(activation, context.output())

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        match self.method:
            case RequantMethod.DSP:
                bias = ("bias", "bias")
                if self.paired is not None:
                    bias = "start", "bias (odd ones: 256 times that, and that of the one before)"
                doubled = ("multiplier", "2 * multiplier (Q31) - 2**32")
                return bias, doubled, ("power", "2**(32 - right shift)")
            case RequantMethod.FPU | RequantMethod.MUL64:
                power = ("power", "2**(32 - right shift)")
                return ("bias", "2 * bias"), ("multiplier", "multiplier (Q31)"), power
            case RequantMethod.MUL64_SHIFT:
                shift = ("shift", "right shift")
                return ("bias", "bias"), ("multiplier", "2 * multiplier (Q31)"), shift
            case RequantMethod.MUL32_ONLY:
                shift = ("shift", "right shift")
                return ("bias", "2 * bias"), ("multiplier", "multiplier (Q31)"), shift

    def begun_in_pairs(self, sums: IntegerSums, block: int) -> Int8Epilogue | None:
        """Returns the epilogue for a sum of each channel that begins with its bias, and for an odd
        one and that before of ``256 * odd + even``, with both, modulo 2**32: exact while the odd
        channel's has 24 bits. None if it may have more, or sums aren't scaled so. ``block``:
        channels that begin together; those that are left do in pairs."""
        if type(self) is not Int8Epilogue or self.method is not RequantMethod.DSP:
            return None
        constants = self._constants.astype(np.int64)
        biases = constants[:, 0]
        if (np.abs(biases) + sums.reach)[1::2].max(initial=0) >= 1 << 23:
            return None
        constants[1::2, 0] = (biases[1::2] << 8) + biases[: len(biases) // 2 * 2 : 2]
        words = (constants & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        return self._in_blocks(words, block, odd=False)

    def _in_blocks(self, constants: npt.NDArray[np.int32], block: int, *, odd: bool) -> Self:
        """Returns the same epilogue with such a table."""
        other = copy(self)
        other._constants = constants
        other.paired = PairedTable(len(constants), self.count, block, odd, self._alike)
        return other

    def begun(self, block: Expr, offset: int, size: int) -> Expr:
        """Returns what a sum of pairs of channels begins with, not yet loaded: that of the channel
        ``offset`` behind the first one (index) of a block of ``size``, if that is odd with the one
        before."""
        if self.paired is None or not self.paired.begins(offset):
            return i32(0)
        return load(self._table, self.paired.place(block, offset, size, 0))

    def of_block(self, block: Expr, offset: int, size: int) -> ChannelConstants:
        """Returns the constants of a channel of such a block, loaded, without that with which its
        sum began."""
        if self.paired is None:
            return self.channel(add(block, const(offset)))
        return self.named([
            i32(0) if not word and self.paired.begins(offset)
            else self._loaded(self.paired.place(block, offset, size, word), word)
            for word in range(self.count)
        ])

    def channel(self, number: Expr) -> ChannelConstants:
        """Returns the constants of an output channel (index), loaded."""
        return self.named(self.values(number))

    def named(self, values: Sequence[Expr]) -> ChannelConstants:
        """Returns the constants of a channel, which are ``values``."""
        return ChannelConstants(values[0], values[1], values[2])

    def made(self, total: Expr, values: Sequence[Expr]) -> Expr:
        return self.result(total, ChannelConstants(values[0], values[1], values[2]))

    def result(self, total: Expr, channel: ChannelConstants) -> Expr:
        """Returns the output element (i8) of a sum that :meth:`whole` has prepared."""
        high = self.b.let("high", self._multiple(total, channel.mantissa))
        low, top = self._range
        if low < self._zero:
            high = add(high, shr(high, i32(31)))
        scaled = self.b.let("scaled", self._divided(high, channel.power))
        return cast(clamp(scaled, low, top), Scalar.I8)

    def _multiple(self, total: Expr, multiplier: Expr) -> Expr:
        """Returns the first rounding."""
        if self.method is RequantMethod.DSP:
            return _i32("arm_smmlar", total, multiplier, total)
        return self._product(total, multiplier)

    def _divided(self, high: Expr, power: Expr) -> Expr:
        """Returns the second rounding, and the zero point."""
        zero = i32(self._zero)
        match self.method:
            case RequantMethod.DSP | RequantMethod.FPU:
                return _i32("arm_smmlar", high, power, zero)
            case RequantMethod.MUL64:
                return add(self._product(high, power), zero)
            case RequantMethod.MUL64_SHIFT | RequantMethod.MUL32_ONLY:
                half = shl(i32(1), sub(power, i32(1)))
                return add(shr(add(high, half), power), zero)

    def whole(self, total: Expr, channel: ChannelConstants) -> Expr:
        """Returns a sum (i32, without its bias) with its bias, shifted as by :meth:`moved`."""
        return add(self.moved(total), channel.bias)


def _constants(constants: npt.NDArray[np.int32], method: RequantMethod) -> npt.NDArray[np.int32]:
    """Returns ``constants`` as ``method`` need them; where there is no multiplier any shift will
    do."""
    if method is RequantMethod.MUL64:
        return constants
    doubled, mantissas, powers = constants.astype(np.int64).T
    if method is RequantMethod.DSP:
        # Without a multiplier nothing is left by the second product.
        lower = np.where(mantissas, 2 * mantissas - (1 << 32), 0)
        return np.column_stack([doubled // 2, lower, powers]).astype(np.int32)
    shifts = np.array(
        [32 - int(power).bit_length() + 1 if power else _LEAST for power in powers], np.int64
    )
    if method is RequantMethod.MUL64_SHIFT:
        doubled, mantissas = doubled // 2, 2 * mantissas
    return np.column_stack([doubled, mantissas, shifts]).astype(np.uint32).view(np.int32)


def _i32(name: str, *args: Expr) -> Expr:
    return call(name, *args, type_=Scalar.I32)
