"""Nodes with weights, and pools."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from crtexport.ir.ops import (
    AveragePool2D,
    BatchMatMul,
    Conv2D,
    DepthwiseConv2D,
    EmbeddingLookup,
    FullyConnected,
    L2Pool2D,
    MaxPool2D,
    Op,
    Padding2D,
    TransposeConv2D,
)
from crtexport.ir.types import DType, Quantization, TensorType
from tests.fuzz.growing import (
    F32,
    I8,
    I16,
    I32,
    I64,
    MOST_PRODUCTS,
    SCALED,
    U8,
    Growing,
    MisfitError,
    full,
    scaled,
)

_DATA = (F32, I8, I8, U8, I16)
_Pair = tuple[int, int]


def _image(g: Growing, dtypes: tuple[DType, ...] = _DATA) -> int:
    return g.pick(dtypes, lambda t: scaled(t) and full(t), rank=4)


def _weight_scale(g: Growing, x: float, y: float) -> float:
    """Around what makes an output use its range; now and then with a multiplier above 1."""
    wanted = y / x * g.draw.integer(1, 400) / g.draw.choice((4000, 4000, 4000, 30))
    return float(np.float32(min(max(wanted, 1e-30), 1e30)))


def _weights(
    g: Growing, data: TensorType, shape: tuple[int, ...], axis: int, out: Quantization | None,
    *, legacy: bool = False,
) -> int:
    """Constant weights that go with ``data``; ``axis`` is that of the units."""
    count = shape[axis]
    if data.dtype is F32:
        if not g.draw.chance(20):
            return g.constant(g.draw.values(TensorType(F32, shape)))
        scales = [g.draw.integer(1, 1000) / 1e4 for _ in range(count if g.draw.chance(60) else 1)]
        values = np.maximum(g.draw.values(TensorType(I8, shape)), -127)
        many = len(scales) > 1 or g.draw.chance(50)
        scales = [float(np.float32(s)) for s in scales]
        if many and len(scales) == count:
            return g.constant(values, Quantization(tuple(scales), (0,) * count, axis))
        return g.constant(values, Quantization((scales[0],), (0,)))
    if data.quant is None or out is None:
        raise MisfitError("no scales")
    stored = U8 if data.dtype is U8 else I8
    many = stored is I8 and count > 1 and g.draw.chance(50)
    scales = [
        _weight_scale(g, data.quant.scale[0], out.scale[0]) for _ in range(count if many else 1)
    ]
    values = g.draw.values(TensorType(stored, shape))
    zero = g.draw.zero(U8) if stored is U8 else 0
    if stored is I8:
        values = np.maximum(values, -127)
        if legacy and not many and g.draw.chance(20):
            zero = g.draw.choice((5, -128, 127))
    quant = Quantization(tuple(scales), (zero,) * len(scales), axis if many else None)
    return g.constant(values, quant)


def _bias(
    g: Growing, data: TensorType, weights: int, units: int, *, short: bool = True
) -> tuple[int, ...]:
    """A bias, or none."""
    if g.draw.chance(30):
        return ()
    if data.dtype is F32:
        return (g.constant(g.draw.values(TensorType(F32, (units,)))),)
    own = g.type(weights).quant
    if own is None or data.quant is None:
        raise MisfitError("no scales")
    stored = I32
    if data.dtype is I16:
        stored = g.draw.choice((I64, I64, I32)) if short else I64
    reach = g.draw.choice((2000, 20000, 1 << (34 if stored is I64 else 30)))
    values = [g.draw.integer(-reach, reach) for _ in range(units)]
    scales = tuple(data.quant.scale[0] * s for s in own.scale)
    if not all(np.float32(s) > 0 for s in scales):
        raise MisfitError("scales vanish")
    quant = Quantization(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)
    return (g.constant(values, quant, stored),)


def _same(size: int, extent: int, stride: int) -> tuple[int, int]:
    missing = max((-(-size // stride) - 1) * stride + extent - size, 0)
    return missing // 2, missing - missing // 2


def _padding(
    g: Growing, image: tuple[int, ...], extents: _Pair, strides: _Pair, most: _Pair
) -> Padding2D:
    """As SAME, as VALID, or any other; at most so much on each side."""
    kind = g.draw.choice(("same", "same", "valid", "valid", "any"))
    sides: list[int] = []
    for size, extent, stride, limit in zip(image[1:3], extents, strides, most, strict=True):
        if kind == "same":
            sides += _same(size, extent, stride)
        elif kind == "valid":
            sides += (0, 0)
        else:
            sides += (g.draw.integer(0, min(limit, 3)), g.draw.integer(0, min(limit, 3)))
    if any(side > limit for side, limit in zip(sides, (most[0], most[0], most[1], most[1]),
                                               strict=True)):
        raise MisfitError("more padding than window")
    return Padding2D(*sides)


def _window(g: Growing) -> _Pair:
    return g.draw.choice(((1, 1), (1, 1), (3, 3), (3, 3), (2, 2), (1, 3), (4, 1), (5, 2), (2, 3)))


def _stride(g: Growing) -> _Pair:
    return g.draw.choice(((1, 1), (1, 1), (1, 1), (2, 2), (1, 2), (3, 1), (2, 3)))


def _geometry(g: Growing, image: tuple[int, ...]) -> tuple[_Pair, dict[str, Any]]:
    window, stride = _window(g), _stride(g)
    dilation = g.draw.choice(((1, 1), (1, 1), (1, 1), (2, 2), (1, 3)))
    extents = tuple((w - 1) * d + 1 for w, d in zip(window, dilation, strict=True))
    padding = _padding(g, image, (extents[0], extents[1]), stride, (99, 99))
    return window, {
        "stride": stride, "dilation": dilation, "padding": padding,
        "activation": g.draw.activation(),
    }


def _limited(g: Growing, shape: tuple[int, ...], products: int) -> None:
    if math.prod(shape) * products > MOST_PRODUCTS:
        raise MisfitError("too much work")


def _apply(g: Growing, op: Op, x: int, shape: tuple[int, ...], axis: int, **bias: bool) -> int:
    data = g.type(x)
    out = g.draw.quant(data.dtype)
    legacy = isinstance(op, FullyConnected)
    weights = _weights(g, data, shape, axis, out, legacy=legacy)
    more = _bias(g, data, weights, shape[axis], **bias)
    y = g.one(op, x, weights, *more, quant=out)
    _limited(g, g.type(y).shape, math.prod(shape) // shape[axis])
    return y


def conv_2d(g: Growing) -> None:
    x = _image(g)
    shape = g.type(x).shape
    window, options = _geometry(g, shape)
    groups = g.draw.choice([n for n in (1, 1, 1, 2, 3, shape[3]) if shape[3] % n == 0])
    units = groups * g.draw.size(max(17 // groups, 1))
    _apply(g, Conv2D(**options), x, (units, *window, shape[3] // groups), 0)


def depthwise_conv_2d(g: Growing) -> None:
    x = _image(g)
    shape = g.type(x).shape
    window, options = _geometry(g, shape)
    multiplier = g.draw.choice((1, 1, 1, 2, 3))
    op = DepthwiseConv2D(depth_multiplier=multiplier, **options)
    _apply(g, op, x, (1, *window, shape[3] * multiplier), 3, short=False)


def transpose_conv_2d(g: Growing) -> None:
    x = _image(g)
    shape = g.type(x).shape
    window, stride = _window(g), g.draw.choice(((1, 1), (2, 2), (1, 2), (3, 2)))
    same = g.draw.chance(50)
    size, crop = [], []
    for n, w, s in zip(shape[1:3], window, stride, strict=True):
        least = (n - 1) * s + 1 if same else (n - 1) * s + w
        size.append(least + g.draw.integer(0, s - 1))
        crop.append(max((n - 1) * s + w - size[-1], 0) // 2 if same else 0)
    op = TransposeConv2D(
        (size[0], size[1]), stride, (crop[0], crop[1]), g.draw.activation()
    )
    _apply(g, op, x, (g.draw.size(9), *window, shape[3]), 0)


def fully_connected(g: Growing) -> None:
    x = g.pick(_DATA, lambda t: scaled(t) and full(t) and len(t.shape) > 0)
    type_ = g.type(x)
    keep = g.draw.chance(30)
    depths = [type_.shape[-1], type_.shape[-1], math.prod(type_.shape[1:])]
    depth = type_.shape[-1] if keep else g.draw.choice(depths)
    op = FullyConnected(keep, g.draw.activation())
    if g.draw.chance(25):
        _attend(g, op, x, (g.draw.size(), depth))
    else:
        _apply(g, op, x, (g.draw.size(), depth), 0)


def _attend(g: Growing, op: FullyConnected, x: int, shape: tuple[int, int]) -> None:
    """A layer whose weights are computed, or an input."""
    data = g.type(x)
    dtype = I8 if data.dtype is I16 else data.dtype
    out, quant = g.draw.quant(data.dtype), None
    if out is not None and data.quant is not None:
        scale = _weight_scale(g, data.quant.scale[0], out.scale[0])
        quant = Quantization((scale,), (g.draw.zero(dtype),))
    weights = g.find(lambda t: t.dtype is dtype and t.shape == shape and scaled(t))
    if weights is None:
        weights = g.fresh(TensorType(dtype, shape, quant))
    more = _bias(g, data, weights, shape[0])
    y = g.one(op, x, weights, *more, quant=out)
    _limited(g, g.type(y).shape, shape[1])


def batch_matmul(g: Growing) -> None:
    x = g.pick((F32, I8, I16), lambda t: scaled(t) and full(t) and 2 <= len(t.shape) <= 5)
    type_ = g.type(x)
    adj_x, adj_y = g.draw.chance(40), g.draw.chance(40)
    depth = type_.shape[-2 if adj_x else -1]
    columns = g.draw.size(7)
    batch = [g.draw.choice((1, n, n)) for n in type_.shape[:-2]]
    batch = batch[g.draw.integer(0, len(batch)) :] if g.draw.chance(30) else batch
    out = g.draw.quant(type_.dtype)
    quant = None
    if out is not None and type_.quant is not None:
        scale = _weight_scale(g, type_.quant.scale[0], out.scale[0])
        scale = float(np.float32(scale / (256 if type_.dtype is I16 else 1)))
        quant = Quantization((scale,), (g.draw.zero(type_.dtype),))
    shape = (*batch, *((columns, depth) if adj_y else (depth, columns)))
    second = g.find(lambda t: t.dtype is type_.dtype and t.shape == shape and scaled(t))
    if second is None:
        second = g.fresh(TensorType(type_.dtype, shape, quant))
    y = g.one(BatchMatMul(adj_x, adj_y), x, second, quant=out)
    _limited(g, g.type(y).shape, depth)


def embedding_lookup(g: Growing) -> None:
    dtype = g.draw.choice((F32, I8, I8, U8))
    shape = (g.draw.size(7), *g.draw.shape(g.draw.integer(1, 3), 30))
    table = g.constant(g.draw.values(TensorType(dtype, shape)), g.draw.quant(dtype))
    real = dtype is I8 and g.draw.chance(50)
    if real:
        quant = Quantization((g.draw.scale(),), (0,))
        table = g.constant(g.draw.values(TensorType(I8, shape)), quant)
    where = g.find(lambda t: t.dtype is I32 and len(t.shape) == 1 and full(t))
    if where is None or g.draw.chance(50):
        where = g.fresh(TensorType(I32, (g.draw.size(5),)), (0, shape[0] - 1))
    g.add(
        EmbeddingLookup(), where, table, quant=g.type(table).quant,
        dtypes=(F32 if real else dtype,),
    )


def _pool(kind: type[AveragePool2D | MaxPool2D | L2Pool2D]) -> Callable[[Growing], None]:
    def pool(g: Growing) -> None:
        x = _image(g, (F32,) if kind is L2Pool2D else (F32, *SCALED))
        shape = g.type(x).shape
        window, stride = _window(g), _stride(g)
        if g.draw.chance(20):
            window = (shape[1], shape[2])
        most = (window[0] - 1, window[1] - 1)
        padding = _padding(g, shape, window, stride, most)
        y = g.one(kind(window, stride, padding, g.draw.activation()), x, quant="like")
        _limited(g, g.type(y).shape, math.prod(window))

    return pool


PRODUCERS: dict[type[Op], Callable[[Growing], None]] = {
    Conv2D: conv_2d, DepthwiseConv2D: depthwise_conv_2d, TransposeConv2D: transpose_conv_2d,
    FullyConnected: fully_connected, BatchMatMul: batch_matmul, EmbeddingLookup: embedding_lookup,
    AveragePool2D: _pool(AveragePool2D), MaxPool2D: _pool(MaxPool2D), L2Pool2D: _pool(L2Pool2D),
}
