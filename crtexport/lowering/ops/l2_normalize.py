"""L2_NORMALIZATION along the last axis."""

from __future__ import annotations

from crtexport.ir.ops import L2Normalization
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    div,
    f32,
    flat_index,
    i32,
    load,
    max_,
    mul,
    shl,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.elementwise_maps import BYTES, has_scales
from crtexport.lowering.numerics.float_exact import sqrt
from crtexport.lowering.numerics.gemmlowp import inverse_root
from crtexport.lowering.numerics.last_axis_rows import rows_kernel, rows_of
from crtexport.lowering.numerics.requantize import (
    rounding_divide_by_pot,
    rounding_doubling_high_mul,
)
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

_SMALLEST = 1e-6  # what a row is divided by at least
_OUTPUT_BITS = 7  # of the fraction of an 8-bit result
_MOST = (1 << 31) // 255**2


def normalized_output(context: Context) -> str | None:
    """An 8-bit output must have scale 1/128 and the zero point in the middle (0 or 128)."""
    output = context.output()
    if output.dtype not in BYTES or output.quant is None:
        return None
    middle = 0 if output.dtype is DType.INT8 else 128
    if output.quant.scale == (1 / 128,) and output.quant.zero_point == (middle,):
        return None
    return f"found {output.quant.scale[0]} and {output.quant.zero_point[0]}"


def short_rows(context: Context) -> str | None:
    """Rows of 8-bit numbers must have at most 33025 elements, so that sums fit 32 bits."""
    _, depth = rows_of(context)
    return f"found {depth}" if context.input(0).dtype in BYTES and depth > _MOST else None


@lowers(
    L2Normalization, same_types(DType.FLOAT32, *BYTES), has_scales, normalized_output, short_rows
)
def l2_normalization(context: Context) -> Lowered:
    """x / sqrt(sum of squares), row by row."""
    return rows_kernel(context, "l2_normalization", _float_rows, _integer_rows)


def _float_rows(lowering: Lowering, source: Buffer) -> None:
    b, shape, output = lowering.b, rows_of(lowering.context), lowering.output()
    with b.loop("row", shape[0]) as row:
        total = b.local("total", f32(0.0))
        with b.loop("i", shape[1]) as i:
            value = b.let("value", load(source, flat_index([row, i], shape)))
            b.assign(total, add(total, mul(value, value)))
        length = b.let("length", max_(sqrt(b, total), f32(_SMALLEST)))
        with b.loop("i", shape[1]) as i:
            at = flat_index([row, i], shape)
            b.store(output, at, div(load(source, at), length))


def _integer_rows(lowering: Lowering, source: Buffer) -> None:
    context, b, shape = lowering.context, lowering.b, rows_of(lowering.context)
    zero = context.quant(context.input(0)).zero_point[0]
    dtype, middle = context.output().dtype, context.quant(context.output()).zero_point[0]
    output = lowering.output()

    def centred(row: Expr, i: Expr) -> Expr:
        value = cast(load(source, flat_index([row, i], shape)), Scalar.I32)
        return b.let("centred", sub(value, i32(zero)))

    with b.loop("row", shape[0]) as row:
        total = b.local("total", i32(0))
        with b.loop("i", shape[1]) as i:
            value = centred(row, i)
            b.assign(total, add(total, mul(value, value)))
        root, right = inverse_root(b, total)
        left, down = _shifts(b, right, dtype)
        with b.loop("i", shape[1]) as i:
            raised = b.let("raised", shl(centred(row, i), left))
            high = rounding_doubling_high_mul(b, raised, root)
            scaled = b.let("scaled", rounding_divide_by_pot(b, high, down))
            moved = clamp(add(scaled, i32(middle)), *dtype.limits)
            b.store(output, flat_index([row, i], shape), cast(moved, SCALAR_OF[dtype]))


def _shifts(b: KernelBuilder, right: Expr, dtype: DType) -> tuple[Expr, Expr]:
    """i32: how far to the left before the root is multiplied, and to the right after it: the bits
    of the result are raised first for uint8, as far as nothing is lost again for int8."""
    bits = i32(_OUTPUT_BITS)
    if dtype is DType.UINT8:
        return bits, right
    left = b.let("left", max_(sub(bits, right), i32(0)))
    return left, b.let("down", max_(sub(right, bits), i32(0)))
