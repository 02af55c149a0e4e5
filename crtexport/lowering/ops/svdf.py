"""SVDF, float32 and int8: each filter keeps what it made of the last inputs in its own memory.

An int8 state is TFLite Micro's alone (``svdf_common.cc``); its runs for a computer have none."""

from __future__ import annotations

import numpy as np

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Activation, Svdf
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    cast,
    clamp,
    const,
    i32,
    load,
    mul,
    sub,
    wrap_add,
    xor,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics import lut8
from crtexport.lowering.numerics.requantize import Multiplier, Requantizer, float_range
from crtexport.lowering.ops.variables import initial_words
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.support.fixedpoint import Rounding

_FLOATS = (DType.FLOAT32,) * 4
_INTEGERS = tuple((DType.INT8, DType.INT8, kept, kept) for kept in (DType.INT16, DType.INT8))


def svdf_types(context: Context) -> str | None:
    """All must be float32; or input, feature weights and output int8, time weights and state both
    int16 or both int8, and the bias int32."""
    found = tuple(context.input(i).dtype for i in range(4))
    bias = context.input(4).dtype if context.has(4) else None
    if found == _FLOATS and bias in (None, DType.FLOAT32):
        return None
    if found in _INTEGERS and bias in (None, DType.INT32):
        return None
    return "found " + ", ".join(d.value for d in (*found, *([bias] if bias else [])))


def constant_parameters(context: Context) -> str | None:
    """Weights and bias must be constants."""
    for position in (1, 2, 4):
        tensor = context.graph.optional(context.node, position)
        if tensor is not None and context.graph.constant(tensor) is None:
            return f"input {position} is computed at run time"
    return None


def svdf_scales(context: Context) -> str | None:
    """Int8: each tensor must have one scale; the zero points of weights and of an int16 state must
    be 0."""
    if context.input(0).dtype is not DType.INT8:
        return None
    types = [context.input(i) for i in range(4)] + [context.output()]
    for type_ in types:
        if type_.quant is None or not type_.quant.per_tensor:
            return f"{type_} has none"
    symmetric = types[1:4] if types[3].dtype is DType.INT16 else types[1:3]
    if any(type_.quant and type_.quant.zero_point[0] for type_ in symmetric):
        return "found another"
    return None


def empty_memory(context: Context) -> str | None:
    """The state must start as zeros; of int8, as its zero point."""
    state = context.graph.required(context.node, 3)
    words, quant = initial_words(context.graph, state), context.graph.type(state).quant
    int8 = context.input(3).dtype is DType.INT8
    zero = quant.zero_point[0] & 0xFF if quant is not None and int8 else 0
    found = 0 if words is None else words
    return None if np.all(found == zero) else "found other values"


def relu_on_integers(context: Context) -> str | None:
    """Int8: the activation must be relu, which the reference asks for and leaves to the output's
    range."""
    op = context.node.op
    integer = context.input(0).dtype is DType.INT8
    if isinstance(op, Svdf) and integer and op.activation is not Activation.RELU:
        return f"found {op.activation.value}"
    return None


@lowers(Svdf, svdf_types, constant_parameters, svdf_scales, empty_memory, relu_on_integers)
def svdf(context: Context) -> Lowered:
    """Products of inputs and feature weights, remembered, times time weights."""
    return _Svdf(Lowering("svdf", context)).lower()


class _Svdf:
    def __init__(self, lowering: Lowering) -> None:
        context = self.context = lowering.context
        op = context.op(Svdf)
        self.op, self.lowering, self.b = op, lowering, lowering.b
        self.integer = context.input(0).dtype is DType.INT8
        self.work = Scalar.I32 if self.integer else Scalar.F32
        self.batches, self.depth = context.input(0).shape
        self.filters, self.memory = context.input(2).shape
        self.x, self.feature = lowering.input(0, "input"), lowering.input(1, "feature")
        self.time, self.kept = lowering.input(2, "time"), lowering.variable(3, "state")
        self.bias = lowering.input(4, "bias") if context.has(4) else None
        self.zero = 0  # of the state
        self.offsets: Buffer | None = None
        self.scale_feature: Requantizer | None = None
        self.scale_output: Requantizer | None = None
        if self.integer:
            self._prepare_integer()
        self.output = lowering.output()

    def _prepare_integer(self) -> None:
        # Only TensorFlow Lite Micro has a state of int8.
        narrow = self.context.input(3).dtype is DType.INT8
        numerics = Numerics.TFLM if narrow else self.context.numerics
        *scales, scale_out = lut8.scales(
            numerics, *map(self.context.input, range(4)), self.context.output()
        )
        zero = self.context.quant(self.context.input(0)).zero_point[0]
        self.zero = self.context.quant(self.context.input(3)).zero_point[0]
        totals, magnitudes = self.context.sums(1, 0)
        folded = -zero * totals
        bound = int((np.abs(folded) + 128 * magnitudes).max(initial=0))
        if bound >= 1 << 31:
            raise self.context.refuse("sums of products don't fit 32 bits")
        if folded.any():
            self.offsets = self.lowering.derived(
                "offsets", Scalar.I32, folded.astype(np.int32),
                "for each filter: -zero point of the input * sum of the weights",
            )
        ratios = (scales[0] * scales[1] / scales[3], scales[3] * scales[2] / scale_out)
        self.scale_feature, self.scale_output = (
            Requantizer(self.lowering, Multiplier.of([float(ratio)]), Rounding.DOUBLE, limit)
            for ratio, limit in zip(ratios, (bound, 1 << 31), strict=True)
        )

    def lower(self) -> Lowered:
        b, rank = self.b, self.op.rank
        units = self.filters // rank
        with b.loop("batch", self.batches) as n, b.loop("unit", units) as u:
            zero: Expr = const(0, self.work)
            total = b.local("total", load(self.bias, u) if self.bias is not None else zero)
            with b.loop("rank", rank) as r:
                f = b.let("filter", add(mul(u, const(rank)), r))
                newest = self._newest(n, f)
                b.assign(total, self._sum(total, self._remembered(n, f, newest)))
            b.store(self.output, add(mul(n, const(units)), u), self._result(total))
        return self.lowering.finish()

    def _sum(self, a: Expr, c: Expr) -> Expr:
        return wrap_add(a, c) if self.integer else add(a, c)

    def _newest(self, n: Expr, f: Expr) -> Expr:
        """Returns what filter ``f`` makes of the input."""
        b = self.b
        start: Expr = load(self.offsets, f) if self.offsets is not None else const(0, self.work)
        dot = b.local("dot", start)
        with b.loop("d", self.depth) as d:
            x = cast(load(self.x, add(mul(n, const(self.depth)), d)), self.work)
            w = cast(load(self.feature, add(mul(f, const(self.depth)), d)), self.work)
            b.assign(dot, add(dot, mul(w, x)))
        if self.scale_feature is None:
            return dot
        low, high = self.context.input(3).dtype.limits
        newest = b.let("newest", clamp(self.scale_feature(dot, const(0)), low, high))
        if not self.zero:
            return newest
        # The state keeps its low byte, which may be another number.
        stored = cast(add(newest, i32(self.zero)), self.kept.dtype)
        return b.let("stored", sub(cast(stored, self.work), i32(self.zero)))

    def _centred(self, stored: Expr) -> Expr:
        """Returns a value of the state less its zero point, which is also its initial value, with
        which it is XORed where it is kept."""
        value = cast(stored, self.work)
        return sub(xor(value, i32(self.zero)), i32(self.zero)) if self.zero else value

    def _remembered(self, n: Expr, f: Expr, newest: Expr) -> Expr:
        """Returns the sum over the filter's memory, which is shifted by one step; its last place
        stays 0."""
        b, memory, last = self.b, self.memory, self.memory - 1
        row = b.let("row", mul(f, const(memory)))
        start = b.let("start", mul(add(mul(n, const(self.filters)), f), const(memory)))

        def weight(position: Expr) -> Expr:
            return cast(load(self.time, add(row, position)), self.work)

        total = b.local("past", const(0, self.work))
        if memory > 1:
            b.assign(total, mul(weight(const(0)), self._centred(load(self.kept, start))))
            if memory > 2:
                with b.loop("age", memory - 2) as i:
                    place = add(start, i)
                    value = b.let("value", load(self.kept, add(place, const(1))))
                    product = mul(weight(add(i, const(1))), self._centred(value))
                    b.assign(total, self._sum(total, product))
                    b.store(self.kept, place, value)
            stored = newest
            if self.zero:
                stored = xor(add(newest, i32(self.zero)), i32(self.zero))
            b.store(self.kept, add(start, const(last - 1)), cast(stored, self.kept.dtype))
        return self._sum(total, mul(weight(const(last)), newest))

    def _result(self, total: Expr) -> Expr:
        if self.scale_output is None:
            return clamp(total, *float_range(self.op.activation))
        zero = self.context.quant(self.context.output()).zero_point[0]
        scaled = add(self.scale_output(total, const(0)), i32(zero))
        return cast(clamp(self.b.let("result", scaled), -128, 127), Scalar.I8)
