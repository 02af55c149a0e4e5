"""Selects how scalar code scales sums to int8: in integers, or as ONNX Runtime does in floats."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.lowering.numerics.common_shift import Scaling, Shifts, common_shift
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.result_steps import TwoProducts
from crtexport.lowering.registry import Context
from crtexport.schedules.scalar.requantize_float import StepsEpilogue, epilogue_of
from crtexport.schedules.scalar.requantize_int8 import (
    Int8Epilogue,
    RequantMethod,
    constants_of,
)
from crtexport.support.fixedpoint import Ints, Rounding

_SHIFTS = Shifts(left=8, least_left=4, most_left=8, right=9, most_right=20, rounded=False)
"""Odd channels of pairs have sums that are shifted by 8 bits already."""


def int8_epilogue(
    context: Context, sums: IntegerSums, activation: Activation,
    method: RequantMethod = RequantMethod.DSP, lifted: Ints | None = None,
) -> Int8Epilogue | None:
    """Returns the epilogue of a layer's sums, None if the instructions of ``method`` can't scale
    them. ``lifted`` (one number per channel): the kernel's sums are larger than those of the
    products by so much."""
    if sums.rounding is Rounding.FLOAT:
        return epilogue_of(context, sums, activation, method, lifted)
    found = _one_product(context, sums, activation, method, lifted)
    if found is not None:
        return found
    if lifted is not None:
        sums = replace(sums, folded=sums.folded - lifted)
    method = RequantMethod.DSP if method is RequantMethod.FPU else method
    zero_point = context.quant(context.output()).zero_point[0]
    limits = activation_range(activation, context.output())
    constants = constants_of(sums, zero_point, limits)
    return None if constants is None else Int8Epilogue(context, constants, activation, method)


def _one_product(
    context: Context, sums: IntegerSums, activation: Activation, method: RequantMethod,
    lifted: Ints | None,
) -> Int8Epilogue | None:
    """Returns the epilogue of one product and one shift for all channels; None where there is no
    such with TFLite's results."""
    if sums.rounding is not Rounding.DOUBLE or method is RequantMethod.MUL32_ONLY:
        return None
    zero_point = context.quant(context.output()).zero_point[0]
    limits = activation_range(activation, context.output())
    common = common_shift(Scaling.of(sums, zero_point, limits), _SHIFTS)
    if common is None:
        return None
    offsets = common.addends + (sums.folded << common.left)
    if abs(offsets).max() >= 1 << 31:
        return None
    constants = np.stack([offsets, common.multipliers], axis=1).astype(np.int32)
    steps = TwoProducts(constants, common.left, common.right)
    moved = steps if lifted is None else steps.lifted(lifted, sums.reach)
    return None if moved is None else StepsEpilogue(moved, limits, method)
