"""UNIDIRECTIONAL_SEQUENCE_LSTM, float32, int8 and int16 (8-bit weights, 16-bit gates and cells)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

import numpy as np

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import UnidirectionalSequenceLstm
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    cast,
    clamp,
    const,
    i32,
    load,
    mul,
    xor,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics import fixed16, float_math, lut8, sigmoid16
from crtexport.lowering.numerics.requantize import (
    Multiplier,
    Requantizer,
    WideRequantizer,
    rounding_divide_by_pot,
)
from crtexport.lowering.ops.variables import initial_words
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.support.fixedpoint import Rounding

_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_WX, _WH, _BIAS, _H, _C = 1, 5, 9, 13, 14  # positions of inputs
_FOLDED = "for each unit: bias - zero point * sum of the weights"


_WEIGHTS = (DType.INT8,) * 8
_TYPES = (
    (DType.FLOAT32,) * 15,
    (DType.INT8, *_WEIGHTS, *(DType.INT32,) * 4, DType.INT8, DType.INT16),
    (DType.INT16, *_WEIGHTS, *(DType.INT64,) * 4, DType.INT16, DType.INT16),
)


class LstmTypes:
    """All must be float32; or weights int8 and the cell state int16, with input, output and output
    state int8 and biases int32, or those int16 and these int64."""

    own_signatures = ((_TYPES[2], (DType.INT16,)),)

    def __call__(self, context: Context) -> str | None:
        found = tuple(context.input(i).dtype for i in range(15))
        if found in _TYPES:
            return None
        return "found " + ", ".join(dict.fromkeys(d.value for d in found))


lstm_types = LstmTypes()


def lstm_constants(context: Context) -> str | None:
    """Weights and biases must be constants."""
    for position in range(1, 13):
        if context.graph.constant(context.graph.required(context.node, position)) is None:
            return f"input {position} is computed at run time"
    return None


def lstm_scales(context: Context) -> str | None:
    """Integers: each tensor must have one scale, that of the cell state a power of two from 2**-15
    to 2**-9; weights, cell state and all of int16 zero point 0."""
    if context.input(0).dtype is DType.FLOAT32:
        return None
    for type_ in (*(context.input(i) for i in (0, *range(1, 9), _H, _C)), context.output()):
        if type_.quant is None or not type_.quant.per_tensor:
            return f"{type_} has none"
    wide = (0, _H) if context.input(0).dtype is DType.INT16 else ()
    if any(context.quant(context.input(i)).zero_point[0] for i in (*range(1, 9), _C, *wide)):
        return "found another zero point"
    mantissa, exponent = math.frexp(context.quant(context.input(_C)).scale[0])
    if mantissa != 0.5 or not -15 <= exponent - 1 <= -9:
        return f"found {context.quant(context.input(_C)).scale[0]:.6g} for the cell state"
    return None


def even_start(context: Context) -> str | None:
    """The states must start as zeros, or all as the same value."""
    for position in (_H, _C):
        words = initial_words(context.graph, context.graph.required(context.node, position))
        if words is not None and (position == _C or (words != words[0]).any()):
            return "found different values"
    return None


@lowers(UnidirectionalSequenceLstm, lstm_types, lstm_constants, lstm_scales, even_start)
def lstm(context: Context) -> Lowered:
    """Four gates for each cell and step; the last step's output is kept for the next run."""
    lowering, dtype = Lowering("lstm", context), context.input(0).dtype
    if dtype is DType.FLOAT32:
        return _Float(lowering).lower()
    # No other runtime has it in int16.
    micro = context.numerics is Numerics.TFLM or dtype is DType.INT16
    return (_Micro(lowering) if micro else _Integer(lowering)).lower()


class _LstmLoops(ABC):
    """The loops that both variants share."""

    work = Scalar.F32

    def __init__(self, lowering: Lowering) -> None:
        context = self.context = lowering.context
        op = context.op(UnidirectionalSequenceLstm)
        self.op, self.lowering, self.b = op, lowering, lowering.b
        shape = context.input(0).shape
        self.batches, self.steps = shape[:2][:: -1 if op.time_major else 1]
        self.depth, self.units = shape[2], context.output().shape[2]
        self.x = lowering.input(0, "input")
        names = ("input", "forget", "cell", "output")
        self.wx = [lowering.input(_WX + g, f"x_to_{name}") for g, name in enumerate(names)]
        self.wh = [lowering.input(_WH + g, f"h_to_{name}") for g, name in enumerate(names)]
        self.h, self.c = lowering.variable(_H, "hidden"), lowering.variable(_C, "cells")
        words = initial_words(context.graph, context.graph.required(context.node, _H))
        # Kept as value XOR initial value, see kernels.state.
        self.mask = 0 if words is None else int(words[:1].view(np.int8)[0])
        self.prepare()
        self.output = lowering.output()

    @abstractmethod
    def prepare(self) -> None:
        """Declares biases and multipliers."""

    @abstractmethod
    def gate(self, gate: int, row: tuple[Expr, Expr], unit: Expr) -> Expr:
        """Returns a gate before its activation; ``row``: the index at which the step's input and
        state begin."""

    @abstractmethod
    def cell(self, gates: list[Expr], place: Expr) -> Expr:
        """Updates the cell at ``place``; the new output."""

    def unmasked(self, value: Expr) -> Expr:
        """Returns the number that a number kept in the output state stands for, or the way back."""
        return xor(value, i32(self.mask)) if self.mask else value

    def lower(self) -> Lowered:
        b, units = self.b, const(self.units)
        with b.loop("batch", self.batches) as n, self._time() as t:
            step = add(mul(t, const(self.batches)), n) if self.op.time_major else add(
                mul(n, const(self.steps)), t
            )
            step = b.let("step", step)
            row = (b.let("x", mul(step, const(self.depth))), b.let("h", mul(n, units)))
            out = b.let("out", mul(step, units))
            with b.loop("unit", self.units) as u:
                gates = [self.gate(gate, row, u) for gate in range(4)]
                b.store(self.output, add(out, u), self.cell(gates, add(row[1], u)))
            with b.loop("i", self.units) as i:
                value: Expr = load(self.output, add(out, i))
                if self.mask:
                    value = cast(self.unmasked(cast(value, self.work)), self.h.dtype)
                b.store(self.h, add(row[1], i), value)
        return self.lowering.finish()

    def _time(self) -> AbstractContextManager[Expr]:
        return self.b.loop("time", self.steps)

    def dot(
        self, start: Expr, weights: Buffer, unit: Expr, source: Buffer, at: Expr
    ) -> Expr:
        """Returns ``start`` plus the dot product of a row of weights and a vector."""
        b = self.b
        size = self.depth if source is self.x else self.units
        total = b.local("dot", start)
        base = b.let("weights", mul(unit, const(size)))
        with b.loop("k", size) as k:
            value = cast(load(source, add(at, k)), self.work)
            if source is self.h:
                value = self.unmasked(value)
            weight = cast(load(weights, add(base, k)), self.work)
            b.assign(total, add(total, cast(mul(weight, value), total.type)))
        return total


class _Float(_LstmLoops):
    def prepare(self) -> None:
        self.biases = [self.lowering.input(_BIAS + g, f"bias{g + 1}") for g in range(4)]

    def gate(self, gate: int, row: tuple[Expr, Expr], unit: Expr) -> Expr:
        b, zero = self.b, const(0, Scalar.F32)
        given = self.dot(zero, self.wx[gate], unit, self.x, row[0])
        back = self.dot(zero, self.wh[gate], unit, self.h, row[1])
        value = b.let("sum", add(load(self.biases[gate], unit), given, back))
        return b.let("gate", (float_math.tanh if gate == _CELL else float_math.logistic)(b, value))

    def cell(self, gates: list[Expr], place: Expr) -> Expr:
        b, clip = self.b, self.op.cell_clip
        kept = add(mul(gates[_FORGET], load(self.c, place)), mul(gates[_CELL], gates[_INPUT]))
        cell = b.let("cell", kept)
        if clip > 0:
            cell = b.let("clipped", clamp(cell, -clip, clip))
        b.store(self.c, place, cell)
        return mul(gates[_OUTPUT], float_math.tanh(b, cell))


class _Integer(_LstmLoops):
    work = Scalar.I32
    numerics = Numerics.TFLITE

    def prepare(self) -> None:
        state = self.context.quant(self.context.input(_H))
        zero_x = self.context.quant(self.context.input(0)).zero_point[0]
        self.exponent = math.frexp(self.context.quant(self.context.input(_C)).scale[0])[1] - 1
        self.from_x: list[tuple[Buffer, Requantizer | WideRequantizer]] = []
        self.from_h: list[tuple[Buffer, Requantizer | WideRequantizer]] = []
        for gate in range(4):
            bias = self.context.values(_BIAS + gate).astype(np.int64)
            self.from_x.append(self._side(_WX + gate, bias, 0, zero_x))
            self.from_h.append(self._side(_WH + gate, 0 * bias, _H, state.zero_point[0]))
        self.prepare_products()

    def prepare_products(self) -> None:
        """Declares the scaling of products of gates."""
        hidden = np.float32(2.0**-15 / float(np.float32(self.op.hidden_scale)) * 2.0**-15)
        self.hidden = self.rescaled(float(hidden))

    def rescaled(self, ratio: float) -> Requantizer:
        """Scales products of two 16-bit numbers of which one isn't -2**15."""
        return Requantizer(self.lowering, Multiplier.of([ratio]), Rounding.DOUBLE, 1 << 30)

    def _side(
        self, position: int, bias: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        data: int, zero: int,
    ) -> tuple[Buffer, Requantizer | WideRequantizer]:
        """Returns the bias with the zero point folded in, and the multiplier to gates (12
        fractional bits); ``data`` is the position of the input that the weights multiply."""
        totals, magnitudes = self.context.sums(position, 0)
        folded = bias - zero * totals
        reach = -self.context.input(0).dtype.limits[0]
        bound = int((np.abs(folded) + reach * magnitudes).max(initial=0))
        types = map(self.context.input, (position, data))
        own, scale = lut8.scales(self.numerics, *types)
        multiplier = Multiplier.of([float(own * scale) * 2.0**12])
        if self.context.input(0).dtype is DType.INT16:
            fits = bound < 1 << 31
            buffer = self.lowering.derived(
                "bias", Scalar.I32 if fits else Scalar.I64,
                folded.astype(np.int32 if fits else np.int64), _FOLDED,
            )
            return buffer, WideRequantizer(self.lowering, multiplier, bound)
        if bound >= 1 << 31:
            raise self.context.refuse("sums of products don't fit 32 bits")
        buffer = self.lowering.derived("bias", Scalar.I32, folded.astype(np.int32), _FOLDED)
        return buffer, Requantizer(self.lowering, multiplier, Rounding.DOUBLE, bound)

    def gate(self, gate: int, row: tuple[Expr, Expr], unit: Expr) -> Expr:
        b = self.b
        value: Expr = i32(0)
        for (bias, scale), weights, source, at in (
            (self.from_x[gate], self.wx[gate], self.x, row[0]),
            (self.from_h[gate], self.wh[gate], self.h, row[1]),
        ):
            total = self.dot(load(bias, unit), weights, unit, source, at)
            scaled = clamp(scale(total, const(0)), -(1 << 20), 1 << 20)
            value = b.let("sum", clamp(add(scaled, value), -32768, 32767))
        return fixed16.tanh(b, value, 3) if gate == _CELL else fixed16.logistic(b, value)

    def cell(self, gates: list[Expr], place: Expr) -> Expr:
        b = self.b
        old = mul(gates[_FORGET], cast(load(self.c, place), Scalar.I32))
        new = mul(gates[_INPUT], gates[_CELL])
        kept = rounding_divide_by_pot(b, old, i32(15))
        fresh = rounding_divide_by_pot(b, new, i32(30 + self.exponent))
        cell = b.let("cell", clamp(add(kept, fresh), -32768, 32767))
        if self.op.cell_clip > 0:
            scale = np.float32(self.context.quant(self.context.input(_C)).scale[0])
            clip = int(min(float(np.float32(self.op.cell_clip) / scale), 32767.0))
            if clip > 0:
                cell = b.let("clipped", clamp(cell, -clip, clip))
        b.store(self.c, place, cast(cell, Scalar.I16))
        squashed = fixed16.tanh(b, cell, 15 + self.exponent)
        scaled = self.hidden(b.let("hidden_raw", mul(gates[_OUTPUT], squashed)), const(0))
        result = b.let("result", add(scaled, i32(self.op.hidden_zero_point)))
        return cast(clamp(result, -128, 127), Scalar.I8)


class _Micro(_Integer):
    """As TensorFlow Lite Micro: its int16 FULLY_CONNECTED, LOGISTIC, TANH and MUL one after the
    other; the hidden state has the scale of its tensor."""

    numerics = Numerics.TFLM

    def prepare_products(self) -> None:
        def scale(position: int) -> float:
            return float(np.float32(self.context.quant(self.context.input(position)).scale[0]))

        self.kept = self.rescaled(2.0**-15)
        self.fresh = self.rescaled(2.0**-30 / scale(_C))
        self.hidden = self.rescaled(2.0**-30 / scale(_H))
        self.hidden_zero = self.context.quant(self.context.input(_H)).zero_point[0]
        # The table's steps are 3 * 2**12 to 1: gates have 12 fractional bits, cells their own.
        table, left = sigmoid16.sigmoid_table(self.lowering), 12 + self.exponent
        self.logistic = sigmoid16.logistic_in(table, 3, 0)
        self.tanh = sigmoid16.tanh_in(table, 3, 0)
        self.squash = sigmoid16.tanh_in(table, 3 << max(left, 0), max(-left, 0))

    def gate(self, gate: int, row: tuple[Expr, Expr], unit: Expr) -> Expr:
        b = self.b
        value: Expr | None = None
        for (bias, scale), weights, source, at in (
            (self.from_x[gate], self.wx[gate], self.x, row[0]),
            (self.from_h[gate], self.wh[gate], self.h, row[1]),
        ):
            total = self.dot(load(bias, unit), weights, unit, source, at)
            scaled = b.let("scaled", clamp(scale(total, const(0)), -32768, 32767))
            value = scaled if value is None else b.let(
                "sum", clamp(add(value, scaled), -32768, 32767)
            )
        curve = self.tanh if gate == _CELL else self.logistic
        return b.let("gate", cast(curve(b, value or i32(0)), Scalar.I32))

    def cell(self, gates: list[Expr], place: Expr) -> Expr:
        b = self.b
        old = b.let("old", mul(gates[_FORGET], cast(load(self.c, place), Scalar.I32)))
        kept = b.let("kept", clamp(self.kept(old, const(0)), -32768, 32767))
        new = b.let("new", mul(gates[_INPUT], gates[_CELL]))
        fresh = clamp(self.fresh(new, const(0)), -32768, 32767)
        cell = b.let("cell", clamp(add(kept, fresh), -32768, 32767))
        if self.op.cell_clip > 0:
            scale = self.context.quant(self.context.input(_C)).scale[0]
            clip = int(min(self.op.cell_clip / scale, 32767.0))
            cell = b.let("clipped", clamp(cell, -clip, clip))
        b.store(self.c, place, cast(cell, Scalar.I16))
        squashed = cast(self.squash(b, cell), Scalar.I32)
        scaled = self.hidden(b.let("hidden_raw", mul(gates[_OUTPUT], squashed)), const(0))
        result = b.let("result", add(scaled, i32(self.hidden_zero)))
        return cast(clamp(result, *self.context.output().dtype.limits), self.output.dtype)
