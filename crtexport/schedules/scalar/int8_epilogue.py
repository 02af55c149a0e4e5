"""Selects how scalar code scales sums to int8: in integers, or as ONNX Runtime does in floats."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context
from crtexport.schedules.scalar.requantize_int8 import Int8Epilogue, RequantMethod, constants_of
from crtexport.support.fixedpoint import Ints, Rounding


def int8_epilogue(
    context: Context, sums: IntegerSums, activation: Activation,
    method: RequantMethod = RequantMethod.DSP, lifted: Ints | None = None,
) -> Int8Epilogue | None:
    """Returns the epilogue of a layer's sums, None if the instructions of ``method`` can't scale
    them. ``lifted`` (one number per channel): the kernel's sums are larger than those of the
    products by so much."""
    if sums.rounding is Rounding.FLOAT:
        from crtexport.schedules.scalar.requantize_float import (  # noqa: PLC0415
            epilogue_of,
        )

        return epilogue_of(context, sums, activation, method, lifted)
    if lifted is not None:
        sums = replace(sums, folded=sums.folded - lifted)
    method = RequantMethod.DSP if method is RequantMethod.FPU else method
    zero_point = context.quant(context.output()).zero_point[0]
    limits = activation_range(activation, context.output())
    constants = constants_of(sums, zero_point, limits)
    return None if constants is None else Int8Epilogue(context, constants, activation, method)
