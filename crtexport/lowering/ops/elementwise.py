"""ADD, SUB, MUL, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE and ADD_N, with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from crtexport.ir import ops
from crtexport.ir.numerics import Numerics
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    load,
    max_,
    min_,
    mul,
    sub,
    wrap_add,
    wrap_mul,
    wrap_sub,
)
from crtexport.kir.language import ARITHMETIC, Expr, Scalar
from crtexport.lowering.numerics.quantized_arithmetic import (
    SCALED,
    QuantizedProduct,
    QuantizedSum,
    ShiftedSum,
    Squares,
    one_scale_each,
    positive_clamp,
    shiftable,
    shifts_operands,
)
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.numerics.running_sums import RunningSum, one_input_scale
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

WHOLE = (DType.INT32, DType.INT64)
ANY_NUMBER = (DType.FLOAT32, *SCALED, *WHOLE)

Compute = Callable[[Expr, Expr], Expr]
"""The stored result of two loaded operands."""


def broadcast_loops(
    b: KernelBuilder, stack: ExitStack, operands: list[tuple[int, ...]], shape: tuple[int, ...]
) -> tuple[list[Expr], Expr]:
    """Opens the fewest loops over ``shape``; returns each operand's flat index and the output's.

    Neighbouring axes that every operand walks in the same way become one loop.
    """
    aligned = [(1,) * (len(shape) - len(o)) + o for o in operands]
    groups: list[tuple[int, tuple[bool, ...]]] = []  # (extent, per operand: moves)
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        moves = tuple(o[axis] != 1 for o in aligned)
        if groups and groups[-1][1] == moves:
            groups[-1] = (groups[-1][0] * extent, moves)
        else:
            groups.append((extent, moves))
    positions: list[Expr] = [const(0) for _ in operands]
    out: Expr = const(0)
    for extent, moves in groups:
        var = stack.enter_context(b.loop("i", extent))
        positions = [
            add(mul(p, const(extent)), var) if m else p
            for p, m in zip(positions, moves, strict=True)
        ]
        out = add(mul(out, const(extent)), var)
    return positions, out


def binary(context: Context, name: str, prepare: Callable[[Lowering], Compute]) -> Lowered:
    """Returns the kernel of output = compute(input1, input2) for each pair of elements; ``prepare``
    returns ``compute``."""
    lowering = Lowering(name, context)
    b = lowering.b
    first, second = lowering.input(0, "input1"), lowering.input(1, "input2")
    compute = prepare(lowering)
    output, shape = lowering.output(), context.output().shape
    if 0 in shape:
        return lowering.finish()
    with ExitStack() as stack:
        (i, j), out = broadcast_loops(
            b, stack, [context.input(0).shape, context.input(1).shape], shape
        )
        b.store(output, out, compute(load(first, i), load(second, j)))
    return lowering.finish()


def work_type(dtype: DType) -> Scalar:
    """Returns what elements of ``dtype`` are computed in."""
    scalar = SCALAR_OF[dtype]
    return scalar if scalar in ARITHMETIC else Scalar.I32


def directly(
    function: Callable[[Expr, Expr], Expr], activation: ops.Activation = ops.Activation.NONE
) -> Callable[[Lowering], Compute]:
    """Returns a function of the stored numbers, with a fused clamp."""

    def prepare(lowering: Lowering) -> Compute:
        context = lowering.context
        work, stored = work_type(context.input(0).dtype), SCALAR_OF[context.output().dtype]

        def compute(a: Expr, c: Expr) -> Expr:
            result = lowering.b.let("result", function(cast(a, work), cast(c, work)))
            return cast(clamp(result, *float_range(activation)), stored)

        return compute

    return prepare


Function = Callable[[Expr, Expr], Expr]
_FUNCTIONS: dict[type[ops.Op], tuple[Function, Function]] = {
    ops.Add: (add, wrap_add), ops.Sub: (sub, wrap_sub), ops.Mul: (mul, wrap_mul),
}
"""Of floats, and of whole numbers."""


def arithmetic(lowering: Lowering, op: ops.Add | ops.Sub | ops.Mul) -> Compute:
    """Returns the function of a sum, difference or product; those of integers wrap."""
    quantized = lowering.context.input(0).dtype in SCALED
    real = lowering.context.input(0).dtype is DType.FLOAT32
    plain, wrapping = _FUNCTIONS[type(op)]
    match op:
        case ops.Mul() if quantized:
            return QuantizedProduct(lowering, op.activation)
        case ops.Add() | ops.Sub() if quantized:
            kind = ShiftedSum if shifts_operands(lowering.context) else QuantizedSum
            return kind(lowering, op.activation, plain)
        case ops.Add() if lowering.context.numerics is Numerics.TFLM and not real:
            return directly(wrapping)(lowering)  # there whole numbers have no activation
        case _:
            return directly(plain if real else wrapping, op.activation)(lowering)


ARITHMETIC_RULES = (same_types(*ANY_NUMBER), one_scale_each)


@lowers(ops.Add, *ARITHMETIC_RULES, shiftable)
def add_(context: Context) -> Lowered:
    """input1 + input2; int32 and int64 wrap."""
    op = context.op(ops.Add)
    return binary(context, "add", lambda lowering: arithmetic(lowering, op))


@lowers(ops.Sub, *ARITHMETIC_RULES, shiftable)
def sub_(context: Context) -> Lowered:
    """input1 - input2; int32 and int64 wrap."""
    op = context.op(ops.Sub)
    return binary(context, "sub", lambda lowering: arithmetic(lowering, op))


@lowers(ops.Mul, same_types(*ANY_NUMBER, DType.UINT32), one_scale_each, positive_clamp)
def mul_(context: Context) -> Lowered:
    """input1 * input2; int32, uint32 and int64 wrap."""
    op = context.op(ops.Mul)
    return binary(context, "mul", lambda lowering: arithmetic(lowering, op))


@lowers(ops.Maximum, same_types(*ANY_NUMBER))
def maximum(context: Context) -> Lowered:
    """The larger of the stored numbers, whatever their scales."""
    return binary(context, "maximum", directly(lambda a, c: max_(c, a)))


@lowers(ops.Minimum, same_types(*ANY_NUMBER))
def minimum(context: Context) -> Lowered:
    """The smaller of the stored numbers, whatever their scales."""
    return binary(context, "minimum", directly(lambda a, c: min_(c, a)))


@lowers(
    ops.SquaredDifference, same_types(DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32),
    one_scale_each,
)
def squared_difference(context: Context) -> Lowered:
    """(input1 - input2) squared; int32 wraps."""
    dtype = context.input(0).dtype
    if dtype in SCALED:
        return binary(context, "squared_difference", Squares)

    def prepare(lowering: Lowering) -> Compute:
        minus, times = (sub, mul) if dtype is DType.FLOAT32 else (wrap_sub, wrap_mul)

        def compute(a: Expr, c: Expr) -> Expr:
            difference = lowering.b.let("difference", minus(a, c))
            return times(difference, difference)

        return compute

    return binary(context, "squared_difference", prepare)


@lowers(ops.AddN, same_types(DType.FLOAT32, DType.INT32, DType.INT8), one_input_scale)
def add_n(context: Context) -> Lowered:
    """The sum of all inputs, from the first on; int32 wraps, int8 is scaled as in TFLite Micro."""
    lowering = Lowering("add_n", context)
    b = lowering.b
    inputs = [lowering.input(i, f"input{i + 1}") for i in range(len(context.node.inputs))]
    scaled = RunningSum(lowering) if context.output().dtype is DType.INT8 else None
    output = lowering.output()
    plus = add if context.output().dtype is DType.FLOAT32 else wrap_add
    with b.loop("i", context.output().elements) as i:
        if scaled is not None:
            sums = scaled.start
            for source in inputs:
                sums = wrap_add(sums, scaled.term(load(source, i)))
            b.store(output, i, scaled.result(b.let("sums", sums)))
        else:
            total: Expr = load(inputs[0], i)
            for source in inputs[1:]:
                total = plus(total, load(source, i))
            b.store(output, i, total)
    return lowering.finish()
