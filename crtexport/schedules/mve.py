"""Kernels for processors with MVE (Cortex-M55, M85)."""

from __future__ import annotations

import numpy as np

from crtexport.ir.ops import Add, Conv2D, DepthwiseConv2D, FullyConnected, Mul, Sub
from crtexport.kernels.build import add, const, mul
from crtexport.kernels.ir import Expr
from crtexport.kernels.registry import Context, Lowered, Lowering
from crtexport.schedules import mve_conv, mve_depthwise, mve_elementwise, mve_float
from crtexport.schedules.mve_dense import Product, Segment, cover, rows_together
from crtexport.schedules.mve_scale import Sums
from crtexport.target import Target


def has_mve(target: Target) -> bool:
    """Whether the processor has vectors of integers."""
    return any(feature in ("+mve", "+mve.fp") for feature in target.features)


def has_floats(target: Target) -> bool:
    """Whether the processor has vectors of floats."""
    return "+mve.fp" in target.features


def lower(context: Context, *, floats: bool = False) -> Lowered | None:
    """A node that keeps its operator's rules in vectors, of ``floats`` too if the processor has
    such; None where there is no such form."""
    if floats and (found := mve_float.lower(context)) is not None:
        return found
    op = context.node.op
    match op:
        case FullyConnected():
            return _fully_connected(context)
        case DepthwiseConv2D():
            return mve_depthwise.lower(context, op)
        case Conv2D():
            return _pointwise(context, op) or mve_conv.lower(context, op)
        case Add() | Sub() | Mul():
            return mve_elementwise.lower(context, op)
        case _:
            return None


def _fully_connected(context: Context) -> Lowered | None:
    sums = Sums.of(context, 0, fully_connected=True)
    units, depth = context.input(1).shape
    if sums is None or not units or not depth:
        return None
    rows = context.input(0).elements // depth
    return _product(context, sums, "fully_connected", (1, rows), (0, depth))


def _pointwise(context: Context, op: Conv2D) -> Lowered | None:
    """1x1 windows: each pixel that is looked at is a row."""
    x, w, y = context.input(0).shape, context.input(1).shape, context.output().shape
    if w[1:3] != (1, 1) or op.padding.any or w[3] != x[3] or 0 in (*x, *w, *y):
        return None
    sums = Sums.of(context, 0)
    if sums is None:
        return None
    if op.stride == (1, 1):
        return _product(
            context, sums, "pointwise_conv2d", (1, y[0] * y[1] * y[2]), (0, x[3])
        )
    if x[0] > 1:
        return None
    line = op.stride[0] * x[2] * x[3]
    return _product(
        context, sums, "pointwise_conv2d", (y[1], y[2]), (line, op.stride[1] * x[3])
    )


def _product(
    context: Context, sums: Sums, name: str, counts: tuple[int, int], steps: tuple[int, int]
) -> Lowered:
    """Lines of rows times all units: ``counts`` of lines, and of rows in each; ``steps`` from one
    to the next in the input."""
    lowering = Lowering(name, context)
    b = lowering.b
    x = lowering.input(0, "input")
    weights = context.values(1).astype(np.int8).reshape(sums.channels, -1)
    units, depth = weights.shape
    lines, count = counts
    product = Product(lowering, sums, [(weights, False)], rows_together(count, [depth]))
    output = lowering.output()
    with b.loop("line", lines) as line:

        def block(first: Expr) -> None:
            rows = [add(first, const(i)) for i in range(product.high)]
            begin = mul(line, const(steps[0]))
            starts = tuple(b.let("x", add(begin, mul(row, const(steps[1])))) for row in rows)
            done = mul(line, const(count))
            targets = [b.let("y", mul(add(done, row), const(units))) for row in rows]
            product.emit([Segment(x, starts, depth)], output, targets)

        cover(b, count, product.high, block)
    return lowering.finish()
