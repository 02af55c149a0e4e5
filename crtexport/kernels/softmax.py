"""SOFTMAX along the last axis: float32, and int8 in gemmlowp's fixed point (TFLite
``reference/softmax.h``). The exponentials of the 256 possible differences are a table made while
exporting; only the sum, its reciprocal and the products are computed at run time."""

from __future__ import annotations

import math

import numpy as np

from crtexport.fixedpoint import (
    exp_on_negative_values,
    quantize_multiplier,
    wrap32,
)
from crtexport.fixedpoint import (
    rounding_divide_by_pot as exact_divide_by_pot,
)
from crtexport.fixedpoint import (
    rounding_doubling_high_mul as exact_high_mul,
)
from crtexport.ir.ops import Softmax
from crtexport.ir.types import DType
from crtexport.kernels import mathf
from crtexport.kernels.build import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    div,
    f32,
    flat_index,
    i32,
    load,
    lt,
    max_,
    mul,
    select,
    shl,
    sub,
)
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.registry import Context, Lowered, Lowering, lowers
from crtexport.kernels.requantize import (
    rounding_divide_by_pot,
    rounding_doubling_high_mul,
)
from crtexport.kernels.rules import FLOAT_OR_INT8, quantized_weights, same_types

SCALED_DIFF_BITS = 5  # integer bits of a scaled difference
ACCUMULATION_BITS = 12  # integer bits of the sum of exponentials


def exp_table(scale: float, beta: float) -> list[int]:
    """exp(beta*scale*d) in Q0.31 for d = 0, -1, …, -255; 0 where the reference leaves d out."""
    real = min(beta * scale * (1 << (31 - SCALED_DIFF_BITS)), (1 << 31) - 1.0)
    mantissa, left_shift = quantize_multiplier(real)
    radius = ((1 << SCALED_DIFF_BITS) - 1) * (1 << (31 - SCALED_DIFF_BITS)) / 2.0**left_shift
    diff_min = -math.floor(radius)
    table = []
    for difference in range(0, -256, -1):
        if difference < diff_min:
            table.append(0)
            continue
        scaled = exact_high_mul(wrap32(difference << left_shift), mantissa)
        table.append(exp_on_negative_values(scaled, SCALED_DIFF_BITS))
    return table


def softmax_rows(context: Context) -> tuple[int, int]:
    """Rows and their length."""
    shape = context.input(0).shape
    depth = shape[-1] if shape else 1
    return (context.input(0).elements // depth if depth else 0), depth


def softmax_output(context: Context) -> str | None:
    """An int8 output must have scale 1/256 and zero point -128."""
    output = context.output()
    if output.dtype is DType.INT8 and output.quant is not None and (
        output.quant.scale != (1 / 256,) or output.quant.zero_point != (-128,)
    ):
        return f"found {output.quant.scale[0]} and {output.quant.zero_point[0]}"
    return None


@lowers(Softmax, same_types(*FLOAT_OR_INT8), quantized_weights, softmax_output)
def softmax(context: Context) -> Lowered:
    """exp(beta * (x - max)) over its sum, row by row."""
    op = context.node.op
    if not isinstance(op, Softmax):
        raise TypeError(op)
    lowering = Lowering("softmax", context)
    rows, depth = softmax_rows(context)
    source = lowering.input(0, "input")
    if context.input(0).dtype is DType.FLOAT32:
        _float_rows(lowering, source, rows, depth, op.beta)
        return lowering.finish()
    scale = context.quant(context.input(0)).scale[0]
    table = exp_table(scale, op.beta)
    exps = lowering.derived("exps", Scalar.I32, np.array(table, np.int32))
    _integer_rows(lowering, source, exps, rows, depth)
    return lowering.finish()


def _row_maximum(b: KernelBuilder, source: Buffer, row: Expr, shape: tuple[int, int]) -> Var:
    work = Scalar.F32 if source.dtype is Scalar.F32 else Scalar.I32
    lowest: Expr = f32(float("-inf")) if work is Scalar.F32 else i32(-128)
    largest = b.local("largest", lowest)
    with b.loop("i", shape[1]) as i:
        value = b.let("value", cast(load(source, flat_index([row, i], shape)), work))
        b.assign(largest, max_(largest, value))
    return largest


def _float_rows(
    lowering: Lowering, source: Buffer, rows: int, depth: int, beta: float
) -> None:
    b, shape, output = lowering.b, (rows, depth), lowering.output()
    with b.loop("row", rows) as row:
        largest = _row_maximum(b, source, row, shape)
        total = b.local("total", f32(0.0))
        with b.loop("i", depth) as i:
            at = flat_index([row, i], shape)
            grown = mathf.exp(b, mul(sub(load(source, at), largest), f32(beta)))
            b.store(output, at, grown)
            b.assign(total, add(total, grown))
        with b.loop("i", depth) as i:
            at = flat_index([row, i], shape)
            b.store(output, at, div(load(output, at), total))


def _integer_rows(
    lowering: Lowering, source: Buffer, exps: Buffer, rows: int, depth: int
) -> None:
    b, shape, output = lowering.b, (rows, depth), lowering.output()
    with b.loop("row", rows) as row:
        largest = _row_maximum(b, source, row, shape)

        def exponential(i: Expr) -> Expr:
            value = cast(load(source, flat_index([row, i], shape)), Scalar.I32)
            return load(exps, b.let("difference", clamp(
                cast(sub(largest, value), Scalar.INDEX), 0, 255
            )))

        total = b.local("total", i32(0))
        with b.loop("i", depth) as i:
            rescaled = rounding_divide_by_pot(b, exponential(i), i32(ACCUMULATION_BITS))
            b.assign(total, add(total, rescaled))
        scale, bits_over_unit = _reciprocal(b, total)
        exponent = b.let("exponent", add(bits_over_unit, i32(31 - 8)))
        with b.loop("i", depth) as i:
            product = rounding_doubling_high_mul(b, b.let("exp", exponential(i)), scale)
            unsaturated = rounding_divide_by_pot(b, product, exponent)
            shifted = sub(b.let("unsaturated", unsaturated), i32(128))
            b.store(output, flat_index([row, i], shape), cast(
                clamp(shifted, -128, 127), Scalar.I8
            ))


def _reciprocal(b: KernelBuilder, total: Expr) -> tuple[Expr, Expr]:
    """gemmlowp ``GetReciprocal``: (1 / total in Q0.31 after normalising, bits over unit)."""
    zeros = b.local("zeros", i32(0))
    normal = b.local("normal", total)
    # Leading zeros by halving: five steps, no data-dependent loop.
    for step in (16, 8, 4, 2, 1):
        with b.if_(lt(normal, i32(1 << (31 - step)))):
            b.assign(normal, shl(normal, i32(step)))
            b.assign(zeros, add(zeros, i32(step)))
    # ``normal`` has its leading one at bit 30, so the total had ``zeros`` + 1 leading zeros.
    fraction = b.let("fraction", shl(sub(normal, i32(1 << 30)), i32(1)))
    scale = _one_over_one_plus_x(b, fraction)
    return scale, sub(i32(ACCUMULATION_BITS), add(zeros, i32(1)))


def _one_over_one_plus_x(b: KernelBuilder, a: Expr) -> Expr:
    """gemmlowp ``one_over_one_plus_x_for_x_in_0_1``: Newton-Raphson in Q2.29, three rounds."""
    sum64 = add(cast(a, Scalar.I64), const((1 << 31) - 1, Scalar.I64))
    # RoundingHalfSum of two numbers that are not negative
    half = b.let("half", cast(
        div(add(sum64, const(1, Scalar.I64)), const(2, Scalar.I64)), Scalar.I32
    ))
    x = b.local("x", add(
        i32(1515870810), rounding_doubling_high_mul(b, half, i32(-1010580540))
    ))
    for _ in range(3):
        product = rounding_doubling_high_mul(b, half, x)
        rest = b.let("rest", sub(i32(1 << 29), product))
        step = rounding_doubling_high_mul(b, x, rest)
        # A Q4.27 product back to Q2.29, saturating
        b.assign(x, add(x, b.let("step", _saturating_shl2(step))))
    return b.let("scale", _saturating_shl1(b, x))


def _saturating_shl2(value: Expr) -> Expr:
    limit = 1 << 29
    shifted = shl(value, i32(2))
    low = select(lt(value, i32(-limit)), i32(-(1 << 31)), shifted)
    return select(lt(i32(limit - 1), value), i32((1 << 31) - 1), low)


def _saturating_shl1(b: KernelBuilder, value: Expr) -> Expr:
    """Q2.29 x/2 read as Q0.31: gemmlowp ``Rescale<0>(ExactMulByPot<-1>(x))``."""
    limit = 1 << 30
    shifted = shl(value, i32(1))
    low = select(lt(value, i32(-limit)), i32(-(1 << 31)), shifted)
    return b.let("saturated", select(lt(i32(limit - 1), value), i32((1 << 31) - 1), low))


def exact_softmax(values: list[int], scale: float, beta: float = 1.0) -> list[int]:
    """One int8 row in exact Python integers; the specification of :func:`softmax`'s kernel."""
    table = exp_table(scale, beta)
    exps = [table[max(values) - v] for v in values]
    total = sum(exact_divide_by_pot(e, ACCUMULATION_BITS) for e in exps)
    headroom = 32 - total.bit_length()
    bits_over_unit = ACCUMULATION_BITS - headroom
    fraction = (total << headroom) - (1 << 31)
    half = (fraction + (1 << 31) - 1 + 1) // 2
    x = 1515870810 + exact_high_mul(half, -1010580540)
    for _ in range(3):
        rest = (1 << 29) - exact_high_mul(half, x)
        step = exact_high_mul(x, rest) << 2
        x += min(max(step, -(1 << 31)), (1 << 31) - 1)
    recip = min(max(x << 1, -(1 << 31)), (1 << 31) - 1)
    scaled = (exact_divide_by_pot(exact_high_mul(recip, e), bits_over_unit + 23) for e in exps)
    return [min(max(value - 128, -128), 127) for value in scaled]
