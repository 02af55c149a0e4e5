"""BATCH_MATMUL of two computed tensors, and EMBEDDING_LOOKUP."""

from __future__ import annotations

from crtexport.ir.ops import BatchMatMul, EmbeddingLookup
from crtexport.ir.types import DType
from crtexport.kir.builder import cast, clamp, f32, flat_index, load, mul
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.computed_product import computed_product
from crtexport.lowering.numerics.weighted_rules import symmetric_int16
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import quantized_weights, same_types


@lowers(
    BatchMatMul, same_types(DType.FLOAT32, DType.INT8, DType.INT16), quantized_weights,
    symmetric_int16,
)
def batch_matmul(context: Context) -> Lowered:
    """for each matrix, row and column: sum over the depth."""
    return computed_product("batch_matmul", context)


def lookup_types(context: Context) -> str | None:
    """The output must have the table's element type and quantization, or be the real numbers of an
    int8 table with one scale and zero point 0."""
    table, out = context.input(1), context.output()
    if table.dtype is out.dtype:
        return None if table.quant == out.quant else "found different scales or zero points"
    quant = table.quant
    if (table.dtype, out.dtype) != (DType.INT8, DType.FLOAT32):
        return f"found {out.dtype.value} rows of a {table.dtype.value} table"
    if quant is None or not quant.per_tensor or any(quant.zero_point):
        return "found another quantization"
    return None


@lowers(EmbeddingLookup, lookup_types)
def embedding_lookup(context: Context) -> Lowered:
    """for each index: its row of the table."""
    lowering = Lowering("embedding_lookup", context)
    b = lowering.b
    indices = lowering.input(0, "indices")
    table: Buffer = lowering.input(1, "table")
    rows = context.input(1).shape[0]
    width = context.input(1).elements // rows
    real = context.output().dtype is not context.input(1).dtype
    output = lowering.output()
    with b.loop("i", indices.size) as i:
        found = b.let("found", clamp(load(indices, i), 0, rows - 1))
        row = b.let("row", cast(found, Scalar.INDEX))
        with b.loop("j", width) as j:
            value: Expr = load(table, flat_index([row, j], (rows, width)))
            if real:
                scale = context.quant(context.input(1)).scale[0]
                value = mul(cast(value, Scalar.F32), f32(scale))
            b.store(output, flat_index([i, j], (indices.size, width)), value)
    return lowering.finish()
