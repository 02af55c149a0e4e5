"""Sums, differences and products of quantized tensors of one shape, in lanes of 32 bits.

They follow TFLite's steps, or for sums of bytes the linear function that equals them.
"""

from __future__ import annotations

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Add, Mul, Sub
from crtexport.ir.types import DType
from crtexport.kir.builder import KernelBuilder, add, const, load_vector, mul
from crtexport.kir.builder import sub as minus
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.byte_pair_linear import LinearFunction
from crtexport.lowering.numerics.quantized_arithmetic import (
    QuantizedProduct,
    QuantizedSum,
    shifts_operands,
)
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.ops.elementwise import Compute
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.vector_machine import RequantizingVectors

_HALF = (1 << 30, 0)
"""The multiplier of what has the larger scale: exactly a half."""


def lower(
    context: Context, op: Add | Sub | Mul, machine: RequantizingVectors, type_: Scalar,
    unroll: int = 1, *, assembled: bool = False,
) -> Lowered | None:
    """Returns the kernel of a node that keeps its operator's rules, in vectors of ``type_``, up to
    ``unroll`` of them one after the other; None where it has none. ``assembled``: asks for a loop
    of machine code."""
    types = (context.input(0), context.input(1), context.output())
    if len({t.shape for t in types}) > 1 or not context.output().elements:
        return None
    if {t.dtype for t in types} not in ({DType.INT8}, {DType.INT16}):
        return None
    if shifts_operands(context):
        return None
    lowering = Lowering({Add: "add", Sub: "sub", Mul: "mul"}[type(op)], context)
    operands = lowering.input(0, "input1"), lowering.input(1, "input2")
    output = lowering.output()
    b, lanes = lowering.b, type_.lanes
    compute = computed(lowering, op, machine)
    if compute is None:
        return None

    def part(at: Expr, count: int) -> None:
        values = [b.let("value", load_vector(buffer, at, type_, count)) for buffer in operands]
        b.store_vector(output, at, compute(*values), count)

    vectors, rest = divmod(output.size, lanes)
    unroll_here = unroll if unroll > 1 and vectors % unroll == 0 else None
    if assembled and unroll_here:
        with b.loop("i", vectors // unroll_here, assembled=True) as i:
            for place in range(unroll_here):
                with b.named(f"v{place}"):
                    part(add(mul(i, const(unroll_here * lanes)), const(place * lanes)), lanes)
    else:
        with b.loop("i", vectors, unroll=unroll_here, assembled=assembled and vectors > 1) as i:
            part(mul(i, const(lanes)), lanes)
    if rest:
        part(const(vectors * lanes), rest)
    return lowering.finish()


def computed(
    lowering: Lowering, op: Add | Sub | Mul, machine: RequantizingVectors
) -> Compute | None:
    """Returns the function that computes a vector of results from two vectors of quantized numbers;
    None where ONNX Runtime computes in a way that integers can't follow."""
    floats = lowering.context.numerics is Numerics.ORT
    match op:
        case Mul():
            product = QuantizedProduct(lowering, op.activation)
            usual = product.steps is not None and not product.steps.rounded
            return _Times(lowering.b, machine, product) if usual or not floats else None
        case Add():
            total = QuantizedSum(lowering, op.activation, add)
            known = total.linear is not None or not floats
            return _Plus(lowering.b, machine, total, "add") if known else None
        case Sub() if floats:
            return None
        case Sub():
            return _Plus(lowering.b, machine, QuantizedSum(lowering, op.activation, minus), "sub")


class _Plus:
    """Sums and differences: see
    :class:`crtexport.lowering.numerics.quantized_arithmetic.QuantizedSum`."""

    def __init__(
        self, b: KernelBuilder, machine: RequantizingVectors, numbers: QuantizedSum, combine: str
    ) -> None:
        self.b, self.machine, self.numbers, self.combine = b, machine, numbers, combine

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
        raw = self.b.let("raw", self.machine.of_ints(self.combine, *operands))
        return _result(self.b, self.machine, raw, numbers)

    def _linear(self, first: Expr, second: Expr, terms: LinearFunction) -> Expr:
        """See :mod:`crtexport.lowering.numerics.byte_pair_linear`; shifts of vectors round."""
        machine = self.machine
        half = 1 << terms.places - 1
        total = machine.of_ints("mul", first, machine.int_everywhere(terms.first))
        total = machine.of_ints("add", total, machine.int_everywhere(terms.start - half))
        product = machine.of_ints("mul", second, machine.int_everywhere(terms.second))
        total = self.b.let("total", machine.of_ints("add", total, product))
        value = machine.rounded(total, terms.places)
        return self.b.let("result", machine.between(value, self.numbers.bounds))

    def _operand(self, value: Expr, zero: int, multiplier: Multiplier) -> Expr:
        """Returns one operand on the common scale."""
        half = (multiplier.mantissas[0], multiplier.shifts[0]) == _HALF
        places = self.numbers.shift - 1 if half else self.numbers.shift
        centred = self.machine.plus(value, -zero)
        raised = self.b.let("raised", self.machine.raised(centred, places))
        return raised if half else self.machine.multiplied(self.b, raised, multiplier)


class _Times:
    """Products: see :class:`crtexport.lowering.numerics.quantized_arithmetic.QuantizedProduct`."""

    def __init__(
        self, b: KernelBuilder, machine: RequantizingVectors, numbers: QuantizedProduct
    ) -> None:
        self.b, self.machine, self.numbers = b, machine, numbers

    def __call__(self, first: Expr, second: Expr) -> Expr:
        centred = [
            self.machine.plus(value, -zero)
            for value, zero in zip((first, second), self.numbers.zeros, strict=True)
        ]
        raw = self.b.let("raw", self.machine.of_ints("mul", *centred))
        if self.numbers.steps is not None:
            return self.machine.by_two_products(
                self.b, raw, self.numbers.steps, self.numbers.bounds
            )
        return _result(self.b, self.machine, raw, self.numbers)


def _result(
    b: KernelBuilder, machine: RequantizingVectors, raw: Expr,
    numbers: QuantizedSum | QuantizedProduct
) -> Expr:
    """Returns ``raw`` requantized to the output."""
    signed = numbers.bounds[0] < numbers.zero_out
    value = machine.multiplied(b, raw, numbers.result.multiplier, signed=signed)
    value = machine.between(machine.plus(value, numbers.zero_out), numbers.bounds)
    return b.let("result", value)
