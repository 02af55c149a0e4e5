"""Requantization as a step function: products whose steps are at the same sums.

Everything that scales a sum, including bias, rounding, zero point and clamping, is a step function
with at most 256 results, whose steps are known while exporting. The upper word of the product of
``(sum << places) + addend`` and a first factor, multiplied by a second factor, of which the upper
word is taken again, is a step function, too; its steps follow from these constants. If both
functions have the same steps, they are equal for every possible sum, and no rounding, to float32 or
otherwise, needs to be imitated.

The second factor may be a power of two, so that it is a shift, in nine of ten channels that ONNX
Runtime scales. In the others, the bits that are cut off behind the first product move single steps,
differently for each pair of factors; pairs are tried until one fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.support.fixedpoint import (
    Ints,
    Rounding,
    multiply_all_by_quantized_multiplier,
    nearest_even,
    quantize_multiplier,
    scale_in_float32,
    wrap32,
)

_WORD = 32
_MOST_PLACES = 8
"""Places that sums are moved by: a half word has room for a weight of 8 bits moved so far."""
_FAR = np.float32(1024)
"""More than any 8-bit result, whatever its zero point."""
_USUAL_SHIFT = 13
"""Tried first, so that layers of one shape can have one kernel."""
_MOST_SHIFT = 22
_LARGEST = (1 << 31) - 1
_TRIED = 33
"""Factors that are compared at a time."""
_NEAR = 20
"""Factors are tried that differ by one part in 2**_NEAR."""
_PAIRS = 128
"""Pairs of factors that are compared at a time."""
_AROUND = 3
"""Sums that results usually step within, below and above those of an exact quotient."""
_TIGHTEST = 16
"""Requirements of each kind that are compared before all others are: few factors meet these."""
_SAMPLES = 4
"""Pairs of factors that say which requirements those are."""
_ROUNDS = 48
"""The times that so many are."""


class ResultSteps:
    """The results of a channel's sums from -``reach`` to ``reach``; ``shift`` is to the right.
    ``above``: all results but that of the least sum; ``least``: the least sum that has each of
    these."""

    def __init__(
        self, mantissa: int, shift: int, bias: int, reach: int, zero: int,
        limits: tuple[int, int], floats: bool,
    ) -> None:
        self.floats = floats
        self.mantissa, self.shift, self.bias, self.reach = mantissa, shift, bias, reach
        self.zero, self.limits = zero, limits
        self.real = mantissa * 2.0 ** (shift - 31)
        first, last = self.results(np.array([-reach, reach])).tolist()
        self.first: int = first
        self.above = np.arange(first + 1, last + 1, dtype=np.int64)
        self.least = self._least(self.above)

    def results(self, totals: Ints) -> Ints:
        """Returns the results to which TFLite, in products that fit 64 bits, or ONNX Runtime scales
        sums."""
        scaled = scale_in_float32(
            totals + self.bias, self.real
        ) if self.floats else multiply_all_by_quantized_multiplier(
            totals + self.bias, self.mantissa, -self.shift
        )
        clamped: Ints = np.clip(scaled + self.zero, *self.limits)
        return clamped

    def _least(self, results: Ints) -> Ints:
        """Returns the least sum that has each of some results, all above that of -``reach``. They
        are near the sums at which an exact quotient would step, or are found by bisection."""
        reach = self.reach
        if not len(results):
            return results
        guess = ((results - self.zero - 0.5) / self.real).astype(np.int64) - self.bias
        near = np.clip(guess + np.arange(-_AROUND, _AROUND + 1)[:, None], -reach, reach)
        reached = self.results(near) >= results
        low: Ints = near[0]
        high: Ints = near[-1]
        if reached[-1].all() and not reached[0].any():
            found: Ints = near[reached.argmax(axis=0), np.arange(len(results))]
            return found
        low[reached[0]], high[~reached[-1]] = -reach, reach
        while (high - low > 1).any():
            middle = (low + high) >> 1
            below = self.results(middle) < results
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high

    def edges(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Returns results with the sums that must have them, and results with the sums that must
        not have them yet, in ascending order. No further step may come beyond these, except for
        results that clamping removes."""
        due, at = self.above, self.least
        later, before = self.above, self.least - 1
        if self.first > self.limits[0]:
            due, at = np.insert(due, 0, self.first), np.insert(at, 0, -self.reach)
        last = self.first + len(self.above)
        if last < self.limits[1]:
            later, before = np.append(later, last + 1), np.append(before, self.reach)
        return due, at, later, before


class ProductSteps(ResultSteps):
    """The results of products of two numbers of 8 bits, less their zero points, as ONNX Runtime
    scales them (``MlasQLinearMul``): the zero point, ``more`` than what is stored, is added in
    float32, before rounding."""

    def __init__(
        self, scale: float, reach: int, zero: int, more: int, limits: tuple[int, int]
    ) -> None:
        """``reach``: the largest magnitude of a product."""
        self._more = more
        super().__init__(*quantize_multiplier(scale), 0, reach, zero, limits, floats=True)

    def results(self, totals: Ints) -> Ints:
        with np.errstate(over="ignore"):
            products = totals.astype(np.float32) * np.float32(self.real)
        # As far from all results as it takes: there is nothing to round.
        near = np.clip(products, -_FAR, _FAR) + np.float32(self.zero + self._more)
        clamped: Ints = np.clip(nearest_even(near) - self._more, *self.limits)
        return clamped


class _Edges:
    """Requirements for the constants of a channel: the sums that must have certain results, and the
    sums that must not have later ones yet."""

    def __init__(self, channel: ResultSteps, places: int) -> None:
        due, at, later, before = channel.edges()
        # ``due`` lacks none of all results but the last, ``later`` none but the first.
        begin = min((*due[:1], *later[:1]), default=0)
        end = max((*due[-1:], *later[-1:]), default=-1)
        self._results = np.arange(begin, end + 1, dtype=np.int64)
        self._tight: tuple[Ints, Ints] | None = None
        self._due = slice(len(due))
        self._later = slice(len(self._results) - len(later), None)
        self._at, self._before = at << places, before << places
        self._most = _LARGEST - (channel.reach << places)
        self._real = channel.real if channel.reach else 0.0
        self._places = places

    def addends(self, firsts: Ints, seconds: Ints, half: int) -> tuple[Ints, Ints]:
        """Returns the least and the greatest addend for each pair of factors, where ``half`` is
        added to the second products. If the latter is less than the former, no addend fits."""
        sums = _least_sums(self._results, firsts, seconds, half)
        least = (sums[:, self._due] - self._at).max(axis=1, initial=-self._most)
        most = (sums[:, self._later] - self._before).min(axis=1, initial=self._most + 1) - 1
        return least, most

    def _promising(self, firsts: Ints, seconds: Ints, half: int) -> npt.NDArray[np.bool_]:
        """Returns which pairs of factors meet the requirements that were the tightest for some of
        the first ones: no others have an addend."""
        results_due, results_later = self._results[self._due], self._results[self._later]
        if self._tight is None:
            some = firsts[:_SAMPLES], seconds[:_SAMPLES], half
            late = (_least_sums(results_due, *some) - self._at).max(axis=0)
            early = (_least_sums(results_later, *some) - self._before).min(axis=0)
            self._tight = np.argsort(-late)[:_TIGHTEST], np.argsort(early)[:_TIGHTEST]
        due, later = self._tight
        together = np.concatenate((results_due[due], results_later[later]))
        sums = _least_sums(together, firsts, seconds, half)
        least = (sums[:, : len(due)] - self._at[due]).max(axis=1, initial=-self._most)
        most = (sums[:, len(due) :] - self._before[later]).min(axis=1, initial=self._most + 1)
        promising: npt.NDArray[np.bool_] = least < most
        return promising

    def fitting(
        self, firsts: Ints, seconds: Ints, half: int
    ) -> tuple[tuple[int, int, int] | None, int]:
        """Returns the constants of the pair of factors that has the widest range of addends, and
        the number of that pair. All may have one second factor."""
        least, most = self.addends(firsts, seconds, half)
        best = int((most - least).argmax())
        if most[best] < least[best]:
            return None, best
        addend = int(least[best] + most[best]) // 2
        return (addend, int(firsts[best]), int(seconds[best % len(seconds)])), best

    def line(self, shift: int) -> tuple[tuple[int, int, int] | None, int]:
        """Returns constants whose second factor is a shift; None if there are none. Of the first
        factors that fit, the one nearest to the exact factor is taken."""
        nominal = round(math.ldexp(self._real, _WORD + shift - self._places)) or 1 << 30
        second = np.array([1 << _WORD - shift])
        row, _ = self.fitting(np.array([nominal]), second, 0)
        near, width = nominal, float(nominal >> _NEAR)
        while row is None and width >= 1:
            firsts = near + np.rint(np.linspace(-width, width, _TRIED)).astype(np.int64)
            firsts = firsts[(firsts > 0) & (firsts <= _LARGEST)]
            row, best = self.fitting(firsts, second, 0)
            near, width = int(firsts[best]), width / (_TRIED // 4)
        return row, near

    def pair(self, product: int, half: int) -> tuple[int, int, int] | None:
        """Returns constants with two factors whose product is near ``product``. Where steps recur
        every few results, ``half`` moves these between multiples of the second factor."""
        for turn in range(_ROUNDS):
            # Shorter first factors cut off more, which moves more steps.
            least = (product >> 30) + 1 << turn % 3
            number = np.arange(turn * _PAIRS, (turn + 1) * _PAIRS, dtype=np.int64)
            # Even ones can be halved for instructions that double products.
            seconds = least + number * 0x9E3779B1 % least & ~1
            firsts = product // seconds
            width = (firsts >> _NEAR + 2 * (turn % 2)) + 1
            firsts += (number * 0x85EBCA6B >> 7) % (2 * width + 1) - width
            if least < 1 << 10 or least > 1 << 30 or firsts.min() < 1:
                return None
            some = self._promising(firsts, seconds, half)
            row, _ = self.fitting(firsts[some], seconds[some], half) if some.any() else (None, 0)
            if row is not None:
                return row
        return None


def _least_sums(results: Ints, firsts: Ints, seconds: Ints, half: int) -> Ints:
    """Returns the least sums, with addends, that give each result: pairs x results."""
    high = -(-((results << _WORD) - half) // seconds[:, None])
    sums: Ints = -(-(high << _WORD) // firsts[:, None])
    return sums


class TwoProducts(Struct, frozen=True, eq=False):
    """Constants of a layer: channels x (addend, first factor, second factor).

    ``places``: the shift of sums to the left. ``shift``: the second factor is 2**(32 - shift) in
    all channels; None where it isn't. ``rounded``: the second product is rounded half up; second
    factors are even then.
    """

    constants: npt.NDArray[np.int32]
    places: int
    shift: int | None
    rounded: bool = False

    @staticmethod
    def of(sums: IntegerSums, zero_point: int, limits: tuple[int, int]) -> TwoProducts | None:
        """Returns the constants for all channels; None if a channel has none. ``zero_point`` and
        ``limits`` are those of the output."""
        channels = _channels(sums, zero_point, limits)
        return TwoProducts.of_steps(channels, _MOST_PLACES) if channels else None

    @staticmethod
    def of_steps(channels: Sequence[ResultSteps], most_places: int) -> TwoProducts | None:
        """Returns the constants; None if there are none. Sums are moved by at most so many
        places."""
        reals = [channel.real for channel in channels if channel.reach] or [0.5]
        if not 2.0**-24 <= min(reals) <= max(reals) < 0.5:
            return None
        widest = max(
            abs(c.bias) + c.reach + (int(256 / c.real) if c.reach else 0) for c in channels
        )
        places = min(most_places, 30 - widest.bit_length())
        # The largest first factor has 31 bits.
        most = min(_MOST_SHIFT, places - 1 - math.frexp(max(reals))[1])
        if places < 0 or most < 1:
            return None
        usual = min(most, _USUAL_SHIFT)
        edges = [_Edges(channel, places) for channel in channels]
        for shift in sorted({usual, most}):
            lines = []
            for edge in edges:
                lines.append(edge.line(shift))
                if lines[-1][0] is None and shift < most:
                    break
            rows = [row for row, _ in lines]
            if None not in rows:
                return TwoProducts(np.array(rows).astype(np.int32), places, shift)
        for half in (0, 1 << _WORD - 1):
            pairs = [
                row if row and not half else edge.pair(near << _WORD - most, half)
                for edge, (row, near) in zip(edges, lines, strict=True)
            ]
            if None not in pairs:
                return TwoProducts(np.array(pairs).astype(np.int32), places, None, half > 0)
        return None

    def lifted(self, more: Ints, reach: Ints) -> TwoProducts | None:
        """Returns the constants for sums that are larger by ``more`` in each channel, where the
        original sums are at most ``reach``. None where they don't fit 31 bits."""
        offsets = self.constants[:, 0].astype(np.int64) - (more << self.places)
        most = (reach + np.abs(more) << self.places) + np.abs(offsets)
        if int(most.max(initial=0)) > _LARGEST:
            return None
        constants = self.constants.copy()
        constants[:, 0] = offsets
        return replace(self, constants=constants)


def _channels(
    sums: IntegerSums, zero_point: int, limits: tuple[int, int]
) -> list[ResultSteps]:
    """Returns the result steps of each channel; an empty list where sums aren't scaled in float32,
    or don't fit 32 bits."""
    if sums.rounding is not Rounding.FLOAT or sums.wide or sums.bound >= 1 << 31:
        return []
    last = len(sums.multiplier.mantissas) - 1
    return [
        ResultSteps(
            sums.multiplier.mantissas[min(channel, last)],
            sums.multiplier.shifts[min(channel, last)],
            wrap32(int(sums.folded[channel])), reach, zero_point, limits, floats=True,
        )
        for channel, reach in enumerate(sums.reach.tolist())
    ]
