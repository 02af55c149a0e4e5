"""Comparisons, logic and SELECT, with NumPy broadcasting. Truth values are bytes 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from crtexport.ir import ops
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    and_,
    cast,
    const,
    eq,
    ge,
    gt,
    i32,
    le,
    load,
    lt,
    ne,
    or_,
    select,
    shl,
    sub,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.quantized_arithmetic import SCALED, reach
from crtexport.lowering.numerics.requantize import Multiplier, Requantizer
from crtexport.lowering.ops.elementwise import Compute, binary, broadcast_loops, work_type
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types
from crtexport.support.fixedpoint import Rounding, quantize_multiplier

NUMBERS = (
    DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64,
)
RESCALED = (DType.INT8, DType.UINT8)
"""Element types that TFLite brings to one scale before it compares; int16 it doesn't."""

RAISED_BY = 8
"""Bits of headroom that quantized numbers are compared with."""

Relation = Callable[[Expr, Expr], Expr]


def compared_types(*allowed: DType) -> Callable[[Context], str | None]:
    """A rule: both inputs share one element type out of ``allowed``."""

    def rule(context: Context) -> str | None:
        found = context.input(0).dtype
        return None if found in allowed else f"found {found.value}"

    names = ", ".join(d.value for d in allowed)
    rule.__doc__ = f"The inputs must have one element type of: {names}"
    return rule


def compared_scales(context: Context) -> str | None:
    """Int8 and uint8 inputs must carry one scale below 1 and one zero point each; int16 inputs are
    compared as they are stored and must have the same scale."""
    first, second = context.input(0), context.input(1)
    if first.dtype is DType.INT16 and first.quant != second.quant:
        return "found two scales"
    if first.dtype not in RESCALED:
        return None
    for type_ in (first, second):
        if type_.quant is None or not type_.quant.per_tensor:
            return f"found {type_} without one"
        if type_.quant.scale[0] >= 1.0:
            return f"found {type_.quant.scale[0]:g}"
    return None


def _compare(context: Context, name: str, relation: Relation) -> Lowered:
    def directly(_: Lowering) -> Compute:
        work = work_type(context.input(0).dtype)
        return lambda a, c: cast(relation(cast(a, work), cast(c, work)), Scalar.U8)

    def through_scales(lowering: Lowering) -> Compute:
        operands = [_Rescaled(lowering, position) for position in (0, 1)]

        def compute(a: Expr, c: Expr) -> Expr:
            return cast(relation(operands[0](a), operands[1](c)), Scalar.U8)

        return compute

    return binary(
        context, name, through_scales if context.input(0).dtype in RESCALED else directly
    )


class _Rescaled:
    """A quantized operand times its scale, with RAISED_BY bits after the point."""

    def __init__(self, lowering: Lowering, position: int) -> None:
        type_ = lowering.context.input(position)
        quant = lowering.context.quant(type_)
        mantissa, shift = quantize_multiplier(quant.scale[0])
        self.b = lowering.b
        self.zero = quant.zero_point[0]
        self.requantize = Requantizer(
            lowering, Multiplier((mantissa,), (shift,)), Rounding.DOUBLE,
            reach(type_.dtype) << RAISED_BY,
        )

    def __call__(self, value: Expr) -> Expr:
        centred = sub(cast(value, Scalar.I32), i32(self.zero))
        raised = self.b.let("raised", shl(centred, i32(RAISED_BY)))
        return self.b.let("scaled", self.requantize(raised, const(0)))


COMPARED = (compared_types(*NUMBERS), compared_scales)
EQUATED = (compared_types(*NUMBERS, DType.BOOL), compared_scales)


@lowers(ops.Equal, *EQUATED)
def equal(context: Context) -> Lowered:
    """1 where input1 = input2 after rounding both to 1/256, else 0."""
    return _compare(context, "equal", eq)


@lowers(ops.NotEqual, *EQUATED)
def not_equal(context: Context) -> Lowered:
    """0 where input1 = input2 after rounding both to 1/256, else 1."""
    return _compare(context, "not_equal", ne)


@lowers(ops.Greater, *COMPARED)
def greater(context: Context) -> Lowered:
    """1 where input1 > input2, else 0."""
    return _compare(context, "greater", gt)


@lowers(ops.GreaterEqual, *COMPARED)
def greater_equal(context: Context) -> Lowered:
    """1 where input1 >= input2, else 0."""
    return _compare(context, "greater_equal", ge)


@lowers(ops.Less, *COMPARED)
def less(context: Context) -> Lowered:
    """1 where input1 < input2, else 0."""
    return _compare(context, "less", lt)


@lowers(ops.LessEqual, *COMPARED)
def less_equal(context: Context) -> Lowered:
    """1 where input1 <= input2, else 0."""
    return _compare(context, "less_equal", le)


def _true(value: Expr) -> Expr:
    return ne(cast(value, Scalar.I32), i32(0))


def _logic(context: Context, name: str, relation: Relation) -> Lowered:
    def prepare(_: Lowering) -> Compute:
        return lambda a, c: cast(relation(_true(a), _true(c)), Scalar.U8)

    return binary(context, name, prepare)


@lowers(ops.LogicalAnd, same_types(DType.BOOL))
def logical_and(context: Context) -> Lowered:
    """1 where both inputs are true, else 0."""
    return _logic(context, "logical_and", and_)


@lowers(ops.LogicalOr, same_types(DType.BOOL))
def logical_or(context: Context) -> Lowered:
    """1 where an input is true, else 0."""
    return _logic(context, "logical_or", or_)


@lowers(ops.LogicalNot, same_types(DType.BOOL))
def logical_not(context: Context) -> Lowered:
    """1 where the input is false, else 0."""
    lowering = Lowering("logical_not", context)
    source, output = lowering.input(0, "input"), lowering.output()
    with lowering.b.loop("i", context.output().elements) as i:
        truth = eq(cast(load(source, i), Scalar.I32), i32(0))
        lowering.b.store(output, i, cast(truth, Scalar.U8))
    return lowering.finish()


def selected_types(context: Context) -> str | None:
    """The inputs chosen from and the output must have one element type, float16 and float64
    excepted."""
    found = context.output().dtype
    wrong = found in (DType.FLOAT16, DType.FLOAT64)
    return f"found {found.value}" if wrong else None


def selected_scales(context: Context) -> str | None:
    """The inputs chosen from and the output must have the same scale and zero point."""
    types = (context.input(1), context.input(2), context.output())
    quants = {t.quant for t in types if t.dtype in SCALED}
    return f"found {len(quants)} different ones" if len(quants) > 1 else None


@lowers(ops.Select, selected_types, selected_scales)
def select_(context: Context) -> Lowered:
    """input1 where the condition is true, else input2."""
    op = context.op(ops.Select)
    lowering = Lowering("select", context)
    b = lowering.b
    buffers = [lowering.input(i, n) for i, n in enumerate(("condition", "input1", "input2"))]
    output, shape = lowering.output(), context.output().shape
    shapes = [context.input(i).shape for i in range(3)]
    if op.rows:
        shapes[0] += (1,) * (len(shape) - 1)
    if 0 in shape:
        return lowering.finish()
    work = work_type(context.output().dtype)
    with ExitStack() as stack:
        at, out = broadcast_loops(b, stack, shapes, shape)
        condition, then, other = (load(buffer, i) for buffer, i in zip(buffers, at, strict=True))
        chosen = select(_true(condition), cast(then, work), cast(other, work))
        b.store(output, out, cast(chosen, output.dtype))
    return lowering.finish()
