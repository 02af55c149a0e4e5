"""SOFTMAX along the last axis: float32, 8-bit numbers in gemmlowp's fixed point (TFLite
``reference/softmax.h``), and int16 by tables. The exponentials of the 256 possible differences of
8-bit numbers are a table made while exporting; only the sum, its reciprocal and the products are
computed at run time. ONNX Runtime's 8-bit numbers have a table of floats instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Softmax
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    div,
    f32,
    flat_index,
    gt,
    i32,
    load,
    lt,
    max_,
    min_,
    mul,
    select,
    shl,
    shr,
    sub,
    wrap_add,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics import float_math, float_reference, lut8, lut16
from crtexport.lowering.numerics.elementwise_maps import BYTES, interpolation, rescaler
from crtexport.lowering.numerics.gemmlowp import normalized, one_over_one_plus_x
from crtexport.lowering.numerics.last_axis_rows import row_maximum, rows_of
from crtexport.lowering.numerics.requantize import (
    quantized_result,
    rounding_divide_by_pot,
    rounding_doubling_high_mul,
)
from crtexport.lowering.numerics.requantize_float import BEYOND
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.support.fixedpoint import exp_on_negative_values, quantize_multiplier, wrap32
from crtexport.support.fixedpoint import rounding_divide_by_pot as exact_divide_by_pot
from crtexport.support.fixedpoint import rounding_doubling_high_mul as exact_high_mul

SCALED_DIFF_BITS = 5  # integer bits of a scaled difference
ACCUMULATION_BITS = 12  # integer bits of the sum of exponentials
_MOST = {DType.INT8: 4095, DType.UINT8: 4095, DType.INT16: 65535}
"""Elements of rows whose sums surely fit 32 bits, by type of input."""
_TOLERANCE = 0.001
"""The relative distance of scales of int16 outputs from the usual ones: 1/65535 means 1/65536."""
_DOUBT = 2.0**-12
"""The most that two roundings change numbers below BEYOND."""
_RESERVE = 5.0
"""ONNX Runtime's sums of exponentials stay below e**-_RESERVE of the largest float."""
_LARGE = 512
"""A sum of so many largest exponentials makes all 8-bit results 0."""

RESULTS: dict[DType, tuple[DType, ...]] = {
    DType.FLOAT32: (DType.FLOAT32,),
    DType.INT8: (DType.INT8, DType.INT16),
    DType.UINT8: (DType.UINT8, DType.INT16),
    DType.INT16: (DType.INT16,),
}
"""Element types that the softmax of each one can be stored as."""


class Exponentials(Struct, frozen=True):
    """exp(beta*scale*d) for d = 0, -1, …, -255: ``table`` in Q0.31, 0 below ``radius``, where the
    reference leaves d out; ``scaled`` are the arguments in Q5.26, wrapped where they don't fit."""

    multiplier: tuple[int, int]
    radius: int
    table: tuple[int, ...]
    scaled: tuple[int, ...]

    @staticmethod
    def of(scale: float, beta: float) -> Exponentials:
        real = min(beta * scale * (1 << (31 - SCALED_DIFF_BITS)), (1 << 31) - 1.0)
        mantissa, shift = quantize_multiplier(real)
        left, right = max(shift, 0), max(-shift, 0)
        largest = ((1 << SCALED_DIFF_BITS) - 1) * (1 << (31 - SCALED_DIFF_BITS)) / 2.0**left
        radius = -math.floor(largest)
        # Scales so small that multipliers shift right are beyond what the reference takes.
        scaled = tuple(
            exact_divide_by_pot(exact_high_mul(wrap32(d << left), mantissa), right)
            for d in range(0, -256, -1)
        )
        table = tuple(
            exp_on_negative_values(x, SCALED_DIFF_BITS) if -i >= radius else 0
            for i, x in enumerate(scaled)
        )
        return Exponentials((mantissa, shift), radius, table, scaled)


def softmax_types(context: Context) -> str | None:
    """Float32 gives float32, int8 gives int8 or int16, uint8 gives uint8 or int16, int16 gives
    int16."""
    source, target = context.input(0).dtype, context.output().dtype
    if target in RESULTS.get(source, ()):
        return None
    return f"found {source.value} to {target.value}"


def softmax_output(context: Context) -> str | None:
    """Scale and zero point of the output must be 1/256 and -128 for int8, 1/256 and 0 for uint8,
    1/65536 and -32768 for int16 from 8-bit numbers, 1/32768 and 0 for int16 from int16; scales of
    int16 may be 0.1 % off, as with the reference. ONNX Runtime's of 8 bits may be any."""
    output = context.output()
    if output.dtype is DType.FLOAT32:
        return None
    if _in_floats(context):
        one = output.quant is not None and output.quant.per_tensor
        return None if one else "found none, or several"
    expected = {DType.INT8: (1 / 256, -128), DType.UINT8: (1 / 256, 0)}.get(output.dtype)
    if expected is None:
        narrow = context.input(0).dtype in BYTES
        expected = (1 / 65536, -(1 << 15)) if narrow else (1 / 32768, 0)
    if output.quant is None:
        return "found none"
    (wanted, zero), scales = expected, output.quant.scale
    off = _TOLERANCE * wanted if output.dtype is DType.INT16 else 0.0
    near = len(scales) == 1 and abs(scales[0] - wanted) <= off
    if not near or output.quant.zero_point != (zero,):
        return f"found {output.quant.scale[0]} and {output.quant.zero_point[0]}"
    return None


def softmax_input(context: Context) -> str | None:
    """An integer input must carry one scale and one zero point, which is 0 for int16."""
    source = context.input(0)
    if source.dtype is DType.FLOAT32:
        return None
    if source.quant is None or not source.quant.per_tensor:
        return "found none" if source.quant is None else "found several"
    zero = source.quant.zero_point[0]
    return f"found {zero}" if source.dtype is DType.INT16 and zero else None


def softmax_rows(context: Context) -> str | None:
    """Rows of 8-bit numbers that become int16 must have at most 4095 elements, rows of int16 at
    most 65535, so that sums fit 32 bits."""
    _, depth = rows_of(context)
    most = _MOST.get(context.input(0).dtype) if context.output().dtype is DType.INT16 else None
    return f"found {depth}" if most is not None and depth > most else None


def _in_floats(context: Context) -> bool:
    """Returns whether 8-bit numbers become such ones as ONNX Runtime computes them."""
    return context.numerics is Numerics.ORT and context.output().dtype in BYTES


@lowers(Softmax, softmax_types, softmax_input, softmax_output, softmax_rows)
def softmax(context: Context) -> Lowered:
    """exp(beta * (x - max)) over its sum, row by row."""
    op = context.op(Softmax)
    lowering = Lowering("softmax", context)
    source = lowering.input(0, "input")
    match context.input(0).dtype:
        case DType.FLOAT32:
            _float_rows(lowering, source, op.beta)
        case DType.INT16:
            _wide_rows(lowering, source, op.beta)
        case _ if _in_floats(context):
            _rows_by_floats(lowering, source, op.beta)
        case _:
            scale = context.quant(context.input(0)).scale[0]
            table = shortened_table(Exponentials.of(scale, op.beta).table)
            exps = lowering.derived(
                "exps", Scalar.I32, table,
                "exp(-beta * scale * i) in Q31, gemmlowp's exp_on_negative_values; 0 of larger i, "
                "where it is too small to count",
            )
            _integer_rows(lowering, source, exps)
    return lowering.finish()


def shortened_table(exponentials: Sequence[int]) -> npt.NDArray[np.int32]:
    """Returns exponentials in Q31 up to the last one that counts, and then a 0 instead of all
    others. Those are rounded to 0 in the sum, in Q12.19, and so is their share of it: the sum is at
    least 1, so that a share has 8 or 16 bits of less than 2**-20."""
    table = np.array(exponentials, np.int32)
    count = int(np.flatnonzero(table >= 1 << ACCUMULATION_BITS - 1)[-1]) + 1
    return np.append(table[:count], np.int32(0)) if count < len(table) else table


def _float_rows(lowering: Lowering, source: Buffer, beta: float) -> None:
    b, shape, output = lowering.b, rows_of(lowering.context), lowering.output()
    with b.loop("row", shape[0]) as row:
        largest = row_maximum(b, source, row, shape)
        total = b.local("total", f32(0.0))
        with b.loop("i", shape[1]) as i:
            at = flat_index([row, i], shape)
            grown = float_math.exp(b, mul(sub(load(source, at), largest), f32(beta)))
            b.store(output, at, grown)
            b.assign(total, add(total, grown))
        with b.loop("i", shape[1]) as i:
            at = flat_index([row, i], shape)
            b.store(output, at, div(load(output, at), total))


def _exponentials_of_row(
    b: KernelBuilder, source: Buffer, table: Buffer, row: Expr, shape: tuple[int, int]
) -> Callable[[Expr], Expr]:
    """Emits the search for the largest element of a row of 8-bit numbers. Returns a function that
    emits, for index i, a load from ``table`` at the difference of the largest and element i; the
    last element of the table stands for all larger differences, too."""
    largest = row_maximum(b, source, row, shape)

    def exponential(i: Expr) -> Expr:
        value = cast(load(source, flat_index([row, i], shape)), Scalar.I32)
        return load(table, b.let("difference", clamp(
            cast(sub(largest, value), Scalar.INDEX), 0, table.size - 1
        )))

    return exponential


def _integer_rows(lowering: Lowering, source: Buffer, exps: Buffer) -> None:
    b, shape, output = lowering.b, rows_of(lowering.context), lowering.output()
    dtype = lowering.context.output().dtype
    low, high = dtype.limits
    with b.loop("row", shape[0]) as row:
        exponential = _exponentials_of_row(b, source, exps, row, shape)
        total = b.local("total", i32(0))
        with b.loop("i", shape[1]) as i:
            grown_by = b.let("exp", exponential(i))
            rescaled = rounding_divide_by_pot(b, grown_by, i32(ACCUMULATION_BITS))
            grown: Expr = add(total, rescaled)
            if shape[1] > _MOST[DType.INT8]:
                grown = min_(grown, i32(1 << 30))
            b.assign(total, grown)
        scale, bits_over_unit = _reciprocal(b, total)
        exponent = b.let("exponent", add(bits_over_unit, i32(31 - 8 * dtype.itemsize)))
        if shape[1] >= _LARGE and dtype is not DType.INT16:
            # More than 31 bits to shift leave nothing; runtimes shift all the same.
            scale = b.let("scale", select(gt(exponent, i32(31)), i32(0), scale))
            exponent = b.let("exponent", min_(exponent, i32(31)))
        with b.loop("i", shape[1]) as i:
            product = rounding_doubling_high_mul(b, b.let("exp", exponential(i)), scale)
            unsaturated = rounding_divide_by_pot(b, product, exponent)
            shifted = add(b.let("unsaturated", unsaturated), i32(low))
            b.store(output, flat_index([row, i], shape), cast(
                clamp(shifted, low, high), SCALAR_OF[dtype]
            ))


def float_exponentials(scale: float, beta: float, depth: int) -> npt.NDArray[np.float32]:
    """exp(-beta * scale * i) for i = 0 … 255, as ONNX Runtime has them: times about the most of
    which ``depth`` can be added up, so that small ones count."""
    factor = float(np.float32(scale)) * beta
    most = np.finfo(np.float32).max / np.float32(depth)
    shift = max(0.0, float(np.float32(np.log(np.float64(most)))) - _RESERVE) / factor
    exps: npt.NDArray[np.float32] = np.exp((shift - np.arange(256)) * factor).astype(np.float32)
    return exps


def _rows_by_floats(lowering: Lowering, source: Buffer, beta: float) -> None:
    """8-bit numbers: float32 sums, in order, of which ONNX Runtime then makes doubles. So halves
    are true ones; all else is what floats give."""
    b, shape, context = lowering.b, rows_of(lowering.context), lowering.context
    quant, dtype = context.quant(context.output()), context.output().dtype
    scale = context.quant(context.input(0)).scale[0]
    table = lowering.derived(
        "exps", Scalar.F32, float_exponentials(scale, beta, shape[1]),
        "exp(-beta * scale * i), i = 0 ... 255, all of them times the same",
    )
    steps = float(np.floor(np.float32(1) / np.float32(quant.scale[0])))
    output = lowering.output()
    with b.loop("row", shape[0]) as row:
        exponential = _exponentials_of_row(b, source, table, row, shape)
        total = b.local("total", f32(0.0))
        with b.loop("i", shape[1]) as i:
            b.assign(total, add(total, exponential(i)))
        factor = b.let("factor", div(f32(steps), total))
        with b.loop("i", shape[1]) as i:
            grown = b.let("exp", exponential(i))
            whole = _share(b, grown, factor, (grown, total, steps))
            b.store(output, flat_index([row, i], shape), quantized_result(
                whole, quant.zero_point[0], dtype.limits, SCALAR_OF[dtype]
            ))


def _share(
    b: KernelBuilder, grown: Expr, factor: Expr, exact: tuple[Expr, Expr, float]
) -> Expr:
    """i32: ``grown`` times ``factor`` to the nearest, halves to even; next to a half, of the
    ``exact`` numbers: the first, divided by the second, times the third."""
    part = b.let("part", clamp(mul(grown, factor), 0.0, BEYOND))
    whole = b.local("whole", float_math.round_half_even(b, part))
    away = sub(part, cast(whole, Scalar.F32))
    with b.if_(gt(max_(away, sub(f32(0.0), away)), f32(0.5 - _DOUBT))):
        b.comment("next to a half: exactly, which products of doubles are")
        below = b.let("below", cast(sub(part, f32(0.25)), Scalar.I32))
        numerator = mul(cast(exact[0], Scalar.F64), const(exact[2], Scalar.F64))
        half = add(cast(below, Scalar.F64), const(0.5, Scalar.F64))
        middle = b.let("middle", mul(cast(exact[1], Scalar.F64), half))
        product = b.let("product", numerator)
        even = add(below, and_(below, i32(1)))
        up = select(gt(product, middle), add(below, i32(1)), even)
        b.assign(whole, select(lt(product, middle), below, up))
    return whole


def _reciprocal(b: KernelBuilder, total: Expr) -> tuple[Expr, Expr]:
    """gemmlowp ``GetReciprocal``: (1 / total in Q0.31 after normalising, bits over unit)."""
    b.comment(f"1 / total, a sum in Q{ACCUMULATION_BITS}.{31 - ACCUMULATION_BITS}: GetReciprocal")
    normal, zeros = normalized(b, total)
    # ``normal`` has its leading one at bit 30, so the total had ``zeros`` + 1 leading zeros.
    fraction = b.let("fraction", shl(sub(normal, i32(1 << 30)), i32(1)))
    scale = one_over_one_plus_x(b, fraction)
    return scale, sub(i32(ACCUMULATION_BITS), add(zeros, i32(1)))


_EXP_RANGE, _STEPS = 10.0, 65535  # of the int16 table of exponentials; steps between int16 limits


def _wide_rows(lowering: Lowering, source: Buffer, beta: float) -> None:
    """int16: both functions are tables with straight lines between their values."""
    b, shape = lowering.b, rows_of(lowering.context)
    (steps,) = lut8.scales(lowering.context.numerics, lowering.context.input(0))
    real_beta = float(steps * np.float32(beta))
    rescale = rescaler(lowering, real_beta / (_EXP_RANGE / _STEPS), _STEPS)
    # In TensorFlow Lite Micro these tables are made in float32.
    real = np.float32 if lowering.context.numerics is Numerics.TFLM else np.float64
    exp = float_reference.exp if real is np.float32 else float_reference.precise_exp
    exponential = interpolation(lowering, "exps", lut16.populate(
        real, (_EXP_RANGE / _STEPS, (1 << 15) - 1), (2.0 / _STEPS, 0), exp
    ))
    inverse = interpolation(lowering, "inverses", lut16.populate(
        real, (1.0 / _STEPS, -(1 << 15)), (2.0 / _STEPS, 0),
        lambda x: float(real(1.0) / (real(1.0) + real(x))),
    ))
    output = lowering.output()
    with b.loop("row", shape[0]) as row:
        largest = row_maximum(b, source, row, shape)
        total = b.local("total", i32(0))
        with b.loop("i", shape[1]) as i:
            at = flat_index([row, i], shape)
            difference = sub(cast(load(source, at), Scalar.I32), largest)
            scaled = rescale(b.let("difference", difference))
            grown = exponential(b, b.let("moved", wrap_add(scaled, i32((1 << 15) - 1))))
            b.store(output, at, cast(grown, Scalar.I16))
            b.assign(total, add(total, grown))
        normal, zeros = normalized(b, total)
        # The sum as a 16-bit fraction of its highest bit, centred for the table
        nudged = add(cast(normal, Scalar.I64), const(1 << 13, Scalar.I64))
        fraction = cast(shr(nudged, const(14, Scalar.I64)), Scalar.I32)
        scale = inverse(b, b.let("centred", sub(fraction, i32((1 << 15) + (1 << 16)))))
        right = b.let("right", sub(i32(30), zeros))
        half = b.let("half", shl(i32(1), sub(right, i32(1))))
        with b.loop("i", shape[1]) as i:
            at = flat_index([row, i], shape)
            product = b.let("product", mul(cast(load(output, at), Scalar.I32), scale))
            result = b.let("result", shr(add(product, half), right))
            b.store(output, at, cast(clamp(result, 0, (1 << 15) - 1), Scalar.I16))
