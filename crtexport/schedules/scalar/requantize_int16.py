"""Results of int16 layers on scalar machines; see
:mod:`crtexport.schedules.common.requantize_int16` for the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.kir.builder import add, cast, clamp, const, mul, shr
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context
from crtexport.schedules.common.requantize_int16 import constants_of, parts_of
from crtexport.schedules.scalar.requantize_int8 import RequantMethod, ScalarEpilogue


class Int16Epilogue(ScalarEpilogue):
    """int16 results."""

    def __init__(
        self, context: Context, constants: npt.NDArray[np.int32], activation: Activation,
        method: RequantMethod,
    ) -> None:
        super().__init__(constants, method, 0)
        self._range = activation_range(activation, context.output())

    @staticmethod
    def of(
        context: Context, sums: IntegerSums, activation: Activation,
        method: RequantMethod = RequantMethod.DSP
    ) -> Int16Epilogue | None:
        """Returns the epilogue; None if the sums can't be scaled so."""
        constants = constants_of(sums)
        if constants is None and method is not RequantMethod.MUL32_ONLY:
            constants = parts_of(sums)
            if constants is not None:  # rounding is part of the first addend
                constants[:, 2] += 1 << constants[:, 3] - 1
        return None if constants is None else Int16Epilogue(context, constants, activation, method)

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        return (
            ("bias", "bias"), ("multiplier", "multiplier"), ("addend", "addend"),
            ("shift", "right shift"), ("after", "addend after the shift"),
        )

    def made(self, total: Expr, values: Sequence[Expr]) -> Expr:
        _, factor, *parts = values
        scaled = self._apart(total, factor, *parts) if parts else self._product(total, factor)
        return cast(clamp(self.b.let("scaled", scaled), *self._range), Scalar.I16)

    def _apart(
        self, total: Expr, factor: Expr, addend: Expr, shift: Expr, addend_after: Expr
    ) -> Expr:
        """Returns ((high word of total * factor) + addend >> shift) + addend_after, an i32."""
        product = mul(cast(total, Scalar.I64), cast(factor, Scalar.I64))
        high = cast(shr(product, const(32, Scalar.I64)), Scalar.I32)
        return add(shr(add(high, addend), shift), addend_after)
