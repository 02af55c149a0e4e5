"""Scaling sums to int8 as ONNX Runtime does in float32.

Constants of one or two products of integers are proven to give each possible sum its result
(:mod:`crtexport.lowering.numerics.result_steps`), which takes fewer instructions than TFLite's
rounding. Where there are none, hardly ever, another way remains:

``(sum * m + c) >> 32`` with m = scale * 2**32 and a c of bias, half and zero point is the result,
unless the sum scaled is so near a half that rounding to float32, or m, may bring it to the other
side. c is so much more that the lower word is small in these cases alone, about one in ten
thousand: there the same is computed in float32. That the rest is exact follows from bounds of both
errors: a result of magnitude r has an error of r / 2**23 by two roundings to float32, and one of
r / scale / 2**33 by that of m. Processors with floats compute all in float32 instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.kir.builder import (
    add,
    call,
    cast,
    clamp,
    const,
    i32,
    lt,
    mul,
    or_,
    shl,
    shr,
    wrap_add,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize_float import BEYOND, in_floats
from crtexport.lowering.numerics.result_steps import TwoProducts
from crtexport.lowering.registry import Context
from crtexport.schedules.scalar.requantize_int8 import (
    ChannelConstants,
    Int8Epilogue,
    RequantMethod,
    ScalarEpilogue,
)
from crtexport.support.fixedpoint import Ints, scale_in_float32

_WORD = 32
_MOST_DOUBT = 26
"""Bits of the largest lower word with which results are in doubt: one in 64."""


def constants_of(
    sums: IntegerSums, zero_point: int, limits: tuple[int, int]
) -> tuple[npt.NDArray[np.int32], int] | None:
    """Returns channels x (lower word of c, upper word, m, bias, encoding of the scale), and the
    bits of the lower words in doubt; None if this is no way. ``zero_point`` and ``limits`` are the
    output's."""
    count, last = len(sums.folded), len(sums.multiplier.mantissas) - 1
    reach = sums.reach.tolist()
    # Results from there on saturate.
    most = max(abs(limit - zero_point) for limit in limits) + 1
    reals = sums.multiplier.reals.tolist()
    scales = [reals[min(channel, last)] for channel in range(count)]
    used = [scale for scale, far in zip(scales, reach, strict=True) if far]
    if any(not 2.0**-24 <= scale < 0.5 for scale in used):
        return None
    error = max((most * (2.0 ** (_WORD - 23) + 0.5 / scale) for scale in used), default=1)
    bits = math.ceil(math.log2(error + 1)) + 1
    if bits > _MOST_DOUBT:
        return None
    rows = []
    for scale, bias, far in zip(scales, sums.folded.tolist(), reach, strict=True):
        if not far:
            # No weights: one result, whatever bias and scale are.
            result = int(scale_in_float32(np.array(bias, np.int64), scale)) + zero_point
            known = min(max(result, limits[0]), limits[1])
            rows.append((1 << _WORD - 1, known, 0, 0, 0))
            continue
        if abs(bias) + far >= 1 << 31:
            return None
        factor = round(math.ldexp(scale, _WORD))
        start = bias * factor + (1 << _WORD - 1) + (1 << bits - 1) + (zero_point << _WORD)
        encoded = int(np.float32(scale).view(np.int32))
        rows.append((start & 0xFFFFFFFF, start >> _WORD, factor, bias, encoded))
    table = np.array(rows, np.int64).reshape(count, 5)
    return table.astype(np.uint32).view(np.int32), bits


def epilogue_of(
    context: Context, sums: IntegerSums, activation: Activation, method: RequantMethod,
    lifted: Ints | None = None,
) -> Int8Epilogue | None:
    """Returns the cheapest epilogue, None if these instructions can't scale the sums. ``lifted``:
    how much more than their products' sums those of each channel are."""
    zero_point = context.quant(context.output()).zero_point[0]
    limits = activation_range(activation, context.output())
    found = TwoProducts.of(sums, zero_point, limits)
    if found is not None and lifted is not None:
        found = found.lifted(lifted, sums.reach)
    if found is not None:
        return StepsEpilogue(found, limits, method)
    if lifted is not None:
        sums = replace(sums, folded=sums.folded - lifted)
    if method is RequantMethod.FPU:
        return RealEpilogue(context, sums, activation)
    return FloatEpilogue.in_one_product(context, sums, activation, method)


class StepsEpilogue(Int8Epilogue):
    """int8 results by products that have steps at the same sums."""

    def __init__(
        self, steps: TwoProducts, limits: tuple[int, int], method: RequantMethod
    ) -> None:
        constants = steps.constants if steps.shift is None else steps.constants[:, :2]
        ScalarEpilogue.__init__(self, constants, method, steps.places)
        self._found, self._range = steps, limits

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        return (
            ("offset", f"addend (bias, half and zero point, by scale / 2**{self.places})"),
            ("factor", "factor"), ("factor2", "second factor"),
        )

    def begun_in_pairs(self, sums: IntegerSums, block: int) -> Int8Epilogue | None:
        del sums
        # An odd channel's part of 256 * odd + even is moved by as many places as there are.
        return self._in_blocks(self._constants, block, odd=True) if self.places == 8 else None

    def named(self, values: Sequence[Expr]) -> ChannelConstants:
        offset, factor, *more = values
        return ChannelConstants(offset, factor, i32(0), tuple(more))

    def result(self, total: Expr, channel: ChannelConstants) -> Expr:
        return self.made(total, (channel.bias, channel.mantissa, *channel.more))

    def made(self, total: Expr, values: Sequence[Expr]) -> Expr:
        high = self.b.let("high", self._upper(total, values[1]))
        if self._found.shift is not None:  # which is part of an instruction that saturates
            return cast(clamp(shr(high, i32(self._found.shift)), *self._range), Scalar.I8)
        if not self._found.rounded:
            scaled = self._upper(high, values[2])
        elif self.method in (RequantMethod.DSP, RequantMethod.FPU):
            scaled = call("arm_smmulr", high, values[2], type_=Scalar.I32)
        else:
            scaled = self._upper(high, values[2], 1 << _WORD - 1)
        return cast(clamp(self.b.let("scaled", scaled), *self._range), Scalar.I8)

    def _upper(self, a: Expr, b: Expr, half: int = 0) -> Expr:
        """Returns the upper word of a product, to which ``half`` is added; b is not negative."""
        if self.method is RequantMethod.MUL32_ONLY:
            return self._product_of_pieces(a, b, half >> 16)
        product = mul(cast(a, Scalar.I64), cast(b, Scalar.I64))
        if half:
            product = add(product, const(half, Scalar.I64))
        return cast(shr(product, const(_WORD, Scalar.I64)), Scalar.I32)


class FloatEpilogue(Int8Epilogue):
    """int8 results of sums that begin with 0."""

    def __init__(
        self, context: Context, constants: npt.NDArray[np.int32], bits: int,
        activation: Activation, method: RequantMethod,
    ) -> None:
        ScalarEpilogue.__init__(self, constants, method, 0)
        self._zero = context.quant(context.output()).zero_point[0]
        self._range = activation_range(activation, context.output())
        self._bits = bits

    @staticmethod
    def in_one_product(
        context: Context, sums: IntegerSums, activation: Activation, method: RequantMethod
    ) -> FloatEpilogue | None:
        """Returns the epilogue; None if these instructions can't scale the sums."""
        zero_point = context.quant(context.output()).zero_point[0]
        found = constants_of(sums, zero_point, activation_range(activation, context.output()))
        return None if found is None else FloatEpilogue(context, *found, activation, method)

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        return (
            ("low", "lower word of the addend (scaled bias, half and zero point)"),
            ("high", "its upper word"), ("multiplier", "scale * 2**32"), ("bias", "bias"),
            ("scale", "encoding of the scale"),
        )

    def start(self, _values: Sequence[Expr]) -> Expr:
        return i32(0)

    def channel(self, number: Expr) -> ChannelConstants:
        values = self.values(number)
        return ChannelConstants(i32(0), values[2], values[4], (values[0], values[1], values[3]))

    def made(self, accumulator: Expr, values: Sequence[Expr]) -> Expr:
        low, high, factor, bias, scale = values
        b = self.b
        addend = or_(
            shl(cast(high, Scalar.I64), const(_WORD, Scalar.I64)),
            cast(cast(low, Scalar.U32), Scalar.I64),
        )
        product = mul(cast(accumulator, Scalar.I64), cast(factor, Scalar.I64))
        total = b.let("total", wrap_add(product, b.let("addend", addend)))
        scaled = b.local("scaled", cast(shr(total, const(_WORD, Scalar.I64)), Scalar.I32))
        with b.if_(lt(cast(total, Scalar.U32), const(1 << self._bits, Scalar.U32))):
            real = call("f32_from_bits", scale, type_=Scalar.F32)
            b.assign(scaled, add(in_floats(b, wrap_add(accumulator, bias), real), i32(self._zero)))
        return cast(clamp(scaled, *self._range), Scalar.I8)

    def result(self, total: Expr, channel: ChannelConstants) -> Expr:
        low, high, bias = channel.more
        return self.made(total, (low, high, channel.mantissa, bias, channel.power))


class RealEpilogue(Int8Epilogue):
    """The same in floats, without looking for doubt: where there are instructions for them."""

    def __init__(self, context: Context, sums: IntegerSums, activation: Activation) -> None:
        scales = sums.multiplier.reals
        encoded = np.broadcast_to(scales.astype(np.float32).view(np.int32), len(sums.folded))
        biases = (sums.folded & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        constants = np.column_stack([biases, encoded])
        ScalarEpilogue.__init__(self, constants, RequantMethod.FPU, 0)
        self._zero = context.quant(context.output()).zero_point[0]
        self._range = activation_range(activation, context.output())
        self._small = sums.bound * float(scales.max(initial=0.0)) < 1 << 22

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        return ("bias", "bias"), ("scale", "encoding of the scale")

    def channel(self, number: Expr) -> ChannelConstants:
        bias, scale = self.values(number)
        return ChannelConstants(bias, scale, scale)

    def made(self, total: Expr, values: Sequence[Expr]) -> Expr:
        real = call("f32_from_bits", values[1], type_=Scalar.F32)
        product = self.b.let("real", mul(cast(total, Scalar.F32), real))
        if not self._small:
            product = self.b.let("near", clamp(product, -BEYOND, BEYOND))
        rounded = call("arm_vcvtr", product, type_=Scalar.I32)
        scaled = self.b.let("scaled", add(rounded, i32(self._zero)))
        return cast(clamp(scaled, *self._range), Scalar.I8)

    def result(self, total: Expr, channel: ChannelConstants) -> Expr:
        return self.made(total, (channel.bias, channel.mantissa))
