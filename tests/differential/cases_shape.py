"""Networks of one operator that moves elements or resizes an image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.differential.draw import Case, Draw, quantization, values
from tests.tflite_builder import ModelBuilder


class _Network:
    """A network of one operator; all its tensors of ``dtype`` have one scale and zero point."""

    def __init__(self, draw: Draw, dtype: str) -> None:
        self.draw, self.dtype = draw, dtype
        self.m = ModelBuilder()
        self.quant = quantization(draw, dtype)

    def data(self, name: str, shape: Sequence[int]) -> int:
        return self.m.tensor(name, shape, self.dtype, **self.quant)

    def given(self, name: str, numbers: Any, dtype: str = "int32") -> int:
        """A constant that steers the operator."""
        array = np.array(numbers)
        return self.m.tensor(name, array.shape, dtype, data=array)

    def case(
        self, code: str, inputs: Sequence[int], outputs: Sequence[Sequence[int]],
        shapes: Sequence[Sequence[int]], given: Sequence[int] = (0,), **options: Any,
    ) -> Case:
        """``given``: which of ``inputs`` the network is given, of ``shapes``."""
        results = [self.data(f"y{i}", shape) for i, shape in enumerate(outputs)]
        self.m.op(code, inputs, results, **options)
        start = [inputs[i] for i in given]
        return Case(
            self.m.build(start, results),
            tuple(values(self.draw, shape, self.dtype) for shape in shapes),
        )


def _shape(draw: Draw, rank: int, most: int = 4) -> list[int]:
    return [draw.integer(1, most) for _ in range(rank)]


def slice_(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4), 5)
    begin = [draw.integer(0, size - 1) for size in shape]
    size = [draw.integer(1, s - b) for s, b in zip(shape, begin, strict=True)]
    told = [draw.choice([k, -1]) if b + k == s else k
            for s, b, k in zip(shape, begin, size, strict=True)]
    inputs = [n.data("x", shape), n.given("begin", begin), n.given("size", told)]
    return n.case("SLICE", inputs, [size], [shape])


def strided_slice(draw: Draw, dtype: str) -> Case:
    """Masks, ellipses and new axes as NumPy has them, which says what the result's shape is."""
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4), 5)
    begins, ends, strides, index = [], [], [], []
    masks = {f"{k}_mask": 0 for k in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    left = list(shape)
    if draw.choice([True, False]):
        left = left[: draw.integer(1, len(left))]
    hole = draw.integer(0, 4)
    for axis in range(len(left)):
        kinds = ["range"] * 4 + ["shrink"] + (["new"] if len(shape) + index.count(None) < 5 else [])
        kind = "ellipsis" if axis == hole else draw.choice(kinds)
        stride = draw.choice([1, 1, 2, -1, -2])
        size = shape[axis]
        begin, end = draw.integer(-size - 1, size + 1), draw.integer(-size - 1, size + 1)
        bits = [draw.choice([0, 0, 1]), draw.choice([0, 1])]
        entry: Any = slice(None if bits[0] else begin, None if bits[1] else end, stride)
        if kind == "ellipsis":
            entry = ...
        elif kind == "new":
            entry = None
        elif kind == "shrink" or not len(range(size)[entry]):
            kind, begin, stride, bits = "shrink", draw.integer(-size, size - 1), 1, [0, 0]
            entry, end = begin, begin + 1
        if ... in index and kind == "shrink":
            break  # its size is that of another axis here
        index.append(entry)
        begins.append(begin)
        ends.append(end)
        strides.append(stride)
        bit = 1 << (len(index) - 1)
        masks["begin_mask"] |= bits[0] * bit
        masks["end_mask"] |= bits[1] * bit
        if kind != "range":
            masks[{"shrink": "shrink_axis"}.get(kind, {"new": "new_axis"}.get(kind, kind))
                  + "_mask"] |= bit
    out = np.zeros(shape)[tuple(index)].shape if not _beyond(index, shape) else None
    if out is None or 0 in out:
        return slice_(draw, dtype)
    inputs = [
        n.data("x", shape), n.given("begins", begins), n.given("ends", ends),
        n.given("strides", strides),
    ]
    return n.case("STRIDED_SLICE", inputs, [out], [shape], **masks)


def _beyond(index: list[Any], shape: list[int]) -> bool:
    """Returns whether NumPy refuses an index."""
    try:
        np.zeros(shape)[tuple(index)]
    except IndexError:
        return True
    return False


def split(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    axis, count = draw.integer(0, len(shape) - 1), draw.integer(1, 3)
    part = list(shape)
    shape[axis] *= count
    inputs = [n.given("axis", draw.choice([axis, axis - len(shape)])), n.data("x", shape)]
    return n.case("SPLIT", inputs, [part] * count, [shape], (1,), num_splits=count)


def split_v(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    axis = draw.integer(0, len(shape) - 1)
    sizes = [draw.integer(1, 3) for _ in range(draw.integer(1, 3))]
    shape[axis] = sum(sizes)
    parts = [[*shape[:axis], size, *shape[axis + 1 :]] for size in sizes]
    if draw.choice([True, False]):
        sizes[draw.integer(0, len(sizes) - 1)] = -1
    inputs = [n.data("x", shape), n.given("sizes", sizes), n.given("axis", axis)]
    return n.case("SPLIT_V", inputs, parts, [shape], version=1, num_splits=len(sizes))


def pack(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape, count = _shape(draw, draw.integer(1, 3)), draw.integer(1, 3)
    axis = draw.integer(0, len(shape))
    inputs = [n.data(f"x{i}", shape) for i in range(count)]
    out = [*shape[:axis], count, *shape[axis:]]
    return n.case(
        "PACK", inputs, [out], [shape] * count, range(count), axis=axis, values_count=count
    )


def unpack(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(2, 4))
    axis = draw.integer(0, len(shape) - 1)
    part = shape[:axis] + shape[axis + 1 :]
    axis_told = draw.choice([axis, axis - len(shape)])
    return n.case(
        "UNPACK", [n.data("x", shape)], [part] * shape[axis], [shape],
        axis=axis_told, num=shape[axis],
    )


def transpose(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 5))
    order = list(range(len(shape)))
    for i in range(len(order)):
        j = draw.integer(i, len(order) - 1)
        order[i], order[j] = order[j], order[i]
    inputs = [n.data("x", shape), n.given("order", order)]
    return n.case("TRANSPOSE", inputs, [[shape[axis] for axis in order]], [shape])


def fill(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    return n.case("FILL", [n.given("shape", shape), n.data("x", ())], [shape], [()], (1,))


def broadcast_to(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 5))
    data = [draw.choice([1, size]) for size in shape][draw.integer(0, len(shape) - 1) :]
    inputs = [n.data("x", data), n.given("shape", shape)]
    return n.case("BROADCAST_TO", inputs, [shape], [data], version=2)


def tile(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    counts = [draw.integer(1, 3) for _ in shape]
    inputs = [n.data("x", shape), n.given("multiples", counts)]
    return n.case("TILE", inputs, [[a * c for a, c in zip(shape, counts, strict=True)]], [shape])


def reverse_v2(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    inputs = [n.data("x", shape), n.given("axes", [draw.integer(0, len(shape) - 1)])]
    return n.case("REVERSE_V2", inputs, [shape], [shape])


def _frame(draw: Draw, shape: Sequence[int], most: Callable[[int], int]) -> list[list[int]]:
    return [[draw.integer(0, most(n)), draw.integer(0, most(n))] for n in shape]


def _framed(shape: Sequence[int], frame: Sequence[Sequence[int]]) -> list[int]:
    return [n + sum(pair) for n, pair in zip(shape, frame, strict=True)]


def pad_v2(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    frame = _frame(draw, shape, lambda _: 2)
    value = n.m.tensor("value", (1,), dtype, data=values(draw, (1,), dtype), **n.quant)
    inputs = [n.data("x", shape), n.given("paddings", frame), value]
    return n.case("PADV2", inputs, [_framed(shape, frame)], [shape])


def mirror_pad(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    mode = draw.integer(0, 1)
    frame = _frame(draw, shape, lambda size: size - 1 + mode)
    inputs = [n.data("x", shape), n.given("paddings", frame)]
    return n.case("MIRROR_PAD", inputs, [_framed(shape, frame)], [shape], mode=mode)


def space_to_batch_nd(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    spatial = draw.integer(1, 2)
    block = [draw.integer(1, 3) for _ in range(spatial)]
    shape = _shape(draw, 2 + spatial)
    frame = []
    for size, b in zip(shape[1:], block, strict=False):
        before = draw.integer(0, 2)
        frame.append([before, -(before + size) % b + b * draw.integer(0, 1)])
    sizes = [
        (size + sum(pair)) // b for size, pair, b in zip(shape[1:], frame, block, strict=False)
    ]
    inputs = [n.data("x", shape), n.given("block", block), n.given("paddings", frame)]
    out = [shape[0] * math.prod(block), *sizes, shape[-1]]
    return n.case("SPACE_TO_BATCH_ND", inputs, [out], [shape])


def batch_to_space_nd(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    spatial = draw.integer(1, 2)
    block = [draw.integer(1, 3) for _ in range(spatial)]
    shape = _shape(draw, 2 + spatial)
    crops = []
    for size, b in zip(shape[1:], block, strict=False):
        before = draw.integer(0, min(2, size * b - 1))
        crops.append([before, draw.integer(0, min(2, size * b - 1 - before))])
    out = [
        shape[0],
        *(size * b - sum(c) for size, b, c in zip(shape[1:], block, crops, strict=False)),
        shape[-1],
    ]
    shape[0] *= math.prod(block)
    inputs = [n.data("x", shape), n.given("block", block), n.given("crops", crops)]
    return n.case("BATCH_TO_SPACE_ND", inputs, [out], [shape])


def space_to_depth(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    b, rows, columns, c = _shape(draw, 4, 3)
    block = draw.integer(1, 3)
    shape = [b, rows * block, columns * block, c]
    out = [b, rows, columns, c * block * block]
    return n.case("SPACE_TO_DEPTH", [n.data("x", shape)], [out], [shape], block_size=block)


def depth_to_space(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    b, rows, columns, c = _shape(draw, 4, 3)
    block = draw.integer(1, 3)
    shape = [b, rows, columns, c * block * block]
    out = [b, rows * block, columns * block, c]
    return n.case("DEPTH_TO_SPACE", [n.data("x", shape)], [out], [shape], block_size=block)


def _picked(
    n: _Network, code: str, shape: Sequence[int], indices: np.ndarray[Any, Any],
    out: Sequence[int], **options: Any,
) -> Case:
    """A case whose second input is numbers, given at run time or constant."""
    x, kind = n.data("x", shape), n.draw.choice(["int32", "int64"])
    data = values(n.draw, shape, n.dtype)
    if n.draw.choice([True, False]):
        numbers = n.m.tensor("indices", indices.shape, kind)
        y = n.data("y", out)
        n.m.op(code, [x, numbers], [y], **options)
        return Case(n.m.build([x, numbers], [y]), (data, indices.astype(kind)))
    numbers = n.given("indices", indices, kind)
    y = n.data("y", out)
    n.m.op(code, [x, numbers], [y], **options)
    return Case(n.m.build([x], [y]), (data,))


def gather(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    batch = draw.integer(0, min(len(shape) - 1, 2))
    axis = draw.integer(batch, len(shape) - 1)
    picked = shape[:batch] + _shape(draw, draw.integer(0, 2), 3)
    rng = np.random.default_rng(draw.integer(0, 2**31))
    indices = rng.integers(0, shape[axis], picked)
    out = shape[:axis] + picked[batch:] + shape[axis + 1 :]
    return _picked(
        n, "GATHER", shape, np.array(indices), out,
        axis=draw.choice([axis, axis - len(shape)]), batch_dims=batch,
    )


def gather_nd(draw: Draw, dtype: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    depth = draw.integer(1, len(shape))
    picked = _shape(draw, draw.integer(1, 2), 3)
    rng = np.random.default_rng(draw.integer(0, 2**31))
    indices = np.stack([rng.integers(0, size, picked) for size in shape[:depth]], axis=-1)
    return _picked(n, "GATHER_ND", shape, indices, picked + shape[depth:])


def dynamic_update_slice(draw: Draw, dtype: str) -> Case:
    """Starts may be before the front and so far back that the update would stick out."""
    n = _Network(draw, dtype)
    shape = _shape(draw, draw.integer(1, 4))
    part = [draw.integer(0 if draw.integer(0, 9) == 0 else 1, size) for size in shape]
    # tflite-runtime 2.14 takes no int64 here.
    start = np.array([draw.integer(-3, size + 3) for size in shape])
    x, update = n.data("x", shape), n.data("update", part)
    numbers = n.m.tensor("start", (len(shape),), "int32")
    y = n.data("y", shape)
    n.m.op("DYNAMIC_UPDATE_SLICE", [x, update, numbers], [y], version=1)
    given = (values(draw, shape, n.dtype), values(draw, part, n.dtype), start.astype("int32"))
    return Case(n.m.build([x, update, numbers], [y]), given)


def _resize(draw: Draw, dtype: str, code: str) -> Case:
    n = _Network(draw, dtype)
    shape = _shape(draw, 4, 5)
    if draw.choice([True, False]):
        size = [shape[1] * draw.integer(1, 3), shape[2] * draw.integer(1, 3)]
    else:
        size = _shape(draw, 2, 9)
    inputs = [n.data("x", shape), n.given("size", size)]
    align, half = draw.choice([(False, False), (True, False), (False, True)])
    return n.case(
        code, inputs, [[shape[0], *size, shape[3]]], [shape],
        version=3 if half else 2, align_corners=align, half_pixel_centers=half,
    )


def resize_bilinear(draw: Draw, dtype: str) -> Case:
    return _resize(draw, dtype, "RESIZE_BILINEAR")


def resize_nearest_neighbor(draw: Draw, dtype: str) -> Case:
    return _resize(draw, dtype, "RESIZE_NEAREST_NEIGHBOR")


def concatenation_uint8(draw: Draw, dtype: str) -> Case:
    """Every tensor with a scale of its own."""
    shape, count = _shape(draw, draw.integer(1, 3)), draw.integer(1, 3)
    axis = draw.integer(0, len(shape) - 1)
    m = ModelBuilder()
    inputs = [m.tensor(f"x{i}", shape, dtype, **quantization(draw, dtype)) for i in range(count)]
    out = [size * (count if i == axis else 1) for i, size in enumerate(shape)]
    y = m.tensor("y", out, dtype, **quantization(draw, dtype))
    m.op("CONCATENATION", inputs, [y], axis=axis)
    return Case(m.build(inputs, [y]), tuple(values(draw, shape, dtype) for _ in inputs))


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__.rstrip("_"): f
    for f in (
        slice_, strided_slice, split, split_v, pack, unpack, transpose, fill, broadcast_to, tile,
        reverse_v2, pad_v2, mirror_pad, space_to_batch_nd, batch_to_space_nd, space_to_depth,
        depth_to_space, gather, gather_nd, dynamic_update_slice, resize_bilinear,
        resize_nearest_neighbor, concatenation_uint8,
    )
}

_ALL = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
_NUMBERS = _ALL[:-1]

DTYPES: dict[str, tuple[str, ...]] = {
    "slice": _ALL, "strided_slice": _ALL, "transpose": _ALL, "broadcast_to": _ALL,
    "reverse_v2": _ALL, "gather": _ALL, "concatenation": _ALL, "reshape": _ALL,
    "split_v": _NUMBERS, "pack": _NUMBERS, "pad": _NUMBERS, "pad_v2": _NUMBERS,
    "mirror_pad": _NUMBERS, "space_to_batch_nd": _NUMBERS, "batch_to_space_nd": _NUMBERS,
    "gather_nd": _NUMBERS,
    "dynamic_update_slice": ("float32", "int8", "int32", "int64", "bool"),
    "split": ("float32", "int8", "uint8", "int16", "int32"),
    "unpack": ("float32", "int8", "uint8", "int16", "int32", "bool"),
    "fill": ("float32", "int8", "int16", "int32", "int64", "bool"),
    "tile": ("float32", "int8", "uint8", "int32", "int64", "bool"),
    "space_to_depth": ("float32", "int8", "uint8", "int32", "int64"),
    "depth_to_space": ("float32", "int8", "uint8", "int32", "int64"),
    "resize_bilinear": ("float32", "int8", "uint8", "int16"),
    "resize_nearest_neighbor": ("float32", "int8", "uint8", "int16"),
    "concatenation_uint8": ("uint8",),
}
"""The element types that tflite-runtime's kernels take; ours take all where nothing is computed."""
