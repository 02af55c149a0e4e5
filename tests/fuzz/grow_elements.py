"""Nodes that compute element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from crtexport.ir import ops
from crtexport.ir.ops import Activation, Op
from crtexport.ir.types import DType, Quantization, TensorType
from tests.fuzz.growing import (
    BOOL,
    F32,
    I8,
    I16,
    I32,
    I64,
    NUMBERS,
    SCALED,
    U8,
    Growing,
    MisfitError,
    full,
    scaled,
)

Producer = Callable[[Growing], None]
U32 = DType.UINT32


# ---- one operand

UNARY: dict[type[Op], tuple[DType, ...]] = {
    ops.Relu: (F32, *SCALED), ops.Relu6: (F32, *SCALED), ops.ReluN1To1: (F32, I8, U8),
    ops.LeakyRelu: (F32, *SCALED), ops.Elu: (F32, I8), ops.Gelu: (F32, *SCALED),
    ops.HardSwish: (F32, I8, U8), ops.Logistic: (F32, *SCALED), ops.Tanh: (F32, *SCALED),
    ops.Softmax: (F32, *SCALED), ops.LogSoftmax: (F32, I8, U8),
    ops.L2Normalization: (F32, I8, U8),
    **{kind: (F32,) for kind in ops.OPERATORS if kind.__module__ == ops.Abs.__module__},
    ops.Abs: (F32, I8, I16, I32), ops.Neg: (F32, I32, I64, I8, I16), ops.Exp: (F32, I8, I16),
    **dict.fromkeys((ops.Log, ops.Sqrt, ops.Rsqrt), (F32, I8, I16)),
    ops.ZerosLike: (F32, I32, I64, I8),
}
"""Functions of one tensor and what they take."""

_ALONG = (ops.Softmax, ops.LogSoftmax, ops.L2Normalization)
_PROBABILITIES = {
    I8: Quantization((1 / 256,), (-128,)), U8: Quantization((1 / 256,), (0,)),
    I16: Quantization((1 / 32768,), (0,)),
}
_SIGNED = {
    I8: Quantization((1 / 128,), (0,)), U8: Quantization((1 / 128,), (128,)),
    I16: Quantization((1 / 32768,), (0,)),
}
_WIDE = Quantization((1 / 65536,), (-32768,))


def _result(g: Growing, kind: type[Op], dtype: DType) -> Quantization | str | None:
    """The scale that the operator's rule asks for, or any."""
    if dtype not in SCALED:
        return None
    if kind in (ops.Softmax, ops.Logistic):
        quant = _PROBABILITIES[dtype]
        if kind is ops.Logistic and dtype is not I16:
            return Quantization(quant.scale, (g.draw.choice((quant.zero_point[0], 3)),))
        return quant
    if kind is ops.Tanh:
        return _SIGNED[I16] if dtype is I16 else g.draw.choice((_SIGNED[dtype], None)) or "draw"
    if kind is ops.L2Normalization:
        return _SIGNED[dtype]
    if kind is ops.LogSoftmax:
        return Quantization((1 / 16,), (dtype.limits[1],))
    if kind is ops.Neg:
        return "like"
    return g.draw.choice(("draw", "like"))


def _unary(kind: type[Op]) -> Producer:
    def fits(type_: TensorType) -> bool:
        if not scaled(type_) or (kind in _ALONG and not (type_.shape and full(type_))):
            return False
        if kind is ops.Neg and type_.quant is not None and any(type_.quant.zero_point):
            return False
        steep = type_.dtype is I16 and kind in (ops.Logistic, ops.Tanh)
        return not (steep and type_.quant is not None and type_.quant.scale[0] >= 5.3)

    def produce(g: Growing) -> None:
        x = g.pick(UNARY[kind], fits)
        type_ = g.type(x)
        quant = _result(g, kind, type_.dtype)
        dtypes = None
        op: Op = kind()
        if kind is ops.Softmax:
            op = ops.Softmax(g.draw.choice((1.0, 1.0, 0.5)))
            if type_.dtype in (I8, U8) and g.draw.chance(25):
                quant, dtypes = _WIDE, (I16,)
        elif kind is ops.LeakyRelu:
            op = ops.LeakyRelu(g.draw.choice((0.2, 0.01, 0.5, 1.0, 0.0, -0.5, 1.5)))
        elif kind is ops.Gelu:
            op = ops.Gelu(g.draw.chance(50))
        elif kind is ops.HardSwish and type_.quant is not None and quant == "draw":
            out = g.draw.quant(type_.dtype)
            small = out is not None and type_.quant.scale[0] >= 127 * out.scale[0]
            quant = type_.quant if small else out
        g.add(op, x, quant=quant, dtypes=dtypes)

    return produce


# ---- several operands

BINARY: dict[type[Op], tuple[DType, ...]] = {
    ops.Add: NUMBERS, ops.Sub: NUMBERS, ops.Mul: (*NUMBERS, U32),
    ops.Div: (F32, I8, U8, I32, I64), ops.FloorDiv: (F32, I8, I16, I32),
    ops.FloorMod: (F32, I8, I16, I32, I64), ops.Maximum: NUMBERS, ops.Minimum: NUMBERS,
    ops.SquaredDifference: (F32, I8, I16, I32), ops.Pow: (F32, I32, I64),
    **dict.fromkeys(
        (ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor, ops.ShiftLeft, ops.ShiftRight),
        (I8, U8, I16, I32, U32, I64),
    ),
}
"""Operators of two tensors that broadcast, and what they take."""

COMPARISONS: dict[type[Op], tuple[DType, ...]] = {
    ops.Equal: (*NUMBERS, BOOL), ops.NotEqual: (*NUMBERS, BOOL), ops.Greater: NUMBERS,
    ops.GreaterEqual: NUMBERS, ops.Less: NUMBERS, ops.LessEqual: NUMBERS,
}


def _beside(g: Growing, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts with ``shape``."""
    other = list(shape)
    for axis in range(len(other)):
        if other[axis] == 1 and g.draw.chance(25):
            other[axis] = g.draw.size(5)
        elif g.draw.chance(25):
            other[axis] = 1
    return tuple(other[g.draw.choice((0, 0, 0, 1)) if other else 0 :])


def _broadcasts(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(one, two)
    except ValueError:
        return False
    return True


def _second(
    g: Growing, x: int, quant: Callable[[], Quantization | None],
    fits: Callable[[TensorType], bool] = lambda _: True,
) -> int:
    """An operand of the type of ``x`` that broadcasts with it; now and then ``x`` itself."""
    type_ = g.type(x)

    def wanted(other: TensorType) -> bool:
        same = other.dtype is type_.dtype and (other.quant is None) == (type_.quant is None)
        return same and scaled(other) == scaled(type_) and fits(other) and _broadcasts(
            type_.shape, other.shape
        )

    if g.draw.chance(8) and fits(type_):
        return x
    found = g.find(wanted) if g.draw.chance(60) else None
    if found is not None:
        return found
    own = None if type_.quant is None else quant()
    return g.fresh(TensorType(type_.dtype, _beside(g, type_.shape), own))


def _stored(kind: type[Op]) -> bool:
    """Returns whether an operator computes with stored numbers, whatever their scales."""
    return kind in (
        ops.FloorDiv, ops.FloorMod, ops.Maximum, ops.Minimum, ops.BitwiseAnd, ops.BitwiseOr,
        ops.BitwiseXor, ops.ShiftLeft, ops.ShiftRight,
    )


def _binary(kind: type[Op]) -> Producer:
    def produce(g: Growing) -> None:
        x = g.pick(BINARY[kind], lambda t: _stored(kind) or scaled(t))
        dtype = g.type(x).dtype
        y = _second(g, x, lambda: g.draw.quant(dtype))
        pair = (x, y) if g.draw.chance(70) else (y, x)
        options = {}
        if kind in (ops.Add, ops.Sub, ops.Mul, ops.Div):
            without = (Activation.RELU_N1_TO_1,) if dtype is U32 else ()
            options = {"activation": g.draw.activation(*without)}
        quant = g.draw.quant(dtype)
        if quant is not None:
            scales = [q.scale[0] for q in (g.type(t).quant for t in pair) if q is not None]
            if kind is ops.Div:
                ratio = scales[0] / scales[1] / g.draw.integer(65, 4000)
                quant = Quantization((float(np.float32(ratio)),), quant.zero_point)
            if kind is ops.SquaredDifference:
                least = float(np.float32(max(quant.scale[0], max(scales) ** 2 / 4000)))
                quant = Quantization((least,), quant.zero_point)
        if quant is not None and not 0 < quant.scale[0] < float("inf"):
            raise MisfitError("no such scale")
        g.add(kind(**options), *pair, quant=quant)

    return produce


def _sum_by_shifts(g: Growing, kind: type[ops.Add | ops.Sub]) -> None:
    """Of int16: one operand on the scale of the result, the other on a finer one."""
    x = g.pick((I16,), scaled)
    type_ = g.type(x)
    if type_.quant is None or type_.quant.scale[0] != 2.0 ** round(np.log2(type_.quant.scale[0])):
        raise MisfitError("no power of two")
    finer = Quantization((type_.quant.scale[0] * 2.0 ** -g.draw.integer(0, 15),), (0,))
    y = g.fresh(TensorType(I16, type_.shape, finer))
    pair = (x, y) if g.draw.chance(50) else (y, x)
    g.add(kind(g.draw.activation(), True), *pair, quant=type_.quant)


def _sum(kind: type[ops.Add | ops.Sub]) -> Producer:
    plain = _binary(kind)

    def produce(g: Growing) -> None:
        if g.draw.chance(15):
            _sum_by_shifts(g, kind)
        else:
            plain(g)

    return produce


def _comparison(kind: type[Op]) -> Producer:
    def fits(type_: TensorType) -> bool:
        if type_.dtype not in SCALED:
            return True
        return scaled(type_) and type_.quant is not None and type_.quant.scale[0] < 1

    def produce(g: Growing) -> None:
        x = g.pick(COMPARISONS[kind], fits)
        type_ = g.type(x)

        def quant() -> Quantization | None:
            if type_.dtype is I16 or g.draw.chance(50):
                return type_.quant
            own = g.draw.quant(type_.dtype)
            return own if own is not None and own.scale[0] < 1 else type_.quant

        g.add(kind(), x, _second(
            g, x, quant, lambda t: fits(t) and (t.dtype is not I16 or t.quant == type_.quant)
        ))

    return produce


def _logical(kind: type[Op]) -> Producer:
    def produce(g: Growing) -> None:
        x = g.pick((BOOL,))
        g.add(kind(), *((x,) if kind is ops.LogicalNot else (x, _second(g, x, lambda: None))))

    return produce


_CHOSEN = (*NUMBERS, U32, BOOL)


def select(g: Growing) -> None:
    then = g.pick(_CHOSEN)
    type_ = g.type(then)
    rows = bool(type_.shape) and g.draw.chance(20)
    if rows:
        other = g.like(then)
        condition = g.find(lambda t: t.dtype is BOOL and t.shape == type_.shape[:1])
        if condition is None:
            condition = g.fresh(TensorType(BOOL, type_.shape[:1]))
    else:
        other = _second(g, then, lambda: type_.quant, lambda t: t.quant == type_.quant)
        both = np.broadcast_shapes(type_.shape, g.type(other).shape)
        condition = g.find(lambda t: t.dtype is BOOL and _broadcasts(t.shape, both))
        if condition is None:
            condition = g.fresh(TensorType(BOOL, _beside(g, both)))
    g.add(ops.Select(rows), condition, then, other, quant=type_.quant)


def add_n(g: Growing) -> None:
    x = g.pick((F32, I32, I8), scaled)
    others = (g.like(x) for _ in range(g.draw.integer(0, 3)))
    g.add(ops.AddN(), x, *others, quant=g.draw.quant(g.type(x).dtype))


def prelu(g: Growing) -> None:
    x = g.pick((*UNARY[ops.HardSwish], I16), scaled)
    type_ = g.type(x)
    shape, kind = type_.shape, I8 if type_.dtype is I16 else type_.dtype
    slopes = g.draw.choice((shape, shape[-1:], (1,) * (len(shape) - 1) + shape[-1:], ()))
    alpha = g.fresh(TensorType(kind, slopes, g.draw.quant(kind)))
    g.add(ops.Prelu(), x, alpha)


# ---- types

_ALIKE = {I8: U8, U8: I8, I32: U32, U32: I32}


def bitcast(g: Growing) -> None:
    """Of whole numbers: processors give NaN different bits."""
    x = g.pick(tuple(_ALIKE))
    g.add(ops.Bitcast(), x, quant=None, dtypes=(_ALIKE[g.type(x).dtype],))


_QUANTIZED: dict[DType, Sequence[DType]] = {
    F32: (I8, U8, I16), I8: (I8, U8, I16, I32), U8: (I8, U8, I16), I16: (I8, I16, I32),
    I32: (I8, I16),
}
_CASTABLE = (BOOL, I8, U8, I16, I32, U32, I64, DType.FLOAT16, F32, DType.FLOAT64)


def quantize(g: Growing) -> None:
    def fits(type_: TensorType) -> bool:
        return scaled(type_) and (type_.dtype is not I32 or type_.quant is not None)

    x = g.pick(tuple(_QUANTIZED), fits)
    result = g.draw.choice(_QUANTIZED[g.type(x).dtype])
    quant = g.draw.quant(result)
    if result is I32:
        quant = Quantization((g.draw.scale(),), (0,))
    (y,) = g.add(ops.Quantize(), x, quants=(quant,), dtypes=(result,))
    g.alive.append(y)  # what is quantized goes on as that, rather than as floats


def lookup(g: Growing) -> None:
    x, result = g.pick((I8, U8)), g.draw.choice((I8, U8))
    quant = g.draw.quant(result)
    table = g.fresh(TensorType(result, (256,), quant))
    g.add(ops.Lookup(), x, table, quants=(quant,), dtypes=(result,))


def dequantize(g: Growing) -> None:
    x = g.pick((*SCALED, DType.FLOAT16), scaled)
    y = g.one(ops.Dequantize(), x)
    g.alive.append(y)


def cast(g: Growing) -> None:
    x = g.pick(_CASTABLE)
    g.add(ops.Cast(), x, quant=None, dtypes=(g.draw.choice(_CASTABLE),))


PRODUCERS: dict[type[Op], Producer] = {
    **{kind: _unary(kind) for kind in UNARY},
    **{kind: _binary(kind) for kind in BINARY},
    ops.Add: _sum(ops.Add), ops.Sub: _sum(ops.Sub),
    **{kind: _comparison(kind) for kind in COMPARISONS},
    **{kind: _logical(kind) for kind in (ops.LogicalAnd, ops.LogicalOr, ops.LogicalNot)},
    ops.Select: select, ops.AddN: add_n, ops.Prelu: prelu, ops.Quantize: quantize,
    ops.Dequantize: dequantize, ops.Cast: cast, ops.Bitcast: bitcast, ops.Lookup: lookup,
}
