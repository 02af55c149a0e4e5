"""CAST and ZEROS_LIKE."""

from __future__ import annotations

from crtexport.ir.ops import Cast, ZerosLike
from crtexport.ir.types import DType
from crtexport.kir.builder import KernelBuilder, cast, const, eq, i32, select
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.elementwise_maps import element_map
from crtexport.lowering.numerics.float_exact import saturating_integer
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types


@lowers(Cast)
def cast_(context: Context) -> Lowered:
    """The number in another type: floats toward zero and saturated, integers modulo 2**bits;
    bool is 1 of whatever isn't 0."""
    source, target = context.input(0).dtype, context.output().dtype

    def function(b: KernelBuilder, value: Expr) -> Expr:
        wide = Scalar.I64 if source is DType.UINT32 else Scalar.I32
        if source is DType.FLOAT16:
            wide = Scalar.F32
        work = value if value.type in _WIDE else b.let("wide", cast(value, wide))
        if DType.BOOL in (source, target) and source is not target:
            zero = const(0, work.type)
            work = b.let("truth", select(eq(work, zero), i32(0), i32(1)))
        elif source.is_float and not target.is_float:
            work = saturating_integer(b, work, *target.limits)
        if target is DType.FLOAT16:
            work = b.let("real", cast(work, Scalar.F32))
        return cast(work, SCALAR_OF[target])

    return element_map(context, "cast", function)


_WIDE = (Scalar.I32, Scalar.I64, Scalar.F32, Scalar.F64)


@lowers(ZerosLike, same_types(DType.FLOAT32, DType.INT32, DType.INT64, DType.INT8))
def zeros_like(context: Context) -> Lowered:
    """0 everywhere; of int8 the stored 0, whatever the zero point is, as in TFLite Micro."""
    lowering = Lowering("zeros_like", context)
    output = lowering.output()
    with lowering.b.loop("i", context.output().elements) as i:
        lowering.b.store(output, i, const(0, output.dtype))
    return lowering.finish()
