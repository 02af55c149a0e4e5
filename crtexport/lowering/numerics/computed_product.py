"""Products of two matrices that are both computed: BATCH_MATMUL, and FULLY_CONNECTED in attention.

They differ in the initial value of the sums and in the epilogue; schedules get everything else from
this module.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

import numpy as np
from msgspec import Struct

from crtexport.ir.ops import Activation, BatchMatMul, FullyConnected
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import add, cast, const, flat_index, i32, load, mul, sub, wrap_add
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import (
    Multiplier,
    Requantizer,
    WideRequantizer,
    quantized_result,
)
from crtexport.lowering.numerics.weighted_layer import Weighted
from crtexport.lowering.numerics.weighted_rules import computed_weights
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering
from crtexport.support.fixedpoint import Rounding

_REACH = 128
"""Largest magnitude of an int8 number."""


class Product(Protocol):
    """The parts of a product: sums of type ``sum``, which wrap where ``wraps`` says so, of values
    minus their zero points."""

    x: Buffer
    weights: Buffer
    zero_point: int
    weight_zero: int
    sum: Scalar
    wraps: bool

    def start(self, channel: Expr) -> Var:
        """Declares and returns the accumulator of a column of the result."""

    def finish(self, acc: Var, channel: Expr, out_index: Expr) -> None:
        """Emits the epilogue: scales, clamps and stores a sum."""


class Matrices(Struct, frozen=True):
    """The shapes of a product: for each matrix of ``batch``, (rows, depth) times (depth, units).

    ``left`` and ``right`` are the shapes of the inputs in memory, whose batch axes broadcast;
    ``adjoint``: which of them have their last two axes exchanged.
    """

    batch: tuple[int, ...]
    rows: int
    depth: int
    units: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    adjoint: tuple[bool, bool]

    @staticmethod
    def of(context: Context) -> Matrices:
        """Returns the shapes of a node that is such a product."""
        x, y, out = context.input(0).shape, context.input(1).shape, context.output().shape
        match context.node.op:
            case BatchMatMul(adj_x=adj_x, adj_y=adj_y):
                depth = x[-2] if adj_x else x[-1]
                return Matrices(out[:-2], out[-2], depth, out[-1], x, y, (adj_x, not adj_y))
            case FullyConnected():
                units, depth = y
                rows = context.input(0).elements // depth if depth else 0
                return Matrices((), rows, depth, units, (rows, depth), y, (False, False))
            case op:
                raise TypeError(op)

    def left_index(self, batch: list[Expr], row: Expr, d: Expr) -> Expr:
        """Returns the index of a value of the first input."""
        last = [d, row] if self.adjoint[0] else [row, d]
        return flat_index([*_batched(batch, self.left), *last], self.left)

    def right_index(self, batch: list[Expr], unit: Expr, d: Expr) -> Expr:
        """Returns the index of a value of the second input."""
        last = [d, unit] if self.adjoint[1] else [unit, d]
        return flat_index([*_batched(batch, self.right), *last], self.right)

    def result_index(self, batch: list[Expr], row: Expr, unit: Expr) -> Expr:
        """Returns the index of a result."""
        return flat_index([*batch, row, unit], (*self.batch, self.rows, self.units))


def _batched(batch: list[Expr], shape: tuple[int, ...]) -> list[Expr]:
    """Returns the batch indices of an input, whose axes of size 1 broadcast."""
    own = shape[:-2]
    return [
        const(0) if size == 1 else index
        for size, index in zip(own, batch[len(batch) - len(own) :], strict=True)
    ]


def is_computed_product(context: Context) -> bool:
    """Returns whether a node multiplies two matrices that are both computed, or could be."""
    return isinstance(context.node.op, BatchMatMul) or computed_weights(context)


def product_of(lowering: Lowering) -> Product:
    """Declares the buffers of such a node and returns its product."""
    op = lowering.context.node.op
    if isinstance(op, FullyConnected):
        # Weights that aren't known take no zero point of the input into the bias.
        return Weighted(lowering, 0, op.activation, fully_connected=True, every_tap=False)
    return Unbiased(lowering)


def centred(product: Product, buffer: Buffer, index: Expr) -> Expr:
    """Returns a value of either input minus its zero point."""
    if product.sum is Scalar.F32:
        return load(buffer, index)
    zero = product.zero_point if buffer is product.x else product.weight_zero
    return sub(cast(load(buffer, index), Scalar.I32), i32(zero))


def plus(product: Product, acc: Var, first: Expr, second: Expr) -> Expr:
    """Returns an accumulator plus the product of two such values."""
    term = cast(mul(first, second), product.sum)
    return wrap_add(acc, term) if product.wraps else add(acc, term)


def computed_product(name: str, context: Context) -> Lowered:
    """Returns the portable kernel of a product of two computed matrices."""
    lowering = Lowering(name, context)
    b, shape = lowering.b, Matrices.of(context)
    product = product_of(lowering)
    with ExitStack() as loops:
        batch = [loops.enter_context(b.loop("batch", size)) for size in shape.batch]
        row = loops.enter_context(b.loop("row", shape.rows))
        unit = loops.enter_context(b.loop("unit", shape.units))
        acc = product.start(unit)
        with b.loop("d", shape.depth) as d:
            x = centred(product, product.x, shape.left_index(batch, row, d))
            w = centred(product, product.weights, shape.right_index(batch, unit, d))
            b.assign(acc, plus(product, acc, x, w))
        product.finish(acc, unit, shape.result_index(batch, row, unit))
    return lowering.finish()


class Unbiased:
    """BATCH_MATMUL: sums that start at 0."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering, self.b, self.context = lowering, lowering.b, lowering.context
        self.x, self.weights = lowering.input(0, "first"), lowering.input(1, "second")
        self.zero_point = self.weight_zero = 0
        self.wraps = False
        self.sum = Scalar.F32
        self.sums: IntegerSums | None = None
        """Facts about the sums, of int8."""
        self._requantizer: Requantizer | WideRequantizer | None = None
        if not self.context.input(0).dtype.is_float:
            self._prepare(Matrices.of(self.context).depth)
        self.output = lowering.output()

    def _prepare(self, depth: int) -> None:
        context = self.context
        types = (context.input(0), context.input(1))
        quants = [context.quant(t) for t in types]
        self.zero_point, self.weight_zero = (quant.zero_point[0] for quant in quants)
        # The product of both scales is a float32 in TFLite (GetQuantizedConvolutionMultipler).
        precision = context.numerics.precision
        scale = float(precision(quants[0].scale[0]) * precision(quants[1].scale[0]))
        real = scale / context.quant(context.output()).scale[0]
        rounding = context.numerics.rounding(fully_connected=False)
        if rounding is Rounding.FLOAT:
            real = float(np.float32(scale) / np.float32(context.quant(context.output()).scale[0]))
        multiplier = Multiplier.of([real])
        bound = depth
        for type_, quant in zip(types, quants, strict=True):
            low, high = type_.dtype.limits
            bound *= max(quant.zero_point[0] - low, high - quant.zero_point[0])
        wide = types[0].dtype is DType.INT16
        fits = bound < 1 << 31
        self.sum = Scalar.I32 if fits or not wide else Scalar.I64
        self.wraps = not fits and not wide
        if not wide:
            none = np.zeros(1, np.int64)
            self.sums = IntegerSums(
                zero_point=0, weight_zero=0, magnitudes=none - (-bound // _REACH), raw=none,
                folded=none, bound=bound, multiplier=multiplier, rounding=rounding, wide=False,
            )
        self._requantizer = (
            WideRequantizer(self.lowering, multiplier, bound) if wide
            else Requantizer(self.lowering, multiplier, rounding, bound)
        )

    def start(self, channel: Expr) -> Var:
        del channel
        return self.b.local("acc", const(0, self.sum))

    def finish(self, acc: Var, channel: Expr, out_index: Expr) -> None:
        del channel
        result: Expr = acc
        if self._requantizer is not None:
            out = self.context.output()
            result = quantized_result(
                self._requantizer(acc, const(0)), self.context.quant(out).zero_point[0],
                activation_range(Activation.NONE, out), SCALAR_OF[out.dtype],
            )
        self.b.store(self.output, out_index, result)
