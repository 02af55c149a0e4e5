"""MEAN over any axes, int8 and float32."""

from __future__ import annotations

import math
from contextlib import ExitStack

from crtexport.fixedpoint import quantize_multiplier
from crtexport.ir.ops import Mean
from crtexport.ir.types import DType, Rounding
from crtexport.kernels.build import add, cast, clamp, const, div, f32, flat_index, i32, load
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.registry import Context, Lowered, Lowering, lowers
from crtexport.kernels.requantize import Multiplier, Requantizer
from crtexport.kernels.rules import FLOAT_OR_INT8, quantized_weights, same_types


def mean_multiplier(ratio: float, count: int) -> Multiplier:
    """scale_in / scale_out / count as a fixed-point pair (TFLite ``QuantizedMeanOrSum``): the
    division by ``count`` goes into the mantissa, truncated."""
    mantissa, shift = quantize_multiplier(ratio)
    moved = min(count.bit_length() - 1, 32, 31 + shift)
    return Multiplier(((mantissa << moved) // count,), (shift - moved,))


@lowers(Mean, same_types(*FLOAT_OR_INT8), quantized_weights)
def mean(context: Context) -> Lowered:
    """Sum over the axes, scaled by 1 / number of elements."""
    op = context.node.op
    if not isinstance(op, Mean):
        raise TypeError(op)
    lowering = Lowering("mean", context)
    b, shape = lowering.b, context.input(0).shape
    source = lowering.input(0, "input")
    count = math.prod(shape[a] for a in op.axes)
    kept = [a for a in range(len(shape)) if a not in op.axes]
    integer = context.input(0).dtype is DType.INT8
    requantizer = _requantizer(lowering, count) if integer else None
    output = lowering.output()
    work = Scalar.I32 if integer else Scalar.F32
    if 0 in shape:
        return lowering.finish()
    with ExitStack() as outer:
        at: dict[int, Expr] = {a: outer.enter_context(b.loop("o", shape[a])) for a in kept}
        out = flat_index([at[a] for a in kept], tuple(shape[a] for a in kept))
        total = b.local("total", const(0, work))
        with ExitStack() as inner:
            at |= {a: inner.enter_context(b.loop("r", shape[a])) for a in op.axes}
            index = flat_index([at[a] for a in range(len(shape))], shape)
            b.assign(total, add(total, cast(load(source, index), work)))
        if requantizer is None:
            b.store(output, out, div(total, f32(float(count))))
        else:
            zero_in = context.quant(context.input(0)).zero_point[0]
            zero_out = context.quant(context.output()).zero_point[0]
            centred = b.let("centred", add(total, i32(-zero_in * count)))
            scaled = b.let("mean", add(requantizer(centred, const(0)), i32(zero_out)))
            b.store(output, out, cast(clamp(scaled, -128, 127), Scalar.I8))
    return lowering.finish()


def _requantizer(lowering: Lowering, count: int) -> Requantizer:
    context = lowering.context
    ratio = (
        context.quant(context.input(0)).scale[0] / context.quant(context.output()).scale[0]
    )
    return Requantizer(lowering, mean_multiplier(ratio, count), Rounding.DOUBLE, 255 * count)
