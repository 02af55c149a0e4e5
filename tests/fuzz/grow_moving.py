"""Nodes that move elements, fold axes or resize images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir import ops
from crtexport.ir.ops import Op
from crtexport.ir.types import DType, Quantization, TensorType
from tests.fuzz.growing import (
    BOOL,
    EVERY,
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
_USUAL = (*NUMBERS, *NUMBERS, *EVERY)
"""Element types of what only moves: usual ones more often."""


def _any(g: Growing, *, rank: int | None = None, least: int = 0) -> int:
    return g.pick(_USUAL, lambda t: full(t) and len(t.shape) >= least, rank=rank)


def reshape(g: Growing) -> None:
    x = _any(g)
    count = g.type(x).elements
    shape: list[int] = []
    while count > 1 and len(shape) < 3 and g.draw.chance(75):
        shape.append(g.draw.choice([n for n in range(1, count + 1) if count % n == 0]))
        count //= shape[-1]
    shape.append(count)
    while len(shape) < 4 and g.draw.chance(40):
        shape.insert(g.draw.integer(0, len(shape)), 1)
    if shape == [1] and g.draw.chance(50):
        shape = []
    g.add(ops.Reshape(tuple(shape)), x, quant="like")


def _frame(g: Growing, shape: tuple[int, ...], most: int = 3) -> tuple[tuple[int, int], ...]:
    pairs = [(0, 0)] * len(shape)
    for axis in range(len(shape)):
        if g.draw.chance(50):
            pairs[axis] = (g.draw.integer(0, most), g.draw.integer(0, most))
    return tuple(pairs)


def pad(g: Growing) -> None:
    x = g.pick(_USUAL, lambda t: full(t) and scaled(t))
    g.add(ops.Pad(_frame(g, g.type(x).shape)), x, quant="like")


def pad_v2(g: Growing) -> None:
    x = _any(g)
    type_ = g.type(x)
    value = g.fresh(TensorType(type_.dtype, g.draw.choice(((), (1,))), type_.quant))
    g.add(ops.PadV2(_frame(g, type_.shape)), x, value, quant="like")


def mirror_pad(g: Growing) -> None:
    x = _any(g)
    shape, symmetric = g.type(x).shape, g.draw.chance(50)
    frame = tuple(
        (min(a, size - (not symmetric)), min(b, size - (not symmetric)))
        for size, (a, b) in zip(shape, _frame(g, shape), strict=True)
    )
    g.add(ops.MirrorPad(frame, symmetric), x, quant="like")


def _parts(g: Growing, x: int, axis: int) -> list[int]:
    """Some tensors beside ``x`` that have its type but for one axis."""
    type_ = g.type(x)

    def fits(other: TensorType) -> bool:
        return (other.dtype, other.quant) == (type_.dtype, type_.quant) and (
            len(other.shape) == len(type_.shape)
            and all(a == b or i == axis
                    for i, (a, b) in enumerate(zip(type_.shape, other.shape, strict=True)))
        )

    found = [x]
    for _ in range(g.draw.choice((0, 1, 1, 1, 2, 3))):
        other = g.find(fits) if g.draw.chance(70) else None
        if other is None:
            shape = [n if i != axis else g.draw.size(5) for i, n in enumerate(type_.shape)]
            quant = type_.quant
            other = g.fresh(TensorType(type_.dtype, tuple(shape), quant))
        found.insert(g.draw.integer(0, len(found)), other)
    return found


def concatenation(g: Growing) -> None:
    x = g.pick(_USUAL, lambda t: full(t) and bool(t.shape) and scaled(t))
    axis = g.draw.integer(0, len(g.type(x).shape) - 1)
    parts = _parts(g, x, axis)
    other = g.type(x).dtype in (U8, I16) and g.draw.chance(40)
    g.add(ops.Concatenation(axis), *parts, quant="draw" if other else "like")


def pack(g: Growing) -> None:
    x = _any(g)
    shape = g.type(x).shape
    parts = [x, *(g.like(x) for _ in range(g.draw.integer(0, 3)))]
    other = g.type(x).dtype is U8 and scaled(g.type(x)) and g.draw.chance(40)
    g.add(
        ops.Pack(g.draw.integer(0, len(shape))), *parts, quant="draw" if other else "like"
    )


def split(g: Growing) -> None:
    x = _any(g, least=1)
    type_ = g.type(x)
    axis = g.draw.integer(0, len(type_.shape) - 1)
    left, sizes = type_.shape[axis], []
    if left % 2 == 0 and g.draw.chance(50):
        sizes = [left // 2] * 2
    else:
        while left and len(sizes) < 3:
            sizes.append(g.draw.integer(1, left))
            left -= sizes[-1]
        sizes += [left] if left else []
    g.add(
        ops.Split(axis, tuple(sizes)), x, quants=[type_.quant] * len(sizes),
        dtypes=(type_.dtype,) * len(sizes),
    )


def unpack(g: Growing) -> None:
    x = _any(g, least=1)
    type_ = g.type(x)
    axes = [a for a, n in enumerate(type_.shape) if n <= 4]
    if not axes:
        raise MisfitError("too many parts")
    axis = g.draw.choice(axes)
    count = type_.shape[axis]
    g.add(
        ops.Unpack(axis), x, quants=[type_.quant] * count, dtypes=(type_.dtype,) * count
    )


def slice_(g: Growing) -> None:
    x = _any(g)
    begin, size, stride = [], [], []
    for n in g.type(x).shape:
        step = g.draw.choice((1, 1, 1, 1, 2, -1, -2, 3))
        first = g.draw.integer(0, n - 1) if g.draw.chance(60) else (0 if step > 0 else n - 1)
        most = (n - 1 - first) // step + 1 if step > 0 else first // -step + 1
        begin.append(first)
        stride.append(step)
        size.append(most if g.draw.chance(50) else g.draw.integer(1, most))
    shape = [n for n in size if n != 1 or g.draw.chance(80)]
    g.add(ops.Slice(tuple(begin), tuple(size), tuple(stride), tuple(shape)), x, quant="like")


def transpose(g: Growing) -> None:
    x = _any(g)
    order = list(range(len(g.type(x).shape)))
    g.draw.rng.shuffle(order)
    g.add(ops.Transpose(tuple(order)), x, quant="like")


def broadcast_to(g: Growing) -> None:
    x = _any(g)
    shape = [n if n != 1 else g.draw.choice((1, g.draw.size(7))) for n in g.type(x).shape]
    if len(shape) < 5 and g.draw.chance(40):
        shape.insert(0, g.draw.size(3))
    g.add(ops.BroadcastTo(tuple(shape)), x, quant="like")


def tile(g: Growing) -> None:
    x = _any(g)
    multiples = tuple(g.draw.choice((1, 1, 2, 3)) for _ in g.type(x).shape)
    g.add(ops.Tile(multiples), x, quant="like")


def space_to_depth(g: Growing) -> None:
    x = _any(g, rank=4)
    _, rows, columns, _ = g.type(x).shape
    blocks = [n for n in (1, 2, 2, 3, 4) if rows % n == 0 and columns % n == 0]
    g.add(ops.SpaceToDepth(g.draw.choice(blocks)), x, quant="like")


def depth_to_space(g: Growing) -> None:
    x = _any(g, rank=4)
    blocks = [n for n in (1, 2, 2, 3, 4) if g.type(x).shape[3] % (n * n) == 0]
    g.add(ops.DepthToSpace(g.draw.choice(blocks)), x, quant="like")


def space_to_batch(g: Growing) -> None:
    x = g.pick(_USUAL, lambda t: full(t) and scaled(t) and 3 <= len(t.shape) <= 4)
    block, frame = [], []
    for n in g.type(x).shape[1 : len(g.type(x).shape) - 1]:
        block.append(g.draw.choice((1, 2, 2, 3)))
        before = g.draw.choice((0, 0, 1))
        frame.append((before, -(n + before) % block[-1]))
    g.add(ops.SpaceToBatchNd(tuple(block), tuple(frame)), x, quant="like")


def batch_to_space(g: Growing) -> None:
    x = g.pick(_USUAL, lambda t: full(t) and 3 <= len(t.shape) <= 4)
    shape = g.type(x).shape
    block = [1] * (len(shape) - 2)
    left = shape[0]
    for axis in range(len(block)):
        block[axis] = g.draw.choice([n for n in (1, 2, 3) if left % n == 0])
        left //= block[axis]
    crops = tuple(
        (g.draw.choice((0, 0, 1)), 0) if n * b > 1 else (0, 0)
        for n, b in zip(shape[1:-1], block, strict=True)
    )
    g.add(ops.BatchToSpaceNd(tuple(block), crops), x, quant="like")


# ---- positions that are computed

def _indices(g: Growing, shape: tuple[int, ...], most: int) -> int:
    """Numbers of something, or whatever is there: what is outside counts as the nearest."""
    found = g.find(lambda t: t.dtype in (I32, I64) and t.shape == shape)
    if found is not None and g.draw.chance(40):
        return found
    limits = (0, max(most - 1, 0)) if g.draw.chance(85) else (-3, most + 3)
    return g.fresh(TensorType(g.draw.choice((I32, I32, I64, I16)), shape), limits)


def gather(g: Growing) -> None:
    x = _any(g, least=1)
    type_ = g.type(x)
    rank = len(type_.shape)
    batch = g.draw.integer(0, min(rank - 1, 2)) if g.draw.chance(35) else 0
    axis = g.draw.integer(batch, rank - 1)
    picked = (*type_.shape[:batch], *(g.draw.size(4) for _ in range(g.draw.integer(0, 2))))
    g.add(ops.Gather(axis, batch), x, _indices(g, picked, type_.shape[axis]), quant="like")


def gather_nd(g: Growing) -> None:
    x = _any(g, least=1)
    type_ = g.type(x)
    depth = g.draw.integer(1, len(type_.shape))
    picked = (*(g.draw.size(4) for _ in range(g.draw.integer(0, 2))), depth)
    g.add(ops.GatherNd(), x, _indices(g, picked, min(type_.shape[:depth])), quant="like")


def _part(g: Growing, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape with as many axes, which may be longer along ``axis`` alone."""
    return tuple(
        g.draw.size(5) if i == axis else g.draw.integer(1, n) if n else 0
        for i, n in enumerate(shape)
    )


def gather_elements(g: Growing) -> None:
    x = _any(g, least=1)
    shape = g.type(x).shape
    axis = g.draw.integer(0, len(shape) - 1)
    indices = _indices(g, _part(g, shape, axis), shape[axis])
    g.add(ops.GatherElements(axis), x, indices, quant="like")


def _joined(g: Growing, type_: TensorType) -> ops.Reduction:
    numbers = type_.dtype in (F32, I32, I64)
    return g.draw.choice(tuple(ops.Reduction) if numbers else (ops.Reduction.NONE,))


def scatter_elements(g: Growing) -> None:
    x = _any(g, least=1)
    type_ = g.type(x)
    axis = g.draw.integer(0, len(type_.shape) - 1)
    part = _part(g, type_.shape, axis)
    update = g.fresh(TensorType(type_.dtype, part, type_.quant))
    op = ops.ScatterElements(axis, _joined(g, type_))
    g.add(op, x, _indices(g, part, type_.shape[axis]), update, quant="like")


def scatter_nd(g: Growing) -> None:
    x = _any(g, least=1)
    type_ = g.type(x)
    depth = g.draw.integer(1, len(type_.shape))
    count = g.draw.size(4)
    update = g.fresh(TensorType(type_.dtype, (count, *type_.shape[depth:]), type_.quant))
    indices = _indices(g, (count, depth), min(type_.shape[:depth]))
    g.add(ops.ScatterNd(_joined(g, type_)), x, indices, update, quant="like")


def top_k(g: Growing) -> None:
    x = g.pick((F32, *SCALED, I32, I64), lambda t: full(t) and bool(t.shape))
    shape = g.type(x).shape
    axis = g.draw.integer(0, len(shape) - 1)
    op = ops.TopK(axis, g.draw.integer(0, shape[axis]), g.draw.chance(50))
    g.add(
        op, x, quants=(g.type(x).quant, None), dtypes=(g.type(x).dtype, g.draw.choice((I32, I64)))
    )


def dynamic_update_slice(g: Growing) -> None:
    x = _any(g, least=1)
    type_ = g.type(x)
    part = tuple(g.draw.integer(1, n) for n in type_.shape)

    def fits(other: TensorType) -> bool:
        return other.dtype is type_.dtype and other.quant == type_.quant and (
            len(other.shape) == len(type_.shape)
            and all(a <= b for a, b in zip(other.shape, type_.shape, strict=True))
        )

    update = g.find(fits) if g.draw.chance(40) else None
    if update is None:
        update = g.fresh(TensorType(type_.dtype, part, type_.quant))
    shape = (len(type_.shape),)
    start = g.find(lambda t: t.dtype in (I32, I64) and t.shape == shape)
    if start is None or g.draw.chance(60):
        limits = (-3, max(type_.shape) + 3)
        start = g.fresh(TensorType(g.draw.choice((I32, I32, I64)), shape), limits)
    g.add(ops.DynamicUpdateSlice(), x, update, start, quant="like")


def _resize(kind: type[ops.ResizeBilinear | ops.ResizeNearestNeighbor]) -> Producer:
    def produce(g: Growing) -> None:
        dtypes = (F32, *SCALED) if kind is ops.ResizeBilinear else _USUAL
        x = g.pick(dtypes, full, rank=4)
        shape = g.type(x).shape
        size = (g.draw.size(9), g.draw.size(9))
        if g.draw.chance(40):
            size = (shape[1] * g.draw.integer(1, 3), shape[2] * g.draw.integer(1, 3))
        align, half = g.draw.choice(((False, False), (True, False), (False, True)))
        g.add(kind(size, align, half), x, quant="like")

    return produce


def resample(g: Growing) -> None:
    weighted = g.draw.chance(60)
    x = g.pick((F32,) if weighted else _USUAL, lambda t: full(t) and bool(t.shape))
    shape = g.type(x).shape
    axes = sorted({g.draw.integer(0, len(shape) - 1) for _ in range(g.draw.integer(1, 2))})
    taps = [(g.draw.size(7), *((g.draw.integer(1, 5),) if weighted else ())) for _ in axes]
    dtype = g.draw.choice((I16, I32))
    tables = [
        g.fresh(TensorType(dtype, table), (-2, shape[axis] + 1))
        for axis, table in zip(axes, taps, strict=True)
    ]
    if weighted:
        tables += [g.fresh(TensorType(F32, table)) for table in taps]
    g.add(ops.Resample(tuple(axes)), x, *tables, quant="like")


# ---- folded axes

_ALL_KINDS = (*NUMBERS, BOOL)
REDUCTIONS: dict[type[Op], tuple[DType, ...]] = {
    ops.Mean: NUMBERS, ops.Sum: _ALL_KINDS, ops.ReduceMax: _ALL_KINDS, ops.ReduceMin: _ALL_KINDS,
    ops.ReduceProd: _ALL_KINDS, ops.ReduceAny: (BOOL,), ops.ReduceAll: (BOOL,),
}


def _reduction(kind: type[Op]) -> Producer:
    like = kind in (ops.ReduceMax, ops.ReduceMin)

    def fits(type_: TensorType) -> bool:
        if kind is ops.ReduceProd and type_.dtype in SCALED:
            return type_.dtype is not U8 and scaled(type_) and (
                type_.quant is not None and type_.quant.scale[0] < 0.02
            )
        return like or scaled(type_)

    def produce(g: Growing) -> None:
        x = g.pick(REDUCTIONS[kind], lambda t: full(t) and bool(t.shape) and fits(t))
        type_ = g.type(x)
        rank = len(type_.shape)
        axes = sorted({g.draw.integer(0, rank - 1) for _ in range(g.draw.integer(1, rank))})
        if rank == 4 and g.draw.chance(40):
            axes = [1, 2]
        quant = "like" if like or g.draw.chance(40) else "draw"
        if kind is ops.ReduceProd and type_.dtype in SCALED:
            quant = Quantization((g.draw.choice((1.0, 0.5, 0.01)),), (g.draw.zero(type_.dtype),))
        g.add(kind(tuple(axes), g.draw.chance(50)), x, quant=quant)

    return produce


def _position(kind: type[Op]) -> Producer:
    def produce(g: Growing) -> None:
        x = g.pick((F32, I8, U8, I32, BOOL), lambda t: full(t) and bool(t.shape))
        axis = g.draw.integer(0, len(g.type(x).shape) - 1)
        g.add(kind(axis), x, dtypes=(g.draw.choice((I32, I64)),))

    return produce


def cum_sum(g: Growing) -> None:
    x = g.pick((F32, I32, I64, I8), lambda t: full(t) and bool(t.shape) and scaled(t))
    axis = g.draw.integer(0, len(g.type(x).shape) - 1)
    op = ops.CumSum(axis, g.draw.chance(50), g.draw.chance(50))
    g.add(op, x, quant=g.draw.quant(g.type(x).dtype))


def cum_prod(g: Growing) -> None:
    x = g.pick((F32, I32, I64), lambda t: full(t) and bool(t.shape))
    axis = g.draw.integer(0, len(g.type(x).shape) - 1)
    g.add(ops.CumProd(axis, g.draw.chance(50), g.draw.chance(50)), x)


def detection(g: Growing) -> None:
    count, classes = g.draw.integer(1, 9), g.draw.integer(1, 4)
    width, background = g.draw.choice((4, 4, 6)), g.draw.integer(0, 1)
    real = g.draw.chance(60)
    dtype = F32 if real else U8
    rng = g.draw.numpy()

    def given(shape: tuple[int, ...], scale: float, zero: int) -> TensorType:
        return TensorType(dtype, shape, None if real else Quantization((scale,), (zero,)))

    boxes = given((1, count, width), 0.1, 128)
    scores = given((1, count, classes + background), 1 / 256, 0)
    place = given((count, 4), 1 / 256, 0)
    values = rng.uniform(0.2, 0.7, (count, 4)).astype(np.float32)
    if not real:
        values = rng.integers(60, 190, (count, 4)).astype(np.uint8)
    regular = g.draw.chance(50)
    op = ops.DetectionPostProcess(
        g.draw.integer(1, 8 if regular else min(count, 6)), classes,
        g.draw.choice((0.0, 0.3, 0.8)), g.draw.choice((0.1, 0.3, 0.6, 1.0)),
        (10.0, 10.0, 5.0, 5.0), 1 if regular else g.draw.integer(1, classes),
        g.draw.integer(1, 4), regular,
    )
    g.add(op, g.fresh(boxes), g.fresh(scores), g.constant(values, place.quant), dtypes=(F32,))


def non_max_suppression(g: Growing) -> None:
    batch, count, classes = g.draw.integer(1, 2), g.draw.size(6), g.draw.size(3)
    op = ops.NonMaxSuppression(
        g.draw.integer(1, 4), g.draw.choice((0.0, 0.3, 0.6)), g.draw.choice((-1.0, 0.2)),
        g.draw.chance(40),
    )
    g.add(op, *(g.fresh(TensorType(F32, shape)) for shape in (
        (batch, count, 4), (batch, classes, count)
    )))


PRODUCERS: dict[type[Op], Producer] = {
    ops.Reshape: reshape, ops.Pad: pad, ops.PadV2: pad_v2, ops.MirrorPad: mirror_pad,
    ops.Concatenation: concatenation, ops.Pack: pack, ops.Split: split, ops.Unpack: unpack,
    ops.Slice: slice_, ops.Transpose: transpose, ops.BroadcastTo: broadcast_to, ops.Tile: tile,
    ops.SpaceToDepth: space_to_depth, ops.DepthToSpace: depth_to_space,
    ops.SpaceToBatchNd: space_to_batch, ops.BatchToSpaceNd: batch_to_space,
    ops.Gather: gather, ops.GatherNd: gather_nd, ops.DynamicUpdateSlice: dynamic_update_slice,
    ops.ResizeBilinear: _resize(ops.ResizeBilinear),
    ops.ResizeNearestNeighbor: _resize(ops.ResizeNearestNeighbor), ops.Resample: resample,
    **{kind: _reduction(kind) for kind in REDUCTIONS},
    ops.ArgMax: _position(ops.ArgMax), ops.ArgMin: _position(ops.ArgMin),
    ops.CumSum: cum_sum, ops.CumProd: cum_prod,
    ops.GatherElements: gather_elements, ops.ScatterElements: scatter_elements,
    ops.ScatterNd: scatter_nd, ops.TopK: top_k,
    ops.DetectionPostProcess: detection, ops.NonMaxSuppression: non_max_suppression,
}
