"""ADD, SUB and MUL with NumPy broadcasting, int8 and float32."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from crtexport.fixedpoint import quantize_multiplier
from crtexport.ir.ops import Activation, Add, Mul, Sub
from crtexport.ir.types import DType, Rounding
from crtexport.kernels.build import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    i32,
    load,
    mul,
    shl,
    sub,
)
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.registry import Context, Lowered, Lowering, lowers
from crtexport.kernels.requantize import (
    Multiplier,
    Requantizer,
    activation_range,
    float_range,
    quantized_result,
)
from crtexport.kernels.rules import FLOAT_OR_INT8, quantized_weights, same_types

BINARY_RULES = (same_types(*FLOAT_OR_INT8), quantized_weights)
FLOAT_OPS: dict[str, Callable[[Expr, Expr], Expr]] = {"add": add, "sub": sub, "mul": mul}
ADD_LEFT_SHIFT = 20  # TFLite: headroom that int8 inputs of ADD and SUB are raised by


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


def _binary(context: Context, name: str, activation: Activation) -> Lowered:
    lowering = Lowering(name, context)
    b = lowering.b
    first, second = lowering.input(0, "input1"), lowering.input(1, "input2")
    output_type = context.output()
    is_float = output_type.dtype is DType.FLOAT32
    integer = None if is_float else _IntegerBinary(lowering, activation)
    output = lowering.output()
    if 0 in output_type.shape:
        return lowering.finish()
    with ExitStack() as stack:
        (i, j), out = broadcast_loops(
            b, stack, [context.input(0).shape, context.input(1).shape], output_type.shape
        )
        a, c = load(first, i), load(second, j)
        if integer is not None:
            result = integer(a, c)
        else:
            op: Callable[[Expr, Expr], Expr] = FLOAT_OPS[name]
            result = clamp(b.let("result", op(a, c)), *float_range(activation))
        b.store(output, out, result)
    return lowering.finish()


class _IntegerBinary:
    """The int8 arithmetic of TFLite's reference ADD, SUB (``add.h``, ``sub.h``) and MUL."""

    def __init__(self, lowering: Lowering, activation: Activation) -> None:
        context, self.b = lowering.context, lowering.b
        self.op = context.node.op
        self.inputs: list[Requantizer] = []
        quants = [context.quant(context.input(i)) for i in (0, 1)]
        out = context.quant(context.output())
        self.zeros = [q.zero_point[0] for q in quants]
        self.zero_out = out.zero_point[0]
        self.bounds = activation_range(activation, context.output())
        s1, s2 = quants[0].scale[0], quants[1].scale[0]
        rounding = Rounding.DOUBLE
        if isinstance(self.op, Mul):
            real = float(np.float32(s1) * np.float32(s2) / np.float32(out.scale[0]))
            bound = 255 * 255
        else:
            twice = 2.0 * max(s1, s2)
            real = twice / ((1 << ADD_LEFT_SHIFT) * out.scale[0])
            bound = 2 * 256 << ADD_LEFT_SHIFT
            self.inputs = [
                Requantizer(lowering, Multiplier.of([s / twice]), rounding, 256 << ADD_LEFT_SHIFT)
                for s in (s1, s2)
            ]
        self.result = Requantizer(lowering, _one(real), rounding, bound)

    def __call__(self, a: Expr, c: Expr) -> Expr:
        raised = [
            sub(cast(v, Scalar.I32), i32(z)) for v, z in zip((a, c), self.zeros, strict=True)
        ]
        if isinstance(self.op, Mul):
            raw = self.b.let("raw", mul(raised[0], raised[1]))
        else:
            scaled = [
                self.b.let("scaled", requantize(
                    self.b.let("raised", shl(v, i32(ADD_LEFT_SHIFT))), const(0)
                ))
                for v, requantize in zip(raised, self.inputs, strict=True)
            ]
            combine = sub if isinstance(self.op, Sub) else add
            raw = self.b.let("raw", combine(scaled[0], scaled[1]))
        return quantized_result(
            self.result(raw, const(0)), self.zero_out, self.bounds, Scalar.I8
        )


def _one(real: float) -> Multiplier:
    mantissa, shift = quantize_multiplier(real)
    return Multiplier((mantissa,), (shift,))


@lowers(Add, *BINARY_RULES)
def add_(context: Context) -> Lowered:
    """input1 + input2."""
    op = context.node.op
    if not isinstance(op, Add):
        raise TypeError(op)
    return _binary(context, "add", op.activation)


@lowers(Sub, *BINARY_RULES)
def sub_(context: Context) -> Lowered:
    """input1 - input2."""
    op = context.node.op
    if not isinstance(op, Sub):
        raise TypeError(op)
    return _binary(context, "sub", op.activation)


@lowers(Mul, *BINARY_RULES)
def mul_(context: Context) -> Lowered:
    """input1 * input2."""
    op = context.node.op
    if not isinstance(op, Mul):
        raise TypeError(op)
    return _binary(context, "mul", op.activation)
