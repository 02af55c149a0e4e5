"""Sums and differences of two bytes as one linear function of them.

TFLite brings both operands to one scale, adds them, and scales the sum, rounding four times. The
result is close to ``k0 + a*k1 + b*k2``, rounded once: it differs only where this is nearly half way
between two integers. There are 65536 pairs of bytes. While exporting, the pairs that are nearly
half way are used to search for integer coefficients with which no result differs, and all pairs are
then compared to prove it. Where no such coefficients exist, a table with one addend for each value
of the second byte gives the search more freedom.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.support.fixedpoint import (
    Ints,
    fused_multiply_add,
    multiply_all_by_quantized_multiplier,
    multiply_by_quantized_multiplier,
    nearest_even,
    quantize_multiplier,
)

_AROUND = 4
"""Distance from the rounded coefficients up to which others are tried."""
_MOST_BITS = 30
"""Most bits of a fraction."""
_ROWS_AROUND = 12
"""The same distance, for a factor of the first operand alone."""


class Terms(Struct, frozen=True):
    """A sum of two bytes (int8 or uint8, whose least value is ``lowest``), and its result.

    Operands with ``scales`` are brought to twice the larger scale, raised by ``raised`` bits; the
    second one is multiplied by ``sign``. ``zero_out`` is added to the result, which is clamped to
    ``bounds``.
    """

    lowest: int
    scales: tuple[float, float]
    zeros: tuple[int, int]
    scale_out: float
    zero_out: int
    bounds: tuple[int, int]
    sign: int
    raised: int

    @property
    def values(self) -> Ints:
        """All bytes, from the lowest on."""
        return np.arange(self.lowest, self.lowest + 256, dtype=np.int64)

    def results(self) -> Ints | None:
        """[first operand][second]: TFLite's result of each pair; None where scales are so far
        apart that its sums might not fit their words."""
        twice = 2.0 * max(self.scales)
        mantissa, shift = quantize_multiplier(twice / ((1 << self.raised) * self.scale_out))
        if shift > 0:
            return None
        first, second = (
            np.array([
                multiply_by_quantized_multiplier(
                    int(value - zero) << self.raised, *quantize_multiplier(scale / twice)
                ) for value in self.values
            ], np.int64)
            for scale, zero in zip(self.scales, self.zeros, strict=True)
        )
        raw = first[:, None] + self.sign * second[None, :]
        scaled = multiply_all_by_quantized_multiplier(raw, mantissa, -shift)
        return np.clip(scaled + self.zero_out, *self.bounds)


class FloatTerms(Terms, frozen=True):
    """As :class:`Terms`, as ONNX Runtime computes it with AVX2 and FMA (``MlasQLinearAdd``): the
    factors of both numbers, and the constant term, rounded to float32. ``more``: how much larger
    the numbers, and their zero points, are than what is stored."""

    more: int = 0

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Returns the factors of both operands, and the constant term."""
        first, second = (np.float32(s) / np.float32(self.scale_out) for s in self.scales)
        zeros = [zero + self.more for zero in self.zeros]
        rest = fused_multiply_add(float(first), zeros[0], float(np.float32(second * zeros[1])))
        whole = np.float32(self.zero_out + self.more) - np.float32(rest)
        return float(first), float(second), float(np.float32(whole))

    def results(self) -> Ints | None:
        """[first operand][second]: ONNX Runtime's result of each pair."""
        first, second, rest = self.numbers
        steps = (self.values + self.more).astype(np.float64)
        # Products of 24 and 8 bits are exact in float64, and so are sums unless scales are so far
        # apart that the smaller one makes no difference.
        inner = (steps * second + rest).astype(np.float32).astype(np.float64)
        total = (steps[:, None] * first + inner[None, :]).astype(np.float32)
        return np.clip(nearest_even(total) - self.more, *self.bounds)


class LinearFunction(Struct, frozen=True):
    """``start + a * first + b * second``, shifted right by ``places``; all in 32 bits."""

    start: int
    first: int
    second: int
    places: int

    def results(self, terms: Terms) -> Ints:
        """Returns the results of all pairs: [first operand][second]."""
        a, b = terms.values[:, None], terms.values[None, :]
        total: Ints = self.start + a * self.first + b * self.second
        return (total >> self.places).clip(*terms.bounds)


@functools.lru_cache(maxsize=256)
def linear(terms: Terms) -> LinearFunction | None:
    """Returns the linear function that equals TFLite's for every pair; None if none was found."""
    wanted = terms.results()
    if wanted is None:
        return None
    found = _search(terms, wanted)
    if found is None or not np.array_equal(found.results(terms), wanted):
        return None
    return found


class BytePairRows(Struct, frozen=True, eq=False):
    """``addends[second] + a * first``, shifted right by ``places``; all in 32 bits."""

    addends: Ints
    first: int
    places: int

    def __post_init__(self) -> None:
        self.addends.flags.writeable = False  # several layers may share them

    def results(self, terms: Terms) -> Ints:
        """Returns the results of all pairs: [first operand][second]."""
        total: Ints = self.addends[None, :] + terms.values[:, None] * self.first
        return (total >> self.places).clip(*terms.bounds)


@functools.lru_cache(maxsize=64)
def rows(terms: Terms) -> BytePairRows | None:
    """Returns a factor and a table of addends that give the result of every pair; None if none were
    found."""
    expected = terms.results()
    if expected is None:
        return None
    start, factors, places = _nominal(terms)
    if places < 1:
        return None
    most = float(1 << places)
    nominal = np.rint((start + terms.values * factors[1]) * most).astype(np.int64)
    low, high = expected > terms.bounds[0], expected < terms.bounds[1]
    first = round(float(factors[0]) * most)
    for distance in range(2 * _ROWS_AROUND + 1):
        factor = first + (distance + 1) // 2 * (-1) ** distance
        # Addends must be at least so large, and less than so large.
        needed = (expected << places) - terms.values[:, None] * factor
        least = np.where(low, needed, -(1 << 40)).max(axis=0)
        limit = np.where(high, needed + (1 << places), 1 << 40).min(axis=0)
        if (least < limit).all():
            inside = np.clip(least + limit >> 1, nominal - (1 << places), nominal + (1 << places))
            found = BytePairRows(np.clip(inside, least, limit - 1), factor, places)
            return found if np.array_equal(found.results(terms), expected) else None
    return None


def _nominal(terms: Terms) -> tuple[float, npt.NDArray[np.float64], int]:
    """Returns the real value of the constant term plus half a step, the factors of both operands,
    and the number of fractional bits that fit 32 bits."""
    factors = np.array(
        [terms.scales[0] / terms.scale_out, terms.sign * terms.scales[1] / terms.scale_out]
    )
    start = terms.zero_out + 0.5 - float(factors @ terms.zeros)
    largest = abs(start) + 1 + 256 * float(np.abs(factors).sum())
    return start, factors, min(31 - math.ceil(math.log2(largest)), _MOST_BITS)


def _search(terms: Terms, results: Ints) -> LinearFunction | None:
    """Returns the function near the real one whose constant term has the widest range of values
    that give the wanted results."""
    start, factors, places = _nominal(terms)
    if places < 1:
        return None
    values = terms.values
    real = start + values[:, None] * factors[0] + values[None, :] * factors[1]
    near = np.rint(real)
    # What other coefficients may change, as a part of 1.
    reach = (_AROUND + 2) * 2 * 256 / (1 << places)
    close = (np.abs(real - near) < reach) & (near > terms.bounds[0]) & (near <= terms.bounds[1])
    a, b = (axis + terms.lowest for axis in np.nonzero(close))
    steps, below = near[close].astype(np.int64) << places, results[close] < near[close]
    first, second = (round(float(factor) * (1 << places)) for factor in factors)
    nominal = round(start * (1 << places))
    best: tuple[int, LinearFunction] | None = None
    for k1 in range(first - _AROUND, first + _AROUND + 1):
        for k2 in range(second - _AROUND, second + _AROUND + 1):
            # What k0 must be at least for results at a step, and less than for those below it.
            needed = steps - a * k1 - b * k2
            least = int(needed[~below].max(initial=nominal - (1 << places - 1)))
            most = int(needed[below].min(initial=nominal + (1 << places - 1))) - 1
            if least <= most and (best is None or most - least > best[0]):
                best = most - least, LinearFunction((least + most) // 2, k1, k2, places)
    return None if best is None else best[1]
