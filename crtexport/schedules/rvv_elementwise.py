"""int8 sums and differences of tensors of one shape on RISC-V's vectors, 32 elements at once: where
one linear function is all that TFLite does (see :mod:`crtexport.kernels.linear`)."""

from __future__ import annotations

from crtexport.ir.ops import Add, Sub
from crtexport.ir.types import DType
from crtexport.kernels.build import add, const, load_vector, mul
from crtexport.kernels.build import sub as minus
from crtexport.kernels.ir import Expr
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.kernels.scaled import Sum
from crtexport.schedules.rvv_machine import Machine

_LANES = 32


def lower(context: Context, op: Add | Sub) -> Lowered | None:
    """A node that keeps its operator's rules; None where this is no way."""
    types = (context.input(0), context.input(1), context.output())
    if len({t.shape for t in types}) > 1 or any(t.dtype is not DType.INT8 for t in types):
        return None
    is_sum = isinstance(op, Add)
    lowering, machine = Lowering("add" if is_sum else "sub", context), Machine(_LANES)
    operands = [lowering.input(0, "input1"), lowering.input(1, "input2")]
    output = lowering.output()
    numbers = Sum(lowering, op.activation, add if is_sum else minus)
    terms = numbers.linear
    if terms is None or not output.size:
        return None
    b = lowering.b

    def part(at: Expr, count: int) -> None:
        first, second = (
            b.let("value", load_vector(buffer, at, machine.ints, count)) for buffer in operands
        )
        # VSSRA rounds.
        start = machine.int_everywhere(terms.start - (1 << terms.places - 1))
        total = machine.of_ints("mul", first, machine.int_everywhere(terms.first))
        total = machine.of_ints("add", total, start)
        product = machine.of_ints("mul", second, machine.int_everywhere(terms.second))
        total = b.let("total", machine.of_ints("add", total, product))
        value = machine.of_ints("vssra", total, machine.int_everywhere(terms.places))
        b.store_vector(output, at, machine.between(value, numbers.bounds), count)

    whole, rest = divmod(output.size, _LANES)
    with b.loop("i", whole) as i:
        part(mul(i, const(_LANES)), _LANES)
    if rest:
        part(const(whole * _LANES), rest)
    return lowering.finish()
