"""Resample: elements along some axes by tables of indices and weights.

Interpolation along several axes at once: each element of the output is a sum over the product of
the axes' taps. Few taps are written out, with places and weights read once per row and column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from itertools import product

from crtexport.ir.ops import Resample
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    f32,
    flat_index,
    load,
    mul,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers

_WRITTEN_OUT = 16
"""Taps of all axes together up to which no loop counts them."""


def resample_types(context: Context) -> str | None:
    """Input and output must be of one type, and float32 where there are weights."""
    op, data = context.node.op, context.input(0).dtype
    if not isinstance(op, Resample):
        raise TypeError(op)
    weighted = len(context.node.inputs) > 1 + len(op.axes)
    if data is context.output().dtype and data in ((DType.FLOAT32,) if weighted else SCALAR_OF):
        return None
    return f"found {data.value} to {context.output().dtype.value}"


class _Axis:
    """An axis that is resampled, and its tables."""

    def __init__(self, lowering: Lowering, number: int, axes: int, size: int) -> None:
        self.b, self.size = lowering.b, size
        self.taps = math.prod(lowering.context.input(1 + number).shape[1:])
        self.indices = lowering.input(1 + number, "indices")
        self.weights: Buffer | None = None
        if lowering.context.has(1 + axes + number):
            self.weights = lowering.input(1 + axes + number, "weights")

    def index(self, at: Expr) -> Expr:
        """Returns the index in the input that an entry of the table holds."""
        given = self.b.let("given", cast(load(self.indices, at), Scalar.I32))
        return self.b.let("from", cast(clamp(given, 0, self.size - 1), Scalar.INDEX))

    def tap(self, position: Expr, tap: Expr) -> tuple[Expr, Expr]:
        """Returns index and weight of a tap of the output's ``position``."""
        at = add(mul(position, const(self.taps)), tap)
        if self.weights is None:
            return self.index(at), f32(1.0)
        return self.index(at), self.b.let("weight", load(self.weights, at))


@lowers(Resample, resample_types)
def resample(context: Context) -> Lowered:
    """Weighted sums of elements along some axes, or copies where there are no weights."""
    op = context.op(Resample)
    lowering = Lowering("resample", context)
    x, y = context.input(0).shape, context.output().shape
    source = lowering.input(0, "input")
    axes = {
        axis: _Axis(lowering, number, len(op.axes), x[axis])
        for number, axis in enumerate(op.axes)
    }
    output = lowering.output()
    if context.output().elements == 0:
        return lowering.finish()
    if math.prod(axis.taps for axis in axes.values()) > _WRITTEN_OUT:
        _counted(lowering, source, output, axes)
        return lowering.finish()
    b = lowering.b
    with ExitStack() as stack:
        places: list[Expr] = []
        taps: dict[int, list[tuple[Expr, Expr]]] = {}
        cells: list[_Cell] = []
        for number, size in enumerate(y):
            places.append(stack.enter_context(b.loop("i", size)))
            if number in axes:
                axis = axes[number]
                taps[number] = [axis.tap(places[number], const(t)) for t in range(axis.taps)]
            if number == max(axes):
                cells = _cells(b, taps)
        values = [
            (load(source, flat_index([cell.get(n, i) for n, i in enumerate(places)], x)), weight)
            for cell, weight in cells
        ]
        weighted = any(axis.weights is not None for axis in axes.values())
        total = add(*(mul(weight, value) for value, weight in values)) if weighted else (
            values[0][0]
        )
        b.store(output, flat_index(places, y), total)
    return lowering.finish()


_Cell = tuple[dict[int, Expr], Expr]
"""The places along the axes that are resampled, and a weight."""


def _cells(b: KernelBuilder, taps: Mapping[int, Sequence[tuple[Expr, Expr]]]) -> list[_Cell]:
    """Returns the cells under the taps of all axes, in the order of rows. Weights are multiplied
    from the last axis on, and sums run in this order, as in ONNX Runtime's linear interpolation:
    results of quantized images that lie half way between two integers are rounded as there."""
    found: list[_Cell] = []
    for chosen in product(*taps.values()):
        weights = [weight for _, weight in reversed(chosen)]
        weight = weights[0] if len(weights) == 1 else b.let("weights", reduce(mul, weights))
        found.append(({axis: at for axis, (at, _) in zip(taps, chosen, strict=True)}, weight))
    return found


def _counted(
    lowering: Lowering, source: Buffer, output: Buffer, axes: Mapping[int, _Axis]
) -> None:
    """Returns the sum over many taps, in loops."""
    b, x, y = lowering.b, lowering.context.input(0).shape, lowering.context.output().shape
    with ExitStack() as stack:
        places = [stack.enter_context(b.loop("i", size)) for size in y]
        total = b.local("total", f32(0.0))
        with ExitStack() as inner:
            at, weights = list(places), list[Expr]()
            for number, axis in axes.items():
                tap = inner.enter_context(b.loop("tap", axis.taps))
                at[number], weight = axis.tap(places[number], tap)
                weights.append(weight)
            product: Expr = load(source, flat_index(at, x))
            for weight in weights:
                product = mul(product, weight)
            b.assign(total, add(total, product))
        b.store(output, flat_index(places, y), total)
