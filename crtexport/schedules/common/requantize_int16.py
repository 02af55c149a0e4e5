"""Requantizing the sums of int16 layers, which TFLite keeps in 64 bits, with one instruction.

TFLite takes 15 bits m of the multiplier and rounds once: (sum * m + 2**(t-1)) >> t. Where the sum
fits 32 bits, that is the upper word of its product with m * 2**(32-t), rounded half up: SMMULR, or
VRMULH. Multipliers so small that t > 32 are supported only if all their results are 0.

Where only the products of a window fit 32 bits, the bias b is split: b = c + d * 2**16, with a c
that may be added to them. Then the result is (high + d * m + 2**(t-17)) >> (t - 16), where high =
floor((sum + c) * m / 2**16), since the other terms have no bits that floor would drop. The part of
d * m that doesn't fit 32 bits is a multiple of 2**(t-16), and is added after the shift, where it
may wrap as TFLite's results do. That supports any multiplier below 1/4: channels that are never
used have tiny multipliers and enormous biases.
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
    """Returns channels x (bias, factor): the upper words of the factor's products with sums are the
    results. None if sums are scaled in another way, or need more than 32 bits."""
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
    """Returns channels x (bias, factor, first addend, right shift, second addend).

    The result is (sum + bias) * factor >> 32, plus the first addend, shifted with rounding half up,
    plus the second addend. None if sums are scaled in another way, or the products of windows need
    more than 32 bits.
    """
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
