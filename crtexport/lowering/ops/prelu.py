"""PRELU: a slope for each channel, or any other broadcast shape."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Prelu
from crtexport.ir.types import DType
from crtexport.kir.builder import cast, f32, ge, i32, load, mul, select, sub
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics import lut8
from crtexport.lowering.numerics.elementwise_maps import BYTES, has_scales, rescaler, stored
from crtexport.lowering.ops.elementwise import broadcast_loops
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers


class PreluTypes:
    """All must be float32, int8 or uint8; or input and output int16 and the slopes int8."""

    own_signatures = (((DType.INT16, DType.INT8), (DType.INT16,)),)
    """Element types that only TFLite Micro and LiteRT have, and so no differential test shows."""

    def __call__(self, context: Context) -> str | None:
        found = (context.input(0).dtype, context.input(1).dtype, context.output().dtype)
        alike = len(set(found)) == 1 and found[0] in (DType.FLOAT32, *BYTES)
        if alike or found == (DType.INT16, DType.INT8, DType.INT16):
            return None
        return "found " + ", ".join(dtype.value for dtype in found)


prelu_types = PreluTypes()


@lowers(Prelu, prelu_types, has_scales)
def prelu(context: Context) -> Lowered:
    """x where it is not negative, x * slope elsewhere."""
    lowering = Lowering("prelu", context)
    b, shape = lowering.b, context.output().shape
    source, slopes = lowering.input(0, "input"), lowering.input(1, "slopes")
    integer = context.input(0).dtype.is_integer
    function = _integers(lowering) if integer else _floats(lowering)
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
    wide = source.dtype is DType.INT16  # only TensorFlow Lite Micro has it
    numerics = Numerics.TFLM if wide else context.numerics
    before, slope_scale, after = lut8.scales(numerics, source, slopes, target)
    ratio, leak = float(before / after), float(before * slope_scale / after)
    reach = 1 << 15 if wide else 255
    upper, lower = rescaler(lowering, ratio, reach), rescaler(lowering, leak, reach * 255)

    def function(value: Expr, slope: Expr) -> Expr:
        x = b.let("x", sub(cast(value, Scalar.I32), i32(lut8.zero(source))))
        factor = b.let("factor", sub(cast(slope, Scalar.I32), i32(lut8.zero(slopes))))
        above = b.let("above", upper(x))
        below = b.let("below", lower(b.let("leak", mul(x, factor))))
        scaled = b.let("scaled", select(ge(x, i32(0)), above, below))
        return stored(b, scaled, lut8.zero(target), target.dtype)

    return function
