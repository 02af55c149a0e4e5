"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D; cells in the padding don't count."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import (
    Activation,
    AverageOfSums,
    AveragePool2D,
    ChannelSums,
    L2Pool2D,
    MaxPool2D,
    Pool2D,
)
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType, Quantization
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    div,
    f32,
    flat_index,
    gt,
    i32,
    load,
    max_,
    mul,
    ne,
    select,
    shl,
    shr,
    sub,
)
from crtexport.kir.language import Buffer, Const, Expr, Scalar
from crtexport.lowering.numerics import float_exact
from crtexport.lowering.numerics.float_math import round_half_even
from crtexport.lowering.numerics.quantized_arithmetic import (
    SCALED,
    one_scale_each,
    same_scales,
    scaled_each,
)
from crtexport.lowering.numerics.real_average import AverageSteps, average_steps
from crtexport.lowering.numerics.requantize import float_range
from crtexport.lowering.numerics.two_products import upper_word
from crtexport.lowering.ops.conv import window_taps
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import rank, same_types

POOL_RULES = (rank(4), same_types(DType.FLOAT32, *SCALED))


def averaged_scales(context: Context) -> str | None:
    """Integers in and out must have the same scale and zero point, but with the numerics of ONNX
    Runtime."""
    return None if context.numerics is Numerics.ORT else same_scales(context)


class RealAverage(Struct, frozen=True):
    """Averages of integers as ONNX Runtime's: of real numbers, in float32."""

    source: Quantization
    target: Quantization
    limits: tuple[int, int]
    less: int
    """The zero point of the output was so much more."""

    @staticmethod
    def of(context: Context) -> RealAverage | None:
        """Returns the average in real numbers; None where averages are those of the numbers as they
        are."""
        if context.numerics is not Numerics.ORT or context.input(0).dtype is DType.FLOAT32:
            return None
        source, target = context.input(0), context.output()
        op = context.op(AveragePool2D)
        return RealAverage(
            context.quant(source), context.quant(target), target.dtype.limits,
            128 if op.from_uint8 and target.dtype is DType.INT8 else 0,
        )

    def of_stored(self, value: Expr) -> Expr:
        steps = sub(cast(value, Scalar.I32), i32(self.source.zero_point[0]))
        return mul(cast(steps, Scalar.F32), f32(self.source.scale[0]))

    def stored(self, b: KernelBuilder, mean_: Expr) -> Expr:
        steps = b.let("steps", clamp(div(mean_, f32(self.target.scale[0])), -FAR, FAR))
        moved = add(steps, f32(float(self.target.zero_point[0] + self.less)))
        value = sub(round_half_even(b, b.let("with_zero", moved)), i32(self.less))
        return b.let("value", clamp(value, *self.limits))


    def steps(self, op: AveragePool2D) -> AverageSteps | None:
        """Returns constants by which sums of integers decide on most averages, None if there are
        none."""
        if op.padding.any or self.limits != DType.INT8.limits:
            return None
        count = op.window[0] * op.window[1]
        return average_steps(self.source, self.target, count, self.less, self.limits)


FAR = 2.0**17
"""Beyond all integers that averages are stored in."""

LOWEST = -3.4028234663852886e38
"""The number that TFLite starts a maximum of floats from."""


def _pool(context: Context, op: Pool2D, name: str) -> Lowered:
    average, squared = not isinstance(op, MaxPool2D), isinstance(op, L2Pool2D)
    lowering = Lowering(name, context)
    b, x, y = lowering.b, context.input(0).shape, context.output().shape
    source = lowering.input(0, "input")
    is_float = context.input(0).dtype is DType.FLOAT32
    real = RealAverage.of(context) if isinstance(op, AveragePool2D) else None
    target = lowering.output()
    work = Scalar.F32 if is_float or real is not None else Scalar.I32
    start = const(0, work) if average else lowest(context.input(0).dtype)
    window = WindowGeometry.of(op, x, y, op.window)
    with (
        b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy, b.loop("ox", y[2]) as ox,
        b.loop("c", y[3]) as c,
    ):
        acc = b.local("acc", start)
        count = b.local("count", i32(0)) if average and op.padding.any else None

        def inside(_ky: Expr, _kx: Expr, iy: Expr, ix: Expr) -> None:
            value: Expr = load(source, flat_index([n, iy, ix, c], x))
            value = real.of_stored(value) if real is not None else cast(value, work)
            if squared or not average:
                value = b.let("value", value)
            if squared:
                value = mul(value, value)
            b.assign(acc, add(acc, value) if average else max_(acc, value))
            if count is not None:
                b.assign(count, add(count, i32(1)))

        window_taps(b, window, (oy, ox), inside, None)
        cells: Expr = count if count is not None else i32(op.window[0] * op.window[1])
        result: Expr = b.let("mean", mean(acc, cells)) if average else acc
        if real is not None:
            result = real.stored(b, result)
        if squared:
            result = float_exact.sqrt(b, result)
        store_result(lowering, op.activation, target, flat_index([n, oy, ox, c], y), result)
    return lowering.finish()


def _decided_by_sums(context: Context, real: RealAverage, steps: AverageSteps) -> Lowered:
    """Returns the averages of :class:`RealAverage` by sums of integers; those of floats where these
    don't tell."""
    op = context.op(AveragePool2D)
    lowering = Lowering("average_pool2d", context)
    b, x, y = lowering.b, context.input(0).shape, context.output().shape
    source, target = lowering.input(0, "input"), lowering.output()
    window = WindowGeometry.of(op, x, y, op.window)
    with (
        b.loop("n", y[0]) as n, b.loop("oy", y[1]) as oy, b.loop("ox", y[2]) as ox,
        b.loop("c", y[3]) as c,
    ):
        def summed(start: Expr, term: Callable[[Expr], Expr]) -> Expr:
            acc = b.local("sum", start)

            def inside(_ky: Expr, _kx: Expr, iy: Expr, ix: Expr) -> None:
                b.assign(acc, add(acc, term(load(source, flat_index([n, iy, ix, c], x)))))

            window_taps(b, window, (oy, ox), inside, None)
            return acc

        total = summed(i32(0), lambda value: cast(value, Scalar.I32))
        moved = b.let("moved", add(shl(total, i32(steps.places)), i32(steps.addend)))
        high = b.let("high", upper_word(moved, steps.factor))
        margin, shift = i32(0 if steps.decided else steps.margin), i32(steps.shift)
        result = b.local("result", shr(sub(high, margin), shift))
        if not steps.decided:
            with b.if_(ne(result, shr(add(high, margin), shift))):
                cells = i32(op.window[0] * op.window[1])
                average = b.let("mean", mean(summed(f32(0.0), real.of_stored), cells))
                b.assign(result, real.stored(b, average))
        limited = clamp(result, *real.limits)
        store_result(lowering, op.activation, target, flat_index([n, oy, ox, c], y), limited)
    return lowering.finish()


def lowest(dtype: DType) -> Const:
    """Returns what a maximum of numbers of a type starts from."""
    return f32(LOWEST) if dtype is DType.FLOAT32 else i32(dtype.limits[0])


def mean(acc: Expr, cells: Expr) -> Expr:
    """acc / cells as TFLite's average pool: that of integers to nearest, halves away from zero."""
    if acc.type.is_float:
        return div(acc, cast(cells, acc.type))
    half = shr(cells, i32(1))
    return div(select(gt(acc, i32(0)), add(acc, half), sub(acc, half)), cells)


def store_result(
    lowering: Lowering, activation: Activation, target: Buffer, index: Expr, value: Expr
) -> None:
    """Stores a value of the output within what the activation allows."""
    output = lowering.context.output()
    bounds: tuple[float, float] = (
        float_range(activation) if output.dtype is DType.FLOAT32
        else activation_range(activation, output)
    )
    if output.dtype is not DType.FLOAT32 and bounds == output.dtype.limits:
        bounds = (float("-inf"), float("inf"))
    lowering.b.store(target, index, cast(clamp(value, *bounds), target.dtype))


@lowers(AveragePool2D, *POOL_RULES, one_scale_each, averaged_scales)
def average_pool2d(context: Context) -> Lowered:
    """Sum over the cells of the window that lie in the image, divided by their number."""
    op, real = context.op(AveragePool2D), RealAverage.of(context)
    steps = real.steps(op) if real is not None else None
    if real is not None and steps is not None:
        return _decided_by_sums(context, real, steps)
    return _pool(context, op, "average_pool2d")


@lowers(MaxPool2D, *POOL_RULES, scaled_each, same_scales)
def max_pool2d(context: Context) -> Lowered:
    """Largest of the cells of the window that lie in the image."""
    return _pool(context, context.op(MaxPool2D), "max_pool2d")


@lowers(L2Pool2D, rank(4), same_types(DType.FLOAT32))
def l2_pool2d(context: Context) -> Lowered:
    """Root of the mean square of the cells of the window that lie in the image."""
    return _pool(context, context.op(L2Pool2D), "l2_pool2d")


@lowers(ChannelSums, rank(4))
def channel_sums(context: Context) -> Lowered:
    """Channel by channel, pixel by pixel, from the sums on that are given."""
    lowering = Lowering("channel_sums", context)
    b, x = lowering.b, context.input(0).shape
    source = lowering.input(0, "input")
    given = lowering.input(1, "sums") if context.has(1) else None
    target = lowering.output(noalias=given is None)
    with b.loop("n", x[0]) as n, b.loop("c", x[3]) as c:
        at = flat_index([n, c], (x[0], x[3]))
        acc = b.local("acc", load(given, at) if given is not None else i32(0))
        with b.loop("pixel", x[1] * x[2]) as pixel:
            index = flat_index([n, pixel, c], (x[0], x[1] * x[2], x[3]))
            b.assign(acc, add(acc, cast(load(source, index), Scalar.I32)))
        b.store(target, at, acc)
    return lowering.finish()


@lowers(AverageOfSums, rank(4))
def average_of_sums(context: Context) -> Lowered:
    """Each sum divided by the number of cells."""
    op = context.op(AverageOfSums)
    lowering = Lowering("average_of_sums", context)
    source, target = lowering.input(0, "sums"), lowering.output()
    with lowering.b.loop("i", context.output().elements) as i:
        value = lowering.b.let("mean", mean(load(source, i), i32(op.cells)))
        store_result(lowering, op.activation, target, i, value)
    return lowering.finish()
