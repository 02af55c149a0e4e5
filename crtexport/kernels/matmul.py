"""BATCH_MATMUL of two computed tensors, and EMBEDDING_LOOKUP."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from crtexport.ir.ops import Activation, BatchMatMul, EmbeddingLookup
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType, Rounding
from crtexport.kernels.build import (
    add,
    cast,
    clamp,
    const,
    f32,
    flat_index,
    i32,
    load,
    mul,
    sub,
    wrap_add,
)
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.kernels.requantize import (
    Multiplier,
    Requantizer,
    WideRequantizer,
    quantized_result,
)
from crtexport.kernels.rules import quantized_weights, same_types
from crtexport.kernels.weighted_rules import symmetric_int16


class _Product:
    """Sums of products of two inputs, and what becomes of them."""

    def __init__(self, lowering: Lowering, depth: int) -> None:
        self.lowering, self.b, self.context = lowering, lowering.b, lowering.context
        self.first, self.second = lowering.input(0, "first"), lowering.input(1, "second")
        self._wraps = False
        self._sum = Scalar.F32
        self._requantizer: Requantizer | WideRequantizer | None = None
        if not self.context.input(0).dtype.is_float:
            self._prepare(depth)
        self.output = lowering.output()

    def _prepare(self, depth: int) -> None:
        context = self.context
        types = (context.input(0), context.input(1))
        scales = [context.quant(t).scale[0] for t in types]
        # The product of both scales is a float32 (GetQuantizedConvolutionMultipler).
        scale = float(np.float32(scales[0]) * np.float32(scales[1]))
        multiplier = Multiplier.of([scale / context.quant(context.output()).scale[0]])
        bound = depth
        for type_, zero in zip(types, self._zeros(), strict=True):
            low, high = type_.dtype.limits
            bound *= max(zero - low, high - zero)
        wide = types[0].dtype is DType.INT16
        fits = bound < 1 << 31
        self._sum = Scalar.I32 if fits or not wide else Scalar.I64
        self._wraps = not fits and not wide
        self._requantizer = (
            WideRequantizer(self.lowering, multiplier, bound) if wide
            else Requantizer(self.lowering, multiplier, Rounding.DOUBLE, bound)
        )

    def _zeros(self) -> tuple[int, int]:
        context = self.context
        first, second = context.quant(context.input(0)), context.quant(context.input(1))
        return first.zero_point[0], second.zero_point[0]

    def start(self) -> Var:
        return self.b.local("acc", const(0, self._sum))

    def accumulate(self, acc: Var, first: Expr, second: Expr) -> None:
        """acc += first * second"""
        if self._requantizer is None:
            self.b.assign(acc, add(acc, mul(load(self.first, first), load(self.second, second))))
            return
        zeros = self._zeros()
        x = sub(cast(load(self.first, first), Scalar.I32), i32(zeros[0]))
        y = sub(cast(load(self.second, second), Scalar.I32), i32(zeros[1]))
        term = cast(mul(x, y), self._sum)
        self.b.assign(acc, wrap_add(acc, term) if self._wraps else add(acc, term))

    def finish(self, acc: Var, index: Expr) -> None:
        result: Expr = acc
        if self._requantizer is not None:
            out = self.context.output()
            result = quantized_result(
                self._requantizer(acc, const(0)), self.context.quant(out).zero_point[0],
                activation_range(Activation.NONE, out), SCALAR_OF[out.dtype],
            )
        self.b.store(self.output, index, result)


def _batched(batch: list[Expr], shape: tuple[int, ...]) -> list[Expr]:
    """The indices of a matrix in an input whose axes of size 1 broadcast."""
    own = shape[:-2]
    return [
        const(0) if size == 1 else index
        for size, index in zip(own, batch[len(batch) - len(own) :], strict=True)
    ]


@lowers(
    BatchMatMul, same_types(DType.FLOAT32, DType.INT8, DType.INT16), quantized_weights,
    symmetric_int16,
)
def batch_matmul(context: Context) -> Lowered:
    """for each matrix, row and column: sum over the depth."""
    op = context.node.op
    if not isinstance(op, BatchMatMul):
        raise TypeError(op)
    lowering = Lowering("batch_matmul", context)
    b = lowering.b
    x, y, out = context.input(0).shape, context.input(1).shape, context.output().shape
    depth = x[-2] if op.adj_x else x[-1]
    product = _Product(lowering, depth)
    with ExitStack() as loops:
        batch = [loops.enter_context(b.loop("batch", size)) for size in out[:-2]]
        row = loops.enter_context(b.loop("row", out[-2]))
        column = loops.enter_context(b.loop("column", out[-1]))
        acc = product.start()
        with b.loop("d", depth) as d:
            left = [d, row] if op.adj_x else [row, d]
            right = [column, d] if op.adj_y else [d, column]
            product.accumulate(
                acc, flat_index([*_batched(batch, x), *left], x),
                flat_index([*_batched(batch, y), *right], y),
            )
        product.finish(acc, flat_index([*batch, row, column], out))
    return lowering.finish()


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
