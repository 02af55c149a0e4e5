"""int8 sums, differences and products of tensors of one shape on MVE, four elements at once."""

from __future__ import annotations

from crtexport.ir.ops import Add, Mul, Sub
from crtexport.ir.types import DType
from crtexport.kernels.build import KernelBuilder, add, call, const, f32, i32, load_vector, mul
from crtexport.kernels.build import sub as minus
from crtexport.kernels.elementwise import Compute
from crtexport.kernels.ir import Buffer, Expr, Scalar
from crtexport.kernels.linear import Linear
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.kernels.requantize import Multiplier
from crtexport.kernels.scaled import Product, Sum
from crtexport.schedules.mve_float import finished
from crtexport.schedules.mve_scale import LANES, SUFFIXES, clamped, scaled, vector

UNROLL = 2
_HALF = (1 << 30, 0)
"""The multiplier of what has the larger scale: exactly a half."""


def lower(context: Context, op: Add | Sub | Mul) -> Lowered | None:
    """A node that keeps its operator's rules; None where this is no way."""
    types = (context.input(0), context.input(1), context.output())
    if len({t.shape for t in types}) > 1 or any(t.dtype is not DType.INT8 for t in types):
        return None
    if not context.output().elements:
        return None
    name = {Add: "add", Sub: "sub", Mul: "mul"}[type(op)]
    lowering = Lowering(name, context)
    first, second = lowering.input(0, "input1"), lowering.input(1, "input2")
    output = lowering.output()
    b, count = lowering.b, output.size
    compute = _bytes(lowering, op)

    def part(at: Expr, lanes: int) -> None:
        values = [_load(b, buffer, at, lanes) for buffer in (first, second)]
        b.store_vector(output, at, compute(*values), lanes)

    whole = count // LANES
    with b.loop("i", whole, unroll=UNROLL if whole % UNROLL == 0 else None) as i:
        part(mul(i, const(LANES)), LANES)
    if count % LANES:
        part(const(count - count % LANES), count % LANES)
    return lowering.finish()


class Handed:
    """Computes with the results of layers: see :class:`crtexport.kernels.fused.Vectors`."""

    def elements(
        self, lowering: Lowering, op: Add | Sub | Mul, type_: Scalar
    ) -> Compute | None:
        """Of four lanes of int8 or float32."""
        if type_ is Scalar.I32X4 and lowering.context.output().dtype is DType.INT8:
            return _bytes(lowering, op)
        if type_ is Scalar.F32X4 and isinstance(op, Add):
            b = lowering.b

            def plus(first: Expr, second: Expr) -> Expr:
                return finished(b, b.let("total", _float_sum(first, second)), op.activation)

            return plus
        return None

    def largest(self, type_: Scalar) -> Compute | None:
        """Of any lanes."""
        suffix = SUFFIXES.get(type_)
        if suffix is None:
            return None
        return lambda first, second: call(f"mve_max_{suffix}", first, second, type_=type_)

    def total(self, type_: Scalar) -> Compute | None:
        """Of words, half-words or float32."""
        if type_ is Scalar.F32X4:
            return _float_sum
        if type_ not in (Scalar.I32X4, Scalar.I16X8):
            return None
        name = f"mve_add_{SUFFIXES[type_]}"
        return lambda first, second: call(name, first, second, type_=type_)


def _float_sum(first: Expr, second: Expr) -> Expr:
    """A product with 1 that is added: rounded once, so as sums are."""
    one = call("mve_dup_f32", f32(1.0), type_=Scalar.F32X4)
    return call("mve_fma_f32", first, second, one, type_=Scalar.F32X4)


def _bytes(lowering: Lowering, op: Add | Sub | Mul) -> Compute:
    match op:
        case Mul():
            return _Times(lowering.b, Product(lowering, op.activation))
        case Add():
            return _Plus(lowering.b, Sum(lowering, op.activation, add), "add_s32")
        case Sub():
            return _Plus(lowering.b, Sum(lowering, op.activation, minus), "sub_s32")


def _load(b: KernelBuilder, buffer: Buffer, at: Expr, lanes: int) -> Expr:
    return b.let("value", load_vector(buffer, at, Scalar.I32X4, lanes))


def _constant(value: int) -> Expr:
    return vector("dup_s32", i32(value))


class _Plus:
    """Sums and differences: see :class:`crtexport.kernels.scaled.Sum`."""

    def __init__(self, b: KernelBuilder, numbers: Sum, combine: str) -> None:
        self.b, self.numbers, self.combine = b, numbers, combine

    def __call__(self, first: Expr, second: Expr) -> Expr:
        numbers = self.numbers
        if numbers.linear is not None:
            return self._linear(first, second, numbers.linear)
        operands = [
            self._operand(value, zero, requantizer.multiplier)
            for value, zero, requantizer in zip(
                (first, second), numbers.zeros, numbers.inputs, strict=True
            )
        ]
        raw = self.b.let("raw", vector(self.combine, *operands))
        result = numbers.result.multiplier
        value = scaled(self.b, raw, result, signed=numbers.bounds[0] < numbers.zero_out)
        return clamped(self.b, value, numbers.zero_out, numbers.bounds)

    def _linear(self, first: Expr, second: Expr, terms: Linear) -> Expr:
        """See :mod:`crtexport.kernels.linear`; shifts of vectors round."""
        half = 1 << terms.places - 1
        total = vector("mul_s32", first, _constant(terms.first))
        total = vector("add_s32", total, _constant(terms.start - half))
        total = vector("add_s32", total, vector("mul_s32", second, _constant(terms.second)))
        value = vector("rshl_s32", self.b.let("total", total), _constant(-terms.places))
        return clamped(self.b, value, 0, self.numbers.bounds)

    def _operand(self, value: Expr, zero: int, multiplier: Multiplier) -> Expr:
        """One operand on the common scale."""
        if zero:
            value = vector("sub_s32", value, _constant(zero))
        half = (multiplier.mantissas[0], multiplier.shifts[0]) == _HALF
        places = self.numbers.shift - 1 if half else self.numbers.shift
        raised = self.b.let("raised", vector("rshl_s32", value, _constant(places)))
        return raised if half else scaled(self.b, raised, multiplier)


class _Times:
    """Products: see :class:`crtexport.kernels.scaled.Product`."""

    def __init__(self, b: KernelBuilder, numbers: Product) -> None:
        self.b, self.numbers = b, numbers

    def __call__(self, first: Expr, second: Expr) -> Expr:
        numbers = self.numbers
        centred = [
            vector("sub_s32", value, _constant(zero)) if zero else value
            for value, zero in zip((first, second), numbers.zeros, strict=True)
        ]
        raw = self.b.let("raw", vector("mul_s32", *centred))
        result = numbers.result.multiplier
        value = scaled(self.b, raw, result, signed=numbers.bounds[0] < numbers.zero_out)
        return clamped(self.b, value, numbers.zero_out, numbers.bounds)
