"""Resize and Upsample: tables of indices and weights, made while importing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from crtexport.importers.onnx.interpolation import (
    COORDINATES,
    MODES,
    ROUNDINGS,
    ResampleTable,
    ResizedAxis,
    Resizing,
    checked,
    table,
)
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, channels_last, stored
from crtexport.ir.ops import Op, PadV2, Resample, ResizeNearestNeighbor
from crtexport.ir.resizing import nearest
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_TOGETHER = 4
"""The largest number of taps of all axes that are one node; with more, each axis is a node."""
_POLICIES = ("stretch", "not_larger", "not_smaller")


class _AxisSizes(Struct, frozen=True):
    """Some axes, with their sizes in the output, and scales."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    scales: tuple[float, ...]


@operator("Upsample", inputs=(1, 2), image=True)
def upsample(node: OnnxNode) -> Value:
    x = node.input(0)
    scales = node.floats(1, "the scales") if node.version >= 9 else node.reals("scales")
    mode = checked(node.text("mode", "nearest"), (*MODES, "bilinear"), "the mode")
    mode = "linear" if mode == "bilinear" else mode
    resizing = Resizing(mode, "asymmetric", "floor", -0.75, False, False)
    return _resized(node, x, _scaled(x, tuple(range(len(x.shape))), scales), resizing)


@operator("Resize", inputs=(1, 4), image=True)
def resize(node: OnnxNode) -> Value:
    x = node.input(0)
    mode = checked(node.text("mode", "nearest"), MODES, "the mode")
    if node.version == 10:
        everything = tuple(range(len(x.shape)))
        target_sizes = _scaled(x, everything, node.floats(1, "the scales"))
        resizing = Resizing(mode, "asymmetric", "floor", -0.75, False, False)
        return _resized(node, x, target_sizes, resizing)
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    resizing = Resizing(
        mode, checked(coordinates, COORDINATES, "coordinate_transformation_mode"),
        checked(node.text("nearest_mode", "round_prefer_floor"), ROUNDINGS, "nearest_mode"),
        node.real("cubic_coeff_a", -0.75), bool(node.integer("exclude_outside", 0)),
        bool(node.integer("antialias", 0)),
    )
    outside = node.real("extrapolation_value", 0.0)
    axes = node.axes(node.numbers("axes", range(len(x.shape))), len(x.shape))
    policy = checked(
        node.text("keep_aspect_ratio_policy", "stretch"), _POLICIES, "keep_aspect_ratio_policy"
    )
    sizes = _given(node, 3)
    if sizes:
        target_sizes = _sized(x, axes, tuple(int(size) for size in sizes), policy)
    else:
        target_sizes = _scaled(x, axes, _given(node, 2))
    region = _given(node, 1) if coordinates == "tf_crop_and_resize" else ()
    if coordinates == "tf_crop_and_resize" and len(region) != 2 * len(axes):
        raise CrtExportError(f"a region of {len(region)} numbers for {len(axes)} axes")
    return _resized(node, x, target_sizes, resizing, region, outside)


def _given(node: OnnxNode, index: int) -> tuple[float, ...]:
    return () if node.optional(index) is None else node.floats(index, "scales, sizes and region")


def _scaled(x: Value, axes: tuple[int, ...], scales: Sequence[float]) -> _AxisSizes:
    if len(scales) != len(axes) or not all(0 < scale < np.inf for scale in scales):
        raise CrtExportError(f"scales {list(scales)} for {len(axes)} axes")
    sizes = tuple(
        int(np.floor(np.float32(scale) * np.float32(x.shape[axis])))
        for axis, scale in zip(axes, scales, strict=True)
    )
    return _AxisSizes(axes, sizes, tuple(scales))


def _sized(x: Value, axes: tuple[int, ...], sizes: tuple[int, ...], policy: str) -> _AxisSizes:
    """Returns the axes with their sizes and scales. The policies take one scale for all axes, so
    that the image fits into the sizes, or covers them."""
    given = tuple(x.shape[axis] for axis in axes)
    if len(sizes) != len(axes) or min(sizes) < 1 or 0 in given:
        raise CrtExportError(f"sizes {list(sizes)} for {list(given)}")
    scales = tuple(size / old for size, old in zip(sizes, given, strict=True))
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = (scale,) * len(axes)
        sizes = tuple(int(np.floor(scale * old + 0.5)) for old in given)
    return _AxisSizes(axes, sizes, scales)


def _resized(
    node: OnnxNode, x: Value, sizes: _AxisSizes, resizing: Resizing, region: Sequence[float] = (),
    outside: float = 0.0,
) -> Value:
    tables: dict[int, ResampleTable] = {}
    count = len(sizes.axes)
    for number, axis in enumerate(sizes.axes):
        part = (region[number], region[number + count]) if region else (0.0, 1.0)
        size, wanted = x.shape[axis], sizes.sizes[number]
        if wanted < 1 or size < 1 or max(wanted, size) > 1 << 15:
            raise CrtExportError(f"axis {axis} of {size} elements becomes one of {wanted}")
        made = table(resizing, ResizedAxis(size, wanted, sizes.scales[number], part))
        if wanted != size or not np.array_equal(made.dense(size), np.eye(size)):
            tables[axis] = made
    frame = {axis: (made.inside, size) for axis, made, size in zip(
        tables, tables.values(), (sizes.sizes[sizes.axes.index(axis)] for axis in tables),
        strict=True,
    )}
    if any(start == end for (start, end), _ in frame.values()):
        shape = tuple(frame[axis][1] if axis in frame else n for axis, n in enumerate(x.shape))
        return node.constant(np.full(shape, outside), node.dtype(x))
    made_value = _interpolated(node, x, tables)
    return _framed(node, made_value, frame, outside)


def _interpolated(node: OnnxNode, x: Value, tables: dict[int, ResampleTable]) -> Value:
    """Returns ``x`` resampled by the tables of its axes."""
    if not tables:
        return x
    rank, dtype = len(x.shape), node.dtype(x)
    spatial = rank >= 3 and min(tables) >= 2
    order = channels_last(rank) if spatial else node.builder.ordered(x)[1]
    copied = all(made.copies for made in tables.values())
    # As ONNX Runtime does, whole numbers are computed in floats, and truncated.
    real = x if copied else node.cast(x, DType.FLOAT32)
    tensor = node.builder.arranged(real, order)
    places = {order.index(axis): made for axis, made in tables.items()}
    for group in _groups(places):
        op, inputs = _operator(node, tensor, group)
        (tensor,) = node.builder.emit(op, tensor, *inputs)
    value = stored(tensor, node.type(tensor).shape, order)
    if dtype is not DType.FLOAT32 and not copied:
        value = node.cast(value, dtype)
    return value


def _groups(places: dict[int, ResampleTable]) -> list[dict[int, ResampleTable]]:
    """Returns the groups of axes that are resampled together, those that shrink the tensor first.
    """
    taps = np.prod([made.indices.shape[1] for made in places.values()])
    if taps <= _TOGETHER:
        return [dict(sorted(places.items()))]
    return [{axis: places[axis]} for axis in sorted(places, key=lambda a: len(places[a].indices))]


def _operator(
    node: OnnxNode, tensor: int, tables: dict[int, ResampleTable]
) -> tuple[Op, tuple[int, ...]]:
    shape = node.type(tensor).shape
    copied = all(made.copies for made in tables.values())
    if copied and len(shape) == 4 and set(tables) <= {1, 2}:
        plain = _nearest(shape, tables)
        if plain is not None:
            return plain, ()
    indices = [node.constant(
        made.indices[:, 0] if copied else made.indices, DType.INT16
    ).tensor for made in tables.values()]
    weights = [] if copied else [
        node.constant(made.weights, DType.FLOAT32).tensor for made in tables.values()
    ]
    return Resample(tuple(tables)), (*indices, *weights)


def _nearest(
    shape: tuple[int, ...], tables: dict[int, ResampleTable]
) -> ResizeNearestNeighbor | None:
    """Returns TensorFlow Lite's operator where it copies the same pixels."""
    size = tuple(
        len(tables[axis].indices) if axis in tables else shape[axis] for axis in (1, 2)
    )
    wanted = {axis: made.indices[:, 0].tolist() for axis, made in tables.items()}
    for align, half in ((False, False), (False, True), (True, False)):
        op = ResizeNearestNeighbor((size[0], size[1]), align, half)
        if all(
            nearest(op, shape[axis], size[axis - 1]) == wanted.get(axis, list(range(shape[axis])))
            for axis in (1, 2)
        ):
            return op
    return None


def _framed(
    node: OnnxNode, value: Value, frame: dict[int, tuple[tuple[int, int], int]], outside: float
) -> Value:
    """Returns the value with what lies outside of the input around it."""
    if all(inside == (0, size) for inside, size in frame.values()):
        return value
    tensor, order = node.builder.ordered(value)
    pairs = {axis: (start, size - end) for axis, ((start, end), size) in frame.items()}
    paddings = tuple(pairs.get(axis, (0, 0)) for axis in order)
    return node.emit(PadV2(paddings), tensor, node.like(outside, value).tensor, order=order)
