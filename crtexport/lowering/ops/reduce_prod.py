"""REDUCE_PROD: products that wrap, and products of quantized numbers, scaled at every step."""

from __future__ import annotations

import math

from crtexport.ir.ops import ReduceProd
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    and_,
    cast,
    clamp,
    const,
    eq,
    i32,
    load,
    min_,
    mul,
    shr,
    sub,
    wrap_mul,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.ops.reduce import (
    NUMBERS,
    SCALED,
    fold,
    folded_count,
    symmetric_words,
    walk_of,
    working_type,
)
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types
from crtexport.support.fixedpoint import quantize_multiplier

_BITS = 15  # of the multiplier that products are scaled by


def plain_bytes(context: Context) -> str | None:
    """Products of quantized numbers must be of int8 or int16."""
    quantized = context.input(0).quant is not None
    return "found uint8" if quantized and context.input(0).dtype is DType.UINT8 else None


def moderate_scales(context: Context) -> str | None:
    """One step of a product of quantized numbers may not grow it 16384 times."""
    if not _is_scaled(context) or 0 in context.input(0).shape:
        return None
    mantissa, shift = _multiplier(context)
    return f"found {mantissa / 2**31 * 2.0**shift:.4g} times" if shift >= _BITS else None


def _is_scaled(context: Context) -> bool:
    type_ = context.input(0)
    return type_.dtype in SCALED and type_.quant is not None


def _multiplier(context: Context) -> tuple[int, int]:
    """Returns the factor for each of n elements, the n-th root of scale_in**n / scale_out."""
    before, after = context.quant(context.input(0)), context.quant(context.output())
    root = math.pow(after.scale[0], 1.0 / folded_count(context))
    return quantize_multiplier(before.scale[0] / root)


@lowers(
    ReduceProd, same_types(*NUMBERS, DType.BOOL), plain_bytes, symmetric_words, moderate_scales
)
def reduce_prod(context: Context) -> Lowered:
    """Product over the axes: of quantized numbers saturated, of other integers modulo their range,
    of bool whether all are true."""
    dtype = context.input(0).dtype
    if _is_scaled(context):
        return _scaled_product(context)
    if dtype is DType.BOOL:
        return fold(context, "reduce_all", i32(1), min_)
    work = working_type(dtype)
    return fold(context, "reduce_prod", const(1, work), mul if work.is_float else wrap_mul)


def _scaled_product(context: Context) -> Lowered:
    """TFLite ``QuantizedReduceProd``."""
    lowering = Lowering("reduce_prod", context)
    b, walk, y = lowering.b, walk_of(context), context.output()
    source, output = lowering.input(0, "input"), lowering.output()
    zero, zero_out = (context.quant(t).zero_point[0] for t in (context.input(0), y))
    if 0 in context.input(0).shape:
        return lowering.finish()
    mantissa, shift = _multiplier(context)
    with walk.outer(b) as at:
        total = b.local("total", i32(0))
        with walk.inner(b) as inside:
            value = sub(cast(load(source, walk.source(at | inside)), Scalar.I32), i32(zero))
            value = b.let("value", value)
            first = and_(*(eq(r, const(0)) for r in inside.values())) if inside else None
            with b.if_(first):
                b.assign(total, value)
            if inside:
                with b.else_():
                    product = mul(cast(total, Scalar.I64), cast(value, Scalar.I64))
                    b.assign(total, _times(product, mantissa, shift))
        result = add(_times(cast(total, Scalar.I64), mantissa, shift), i32(zero_out))
        b.store(output, walk.target(at), cast(
            clamp(b.let("result", result), *y.dtype.limits), SCALAR_OF[y.dtype]
        ))
    return lowering.finish()


def _times(product: Expr, mantissa: int, shift: int) -> Expr:
    """i32: TFLite ``MultiplyByQuantizedMultiplier`` of an i64 below 2**47."""
    reduced = (mantissa + (1 << 15)) >> 16 if mantissa < 0x7FFF0000 else 0x7FFF
    places = _BITS - shift
    raised = add(mul(product, const(reduced, Scalar.I64)), const(1 << (places - 1), Scalar.I64))
    return cast(shr(raised, const(places, Scalar.I64)), Scalar.I32)
