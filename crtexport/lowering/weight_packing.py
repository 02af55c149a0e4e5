"""Weights in the order in which a kernel reads them, made while they are written.

A packing says what becomes of a few rows of a matrix of weights; :class:`Packed` goes through all
of them and holds no more than a window at a time, whatever their size, wherever they come from.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.types import ConstantRef, DType

Array = npt.NDArray[Any]

WINDOW = 1 << 20
"""Bytes of weights that are packed at once, or a block of rows where that has more."""


class ByteLanes(Struct, frozen=True):
    """Lanes of ``nbytes`` bytes, each the sum of 256**i times a weight, i < ``nbytes``, and
    ``plus``, or 0 and signed."""

    nbytes: int = 1
    plus: int = 0


class Packing(Struct, frozen=True):
    """An order of weights. Equal ones make the same of the same weights."""

    @property
    @abc.abstractmethod
    def block(self) -> int:
        """Rows that are packed with each other: what blocks become lies one behind the other, and
        the last block may have fewer rows."""

    @property
    def step(self) -> int:
        """Columns of a block that are packed with each other, and what such steps become lies one
        behind the other; 0 where that isn't so and blocks are packed as a whole."""
        return 0

    @property
    def byte_lanes(self) -> ByteLanes | None:
        """Returns the lanes that int8 weights become, where each has a byte; else None."""
        return None

    @abc.abstractmethod
    def nbytes(self, rows: int, columns: int) -> int:
        """The size of what becomes of so many weights."""

    @abc.abstractmethod
    def __call__(self, weights: Array) -> Array:
        """Returns rows x columns of weights, packed: whole blocks, or the last ones."""


def by_blocks(weights: Array, channels_per_block: int) -> Array:
    """Returns rows x columns as blocks of ``channels_per_block`` rows, each stored column by
    column; the last block has the remaining rows."""
    whole = len(weights) - len(weights) % channels_per_block
    blocks = weights[:whole].reshape(-1, channels_per_block, weights.shape[1]).swapaxes(1, 2)
    return np.concatenate([blocks.reshape(-1), weights[whole:].T.reshape(-1)])


class BlockPacking(Packing, frozen=True):
    """Elements of ``itemsize`` bytes, as :func:`by_blocks` has them."""

    channels_per_block: int
    itemsize: int

    @property
    def block(self) -> int:
        return self.channels_per_block

    @property
    def byte_lanes(self) -> ByteLanes | None:
        return ByteLanes() if self.itemsize == 1 else None

    @property
    def step(self) -> int:
        return 1

    def nbytes(self, rows: int, columns: int) -> int:
        return rows * columns * self.itemsize

    def __call__(self, weights: Array) -> Array:
        return by_blocks(weights, self.channels_per_block)


class BitFields(Packing, frozen=True):
    """Signed elements of ``bits`` bits: a byte has those of one column of neighbouring rows, the
    first one's in its lowest bits."""

    bits: int

    @property
    def block(self) -> int:
        return 8 // self.bits

    @property
    def step(self) -> int:
        return 1

    def nbytes(self, rows: int, columns: int) -> int:
        return -(-rows // self.block) * columns

    def __call__(self, weights: Array) -> Array:
        fields = grouped(weights, self.block).view(np.uint8) & (1 << self.bits) - 1
        places = (self.bits * np.arange(self.block, dtype=np.uint8))[:, None]
        joined: Array = (fields << places).sum(1, dtype=np.uint8)
        return joined.reshape(-1)


def grouped(weights: Array, count: int) -> Array:
    """Returns rows x columns as groups x ``count`` x columns, with zeros in the last group."""
    padded = np.zeros((-(-len(weights) // count) * count, weights.shape[1]), weights.dtype)
    padded[: len(weights)] = weights
    return padded.reshape(-1, count, weights.shape[1])


class Matrix(Struct, frozen=True):
    """A constant as ``rows`` x ``columns`` elements of ``dtype``, in C order."""

    constant: ConstantRef
    dtype: DType
    rows: int
    columns: int

    def part(self, rows: range, columns: range) -> Array:
        """Returns some of the elements."""
        size, line = self.dtype.itemsize, self.columns * self.dtype.itemsize
        shape = len(rows), len(columns)
        if len(columns) == self.columns:
            whole = self.constant.part(rows.start * line, math.prod(shape) * size)
            return np.frombuffer(whole, self.dtype.numpy).reshape(shape)
        starts = (row * line + columns.start * size for row in rows)
        found = np.empty(shape, self.dtype.numpy)
        for row, piece in zip(found, self.constant.parts(starts, shape[1] * size), strict=True):
            row[:] = np.frombuffer(piece, self.dtype.numpy)
        return found

    def blocks(self, block: int) -> Iterator[Array]:
        """Yields all rows, in multiples of ``block`` rows that fit a window of memory."""
        some = block * max(1, WINDOW // max(block * self.columns * self.dtype.itemsize, 1))
        for first in range(0, self.rows, some):
            yield self.part(range(first, min(first + some, self.rows)), range(self.columns))

    def whole(self, block: int) -> Matrix:
        """Returns the matrix with its last block of rows full: where it has several blocks, the
        last one begins earlier and repeats rows of the one before it."""
        again = -self.rows % block
        if not again or self.rows < block:
            return self
        rows = self.rows + again
        return _Again(self.constant, self.dtype, rows, self.columns, rows - block, again)


class _Again(Matrix, frozen=True):
    """``again`` rows before row ``seam`` are there again from it on."""

    seam: int
    again: int

    def part(self, rows: range, columns: range) -> Array:
        seam = min(max(self.seam, rows.start), rows.stop)
        behind = range(seam - self.again, rows.stop - self.again)
        if seam == rows.start:
            return super().part(behind, columns)
        before = super().part(range(rows.start, seam), columns)
        return np.concatenate([before, super().part(behind, columns)]) if behind else before


class Packed(Struct, frozen=True):
    """Makes a constant: ``weights`` in the order of ``packing``."""

    weights: Matrix
    packing: Packing

    def chunks(self, nbytes: int) -> Iterator[bytes]:
        """Yields the first ``nbytes`` bytes, in pieces."""
        return self._pieces(0, nbytes)

    def part(self, start: int, nbytes: int) -> bytes:
        """Returns ``nbytes`` bytes from ``start`` on."""
        return b"".join(self._pieces(start, start + nbytes))

    def _tile(self) -> tuple[int, int]:
        """Returns the numbers of rows and columns that are packed at once."""
        block, step, weights = self.packing.block, self.packing.step, self.weights
        line = block * weights.dtype.itemsize
        if step and line * weights.columns > WINDOW:
            return block, step * max(1, WINDOW // (line * step))
        return block * max(1, WINDOW // (line * weights.columns)), weights.columns

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        matrix, nbytes = self.weights, self.packing.nbytes
        rows, columns = self._tile()
        whole = nbytes(rows, matrix.columns)
        for first in range(start // whole * rows, matrix.rows, rows):
            down = range(first, min(first + rows, matrix.rows))
            at = first // rows * whole
            for left in range(0, matrix.columns, columns):
                across = range(left, min(left + columns, matrix.columns))
                size = nbytes(len(down), len(across))
                if at < end and at + size > start:
                    made = self.packing(matrix.part(down, across))
                    data = made.astype(made.dtype.newbyteorder("<"), copy=False).tobytes()
                    yield data[max(start - at, 0) : end - at]
                at += size
            if at >= end:
                return


def packed(weights: Matrix, packing: Packing) -> ConstantRef:
    """Returns ``weights`` as a constant in the order of ``packing``."""
    nbytes = packing.nbytes(weights.rows, weights.columns)
    if not nbytes or not weights.columns:
        return ConstantRef(0, data=b"")
    return ConstantRef(nbytes, made=Packed(weights, packing))
