"""Sums that are scaled by the FPU's instructions: which ones have room for it."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.schedules.scalar.requantize_float import constants_of
from crtexport.support.fixedpoint import Rounding

MAGNITUDE = 1 << 10
ROOM = (1 << 31) - 1 - 128 * MAGNITUDE
"""The largest bias with which no sum of weights of that magnitude leaves 32 bits."""


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_that_leave_32_bits_are_scaled_otherwise(sign: int) -> None:
    def found(bias: int) -> object:
        biases = np.full(1, bias, np.int64)
        return constants_of(IntegerSums(
            0, 0, np.full(1, MAGNITUDE, np.int64), biases, biases, abs(bias) + 128 * MAGNITUDE,
            Multiplier.of([2.0**-12]), Rounding.SINGLE, False,
        ), 3, (-128, 127))

    assert found(sign * ROOM) is not None
    assert found(sign * (ROOM + 1)) is None
