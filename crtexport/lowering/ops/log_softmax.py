"""LOG_SOFTMAX along the last axis: float32, and 8-bit numbers in gemmlowp's fixed point
(``reference/log_softmax.h``). What depends on a difference alone are tables made while exporting.
"""

from __future__ import annotations

import math

import numpy as np

from crtexport.ir.ops import LogSoftmax
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    f32,
    flat_index,
    gt,
    i32,
    load,
    max_,
    min_,
    select,
    sub,
    wrap_sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics import float_math, lut8
from crtexport.lowering.numerics.elementwise_maps import BYTES, has_scales
from crtexport.lowering.numerics.gemmlowp import INT32_MIN, log_of_sum
from crtexport.lowering.numerics.last_axis_rows import row_maximum, rows_kernel, rows_of
from crtexport.lowering.numerics.requantize import (
    rounding_divide_by_pot,
    rounding_doubling_high_mul,
)
from crtexport.lowering.ops.softmax import (
    ACCUMULATION_BITS,
    SCALED_DIFF_BITS,
    Exponentials,
    shortened_table,
)
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types
from crtexport.support.fixedpoint import quantize_multiplier

_OUTPUT_BITS = 4  # integer bits of a result


def log_output(context: Context) -> str | None:
    """An 8-bit output must have scale 1/16 and the largest number as zero point."""
    output = context.output()
    if output.dtype not in BYTES or output.quant is None:
        return None
    if output.quant.scale == (1 / 16,) and output.quant.zero_point == (output.dtype.limits[1],):
        return None
    return f"found {output.quant.scale[0]} and {output.quant.zero_point[0]}"


@lowers(LogSoftmax, same_types(DType.FLOAT32, *BYTES), has_scales, log_output)
def log_softmax(context: Context) -> Lowered:
    """x - max - log(sum of exp(x - max)), row by row."""
    return rows_kernel(context, "log_softmax", _float_rows, _integer_rows)


def _float_rows(lowering: Lowering, source: Buffer) -> None:
    b, shape, output = lowering.b, rows_of(lowering.context), lowering.output()
    with b.loop("row", shape[0]) as row:
        largest = row_maximum(b, source, row, shape)
        total = b.local("total", f32(0.0))
        with b.loop("i", shape[1]) as i:
            difference = sub(load(source, flat_index([row, i], shape)), largest)
            b.assign(total, add(total, float_math.exp(b, difference)))
        log = float_math.log(b, total)
        with b.loop("i", shape[1]) as i:
            at = flat_index([row, i], shape)
            b.store(output, at, sub(sub(load(source, at), largest), log))


def _integer_rows(lowering: Lowering, source: Buffer) -> None:
    context, b, shape = lowering.context, lowering.b, rows_of(lowering.context)
    exponentials = Exponentials.of(float(lut8.scale(context.input(0))), 1.0)
    exps = lowering.derived(
        "exps", Scalar.I32, shortened_table(exponentials.table),
        "exp(-scale * i) in Q31, gemmlowp's exp_on_negative_values; 0 of larger i, where it is too "
        "small to count",
    )
    scaled = lowering.derived(
        "scaled", Scalar.I32, np.array(exponentials.scaled, np.int32),
        "-scale * i in Q5.26, i = 0 ... 255",
    )
    dtype, output = context.output().dtype, lowering.output()
    low, high = dtype.limits

    with b.loop("row", shape[0]) as row:
        largest = row_maximum(b, source, row, shape)

        def distance(i: Expr) -> Expr:
            value = cast(load(source, flat_index([row, i], shape)), Scalar.I32)
            return b.let("distance", clamp(sub(largest, value), 0, 255))

        total = b.local("total", i32(0))
        with b.loop("i", shape[1]) as i:
            grown = load(exps, cast(min_(distance(i), i32(exps.size - 1)), Scalar.INDEX))
            b.assign(total, add(
                total, rounding_divide_by_pot(b, grown, i32(ACCUMULATION_BITS))
            ))
        log = log_of_sum(b, total)
        farthest = _farthest(b, exponentials, log)
        with b.loop("i", shape[1]) as i:
            away = distance(i)
            rest = wrap_sub(load(scaled, cast(away, Scalar.INDEX)), log)
            steps = rounding_divide_by_pot(
                b, b.let("rest", rest), i32(31 - SCALED_DIFF_BITS - _OUTPUT_BITS)
            )
            result = clamp(b.let("result", add(steps, i32(high))), low, high)
            kept = b.let("kept", select(gt(farthest, away), result, i32(low)))
            b.store(output, flat_index([row, i], shape), cast(kept, SCALAR_OF[dtype]))


def _farthest(b: KernelBuilder, exponentials: Exponentials, log: Expr) -> Expr:
    """i32: the distance from the maximum at which, for the sum's sake, only the least is left."""
    mantissa, left = exponentials.multiplier
    if left < 1 or (left, mantissa) == (1, 1 << 30):
        return i32(256)  # scales so small that no distance of 8-bit numbers reaches it
    divisor, shift = quantize_multiplier(math.ldexp(1.0, 31 - left) / mantissa)
    lowest = rounding_doubling_high_mul(b, add(log, i32(INT32_MIN)), i32(divisor))
    reached = rounding_divide_by_pot(b, lowest, i32(-shift))
    nearest = b.let("nearest", max_(i32(exponentials.radius - 1), b.let("reached", reached)))
    return b.let("farthest", sub(i32(0), nearest))
