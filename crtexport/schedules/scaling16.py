"""Scaling sums of int16 layers, which TFLite keeps in 64 bits, in one instruction.

TFLite takes 15 bits m of the multiplier and rounds once: (sum * m + 2**(t-1)) >> t. Where the sum
has 32 bits, that is the upper word of its product with m * 2**(32-t), rounded, halves up: SMMULR,
or VRMULH. Small multipliers, t > 32, are left out unless all that they make is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crtexport.fixedpoint import reduced_multiplier
from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import Rounding
from crtexport.kernels.build import cast, clamp
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.registry import Context
from crtexport.kernels.sums import IntegerSums
from crtexport.schedules.scaling import Means, Scales

_REACH = 1 << 15
"""Largest magnitude of an input value."""
_BITS = 15
"""Of a multiplier."""


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


class Scaling16(Scales):
    """int16 results."""

    def __init__(
        self, context: Context, constants: npt.NDArray[np.int32], activation: Activation,
        means: Means,
    ) -> None:
        super().__init__(constants, means, 1)
        self._range = activation_range(activation, context.output())

    @staticmethod
    def of(
        context: Context, sums: IntegerSums, activation: Activation, means: Means = Means.DSP
    ) -> Scaling16 | None:
        """None if the sums can't be scaled so."""
        constants = constants_of(sums)
        return None if constants is None else Scaling16(context, constants, activation, means)

    def made(self, whole: Expr, values: Sequence[Expr]) -> Expr:
        scaled = self.b.let("scaled", self._product(whole, values[1]))
        return cast(clamp(scaled, *self._range), Scalar.I16)
