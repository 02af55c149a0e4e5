"""Arithmetic of two quantized numbers: TFLite's reference ADD, SUB (``add.h``, ``sub.h``), MUL and
SQUARED_DIFFERENCE, for int8, uint8 and int16."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Activation, Add, Mul, Sub
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType, TensorType
from crtexport.kir.builder import (
    add,
    call,
    cast,
    clamp,
    const,
    f32,
    i32,
    load,
    mul,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.byte_pair_linear import (
    BytePairRows,
    FloatTerms,
    Terms,
    linear,
    rows,
)
from crtexport.lowering.numerics.elementwise_maps import BYTES
from crtexport.lowering.numerics.float_math import round_half_even
from crtexport.lowering.numerics.requantize import (
    MOST_SHIFT,
    Multiplier,
    Requantizer,
    quantized_result,
    rounding_divide_by_pot,
)
from crtexport.lowering.numerics.requantize_float import BEYOND
from crtexport.lowering.numerics.result_steps import ProductSteps, TwoProducts
from crtexport.lowering.numerics.two_products import by_two_products
from crtexport.lowering.registry import SCALAR_OF, Context, Lowering
from crtexport.support.fixedpoint import Rounding, quantize_multiplier, shifts_between

SCALED = (DType.INT8, DType.UINT8, DType.INT16)
"""Element types that stand for real numbers."""

SUM_SHIFT = {DType.INT8: 20, DType.UINT8: 20, DType.INT16: 15}
"""The headroom that operands of a sum are raised by."""

_PRODUCT_PLACES = 13
"""Products of numbers of 8 bits can be moved so far."""

SQUARES_SHIFT = {DType.INT8: 7, DType.INT16: 0}
"""The same for a squared difference, whose square must stay an i32."""


def scaled_each(context: Context) -> str | None:
    """Int8, uint8 and int16 tensors must carry one scale and zero point each."""
    for name, type_ in _scaled_tensors(context):
        if type_.quant is None or not type_.quant.per_tensor:
            return f"{name!r} has none"
    return None


def one_scale_each(context: Context) -> str | None:
    """Int8, uint8 and int16 tensors must carry one scale and zero point each; those of int16
    have zero point 0."""
    zeros = (
        type_.quant.zero_point[0] for _, type_ in _scaled_tensors(context)
        if type_.dtype is DType.INT16 and type_.quant is not None
    )
    found = next((zero for zero in zeros if zero), None)
    return scaled_each(context) or (None if found is None else f"found {found}")


def _scaled_tensors(context: Context) -> Iterator[tuple[str, TensorType]]:
    for tensor in (*context.node.inputs, *context.node.outputs):
        if tensor is not None and context.graph.type(tensor).dtype in SCALED:
            yield context.graph.tensors[tensor].name, context.graph.type(tensor)


def same_scales(context: Context) -> str | None:
    """Inputs and output must have the same scale and zero point."""
    tensors = (*context.node.inputs, *context.node.outputs)
    types = [context.graph.type(tensor) for tensor in tensors if tensor is not None]
    quants = {type_.quant for type_ in types if type_.dtype in SCALED}
    return f"found {len(quants)} different ones" if len(quants) > 1 else None


def positive_clamp(context: Context) -> str | None:
    """Unsigned results can't be clamped to -1."""
    op = context.node.op
    negative = isinstance(op, Mul) and op.activation is Activation.RELU_N1_TO_1
    return "found relu_n1_to_1" if negative and context.output().dtype is DType.UINT32 else None


def shifts_of(context: Context) -> tuple[int, int] | None:
    """Returns what the inputs of a sum with ``power_of_two_scales`` are shifted right by, if they
    can."""
    first, second = (context.quant(context.input(i)).scale[0] for i in (0, 1))
    return shifts_between((first, second), context.quant(context.output()).scale[0])


def shifts_operands(context: Context) -> bool:
    """Returns whether the operands of a sum are shifted, not multiplied: as the network says, but
    never by TensorFlow Lite Micro."""
    op = context.node.op
    pot = isinstance(op, Add | Sub) and op.power_of_two_scales
    return pot and context.numerics is not Numerics.TFLM


def shiftable(context: Context) -> str | None:
    """Sums with power_of_two_scales take int16, one input on the scale of the output and the other
    on one that is at most 2**15 times finer."""
    if not shifts_operands(context):
        return None
    if context.output().dtype is not DType.INT16:
        return f"found {context.output().dtype.value}"
    return None if shifts_of(context) is not None else "found other scales"


def less_in_memory(context: Context) -> int:
    """Returns how much more the numbers of a sum or product are than what is stored."""
    op = context.node.op
    return 128 if isinstance(op, Add | Mul) and op.from_uint8 else 0


_BEYOND_BYTES = 1024.0
"""Times 1 it is beyond all 8-bit numbers, wherever their zero point is."""


class Scaled:
    """Common part of operators of two quantized numbers."""

    def __init__(self, lowering: Lowering, activation: Activation = Activation.NONE) -> None:
        context, self.b = lowering.context, lowering.b
        self.lowering = lowering
        self.dtype = context.output().dtype
        quants = [context.quant(context.input(i)) for i in (0, 1)]
        out = context.quant(context.output())
        self.scales = [q.scale[0] for q in quants]
        self.zeros = [q.zero_point[0] for q in quants]
        self.scale_out, self.zero_out = out.scale[0], out.zero_point[0]
        self.bounds = activation_range(activation, context.output())

    def requantizer(self, real: float, bound: int) -> Requantizer:
        """Multiplies values of magnitude up to ``bound`` by ``real``.

        A shift by more than an i32 has bits is undefined in the reference; whatever isn't 0 becomes
        the largest or smallest 8-bit number then, as real numbers would.
        """
        mantissa, shift = quantize_multiplier(real)
        if shift > MOST_SHIFT and self.dtype in BYTES:
            mantissa, shift = quantize_multiplier(_BEYOND_BYTES)
        multiplier = Multiplier((mantissa,), (shift,))
        return Requantizer(self.lowering, multiplier, Rounding.DOUBLE, bound)

    def centred(self, values: tuple[Expr, Expr]) -> list[Expr]:
        """Both operands as i32 without their zero points."""
        return [
            sub(cast(v, Scalar.I32), i32(z)) for v, z in zip(values, self.zeros, strict=True)
        ]

    def stored(self, value: Expr) -> Expr:
        return quantized_result(value, self.zero_out, self.bounds, SCALAR_OF[self.dtype])


def reach(type_: DType) -> int:
    """The largest distance of a number of this type from a zero point."""
    low, high = type_.limits
    return high - low if type_ is not DType.INT16 else -low


class _OnOneScale(Scaled):
    """Operands brought to twice the larger of their scales, raised by ``shift`` bits."""

    def __init__(self, lowering: Lowering, activation: Activation, shift: int) -> None:
        super().__init__(lowering, activation)
        self.shift = shift
        self.twice = 2.0 * max(self.scales)
        bound = reach(self.dtype) << shift
        self.inputs = [self.requantizer(s / self.twice, bound) for s in self.scales]

    def operands(self, a: Expr, c: Expr) -> list[Expr]:
        return [
            self.b.let("scaled", requantize(
                self.b.let("raised", shl(v, i32(self.shift))), const(0)
            ))
            for v, requantize in zip(self.centred((a, c)), self.inputs, strict=True)
        ]


class QuantizedSum(_OnOneScale):
    """ADD and SUB: ``combine`` is addition or subtraction. ``linear``: what is the same, of bytes
    for which there is such a function."""

    def __init__(
        self, lowering: Lowering, activation: Activation, combine: Callable[[Expr, Expr], Expr]
    ) -> None:
        dtype = lowering.context.output().dtype
        super().__init__(lowering, activation, SUM_SHIFT[dtype])
        self.combine = combine
        real = self.twice / ((1 << self.shift) * self.scale_out)
        self.result = self.requantizer(real, reach(dtype) + 1 << self.shift)
        self.linear = None
        self.floats: tuple[float, float, float] | None = None
        self._rows: BytePairRows | None = None
        self._more = less_in_memory(lowering.context)
        self._addends: Buffer | None = None
        if dtype is not DType.INT16:
            facts = (
                dtype.limits[0], (self.scales[0], self.scales[1]), (self.zeros[0], self.zeros[1]),
                self.scale_out, self.zero_out, self.bounds, 1 if combine is add else -1,
                self.shift,
            )
            terms = (
                FloatTerms(*facts, self._more) if lowering.context.numerics is Numerics.ORT
                else Terms(*facts)
            )
            self.linear = linear(terms)
            if isinstance(terms, FloatTerms) and self.linear is None:
                self.floats, self._rows = terms.numbers, rows(terms)

    def __call__(self, a: Expr, c: Expr) -> Expr:
        if self.linear is not None:
            first = mul(cast(a, Scalar.I32), i32(self.linear.first))
            second = mul(cast(c, Scalar.I32), i32(self.linear.second))
            total = self.b.let("total", add(add(first, i32(self.linear.start)), second))
            value = self.b.let("value", shr(total, i32(self.linear.places)))
            return cast(clamp(value, *self.bounds), SCALAR_OF[self.dtype])
        if self._rows is not None:
            return self._by_rows(self._rows, a, c)
        if self.floats is not None:
            return self._in_floats(a, c, *self.floats)
        raw = self.b.let("raw", self.combine(*self.operands(a, c)))
        return self.stored(self.result(raw, const(0)))

    def _by_rows(self, rows: BytePairRows, a: Expr, c: Expr) -> Expr:
        if self._addends is None:
            self._addends = self.lowering.derived(
                "addends", Scalar.I32, rows.addends.astype(np.int32),
                "for each value of the second operand, from the lowest on: its part, and half",
            )
        row = self.b.let("row", sub(cast(c, Scalar.INDEX), const(self.dtype.limits[0])))
        product = mul(cast(a, Scalar.I32), i32(rows.first))
        total = self.b.let("total", add(product, load(self._addends, row)))
        value = self.b.let("value", shr(total, i32(rows.places)))
        return cast(clamp(value, *self.bounds), SCALAR_OF[self.dtype])

    def _in_floats(self, a: Expr, c: Expr, first: float, second: float, addend: float) -> Expr:
        """As ONNX Runtime: with two fused products."""
        more = i32(self._more)
        real_a, real_c = (
            self.b.let("real", cast(add(cast(v, Scalar.I32), more), Scalar.F32)) for v in (a, c)
        )
        inner = call("fma_f32", real_c, f32(second), f32(addend), type_=Scalar.F32)
        total = call("fma_f32", real_a, f32(first), inner, type_=Scalar.F32)
        near = self.b.let("near", clamp(total, -BEYOND, BEYOND))
        value = sub(round_half_even(self.b, near), more)
        return cast(clamp(self.b.let("value", value), *self.bounds), SCALAR_OF[self.dtype])


class ShiftedSum(Scaled):
    """ADD and SUB of int16 on scales that are powers of two: one operand is shifted, rounded."""

    def __init__(
        self, lowering: Lowering, activation: Activation, combine: Callable[[Expr, Expr], Expr]
    ) -> None:
        super().__init__(lowering, activation)
        self.combine = combine
        self.shifts = shifts_of(lowering.context) or (0, 0)

    def __call__(self, a: Expr, c: Expr) -> Expr:
        scaled = [
            rounding_divide_by_pot(self.b, v, i32(shift)) if shift else v
            for v, shift in zip(self.centred((a, c)), self.shifts, strict=True)
        ]
        return self.stored(self.b.let("raw", self.combine(*scaled)))


class Squares(_OnOneScale):
    """SQUARED_DIFFERENCE."""

    def __init__(self, lowering: Lowering) -> None:
        dtype = lowering.context.output().dtype
        super().__init__(lowering, Activation.NONE, SQUARES_SHIFT[dtype])
        real = self.twice * self.twice / ((1 << 2 * self.shift) * self.scale_out)
        largest = (reach(dtype) + 1 << self.shift) ** 2
        self.result = self.requantizer(real, largest)

    def __call__(self, a: Expr, c: Expr) -> Expr:
        first, second = self.operands(a, c)
        difference = self.b.let("difference", sub(first, second))
        square = self.b.let("square", mul(difference, difference))
        return self.stored(self.result(square, const(0)))


@functools.lru_cache(maxsize=256)
def _product_steps(
    scale: float, reach: int, zero: int, more: int, bounds: tuple[int, int]
) -> TwoProducts | None:
    """Constants for the results of products in ONNX Runtime's numbers; None if there are none."""
    steps = ProductSteps(scale, reach, zero, more, bounds)
    return TwoProducts.of_steps([steps], _PRODUCT_PLACES)


class QuantizedProduct(Scaled):
    """MUL."""

    def __init__(self, lowering: Lowering, activation: Activation) -> None:
        super().__init__(lowering, activation)
        numerics = lowering.context.numerics
        first, second, result = map(numerics.precision, (*self.scales, self.scale_out))
        self.floats = numerics is Numerics.ORT
        self.real = float(first * second / result)
        self.result = self.requantizer(self.real, reach(self.dtype) ** 2)

        self.steps: TwoProducts | None = None
        if self.floats and self.dtype is not DType.INT16:
            low, high = self.dtype.limits
            first_most, second_most = (max(zero - low, high - zero) for zero in self.zeros)
            self.steps = _product_steps(
                self.real, first_most * second_most, self.zero_out,
                less_in_memory(lowering.context), self.bounds,
            )

    def __call__(self, a: Expr, c: Expr) -> Expr:
        first, second = self.centred((a, c))
        raw = self.b.let("raw", mul(first, second))
        if self.steps is not None:
            value = by_two_products(self.b, self.steps, raw, self.bounds)
            return cast(value, SCALAR_OF[self.dtype])
        if self.floats and self.dtype is not DType.INT16:
            return self._in_floats(raw)
        return self.stored(self.result(raw, const(0)))

    def _in_floats(self, raw: Expr) -> Expr:
        """As ONNX Runtime (``MlasQLinearMul``): the zero point is added in float32."""
        more = less_in_memory(self.lowering.context)
        scaled = mul(cast(raw, Scalar.F32), f32(self.real))
        near = self.b.let("near", clamp(scaled, -BEYOND, BEYOND))
        moved = self.b.let("with_zero", add(near, f32(float(self.zero_out + more))))
        value = sub(round_half_even(self.b, moved), i32(more))
        return cast(clamp(self.b.let("value", value), *self.bounds), SCALAR_OF[self.dtype])

