"""PRELU: a slope for each channel, or any other broadcast shape."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from crtexport.ir.ops import Prelu
from crtexport.ir.types import DType
from crtexport.kernels import tables
from crtexport.kernels.build import cast, f32, ge, i32, load, mul, select, sub
from crtexport.kernels.elementwise import broadcast_loops
from crtexport.kernels.ir import Expr, Scalar
from crtexport.kernels.maps import BYTES, has_scales, rescaler, stored
from crtexport.kernels.registry import Context, Lowered, Lowering, lowers
from crtexport.kernels.rules import same_types


@lowers(Prelu, same_types(DType.FLOAT32, *BYTES), has_scales)
def prelu(context: Context) -> Lowered:
    """x where it is not negative, x * slope elsewhere."""
    lowering = Lowering("prelu", context)
    b, shape = lowering.b, context.output().shape
    source, slopes = lowering.input(0, "input"), lowering.input(1, "slopes")
    function = _integers(lowering) if context.input(0).dtype in BYTES else _floats(lowering)
    output = lowering.output()
    if 0 in shape:
        return lowering.finish()
    with ExitStack() as stack:
        (i, j), out = broadcast_loops(
            b, stack, [context.input(0).shape, context.input(1).shape], shape
        )
        value, slope = b.let("value", load(source, i)), b.let("slope", load(slopes, j))
        b.store(output, out, function(value, slope))
    return lowering.finish()


def _floats(lowering: Lowering) -> Callable[[Expr, Expr], Expr]:
    b = lowering.b
    return lambda x, slope: select(ge(x, f32(0.0)), x, b.let("leak", mul(x, slope)))


def _integers(lowering: Lowering) -> Callable[[Expr, Expr], Expr]:
    """Rescaled by one multiplier, the product of negative numbers and slopes by another."""
    context, b = lowering.context, lowering.b
    source, slopes, target = context.input(0), context.input(1), context.output()
    leak = float(tables.scale(source) * tables.scale(slopes) / tables.scale(target))
    upper = rescaler(lowering, tables.ratio_of(source, target), 255)
    lower = rescaler(lowering, leak, 255 * 255)

    def function(value: Expr, slope: Expr) -> Expr:
        x = b.let("x", sub(cast(value, Scalar.I32), i32(tables.zero(source))))
        factor = b.let("factor", sub(cast(slope, Scalar.I32), i32(tables.zero(slopes))))
        above = b.let("above", upper(x))
        below = b.let("below", lower(b.let("leak", mul(x, factor))))
        scaled = b.let("scaled", select(ge(x, i32(0)), above, below))
        return stored(b, scaled, tables.zero(target), target.dtype)

    return function
