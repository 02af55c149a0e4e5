"""RESHAPE (as a copy, where the plan can't make it a view), PAD, CONCATENATION."""

from __future__ import annotations

import math
from contextlib import ExitStack

from crtexport.ir.ops import Activation, Concatenation, Pad, Reshape
from crtexport.ir.types import DType
from crtexport.kernels.build import add, and_, const, f32, flat_index, ge, load, lt, sub
from crtexport.kernels.ir import Const, Expr
from crtexport.kernels.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.kernels.rules import equal_quantization, same_types

COPYABLE = tuple(SCALAR_OF)


@lowers(Reshape, same_types(*COPYABLE))
def reshape(context: Context) -> Lowered:
    """The same elements in the same order."""
    lowering = Lowering("copy", context)
    source, output = lowering.input(0, "input"), lowering.output()
    with lowering.b.loop("i", context.output().elements) as i:
        lowering.b.store(output, i, load(source, i))
    return lowering.finish()


@lowers(Pad, same_types(DType.FLOAT32, DType.INT8, DType.UINT8), equal_quantization)
def pad(context: Context) -> Lowered:
    """The input inside a frame of real 0 (the zero point of quantized tensors)."""
    op = context.node.op
    if not isinstance(op, Pad):
        raise TypeError(op)
    lowering = Lowering("pad", context)
    b, x, y = lowering.b, context.input(0), context.output()
    source, output = lowering.input(0, "input"), lowering.output()
    zero: Expr = (
        f32(0.0) if y.dtype is DType.FLOAT32
        else Const(y.quant.zero_point[0] if y.quant else 0, SCALAR_OF[y.dtype])
    )
    if 0 in y.shape:
        return lowering.finish()
    with ExitStack() as stack:
        outs = [stack.enter_context(b.loop(f"i{axis}", n)) for axis, n in enumerate(y.shape)]
        at = flat_index(outs, y.shape)
        ins: list[Expr] = []
        conditions: list[Expr] = []
        for axis, (before, after) in enumerate(op.paddings):
            position = b.let(f"s{axis}", sub(outs[axis], const(before)))
            ins.append(position)
            if before:
                conditions.append(ge(position, const(0)))
            if after:
                conditions.append(lt(position, const(x.shape[axis])))
        with b.if_(and_(*conditions) if conditions else None):
            b.store(output, at, load(source, flat_index(ins, x.shape)))
        if conditions:
            with b.else_():
                b.store(output, at, zero)
    return lowering.finish()


def no_activation(context: Context) -> str | None:
    """A concatenation can't have a fused activation."""
    op = context.node.op
    if isinstance(op, Concatenation) and op.activation is not Activation.NONE:
        return f"found {op.activation.value}"
    return None


@lowers(Concatenation, same_types(*COPYABLE), equal_quantization, no_activation)
def concatenation(context: Context) -> Lowered:
    """Inputs side by side along one axis."""
    op = context.node.op
    if not isinstance(op, Concatenation):
        raise TypeError(op)
    lowering = Lowering("concatenation", context)
    b, y = lowering.b, context.output()
    count = len(context.node.inputs)
    sources = [lowering.input(i, f"input{i + 1}") for i in range(count)]
    output = lowering.output()
    outer = math.prod(y.shape[: op.axis])
    row = math.prod(y.shape[op.axis :])
    with b.loop("outer", outer) as o:
        start = 0
        for position, source in enumerate(sources):
            chunk = math.prod(context.input(position).shape[op.axis :])
            with b.loop("i", chunk) as i:
                at = add(flat_index([o, i], (outer, row)), const(start))
                b.store(output, at, load(source, flat_index([o, i], (outer, chunk))))
            start += chunk
    return lowering.finish()
