"""Operators that move elements, and those that resize images."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.importers.tflite.operators import Decoded, Decoder, Plain, SourceOperator, axis_of
from crtexport.importers.tflite.schema import (
    BuiltinOperator,
    DepthToSpaceOptions,
    GatherOptions,
    MirrorPadMode,
    MirrorPadOptions,
    PackOptions,
    ResizeBilinearOptions,
    ResizeNearestNeighborOptions,
    SpaceToDepthOptions,
    StridedSliceOptions,
    UnpackOptions,
)
from crtexport.ir import ops
from crtexport.support.errors import CrtExportError

Pairs = tuple[tuple[int, int], ...]


def pairs(source: SourceOperator, index: int, role: str) -> Pairs:
    """Returns the rows of a constant with two columns: the amounts before and after each axis."""
    flat = source.integers(index, role)
    shape = source.type(index).shape
    if len(shape) != 2 or shape[1] != 2:
        raise CrtExportError(f"{role} must be pairs, found {source.type(index)}")
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _same_length(source: SourceOperator, *lists: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the first input's shape, whose rank each list of numbers must have."""
    shape = source.type(0).shape
    for numbers in lists:
        if len(numbers) != len(shape):
            raise CrtExportError(f"{len(numbers)} numbers for {source.type(0)}")
    return shape


def _slice(source: SourceOperator) -> Decoded:
    begin, size = source.integers(1, "begins"), source.integers(2, "sizes")
    shape = _same_length(source, begin, size)
    # A size of -1 is all that is left.
    sizes = tuple(
        whole - first if count == -1 else count
        for whole, first, count in zip(shape, begin, size, strict=True)
    )
    return ops.Slice(begin, sizes, (1,) * len(shape), sizes), source.inputs[:1]


def _strided_slice(source: SourceOperator) -> Decoded:
    options = source.options(StridedSliceOptions)
    lists = [source.integers(i + 1, what) for i, what in enumerate(("begins", "ends", "strides"))]
    if len({len(numbers) for numbers in lists}) != 1:
        raise CrtExportError("begins, ends and strides differ in number")
    op = _Ranges(source, options, *lists).slice()
    return op, source.inputs[:1]


class _Ranges:
    """STRIDED_SLICE's begins, ends, strides and masks, of which bit i belongs to entry i."""

    def __init__(
        self, source: SourceOperator, options: StridedSliceOptions, begins: tuple[int, ...],
        ends: tuple[int, ...], strides: tuple[int, ...],
    ) -> None:
        self.shape = source.type(0).shape
        self.begins, self.ends, self.strides = begins, ends, strides
        self.begin_mask, self.end_mask = options.begin_mask, options.end_mask
        self.ellipsis_mask, self.new_axis = options.ellipsis_mask, options.new_axis_mask
        self.shrink, self.offset = options.shrink_axis_mask, options.offset

    def slice(self) -> ops.Slice:
        """Returns the slice of each axis, and the shape of the result."""
        ranges: list[tuple[int, int, int]] = []
        result: list[int] = []
        count = len(self.begins)
        new = sum(self._is(self.new_axis, i) and not self._ellipsis(i) for i in range(count))
        implied = len(self.shape) - (count - new)
        if any(self._ellipsis(i) for i in range(count)):
            implied += 1
        for entry in range(count):
            if self._ellipsis(entry):
                self._whole(implied, ranges, result)
                implied = 0
            elif self._is(self.new_axis, entry):
                result.append(1)
            else:
                if len(ranges) >= len(self.shape):
                    raise CrtExportError(f"{count} ranges for {len(self.shape)} dimensions")
                ranges.append(self._range(entry, self.shape[len(ranges)]))
                if not self._is(self.shrink, entry):
                    result.append(ranges[-1][1])
        self._whole(implied, ranges, result)
        begin, size, stride = zip(*ranges, strict=True) if ranges else ((), (), ())
        return ops.Slice(begin, size, stride, tuple(result))

    @staticmethod
    def _is(mask: int, entry: int) -> bool:
        return bool(mask >> entry & 1)

    def _ellipsis(self, entry: int) -> bool:
        """Returns the axes that the ellipsis covers; only its first bit counts."""
        first = self.ellipsis_mask & -self.ellipsis_mask
        return self._is(first, entry)

    def _whole(
        self, count: int, ranges: list[tuple[int, int, int]], result: list[int]
    ) -> None:
        for size in self.shape[len(ranges) : len(ranges) + max(count, 0)]:
            ranges.append((0, size, 1))
            result.append(size)

    def _range(self, entry: int, size: int) -> tuple[int, int, int]:
        """First element, how many, and how far apart, of an axis of ``size`` elements."""
        stride = self.strides[entry]
        if stride == 0:
            raise CrtExportError("a stride of 0")
        low, high = (0, size) if stride > 0 else (-1, size - 1)
        begin = self.begins[entry]
        end = begin + self.ends[entry] if self.offset else self.ends[entry]
        if self._is(self.begin_mask, entry):
            begin = low if stride > 0 else high
        else:
            begin = min(max(begin + size if begin < 0 else begin, low), high)
        if self._is(self.shrink, entry):
            if not 0 <= begin < size:
                raise CrtExportError(f"element {self.begins[entry]} of {size}")
            return begin, 1, 1
        if self._is(self.end_mask, entry):
            end = high if stride > 0 else low
        else:
            end = min(max(end + size if end < 0 else end, low), high)
        count = max(-(-(end - begin) // stride), 0)
        return begin, count, stride


def _split(source: SourceOperator) -> Decoded:
    data = source.type(1)
    axis = axis_of(_single(source, 0, "axis"), len(data.shape))
    count = len(source.outputs)
    if not count or data.shape[axis] % count:
        raise CrtExportError(f"{data} can't be cut into {count} equal parts along axis {axis}")
    return ops.Split(axis, (data.shape[axis] // count,) * count), source.inputs[1:2]


def _split_v(source: SourceOperator) -> Decoded:
    data, sizes = source.type(0), source.integers(1, "sizes")
    axis = axis_of(_single(source, 2, "axis"), len(data.shape))
    rest = data.shape[axis] - sum(size for size in sizes if size != -1)
    return ops.Split(axis, tuple(rest if size == -1 else size for size in sizes)), source.inputs[:1]


def _single(source: SourceOperator, index: int, role: str) -> int:
    values = source.integers(index, role)
    if len(values) != 1:
        raise CrtExportError(f"{role} must be one number, found {source.type(index)}")
    return values[0]


def _pack(source: SourceOperator) -> Decoded:
    options = source.options(PackOptions)
    rank = len(source.type(0).shape) + 1
    return ops.Pack(axis_of(options.axis, rank)), source.inputs


def _unpack(source: SourceOperator) -> Decoded:
    options = source.options(UnpackOptions)
    rank = len(source.type(0).shape)
    return ops.Unpack(axis_of(options.axis, rank)), source.inputs


def _transpose(source: SourceOperator) -> Decoded:
    rank = len(source.type(0).shape)
    axes = source.integers(1, "the order of axes")
    return ops.Transpose(tuple(axis_of(axis, rank) for axis in axes)), source.inputs[:1]


def _fill(source: SourceOperator) -> Decoded:
    return ops.BroadcastTo(source.integers(0, "the shape")), source.inputs[1:2]


def _broadcast_to(source: SourceOperator) -> Decoded:
    return ops.BroadcastTo(source.integers(1, "the shape")), source.inputs[:1]


def _tile(source: SourceOperator) -> Decoded:
    return ops.Tile(source.integers(1, "multiples")), source.inputs[:1]


def _reverse_v2(source: SourceOperator) -> Decoded:
    shape = source.type(0).shape
    axes = {axis_of(axis, len(shape)) for axis in source.integers(1, "axes")}
    begin = tuple(max(n - 1, 0) if axis in axes else 0 for axis, n in enumerate(shape))
    stride = tuple(-1 if axis in axes else 1 for axis in range(len(shape)))
    return ops.Slice(begin, shape, stride, shape), source.inputs[:1]


def _pad_v2(source: SourceOperator) -> Decoded:
    source.type(2, "value")
    return ops.PadV2(pairs(source, 1, "paddings")), (source.inputs[0], source.inputs[2])


def _mirror_pad(source: SourceOperator) -> Decoded:
    options = source.options(MirrorPadOptions)
    symmetric = options.mode == MirrorPadMode.SYMMETRIC
    return ops.MirrorPad(pairs(source, 1, "paddings"), symmetric), source.inputs[:1]


def _space_to_batch_nd(source: SourceOperator) -> Decoded:
    op = ops.SpaceToBatchNd(source.integers(1, "blocks"), pairs(source, 2, "paddings"))
    return op, source.inputs[:1]


def _batch_to_space_nd(source: SourceOperator) -> Decoded:
    op = ops.BatchToSpaceNd(source.integers(1, "blocks"), pairs(source, 2, "crops"))
    return op, source.inputs[:1]


def _space_to_depth(source: SourceOperator) -> Decoded:
    options = source.options(SpaceToDepthOptions)
    return ops.SpaceToDepth(options.block_size), source.inputs


def _depth_to_space(source: SourceOperator) -> Decoded:
    options = source.options(DepthToSpaceOptions)
    return ops.DepthToSpace(options.block_size), source.inputs


def _gather(source: SourceOperator) -> Decoded:
    options = source.options(GatherOptions)
    axis = axis_of(options.axis, len(source.type(0).shape))
    batch = options.batch_dims
    rank = len(source.type(1, "indices").shape)
    return ops.Gather(axis, batch + rank if batch < 0 else batch), source.inputs


def _resize(
    kind: type[ops.Resize],
    table: type[ResizeBilinearOptions | ResizeNearestNeighborOptions],
) -> Decoder:
    def decode(source: SourceOperator) -> Decoded:
        options = source.options(table)
        size = source.integers(1, "the size")
        if len(size) != 2:
            raise CrtExportError(f"the size must be rows and columns, found {list(size)}")
        op = kind((size[0], size[1]), options.align_corners, options.half_pixel_centers)
        return op, source.inputs[:1]

    return decode


DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.SLICE: _slice,
    BuiltinOperator.STRIDED_SLICE: _strided_slice,
    BuiltinOperator.SPLIT: _split,
    BuiltinOperator.SPLIT_V: _split_v,
    BuiltinOperator.PACK: _pack,
    BuiltinOperator.UNPACK: _unpack,
    BuiltinOperator.TRANSPOSE: _transpose,
    BuiltinOperator.FILL: _fill,
    BuiltinOperator.BROADCAST_TO: _broadcast_to,
    BuiltinOperator.TILE: _tile,
    BuiltinOperator.REVERSE_V2: _reverse_v2,
    BuiltinOperator.PADV2: _pad_v2,
    BuiltinOperator.MIRROR_PAD: _mirror_pad,
    BuiltinOperator.SPACE_TO_BATCH_ND: _space_to_batch_nd,
    BuiltinOperator.BATCH_TO_SPACE_ND: _batch_to_space_nd,
    BuiltinOperator.SPACE_TO_DEPTH: _space_to_depth,
    BuiltinOperator.DEPTH_TO_SPACE: _depth_to_space,
    BuiltinOperator.GATHER: _gather,
    BuiltinOperator.GATHER_ND: Plain(ops.GatherNd()),
    BuiltinOperator.DYNAMIC_UPDATE_SLICE: Plain(ops.DynamicUpdateSlice()),
    BuiltinOperator.RESIZE_BILINEAR: _resize(ops.ResizeBilinear, ResizeBilinearOptions),
    BuiltinOperator.RESIZE_NEAREST_NEIGHBOR: _resize(
        ops.ResizeNearestNeighbor, ResizeNearestNeighborOptions
    ),
}
"""This family's operators, by their code in the file."""
