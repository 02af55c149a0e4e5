"""Elementwise functions of one input: maps over elements, lookup tables, changes of scale.

A function from 8-bit integers to integers is a table of 256 values computed while exporting; a
function from int16 to int16 is TFLite's table of 513 values with linear interpolation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    i32,
    load,
    mul,
    shr,
    sub,
    wrap_add,
    wrap_sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics import lut8, lut16
from crtexport.lowering.numerics.lut8 import Table
from crtexport.lowering.numerics.requantize import Multiplier, Requantizer
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.support.fixedpoint import Rounding, quantize_multiplier

BYTES = (DType.INT8, DType.UINT8)
SCALED = (*BYTES, DType.INT16)

Function = Callable[[KernelBuilder, Expr], Expr]


def has_scales(context: Context) -> str | None:
    """Int8, uint8 and int16 tensors must carry one scale and one zero point, which is 0 for
    int16."""
    for tensor in (*context.node.inputs, *context.node.outputs):
        if tensor is None:
            continue
        type_ = context.graph.type(tensor)
        if type_.dtype not in SCALED:
            continue
        name = context.graph.tensors[tensor].name
        if type_.quant is None or not type_.quant.per_tensor:
            return f"{name!r} has {'none' if type_.quant is None else 'several'}"
        if type_.dtype is DType.INT16 and type_.quant.zero_point != (0,):
            return f"{name!r} has zero point {type_.quant.zero_point[0]}"
    return None


def element_map(context: Context, name: str, function: Function) -> Lowered:
    """output[i] = function(input[i])."""
    return prepared_map(context, name, lambda _: function)


def prepared_map(
    context: Context, name: str, prepare: Callable[[Lowering], Function]
) -> Lowered:
    """As :func:`element_map`, for a function that needs tables or multipliers of its own."""
    lowering = Lowering(name, context)
    source = lowering.input(0, "input")
    function = prepare(lowering)
    output = lowering.output()
    with lowering.b.loop("i", context.output().elements) as i:
        value = lowering.b.let("value", load(source, i))
        lowering.b.store(output, i, function(lowering.b, value))
    return lowering.finish()


def table_lookup(context: Context, name: str, table: Table) -> Lowered:
    """output[i] = table[input[i]] for 8-bit inputs."""
    low = context.input(0).dtype.limits[0]
    dtype = context.output().dtype

    def prepare(lowering: Lowering) -> Function:
        values = lowering.derived(
            "table", SCALAR_OF[dtype], np.array(table, dtype.numpy),
            f"the output for each input from {low} on",
        )
        return lambda _, value: load(values, sub(cast(value, Scalar.INDEX), const(low)))

    return prepared_map(context, name, prepare)


def through_table(context: Context, name: str, function: lut8.Real) -> Lowered:
    """Returns a function of 8-bit or int16 numbers by a table from float32, as TFLite
    ``LUTPopulate`` makes it."""
    source, target = context.input(0), context.output()
    if source.dtype in BYTES:
        return table_lookup(context, name, lut8.through_float(source, target, function))
    table = lut16.through_float(source, target, function)

    def prepare(lowering: Lowering) -> Function:
        interpolated = interpolation(lowering, "table", table)
        return lambda b, x: cast(interpolated(b, cast(x, Scalar.I32)), Scalar.I16)

    return prepared_map(context, name, prepare)


def rescaler(lowering: Lowering, ratio: float, bound: int) -> Callable[[Expr], Expr]:
    """Returns a function that emits ``MultiplyByQuantizedMultiplier`` of i32 numbers of magnitude
    at most ``bound``."""
    mantissa, shift = quantize_multiplier(ratio)
    requantizer = Requantizer(
        lowering, Multiplier((mantissa,), (shift,)), Rounding.DOUBLE, bound
    )
    return lambda value: requantizer(value, const(0))


def stored(b: KernelBuilder, value: Expr, zero_point: int, dtype: DType) -> Expr:
    """Returns an i32 plus the zero point, saturated to what ``dtype`` holds."""
    moved = b.let("moved", wrap_add(value, i32(zero_point)) if zero_point else value)
    low, high = dtype.limits
    return cast(moved if dtype is DType.INT32 else clamp(moved, low, high), SCALAR_OF[dtype])


def interpolation(lowering: Lowering, name: str, table: Table) -> Function:
    """Returns a function that emits TFLite's ``LUTLookup``, an i32: the value of a table of 513
    int16 numbers at an i32 within int16."""
    values = lowering.derived(
        name, Scalar.I16, np.array(table, np.int16),
        "the function at each multiple of 128 from -32768 to 32768; interpolated between",
    )
    return lambda b, value: _interpolated(b, values, value)


def _interpolated(b: KernelBuilder, values: Buffer, value: Expr) -> Expr:
    value = b.let("position", clamp(value, -(1 << 15), (1 << 15) - 1))
    index = b.let("index", cast(add(shr(value, i32(7)), i32(256)), Scalar.INDEX))
    base = b.let("base", cast(load(values, index), Scalar.I32))
    after = cast(load(values, add(index, const(1))), Scalar.I32)
    # The slope is an int16 in the reference, where it may wrap, as may the sum.
    slope = cast(cast(wrap_sub(after, base), Scalar.I16), Scalar.I32)
    rise = mul(b.let("slope", slope), and_(value, i32(0x7F)))
    total = add(base, shr(add(rise, i32(64)), i32(7)))
    return b.let("between", cast(cast(total, Scalar.I16), Scalar.I32))
