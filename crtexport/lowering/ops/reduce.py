"""Reductions over any axes: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_ANY, REDUCE_ALL."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
from msgspec import Struct

from crtexport.ir.ops import Mean, ReduceAll, ReduceAny, ReduceMax, ReduceMin, Reducer, Sum
from crtexport.ir.types import DType, Quantization
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    div,
    f32,
    flat_index,
    i32,
    load,
    max_,
    min_,
    wrap_add,
)
from crtexport.kir.language import Expr, Scalar
from crtexport.lowering.numerics.requantize import Multiplier, Requantizer
from crtexport.lowering.numerics.result_steps import ResultSteps, TwoProducts
from crtexport.lowering.numerics.two_products import by_two_products
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types
from crtexport.support.fixedpoint import Rounding, quantize_multiplier

Combine = Callable[[Expr, Expr], Expr]

SCALED = (DType.INT8, DType.UINT8, DType.INT16)
"""Integers that may stand for real numbers."""

NUMBERS = (DType.FLOAT32, *SCALED, DType.INT32, DType.INT64)

_MOST_PLACES = 13
"""Sums are moved by at most so many places before they are scaled."""


def scaled(context: Context) -> str | None:
    """Int8, uint8 and int16 tensors must carry a scale and a zero point."""
    for tensor in (context.graph.required(context.node, 0), context.node.outputs[0]):
        type_ = context.graph.type(tensor)
        if type_.dtype in SCALED and type_.quant is None:
            return f"{context.graph.tensors[tensor].name!r} has none"
    return None


def scaled_sums(context: Context) -> str | None:
    """Int8 and uint8 tensors must carry a scale and a zero point; of int16 both or neither."""
    if context.input(0).dtype is DType.INT16 and context.input(0).quant == context.output().quant:
        return None
    return scaled(context)


def one_scale(context: Context) -> str | None:
    """Input and output must have the same scale and zero point."""
    before, after = context.input(0).quant, context.output().quant
    return None if before == after else f"found {before} and {after}"


def symmetric_words(context: Context) -> str | None:
    """The zero point of int16 tensors must be 0."""
    for type_ in (context.input(0), context.output()):
        if type_.dtype is DType.INT16 and type_.quant and any(type_.quant.zero_point):
            return f"found {next(z for z in type_.quant.zero_point if z)}"
    return None


class ReductionLoops(Struct, frozen=True):
    """The loops of a reduction: axes that are walked alike and lie side by side are one loop.

    ``groups``: (extent, whether it is folded), outermost first.
    """

    groups: tuple[tuple[int, bool], ...]

    @staticmethod
    def over(shape: tuple[int, ...], axes: tuple[int, ...]) -> ReductionLoops:
        """Returns the loops over ``shape`` that reduce ``axes``."""
        groups: list[tuple[int, bool]] = []
        for axis, extent in enumerate(shape):
            folded = axis in axes
            if extent == 1:
                continue
            if groups and groups[-1][1] is folded:
                groups[-1] = (groups[-1][0] * extent, folded)
            else:
                groups.append((extent, folded))
        return ReductionLoops(tuple(groups))

    @contextmanager
    def outer(self, b: KernelBuilder) -> Iterator[dict[int, Expr]]:
        """Loops over the output; yields the variables of the groups that are kept."""
        with ExitStack() as stack:
            yield {
                g: stack.enter_context(b.loop("o", extent))
                for g, (extent, folded) in enumerate(self.groups) if not folded
            }

    @contextmanager
    def inner(self, b: KernelBuilder) -> Iterator[dict[int, Expr]]:
        """Loops over the elements that one output element is made of."""
        with ExitStack() as stack:
            yield {
                g: stack.enter_context(b.loop("r", extent))
                for g, (extent, folded) in enumerate(self.groups) if folded
            }

    def source(self, at: dict[int, Expr]) -> Expr:
        """Returns where the variables of all groups point to in the input."""
        return flat_index([at[g] for g in range(len(self.groups))],
                          tuple(extent for extent, _ in self.groups))

    def target(self, at: dict[int, Expr]) -> Expr:
        """Returns where the variables of the kept groups point to in the output."""
        kept = [g for g, (_, folded) in enumerate(self.groups) if not folded]
        return flat_index([at[g] for g in kept], tuple(self.groups[g][0] for g in kept))


def walk_of(context: Context) -> ReductionLoops:
    op = context.node.op
    if not isinstance(op, Reducer):
        raise TypeError(op)
    return ReductionLoops.over(context.input(0).shape, op.axes)


def folded_count(context: Context) -> int:
    """Returns how many elements one output element is made of."""
    return math.prod(extent for extent, folded in walk_of(context).groups if folded)


def working_type(dtype: DType) -> Scalar:
    """Returns what elements of a type are computed in."""
    if dtype in (DType.FLOAT32, DType.INT64):
        return SCALAR_OF[dtype]
    return Scalar.I32


def plus(dtype: DType, work: Scalar, count: int) -> Combine:
    """Returns an addition that wraps where ``count`` elements can overflow."""
    if work.is_float:
        return add
    most = max(abs(limit) for limit in (dtype.limits if dtype.is_integer else (0, 1)))
    room = 1 << (63 if work is Scalar.I64 else 31)
    return add if most * count < room else wrap_add


def fold(
    context: Context, name: str, initial: Expr, combine: Combine,
    finish: Callable[[Lowering], Callable[[Expr], Expr]] | None = None,
) -> Lowered:
    """Returns a kernel that combines elements, starting from ``initial``, in whose type it
    computes. ``finish`` returns the output element for a combined value; by default it is narrowed.
    """
    lowering = Lowering(name, context)
    b, walk, dtype = lowering.b, walk_of(context), context.output().dtype
    source = lowering.input(0, "input")
    finished = finish(lowering) if finish else None
    output = lowering.output()
    if 0 in context.input(0).shape:
        return lowering.finish()
    with walk.outer(b) as at:
        total = b.local("total", initial)
        with walk.inner(b) as inside:
            element = cast(load(source, walk.source(at | inside)), initial.type)
            b.assign(total, combine(total, element))
        result = finished(total) if finished else cast(total, SCALAR_OF[dtype])
        b.store(output, walk.target(at), result)
    return lowering.finish()


def mean_multiplier(ratio: float, count: int) -> Multiplier:
    """scale_in / scale_out / count as a fixed-point pair (TFLite ``QuantizedMeanOrSum``): the
    division by ``count`` goes into the mantissa, truncated."""
    mantissa, shift = quantize_multiplier(ratio)
    moved = min(count.bit_length() - 1, 32, 31 + shift)
    return Multiplier(((mantissa << moved) // count,), (shift - moved,))


def float_ratio(source: Quantization, target: Quantization, count: int) -> float:
    """scale_in / (scale_out * count) in float32, as ONNX Runtime scales sums to averages
    (``MlasQLinearGlobalAveragePool``)."""
    with np.errstate(over="ignore"):
        divisor = np.float32(target.scale[0]) * np.float32(count)
        return float(np.float32(source.scale[0]) / divisor)


@functools.lru_cache(maxsize=256)
def float_steps(
    source: Quantization, target: Quantization, count: int, limits: tuple[int, int]
) -> TwoProducts | None:
    """Constants by which sums of ``count`` int8 numbers are scaled to averages as by ONNX Runtime;
    None if there are none."""
    ratio = quantize_multiplier(float_ratio(source, target, count))
    steps = ResultSteps(
        *ratio, -source.zero_point[0] * count, -DType.INT8.limits[0] * count, target.zero_point[0],
        limits, floats=True,
    )
    return TwoProducts.of_steps([steps], _MOST_PLACES)


def _rescaled(count: int, *, average: bool) -> Callable[[Lowering], Callable[[Expr], Expr]]:
    """Returns the sums of quantized numbers without their zero points, on the scale of the output.
    """

    def finish(lowering: Lowering) -> Callable[[Expr], Expr]:
        context, b = lowering.context, lowering.b
        x, y = context.input(0), context.output()
        before, after = context.quant(x), context.quant(y)
        ratio = before.scale[0] / after.scale[0]
        multiplier = mean_multiplier(ratio, count) if average else Multiplier.of([ratio])
        rounding = context.numerics.rounding(fully_connected=False)
        if rounding is Rounding.FLOAT and average and x.dtype is y.dtype is DType.INT8:
            found = float_steps(before, after, count, y.dtype.limits)
            if found is not None:
                return lambda total: cast(
                    by_two_products(b, found, total, y.dtype.limits), Scalar.I8
                )
        if rounding is Rounding.FLOAT:
            multiplier = Multiplier.of([float_ratio(before, after, count if average else 1)])
        bound = (x.dtype.limits[1] - x.dtype.limits[0]) * count
        requantize = Requantizer(lowering, multiplier, rounding, bound)

        def finished(total: Expr) -> Expr:
            centred = b.let("centred", add(total, i32(-before.zero_point[0] * count)))
            result = add(requantize(centred, const(0)), i32(after.zero_point[0]))
            return cast(clamp(b.let("scaled", result), *y.dtype.limits), SCALAR_OF[y.dtype])

        return finished

    return finish


def few_elements(context: Context) -> str | None:
    """Sums of int8, uint8 and int16 elements must stay 32-bit numbers."""
    dtype, count = context.input(0).dtype, folded_count(context)
    if dtype not in SCALED or (dtype.limits[1] - dtype.limits[0]) * count < 1 << 31:
        return None
    return f"found {count} elements in each"


@lowers(Mean, same_types(*NUMBERS), scaled, symmetric_words, few_elements)
def mean(context: Context) -> Lowered:
    """Sum over the axes, divided by the number of elements: rounded for quantized types, towards
    zero for int32 and int64."""
    dtype, count = context.input(0).dtype, folded_count(context)
    work = mean_type(dtype)
    return fold(context, "mean", const(0, work), plus(dtype, work, count), mean_of)


def mean_type(dtype: DType) -> Scalar:
    """Returns what elements are summed in for their mean."""
    if dtype in (DType.INT32, DType.INT64):
        return Scalar.I64
    return working_type(dtype)


def mean_of(lowering: Lowering) -> Callable[[Expr], Expr]:
    """Returns what makes the output of a Mean of the sum of its elements."""
    dtype, count = lowering.context.input(0).dtype, folded_count(lowering.context)
    if dtype in SCALED:
        return _rescaled(count, average=True)(lowering)
    number = const(count, mean_type(dtype))
    return lambda total: cast(div(total, number), SCALAR_OF[dtype])


@lowers(Sum, same_types(*NUMBERS, DType.BOOL), scaled_sums, symmetric_words, few_elements)
def sum_(context: Context) -> Lowered:
    """Sum over the axes: of quantized numbers saturated, of other integers modulo their range, of
    bool whether any is true."""
    dtype, count = context.input(0).dtype, folded_count(context)
    if dtype in SCALED and context.input(0).quant is not None:
        return fold(context, "sum", i32(0), add, _rescaled(count, average=False))
    if dtype is DType.BOOL:
        return fold(context, "reduce_any", i32(0), max_)
    work = working_type(dtype)
    return fold(context, "sum", const(0, work), plus(dtype, work, count))


@lowers(ReduceMax, same_types(*NUMBERS, DType.BOOL), one_scale)
def reduce_max(context: Context) -> Lowered:
    """Largest element over the axes."""
    return fold(context, "reduce_max", _extreme(context.input(0).dtype, lowest=True), max_)


@lowers(ReduceMin, same_types(*NUMBERS, DType.BOOL), one_scale)
def reduce_min(context: Context) -> Lowered:
    """Smallest element over the axes."""
    return fold(context, "reduce_min", _extreme(context.input(0).dtype, lowest=False), min_)


def _extreme(dtype: DType, *, lowest: bool) -> Expr:
    """Returns the least or the greatest number of a type, in the type in which it is computed."""
    if dtype is DType.FLOAT32:
        return f32(-math.inf if lowest else math.inf)
    limits = dtype.limits if dtype.is_integer else (0, 1)
    return const(limits[0] if lowest else limits[1], working_type(dtype))


@lowers(ReduceAny, same_types(DType.BOOL))
def reduce_any(context: Context) -> Lowered:
    """True where any element over the axes is true."""
    return fold(context, "reduce_any", i32(0), max_)


@lowers(ReduceAll, same_types(DType.BOOL))
def reduce_all(context: Context) -> Lowered:
    """True where all elements over the axes are true."""
    return fold(context, "reduce_all", i32(1), min_)
