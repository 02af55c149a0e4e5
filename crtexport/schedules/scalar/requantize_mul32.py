"""Scaling short sums to int8 where products have 32 bits: by another multiplier that has the same
results.

What TFLite makes of a sum, bias, both roundings and zero point included, is a staircase of at most
256 results. A line goes through the same steps: floor((sum * m + c) / 2**(p + s)) with an m of some
24 bits that is nearly TFLite's multiplier, if for each result r the least sum T that has it gives
T * m + c >= r * 2**(p+s), and the sum before it doesn't. As two products of 32 bits, with
m = u * 2**p + l and a c that is a multiple of 2**p, that is (sum * u + (sum * l >> p) + c') >> s.
Sums below 2**18, as windows of depthwise layers and few channels have, leave u and l 13 bits each.

Negative results, whose halves TFLite rounds the other way, would need a line of their own: results
are to be clamped from the zero point up, as after a ReLU. ONNX Runtime's have no such kink, but
rounding to float32 moves single steps, so that hardly a layer has a line in all channels. If both
products lose some bits before they are added, steps are moved, too, otherwise for each multiplier,
of which some is found that fits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.kir.builder import add, and_, cast, clamp, const, i32, mul, shl, shr
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.common_shift import REMEMBERED, Scaling
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.result_steps import ResultSteps
from crtexport.lowering.registry import Context
from crtexport.schedules.scalar.requantize_int8 import RequantMethod, ScalarEpilogue
from crtexport.support.fixedpoint import Ints, Rounding, wrap32

_LEAST_BITS = 8
"""Halves of multipliers with fewer bits hardly ever have the same results."""
_USUAL_BITS = 13
"""Tried first, so that layers of one shape can have one kernel."""
_MOST_RIGHT = 30
"""Right shift."""
_NEAR = 3
"""Multipliers up to so far from TFLite's are tried."""
_FAR = 20
"""The same for products that lose bits."""
_FEWER = 3
"""Lengths of multipliers that are tried."""
_BEGINNINGS = 16
"""Numbers that sums may begin with, where products lose bits."""
_HALF_BITS, _SHIFT_BITS = 13, 5
"""Bits of the halves of a multiplier, and of a shift, that fit a word together."""
_LOST = (9, 6, 7, 5, 8)
"""Bits that products may lose: so many fewer than the halves have."""


def constants_of(
    sums: IntegerSums, zero_point: int, limits: tuple[int, int]
) -> tuple[npt.NDArray[np.int32], int, int] | None:
    """Returns channels x (upper half of the multiplier, lower half, addend, right shift), bits of
    the lower half, bits that the products lose; None if there are no such. If these lose any, there
    is what sums begin with, too. ``zero_point`` and ``limits`` are those of the output."""
    floats = sums.rounding is Rounding.FLOAT
    if sums.rounding is Rounding.SINGLE or max(sums.multiplier.shifts, default=0) > 0:
        return None
    if limits[0] < zero_point and not floats:
        return None
    reach = sums.reach
    if int((np.abs(sums.folded) + reach)[reach > 0].max(initial=0)) >= 1 << 30:
        return None
    return _constants(Scaling.of(sums, zero_point, limits))


@functools.lru_cache(REMEMBERED)
def _constants(scaling: Scaling) -> tuple[npt.NDArray[np.int32], int, int] | None:
    lowest, highest = (np.array(ends, np.int64) for ends in scaling.sums)
    folded, reach = lowest + highest >> 1, highest - lowest >> 1
    most = 31 - max(int(reach.max(initial=1)) - 1, 1).bit_length()
    if most < _LEAST_BITS:
        return None
    mantissas, shifts = scaling.multiplier.mantissas, scaling.multiplier.shifts
    last, limits = len(mantissas) - 1, (scaling.low, scaling.high)
    channels = [
        ShortSteps(
            mantissas[min(channel, last)], shifts[min(channel, last)],
            wrap32(int(folded[channel])), int(reach[channel]), scaling.zero, limits,
            scaling.floats,
        )
        for channel in range(len(reach))
    ]
    for bits in sorted(range(_LEAST_BITS, most + 1), key=lambda bits: (bits != _USUAL_BITS, -bits)):
        rows: list[tuple[int, int, int, int]] = []
        for channel in channels:
            row = channel.line(bits)
            if row is None:
                break
            rows.append(row)
        else:
            return _shared(rows, 4), bits, 0
    if scaling.floats:
        for fewer in _LOST:
            lost = max(most - fewer, 1)
            moved = list(takewhile(
                lambda row: row is not None, (one.moved_steps(most, lost) for one in channels)
            ))
            if len(moved) == len(channels):
                return _shared(moved, 5), most, lost
    return None


def _shared(rows: Sequence[object], columns: int) -> npt.NDArray[np.int32]:
    """Returns constants that several layers may share, and nobody may change."""
    constants = np.array(rows, np.int32).reshape(-1, columns)
    constants.flags.writeable = False
    return constants


class ShortSteps(ResultSteps):
    """Lines through the steps of a channel."""

    def moved_steps(self, bits: int, lost: int) -> tuple[int, int, int, int, int] | None:
        """Returns the constants of products that lose so many bits, those of the lower half
        ``bits``."""
        if not len(self.above):
            return 0, 0, self.first, 0, 0
        most = min(2 * bits - math.ceil(math.log2(self.real)), bits + _MOST_RIGHT)
        for begin in range(_BEGINNINGS):
            for places in range(most, most - _FEWER, -1):
                row = self._moved(places, bits, lost, begin)
                if row is not None:
                    return *row, begin
        return None

    def _moved(
        self, places: int, bits: int, lost: int, begin: int
    ) -> tuple[int, int, int, int] | None:
        right, nominal = places - bits - lost, round(self.real * 2.0**places)
        multipliers = np.arange(nominal - _FAR, nominal + _FAR + 1, dtype=np.int64)[:, None]
        upper, lower = multipliers >> bits, multipliers & (1 << bits) - 1
        largest = max(int(upper[-1, 0]), (1 << bits) - 1)
        if right < 1 or upper[0] < 1 or (self.reach + begin) * largest >= 1 << 31:
            return None

        def products(totals: Ints) -> Ints:
            begun = totals + begin
            found: Ints = (begun * upper >> lost) + (begun * lower >> bits + lost)
            return found

        due, at, later, before = self.edges()
        least = ((due << right) - products(at)).max(axis=1)
        greatest = ((later << right) - products(before)).min(axis=1) - 1
        best = int((greatest - least).argmax())
        addend = int(least[best] + greatest[best]) // 2
        if least[best] > greatest[best] or abs(addend) >= 1 << 29:
            return None
        return int(upper[best, 0]), int(lower[best, 0]), addend, right

    def line(self, bits: int) -> tuple[int, int, int, int] | None:
        """Returns the constants of a line through the steps, with ``bits`` of each half."""
        if not len(self.above):
            return 0, 0, self.first, 0
        most = min(2 * bits - math.ceil(math.log2(self.real)), bits + _MOST_RIGHT)
        # Where there are few steps, but an enormous bias, fewer places of the multiplier serve.
        for places in range(most, bits - 1, -1):
            nominal = round(self.real * 2.0**places)
            for multiplier in sorted(
                range(max(nominal - _NEAR, 1), nominal + _NEAR + 1), key=lambda m: abs(m - nominal)
            ):
                row = self._through(multiplier, places, bits)
                if row is not None:
                    return row
        return None

    def _through(
        self, multiplier: int, places: int, bits: int
    ) -> tuple[int, int, int, int] | None:
        results, steps = self.above, self.least
        upper, lower = divmod(multiplier, 1 << bits)
        right = places - bits
        # Beyond the ends there must be no further step, but for those that clamping removes.
        ends = [
            (int(results[0]) - 1 << places) + self.reach * multiplier
        ] if results[0] - 1 > self.limits[0] else []
        least = max([int(((results << places) - steps * multiplier).max()), *ends])
        most = int(((results << places) - (steps - 1) * multiplier).min()) - 1
        if results[-1] < self.limits[1]:
            most = min(most, (int(results[-1]) + 1 << places) - self.reach * multiplier - 1)
        addend = -(-least >> bits)
        largest = self.reach * (upper + 1) + abs(addend) + 1
        if addend << bits > most or right < 0 or largest >= 1 << 31:
            return None
        return upper, lower, addend, right


class Mul32Epilogue(ScalarEpilogue):
    """int8 results of short sums; biases are part of the addends.

    ``constants``: as :func:`constants_of` has them, and maybe what sums begin with. Where both
    halves of all multipliers fit, they and the shift are in one word of the table.
    """

    def __init__(
        self, constants: npt.NDArray[np.int32], bits: int, lost: int, limits: tuple[int, int]
    ) -> None:
        upper, lower, addend, right, *start = constants.T
        self._joined = max(upper.max(initial=0), lower.max(initial=0)) < 1 << _HALF_BITS
        self._values = int(constants.shape[1])
        if self._joined:
            word = upper << _HALF_BITS + _SHIFT_BITS | lower << _SHIFT_BITS | right
            constants = np.column_stack([word, addend, *start])
        super().__init__(constants, RequantMethod.MUL32_ONLY, 0)
        self._bits, self._lost, self._range = bits, lost, limits

    @staticmethod
    def of(
        context: Context, sums: IntegerSums, activation: Activation, start: Ints | None = None
    ) -> Mul32Epilogue | None:
        """Returns the epilogue; None if there are no multipliers with the same results. ``start``:
        what the sums of each channel begin with, where that isn't 0."""
        zero_point = context.quant(context.output()).zero_point[0]
        limits = activation_range(activation, context.output())
        found = constants_of(sums, zero_point, limits)
        if found is None:
            return None
        constants, bits, lost = found
        if start is not None:
            begun = constants[:, 4] if lost else 0
            constants = np.column_stack([constants[:, :4], start + begun]).astype(np.int32)
        return Mul32Epilogue(constants, bits, lost, limits)

    @property
    def count(self) -> int:
        return self._values

    @property
    def stored(self) -> tuple[tuple[str, str], ...]:
        if not self._joined:
            return self.words
        joined = (
            f"upper half of the multiplier * 2**{_HALF_BITS + _SHIFT_BITS}, its lower "
            f"{self._bits} bits * 2**{_SHIFT_BITS}, and the right shift"
        )
        return (("joined", joined), self.words[2], self.words[4])

    def values(self, number: Expr) -> tuple[Expr, ...]:
        if not self._joined:
            return super().values(number)
        joined, addend, *start = super().values(number)
        let, word = self.b.let, cast(joined, Scalar.U32)
        upper = let("upper", shr(joined, i32(_HALF_BITS + _SHIFT_BITS)))
        above = const(32 - _HALF_BITS - _SHIFT_BITS, Scalar.U32)
        lower = cast(shr(shl(word, above), const(32 - _HALF_BITS, Scalar.U32)), Scalar.I32)
        right = let("shift", and_(joined, i32((1 << _SHIFT_BITS) - 1)))
        return upper, let("lower", lower), addend, right, *start

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        return (
            ("upper", "upper half of the multiplier"),
            ("lower", f"its lower {self._bits} bits"),
            ("addend", "addend (scaled bias, rounding and zero point)"),
            ("shift", "right shift"), ("start", "what sums begin with"),
        )

    def start(self, values: Sequence[Expr]) -> Expr:
        return values[4] if len(values) > 4 else i32(0)

    def made(self, total: Expr, values: Sequence[Expr]) -> Expr:
        upper, lower, addend, right = values[:4]
        above = self.b.let("above", mul(total, upper))
        below = shr(self.b.let("below", mul(total, lower)), i32(self._bits + self._lost))
        if self._lost:
            above = shr(above, i32(self._lost))
        scaled = self.b.let("scaled", shr(add(above, below, addend), right))
        return cast(clamp(scaled, *self._range), Scalar.I8)
