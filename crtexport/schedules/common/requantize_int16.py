"""Scaling sums of int16 layers, which TFLite keeps in 64 bits, in one instruction.

TFLite takes 15 bits m of the multiplier and rounds once: (sum * m + 2**(t-1)) >> t. Where the sum
has 32 bits, that is the upper word of its product with m * 2**(32-t), rounded, halves up: SMMULR,
or VRMULH. Small multipliers, t > 32, are left out unless all that they make is 0.

Where only the products of a window have 32 bits, the bias b is taken apart: b = c + d * 2**16, with
a c that may be added to them. Then the result is (high + d * m + 2**(t-17)) >> (t - 16), where
high = floor((sum + c) * m / 2**16), since nothing else has bits that floor drops. What of d * m
doesn't fit into 32 bits either is a multiple of 2**(t-16), which is added after the shift, where
it may wrap as TFLite's results do. That takes any multiplier below 1/4: channels without a use have
tiny ones and enormous biases.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import WIDE_LIMIT
from crtexport.support.fixedpoint import Rounding, reduced_multiplier, wrap32

_REACH = 1 << 15
"""Largest magnitude of an input value."""
_BITS = 15
"""Of a multiplier."""
_LOW = 16
"""Bits of a product that are dropped first, where the bias is taken apart."""


def constants_of(sums: IntegerSums) -> npt.NDArray[np.int32] | None:
    """channels x (bias, factor whose products with sums have the results in their upper words);
    None if sums are scaled in another way, or need more than 32 bits."""
    if not sums.wide or sums.rounding is not Rounding.DOUBLE or sums.bound >= 1 << 31:
        return None
    rows: list[tuple[int, int]] = []
    for channel, (bias, magnitude) in enumerate(
        zip(sums.folded.tolist(), sums.magnitudes.tolist(), strict=True)
    ):
        one = min(channel, len(sums.multiplier.mantissas) - 1)
        reduced = reduced_multiplier(sums.multiplier.mantissas[one])
        places = _BITS - sums.multiplier.shifts[one]
        bound = (abs(bias) + _REACH * magnitude) * reduced
        if bound == 0 or (places > 32 and bound < 1 << places - 1):
            rows.append((0, 0))
        elif _BITS < places <= 32:
            rows.append((bias, reduced << 32 - places))
        else:
            return None
    return np.array(rows, np.int32).reshape(-1, 2)


def parts_of(sums: IntegerSums) -> npt.NDArray[np.int32] | None:
    """channels x (bias, factor, addend, right shift, addend): (sum + bias) * factor >> 32, plus the
    first addend, shifted and rounded, halves up, plus the second one. None if sums are scaled in
    another way, or products of windows need more than 32 bits."""
    if not sums.wide or sums.rounding is not Rounding.DOUBLE or sums.bound >= WIDE_LIMIT:
        return None
    rows: list[tuple[int, int, int, int, int]] = []
    for channel, (bias, magnitude) in enumerate(
        zip(sums.folded.tolist(), sums.magnitudes.tolist(), strict=True)
    ):
        one = min(channel, len(sums.multiplier.mantissas) - 1)
        reduced = reduced_multiplier(sums.multiplier.mantissas[one])
        right = _BITS - sums.multiplier.shifts[one] - _LOW
        reach = _REACH * magnitude
        bound = (abs(bias) + reach) * reduced
        if bound == 0 or (right > 0 and bound < 1 << _LOW + right - 1):
            rows.append((0, 0, 0, 1, 0))
            continue
        low = bias if abs(bias) + reach < 1 << 31 else (bias + (1 << 15)) % (1 << 16) - (1 << 15)
        if not 1 <= right <= 30 or abs(low) + reach >= 1 << 31:
            return None
        after, before = divmod((bias - low >> _LOW) * reduced, 1 << right)
        rows.append((low, reduced << _LOW, before, right, wrap32(after)))
    return np.array(rows, np.int32).reshape(-1, 5)
