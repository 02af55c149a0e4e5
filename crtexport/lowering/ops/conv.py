"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED, in the order of TFLite's reference kernels."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected
from crtexport.ir.window import WindowAxis, WindowGeometry
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    const,
    flat_index,
    ge,
    lt,
    mul,
    sub,
)
from crtexport.kir.language import Expr, Var
from crtexport.lowering.numerics.computed_product import computed_product
from crtexport.lowering.numerics.weighted_layer import Weighted
from crtexport.lowering.numerics.weighted_rules import (
    DENSE_RULES,
    WEIGHTED_RULES,
    computed_weights,
    long_bias,
)
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import rank


def window_taps(
    b: KernelBuilder, window: WindowGeometry, at: tuple[Expr, Expr],
    inside: Callable[[Expr, Expr, Expr, Expr], None],
    outside: Callable[[Expr, Expr], None] | None,
) -> None:
    """Emits loops over a window at output position ``at``: ``inside(ky, kx, iy, ix)`` for each cell
    of the image, ``outside(ky, kx)`` for each cell of the padding."""
    rows, columns = window.rows, window.columns
    with b.loop("ky", rows.window) as ky:
        iy = b.let("iy", _tap_position(rows, at[0], ky))
        if outside is None:
            with b.if_(_in_image(rows, iy)), b.loop("kx", columns.window) as kx:
                ix = b.let("ix", _tap_position(columns, at[1], kx))
                with b.if_(_in_image(columns, ix)):
                    inside(ky, kx, iy, ix)
            return
        with b.loop("kx", columns.window) as kx:
            ix = b.let("ix", _tap_position(columns, at[1], kx))
            tests = [t for t in (_in_image(rows, iy), _in_image(columns, ix)) if t is not None]
            with b.if_(and_(*tests)):
                inside(ky, kx, iy, ix)
            with b.else_():
                outside(ky, kx)


def _tap_position(axis: WindowAxis, at: Expr, tap: Expr) -> Expr:
    """Returns the coordinate of a tap (index), which may lie in the padding."""
    start = sub(mul(at, const(axis.stride)), const(axis.pad_before))
    return add(start, mul(tap, const(axis.dilation)))


def _in_image(axis: WindowAxis, position: Expr) -> Expr | None:
    """Returns the condition that a coordinate lies in the image; None where there is no padding."""
    if not axis.padded:
        return None
    return and_(ge(position, const(0)), lt(position, const(axis.size)))


@lowers(Conv2D, rank(4), *WEIGHTED_RULES)
def conv2d(context: Context) -> Lowered:
    """for each pixel and output channel: bias + sum over the window and the input channels of its
    group."""
    op = context.op(Conv2D)
    lowering = Lowering("conv2d", context)
    b, x, w, y = lowering.b, context.input(0).shape, context.input(1).shape, context.output().shape
    groups = x[3] // w[3] if w[3] else 1
    filters = y[3] // groups
    weighted = Weighted(lowering, 0, op.activation, by_units=True)
    window = WindowGeometry.of(op, x, y, (w[1], w[2]))
    with (
        b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy, b.loop("ox", y[2]) as ox,
        b.loop("group", groups) as group, weighted.units("oc", filters, group) as (oc, row),
    ):
        first = b.let("first", mul(group, const(w[3])))
        acc = weighted.start(oc)

        def inside(ky: Expr, kx: Expr, iy: Expr, ix: Expr) -> None:
            with b.loop("ic", w[3]) as ic:
                weighted.accumulate(
                    acc, flat_index([n, iy, ix, add(first, ic)], x),
                    flat_index([row, ky, kx, ic], w),
                )

        def outside(ky: Expr, kx: Expr) -> None:
            with b.loop("ic", w[3]) as ic:
                weighted.accumulate_padded(acc, flat_index([row, ky, kx, ic], w))

        counts = weighted.padding_counts and op.padding.any
        window_taps(b, window, (oy, ox), inside, outside if counts else None)
        weighted.finish(acc, oc, flat_index([n, oy, ox, oc], y))
    return lowering.finish()


@lowers(DepthwiseConv2D, rank(4), *WEIGHTED_RULES, long_bias)
def depthwise_conv2d(context: Context) -> Lowered:
    """for each pixel and channel: bias + sum over the window of that channel."""
    op = context.op(DepthwiseConv2D)
    lowering = Lowering("depthwise_conv2d", context)
    b, x, w, y = lowering.b, context.input(0).shape, context.input(1).shape, context.output().shape
    weighted = Weighted(lowering, 3, op.activation)
    window = WindowGeometry.of(op, x, y, (w[1], w[2]))
    with (
        b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy, b.loop("ox", y[2]) as ox,
        b.loop("ic", x[3]) as ic, b.loop("m", op.depth_multiplier) as m,
    ):
        oc = b.let("oc", add(mul(ic, const(op.depth_multiplier)), m))
        acc = weighted.start(oc)

        def inside(ky: Expr, kx: Expr, iy: Expr, ix: Expr) -> None:
            weighted.accumulate(
                acc, flat_index([n, iy, ix, ic], x), flat_index([const(0), ky, kx, oc], w)
            )

        def outside(ky: Expr, kx: Expr) -> None:
            weighted.accumulate_padded(acc, flat_index([const(0), ky, kx, oc], w))

        counts = weighted.padding_counts and op.padding.any
        window_taps(b, window, (oy, ox), inside, outside if counts else None)
        weighted.finish(acc, oc, flat_index([n, oy, ox, oc], y))
    return lowering.finish()


@lowers(FullyConnected, *DENSE_RULES)
def fully_connected(context: Context) -> Lowered:
    """for each row and unit: bias + sum over the depth."""
    op = context.op(FullyConnected)
    if computed_weights(context):
        return computed_product("fully_connected", context)
    lowering = Lowering("fully_connected", context)
    b = lowering.b
    units, depth = context.input(1).shape
    rows = context.input(0).elements // depth if depth else 0
    weighted = Weighted(lowering, 0, op.activation, fully_connected=True, by_units=True)
    with b.loop("row", rows) as row, weighted.units("unit", units) as (unit, at):
        acc: Var = weighted.start(unit)
        with b.loop("d", depth) as d:
            weighted.accumulate(
                acc, flat_index([row, d], (rows, depth)), flat_index([at, d], (units, depth))
            )
        weighted.finish(acc, unit, flat_index([row, unit], (rows, units)))
    return lowering.finish()
