"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED, in the order of TFLite's reference kernels."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from crtexport.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected, Padding2D
from crtexport.kernels.build import (
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
from crtexport.kernels.ir import Expr, Var
from crtexport.kernels.registry import Context, Lowered, Lowering, lowers
from crtexport.kernels.rules import rank
from crtexport.kernels.weighted import Weighted
from crtexport.kernels.weighted_rules import WEIGHTED_RULES, long_bias


class Axis(Struct, frozen=True):
    """One spatial axis of a window: position = out*stride - before + tap*dilation."""

    extent: int
    stride: int
    dilation: int
    before: int
    padded: bool

    def position(self, b: KernelBuilder, name: str, out: Expr, tap: Expr) -> Expr:
        """The input coordinate (index); may lie outside where the axis is padded."""
        start = sub(mul(out, const(self.stride)), const(self.before))
        return b.let(name, add(start, mul(tap, const(self.dilation))))

    def inside(self, position: Expr) -> Expr | None:
        """The condition that a coordinate is in the image; None where it always is."""
        if not self.padded:
            return None
        return and_(ge(position, const(0)), lt(position, const(self.extent)))


def image_axes(
    shape: tuple[int, ...], stride: tuple[int, int], dilation: tuple[int, int], pad: Padding2D
) -> tuple[Axis, Axis]:
    """Rows and columns of an NHWC image under a window."""
    return (
        Axis(shape[1], stride[0], dilation[0], pad.top, bool(pad.top or pad.bottom)),
        Axis(shape[2], stride[1], dilation[1], pad.left, bool(pad.left or pad.right)),
    )


def window_taps(
    b: KernelBuilder, axes: tuple[Axis, Axis], window: tuple[int, int], at: tuple[Expr, Expr],
    inside: Callable[[Expr, Expr, Expr, Expr], None],
    outside: Callable[[Expr, Expr], None] | None,
) -> None:
    """Loops over a window at output position ``at``: ``inside(ky, kx, iy, ix)`` for each cell of
    the image, ``outside(ky, kx)`` for each cell of the padding."""
    rows, columns = axes
    with b.loop("ky", window[0]) as ky:
        iy = rows.position(b, "iy", at[0], ky)
        if outside is None:
            with b.if_(rows.inside(iy)), b.loop("kx", window[1]) as kx:
                ix = columns.position(b, "ix", at[1], kx)
                with b.if_(columns.inside(ix)):
                    inside(ky, kx, iy, ix)
            return
        with b.loop("kx", window[1]) as kx:
            ix = columns.position(b, "ix", at[1], kx)
            conditions = [c for c in (rows.inside(iy), columns.inside(ix)) if c is not None]
            with b.if_(and_(*conditions)):
                inside(ky, kx, iy, ix)
            with b.else_():
                outside(ky, kx)


@lowers(Conv2D, rank(4), *WEIGHTED_RULES)
def conv2d(context: Context) -> Lowered:
    """for each pixel and output channel: bias + sum over the window and the input channels of its
    group."""
    op = context.node.op
    if not isinstance(op, Conv2D):
        raise TypeError(op)
    lowering = Lowering("conv2d", context)
    b, x, w, y = lowering.b, context.input(0).shape, context.input(1).shape, context.output().shape
    groups = x[3] // w[3] if w[3] else 1
    filters = y[3] // groups
    weighted = Weighted(lowering, 0, op.activation)
    axes = image_axes(x, op.stride, op.dilation, op.padding)
    with (
        b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy, b.loop("ox", y[2]) as ox,
        b.loop("group", groups) as group, b.loop("oc", filters) as within,
    ):
        oc = b.let("unit", add(mul(group, const(filters)), within))
        first = b.let("first", mul(group, const(w[3])))
        acc = weighted.start(oc)

        def inside(ky: Expr, kx: Expr, iy: Expr, ix: Expr) -> None:
            with b.loop("ic", w[3]) as ic:
                weighted.accumulate(
                    acc, flat_index([n, iy, ix, add(first, ic)], x),
                    flat_index([oc, ky, kx, ic], w),
                )

        def outside(ky: Expr, kx: Expr) -> None:
            with b.loop("ic", w[3]) as ic:
                weighted.accumulate_padded(acc, flat_index([oc, ky, kx, ic], w))

        counts = weighted.padding_counts and op.padding.any
        window_taps(b, axes, (w[1], w[2]), (oy, ox), inside, outside if counts else None)
        weighted.finish(acc, oc, flat_index([n, oy, ox, oc], y))
    return lowering.finish()


@lowers(DepthwiseConv2D, rank(4), *WEIGHTED_RULES, long_bias)
def depthwise_conv2d(context: Context) -> Lowered:
    """for each pixel and channel: bias + sum over the window of that channel."""
    op = context.node.op
    if not isinstance(op, DepthwiseConv2D):
        raise TypeError(op)
    lowering = Lowering("depthwise_conv2d", context)
    b, x, w, y = lowering.b, context.input(0).shape, context.input(1).shape, context.output().shape
    weighted = Weighted(lowering, 3, op.activation)
    axes = image_axes(x, op.stride, op.dilation, op.padding)
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
        window_taps(b, axes, (w[1], w[2]), (oy, ox), inside, outside if counts else None)
        weighted.finish(acc, oc, flat_index([n, oy, ox, oc], y))
    return lowering.finish()


@lowers(FullyConnected, *WEIGHTED_RULES)
def fully_connected(context: Context) -> Lowered:
    """for each row and unit: bias + sum over the depth."""
    op = context.node.op
    if not isinstance(op, FullyConnected):
        raise TypeError(op)
    lowering = Lowering("fully_connected", context)
    b = lowering.b
    units, depth = context.input(1).shape
    rows = context.input(0).elements // depth if depth else 0
    weighted = Weighted(lowering, 0, op.activation, fully_connected=True)
    with b.loop("row", rows) as row, b.loop("unit", units) as unit:
        acc: Var = weighted.start(unit)
        with b.loop("d", depth) as d:
            weighted.accumulate(
                acc, flat_index([row, d], (rows, depth)), flat_index([unit, d], (units, depth))
            )
        weighted.finish(acc, unit, flat_index([row, unit], (rows, units)))
    return lowering.finish()
