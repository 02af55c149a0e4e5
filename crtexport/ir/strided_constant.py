"""Constants of strided or interleaved elements of other constants, computed while they are written.

A View reads its source with strides, as NumPy's strided arrays do; a Joined interleaves its
sources. Both hold a window of a few megabytes at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir import ops
from crtexport.ir.evaluate import alike
from crtexport.ir.graph import Tensor
from crtexport.ir.types import ConstantRef, TensorType

WINDOW = 2 << 20
"""Bytes of the result that are in memory at once."""

_GAP = 4
"""The largest distance, in bytes, of elements that are read together with the bytes between them.
"""

Axis = tuple[int, int]
"""(number of elements, stride in elements of the source)."""


class View(Struct, frozen=True):
    """Elements of ``source``, of ``itemsize`` bytes: ``start`` is the first; ``axes`` lead to the
    others, the last axis fastest."""

    source: ConstantRef
    itemsize: int
    start: int
    axes: tuple[Axis, ...]

    def constant(self) -> ConstantRef:
        """Returns the constant of these elements."""
        nbytes = prod(size for size, _ in self.axes) * self.itemsize
        return ConstantRef(nbytes=nbytes, made=self)

    def chunks(self, nbytes: int) -> Iterator[bytes]:
        """Yields the first ``nbytes`` bytes, in pieces that end where elements do."""
        return self._pieces(self.start, self.axes, 0, nbytes // self.itemsize)

    def part(self, start: int, nbytes: int) -> bytes:
        """Returns ``nbytes`` bytes from ``start`` on."""
        first, end = start // self.itemsize, -(-(start + nbytes) // self.itemsize)
        data = b"".join(self._pieces(self.start, self.axes, first, end))
        before = start - first * self.itemsize
        return data[before : before + nbytes]

    def _pieces(
        self, start: int, axes: Sequence[Axis], first: int, end: int
    ) -> Iterator[bytes]:
        """Yields the elements ``first`` to ``end`` of what ``axes`` reach from ``start`` on."""
        if first >= end:
            return
        if not axes:
            yield self._block(start, ())
            return
        (_, step), inner = axes[0], axes[1:]
        count = prod(size for size, _ in inner)
        row, rest = divmod(first, count)
        most = WINDOW // (count * self.itemsize)
        while row * count < end:
            whole = min(end // count - row, most) if not rest else 0
            if whole > 0:
                yield self._block(start + row * step, ((whole, step), *inner))
            else:
                until = min(end - row * count, count)
                yield from self._pieces(start + row * step, inner, rest, until)
            row, rest = row + max(whole, 1), 0

    def _block(self, start: int, axes: Sequence[Axis]) -> bytes:
        """Returns all that ``axes`` reach: read in the source's order, then moved."""
        low = start + sum(min(0, (size - 1) * step) for size, step in axes)
        order = sorted(range(len(axes)), key=lambda i: -abs(axes[i][1]))
        outer = _joined_axes([(axes[i][0], abs(axes[i][1])) for i in order])
        run, step = outer.pop() if outer and outer[-1][1] <= _GAP else (1, 1)
        starts = np.full((), low, np.int64)
        for size, stride in outer:
            starts = np.add.outer(starts, np.arange(size, dtype=np.int64) * stride)
        item = self.itemsize
        places = (int(place) * item for place in starts.flat)
        data = b"".join(self.source.parts(places, ((run - 1) * step + 1) * item))
        read = np.frombuffer(data, f"u{item}").reshape(starts.size, -1)[:, ::step]
        found = read.reshape([axes[i][0] for i in order]).transpose(np.argsort(order))
        return found[tuple(slice(None, None, 1 if by > 0 else -1) for _, by in axes)].tobytes()


def _joined_axes(axes: Sequence[Axis]) -> list[Axis]:
    """Returns the same elements with fewer axes: contiguous axes merged, axes of size 1 dropped."""
    result: list[Axis] = []
    for size, step in axes:
        if size == 1:
            continue
        if result and result[-1][1] == size * step:
            result[-1] = (result[-1][0] * size, step)
        else:
            result.append((size, step))
    return result


class Joined(Struct, frozen=True):
    """``count`` times a run of bytes of each source, one after the other."""

    sources: tuple[ConstantRef, ...]
    runs: tuple[int, ...]
    count: int

    def constant(self) -> ConstantRef:
        """Returns the constant of these runs."""
        return ConstantRef(nbytes=sum(self.runs) * self.count, made=self)

    def chunks(self, nbytes: int) -> Iterator[bytes]:
        """Yields the first ``nbytes`` bytes, in pieces."""
        return self._pieces(0, nbytes)

    def part(self, start: int, nbytes: int) -> bytes:
        """Returns ``nbytes`` bytes from ``start`` on."""
        return b"".join(self._pieces(start, start + nbytes))

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        row_bytes = sum(self.runs)
        most = WINDOW // row_bytes if row_bytes else 0
        while start < end:
            row, rest = divmod(start, row_bytes)
            whole = min(end // row_bytes - row, most) if not rest else 0
            if whole > 0:
                rows = [
                    np.frombuffer(source.part(row * run, whole * run), np.uint8).reshape(whole, -1)
                    for source, run in zip(self.sources, self.runs, strict=True) if run
                ]
                yield np.concatenate(rows, 1).tobytes()
            else:
                whole = 1
                yield from self._row(row, rest, min(end - row * row_bytes, row_bytes))
            start = (row + whole) * row_bytes

    def _row(self, row: int, start: int, end: int) -> Iterator[bytes]:
        """Yields the bytes ``start`` to ``end`` of a row that is larger than a window, or not
        whole."""
        at = 0
        for source, run in zip(self.sources, self.runs, strict=True):
            for first in range(max(start - at, 0), min(end - at, run), WINDOW):
                last = min(first + WINDOW, end - at, run)
                yield source.part(row * run + first, last - first)
            at += run


def moved(op: ops.Op, inputs: Sequence[Tensor]) -> list[ConstantRef] | None:
    """Returns the outputs of an operator that moves elements of constants, without reading them;
    None for another operator, and for constants of different scales."""
    refs = [tensor.constant for tensor in inputs if tensor.constant is not None]
    if len(refs) < len(inputs):
        return None
    if isinstance(op, ops.Concatenation | ops.Pack):
        return _joined(op, inputs, refs)
    type_, whole = inputs[0].type, _whole(inputs[0].type, refs[0])
    match op:
        case ops.Reshape():
            return refs
        case ops.Transpose(permutation=permutation):
            views = [replace(whole, axes=tuple(whole.axes[i] for i in permutation))]
        case ops.Slice(begin=begin, size=size, stride=stride):
            views = [_sliced(whole, begin, size, stride)]
        case ops.Split(axis=axis, sizes=sizes):
            ends = np.cumsum(sizes).tolist()
            views = [
                _part(whole, axis, end - count, count)
                for end, count in zip(ends, sizes, strict=True)
            ]
        case ops.Unpack(axis=axis):
            views = [_part(whole, axis, i, 1) for i in range(type_.shape[axis])]
        case _:
            return None
    return [view.constant() for view in views]


def _whole(type_: TensorType, source: ConstantRef) -> View:
    """Returns all elements, as they are."""
    axes: list[Axis] = []
    step = 1
    for size in reversed(type_.shape):
        axes.insert(0, (size, step))
        step *= size
    return View(source, type_.dtype.itemsize, 0, tuple(axes))


def _sliced(
    view: View, begin: Sequence[int], size: Sequence[int], stride: Sequence[int]
) -> View:
    steps = [step for _, step in view.axes]
    start = sum(first * step for first, step in zip(begin, steps, strict=True))
    axes = tuple(
        (count, by * step) for count, by, step in zip(size, stride, steps, strict=True)
    )
    return replace(view, start=view.start + start, axes=axes)


def _part(view: View, axis: int, first: int, count: int) -> View:
    """Returns ``count`` of an axis's elements."""
    begin = [first if i == axis else 0 for i in range(len(view.axes))]
    size = [count if i == axis else length for i, (length, _) in enumerate(view.axes)]
    return _sliced(view, begin, size, [1] * len(begin))


def _joined(
    op: ops.Concatenation | ops.Pack, inputs: Sequence[Tensor], refs: Sequence[ConstantRef]
) -> list[ConstantRef] | None:
    if not alike(op, inputs):
        return None
    types = [tensor.type for tensor in inputs]
    runs = tuple(prod(type_.shape[op.axis :]) * type_.dtype.itemsize for type_ in types)
    return [Joined(tuple(refs), runs, prod(types[0].shape[: op.axis])).constant()]
