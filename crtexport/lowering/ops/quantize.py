"""QUANTIZE and DEQUANTIZE."""

from __future__ import annotations

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Dequantize, Lookup, Quantize
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    div,
    f32,
    i32,
    load,
    mul,
    sub,
    wrap_sub,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics import lut8
from crtexport.lowering.numerics.elementwise_maps import (
    BYTES,
    SCALED,
    Function,
    element_map,
    prepared_map,
    rescaler,
    stored,
    table_lookup,
)
from crtexport.lowering.numerics.float_math import round_half_even, round_to_int
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers

INTEGERS = (*SCALED, DType.INT32)

QUANTIZATIONS: dict[DType, tuple[DType, ...]] = {
    DType.FLOAT32: SCALED,
    DType.INT8: INTEGERS,
    DType.UINT8: SCALED,
    DType.INT16: (DType.INT8, DType.INT16, DType.INT32),
    DType.INT32: (DType.INT8, DType.INT16),
}
"""Element types that each one can be quantized to."""


def quantize_types(context: Context) -> str | None:
    """Float32 and uint8 become int8, uint8 or int16; int8 becomes int8, uint8, int16 or int32;
    int16 becomes int8, int16 or int32; int32 becomes int8 or int16."""
    source, target = context.input(0).dtype, context.output().dtype
    if target in QUANTIZATIONS.get(source, ()):
        return None
    return f"found {source.value} to {target.value}"


def one_scale_each(context: Context) -> str | None:
    """Integer tensors must carry one scale and one zero point; between int16 tensors it is 0."""
    types = (context.input(0), context.output())
    for type_ in types:
        if type_.dtype in INTEGERS and (type_.quant is None or not type_.quant.per_tensor):
            return f"{type_} has {'none' if type_.quant is None else 'several'}"
    zeros = [t.quant.zero_point[0] for t in types if t.quant is not None]
    if all(t.dtype is DType.INT16 for t in types) and any(zeros):
        return f"found {zeros[0]} and {zeros[1]}"
    return None


@lowers(Quantize, quantize_types, one_scale_each)
def quantize(context: Context) -> Lowered:
    """round(x / scale) + zero point, clamped; halves away from zero, to even with the numerics of
    ONNX Runtime."""
    source, even = context.input(0).dtype, context.numerics is Numerics.ORT
    if source in BYTES:
        table = (lut8.requantize_as_floats if even else lut8.requantize)(
            context.input(0), context.output()
        )
        return table_lookup(context, "requantize", table)
    if source is not DType.FLOAT32:
        return prepared_map(context, "requantize", _requantization)
    target = context.output()
    quant = context.quant(target)
    low, high = target.dtype.limits
    zero = quant.zero_point[0]

    def function(b: KernelBuilder, value: Expr) -> Expr:
        # Clamped to where the result saturates anyway, so that the conversion stays in range.
        steps = b.let("steps", clamp(
            div(value, f32(quant.scale[0])), float(low - zero - 1), float(high - zero + 1)
        ))
        rounded = add((round_half_even if even else round_to_int)(b, steps), i32(zero))
        return cast(clamp(b.let("rounded", rounded), low, high), SCALAR_OF[target.dtype])

    return element_map(context, "quantize", function)


def _requantization(lowering: Lowering) -> Function:
    """Emits a wider integer under another scale, zero point or type."""
    context = lowering.context
    source, target = context.quant(context.input(0)), context.quant(context.output())
    narrow = context.input(0).dtype is DType.INT16
    rescale = rescaler(
        lowering, source.scale[0] / target.scale[0], 1 << 17 if narrow else 1 << 31
    )

    def function(b: KernelBuilder, value: Expr) -> Expr:
        centred = wrap_sub(cast(value, Scalar.I32), i32(source.zero_point[0]))
        scaled = rescale(b.let("centred", centred))
        return stored(b, scaled, target.zero_point[0], context.output().dtype)

    return function


def table_types(context: Context) -> str | None:
    """The input must be int8 or uint8, and the table int8 or uint8."""
    source, table = context.input(0).dtype, context.input(1).dtype
    return None if {source, table} <= set(BYTES) else f"found {source.value}, {table.value}"


@lowers(Lookup, table_types)
def lookup(context: Context) -> Lowered:
    """table[x - lowest]."""
    low = context.input(0).dtype.limits[0]

    def prepare(lowering: Lowering) -> Function:
        table = lowering.input(1, "table")
        return lambda _, value: load(table, sub(cast(value, Scalar.INDEX), const(low)))

    return prepared_map(context, "lookup", prepare)


def dequantize_types(context: Context) -> str | None:
    """The input must be int8, uint8, int16 or float16 and the output float32."""
    source, target = context.input(0).dtype, context.output().dtype
    if source in (*SCALED, DType.FLOAT16) and target is DType.FLOAT32:
        return None
    return f"found {source.value} to {target.value}"


@lowers(Dequantize, dequantize_types, one_scale_each)
def dequantize(context: Context) -> Lowered:
    """(x - zero point) * scale; float16 numbers as they are."""
    if context.input(0).dtype is DType.FLOAT16:
        return element_map(context, "dequantize", lambda _, x: cast(x, Scalar.F32))
    quant = context.quant(context.input(0))

    def function(_: KernelBuilder, value: Expr) -> Expr:
        steps = sub(cast(value, Scalar.I32), i32(quant.zero_point[0]))
        return mul(cast(steps, Scalar.F32), f32(quant.scale[0]))

    return element_map(context, "dequantize", function)
