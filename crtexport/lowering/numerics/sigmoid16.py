"""LOGISTIC and TANH of int16 numbers: linear interpolation in one table of 256 values
(``integer_ops/logistic.h``, ``tanh.h``), since tanh(x) = 2 * logistic(2 * x) - 1."""

from __future__ import annotations

import math

import numpy as np

from crtexport.ir.ops import Tanh
from crtexport.ir.types import DType, TensorType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    cast,
    clamp,
    const,
    ge,
    i32,
    load,
    lt,
    mul,
    select,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics import lut16
from crtexport.lowering.numerics.elementwise_maps import Function
from crtexport.lowering.registry import Context, Lowering

_LOG2_OF_UNIT = 12  # an argument of 1 is 2**12 before the table's scale, 3 * 2**12 in it
_LARGEST_MULTIPLIER = 65535  # int16 times more than this overflows


def logistic_output(context: Context) -> str | None:
    """The output's scale must be 1/256 for 8-bit numbers and 1/32768 for int16."""
    return _output(context, {DType.INT8: 1 / 256, DType.UINT8: 1 / 256, DType.INT16: 1 / 32768})


def tanh_output(context: Context) -> str | None:
    """The output's scale must be 1/32768 for int16."""
    return _output(context, {DType.INT16: 1 / 32768})


def _output(context: Context, scales: dict[DType, float]) -> str | None:
    output = context.output()
    expected = scales.get(output.dtype)
    if expected is None or output.quant is None or output.quant.scale == (expected,):
        return None
    return f"found {output.quant.scale[0]}"


def input_scale(context: Context) -> str | None:
    """The input's scale must be below 5.3 for int16."""
    source = context.input(0)
    if source.dtype is not DType.INT16 or source.quant is None:
        return None
    multiplier, _ = _multiplier(
        source, is_tanh=isinstance(context.node.op, Tanh)
    )
    return f"found {source.quant.scale[0]}" if multiplier > _LARGEST_MULTIPLIER else None


def _multiplier(source: TensorType, *, is_tanh: bool) -> tuple[int, int]:
    """(m, right shift) from the input to multiples of 1 / (3 * 2**12), as TFLite prepares it."""
    scale = source.quant.scale[0] if source.quant is not None else 1.0
    exponent = round(math.log2(scale))
    left = _LOG2_OF_UNIT + exponent
    # The exponents that the reference's check takes for powers of two, its tolerance included
    power = abs(math.log2(scale) - exponent) < 1e-3
    if power and left in ((0, 1) if is_tanh else (0,)):
        return 3 << left, 0
    real, shift = scale * 3.0 * (1 << _LOG2_OF_UNIT), 0
    while real <= 32767.0 / 2.0 and shift <= 30:
        shift += 1
        real *= 2.0
    return int(real), shift


def logistic(lowering: Lowering) -> Function:
    """Emits i16: 1 / (1 + exp(-x)) in 1/32768."""
    scaling = _multiplier(lowering.context.input(0), is_tanh=False)
    return logistic_in(sigmoid_table(lowering), *scaling)


def tanh(lowering: Lowering) -> Function:
    """Emits i16: the hyperbolic tangent in 1/32768."""
    scaling = _multiplier(lowering.context.input(0), is_tanh=True)
    return tanh_in(sigmoid_table(lowering), *scaling)


def sigmoid_table(lowering: Lowering) -> Buffer:
    """Returns the table that :func:`logistic_in` and :func:`tanh_in` read."""
    return lowering.derived(
        "sigmoid", Scalar.U16, np.array(lut16.sigmoid(), np.uint16),
        "sigmoid(i / 24) in 0.16 fixed point, i = 0 ... 255",
    )


def logistic_in(table: Buffer, multiplier: int, shift: int) -> Function:
    """:func:`logistic` of i16 or i32 numbers that times ``multiplier``, shifted right by ``shift``,
    are multiples of 1 / (3 * 2**12)."""
    fine = _Position(table, multiplier, shift)

    def function(b: KernelBuilder, value: Expr) -> Expr:
        position, size = fine(b, value)
        line = fine.line(b, size, 9, 0x7FFF << 10)
        upper = add(line, i32(1 << 9))
        lower = sub(i32((1 << 25) + (1 << 9) - 1), line)
        result = b.let("result", select(ge(position, i32(0)), upper, lower))
        return cast(shr(result, i32(10)), Scalar.I16)

    return function


def tanh_in(table: Buffer, multiplier: int, shift: int) -> Function:
    """:func:`tanh` of such numbers, see :func:`logistic_in`."""
    fine = _Position(table, multiplier, shift)

    def function(b: KernelBuilder, value: Expr) -> Expr:
        position, size = fine(b, value)
        line = fine.line(b, size, 8, 0xFFFF << 8)
        upper = add(line, i32((1 << 7) - (1 << 23)))
        lower = sub(i32((1 << 23) + (1 << 7) - 1), line)
        result = b.let("result", select(ge(position, i32(0)), upper, lower))
        return cast(shr(result, i32(8)), Scalar.I16)

    return function


class _Position:
    """Position of an input in the table."""

    def __init__(self, table: Buffer, multiplier: int, shift: int) -> None:
        self.table, self.multiplier, self.shift = table, multiplier, shift

    def __call__(self, b: KernelBuilder, value: Expr) -> tuple[Expr, Expr]:
        """Returns i32: (the position, its magnitude)"""
        half = i32((1 << self.shift) >> 1)
        scaled = add(mul(cast(value, Scalar.I32), i32(self.multiplier)), half)
        position = b.let("position", shr(scaled, i32(self.shift)))
        size = select(lt(position, i32(0)), sub(i32(0), position), position)
        return position, b.let("size", size)

    def line(self, b: KernelBuilder, size: Expr, bits: int, saturated: int) -> Expr:
        """i32: the table at ``size`` / 2**bits, times 2**bits."""
        step = b.let("step", shr(size, i32(bits)))
        index = b.let("index", cast(clamp(step, 0, 254), Scalar.INDEX))
        low = b.let("low", cast(load(self.table, index), Scalar.I32))
        high = cast(load(self.table, add(index, const(1))), Scalar.I32)
        rise = mul(and_(size, i32((1 << bits) - 1)), sub(high, low))
        between = b.let("between", add(shl(low, i32(bits)), rise))
        return b.let("line", select(ge(step, i32(255)), i32(saturated), between))
