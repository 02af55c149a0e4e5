"""Sparse constants of a .tflite file as whole ones.

The format is that of ``SparsityParameters`` in TensorFlow Lite's schema: a tree with a level for
each dimension, in the order of their traversal, and then for each dimension of a block. A dense
level has all coordinates of each path, one in CSR format those that are listed for it. Values
belong to the paths of the whole tree; all others are 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crtexport.importers.tflite.flatbuffer import Table, Union, integer, numbers, tables, union
from crtexport.ir.types import ConstantRef, TensorType
from crtexport.support.errors import CrtExportError


class DimensionType:
    """The ways to list a dimension of a sparse constant."""

    DENSE = 0
    SPARSE_CSR = 1


class Int32Vector(Table):
    values = numbers(0)


class Uint16Vector(Int32Vector):
    values = numbers(0, "H")


class Uint8Vector(Int32Vector):
    values = numbers(0, "B")


class DimensionMetadata(Table):
    format = integer(0, "b")
    dense_size = integer(1)
    array_segments_type = integer(2, "B")
    array_segments = union(3)
    array_indices_type = integer(4, "B")
    array_indices = union(5)


class SparsityParameters(Table):
    traversal_order = numbers(0)
    block_map = numbers(1)
    dim_metadata = tables(2, DimensionMetadata)


_MOST = 1 << 28
"""Bytes of weights that a microcontroller could have, by far."""
_VECTORS: dict[int, type[Int32Vector]] = {1: Int32Vector, 2: Uint16Vector, 3: Uint8Vector}
"""The union of lists of coordinates, by its numbers in the schema."""

Ints = npt.NDArray[np.int64]


def dense(
    parameters: Union, type_: TensorType, constant: ConstantRef
) -> ConstantRef:
    """Returns a constant of ``type_`` with the values of ``constant`` and zeros.

    Raises CrtExportError where the levels don't fit the shape or the values.
    """
    sparsity = parameters.read(SparsityParameters)
    if type_.nbytes > _MOST or constant.nbytes > _MOST:
        raise CrtExportError(f"the sparse {type_} is too large")
    order, blocks = sparsity.traversal_order, sparsity.block_map
    levels, rank = sparsity.dim_metadata, len(type_.shape)
    if len(levels) != len(order) or sorted(order) != list(range(rank + len(blocks))) or any(
        not 0 <= dim < rank for dim in blocks
    ) or any(dim < rank for dim in order[rank:]):
        raise _damaged(f"{list(order)} and {list(blocks)} are no order of {rank} dimensions")
    sizes = _sizes(type_.shape, blocks, [levels[order.index(rank + i)].dense_size
                                         for i in range(len(blocks))])
    paths = np.zeros((1, rank + len(blocks)), np.int64)
    for level, dim in zip(levels, order, strict=True):
        paths = _longer(paths, level, dim, sizes[dim])
        if len(paths) > type_.elements:
            raise _damaged("more elements are listed than there are")
    values = np.frombuffer(constant.read(), type_.dtype.numpy)
    if len(values) != len(paths):
        raise _damaged(f"there are {len(values)} values for {len(paths)} elements")
    places = paths[:, :rank]
    for i, dim in enumerate(blocks):
        places[:, dim] = places[:, dim] * sizes[rank + i] + paths[:, rank + i]
    whole = np.zeros(type_.shape, type_.dtype.numpy)
    whole[tuple(places.T)] = values
    return ConstantRef.of(whole)


def _sizes(shape: tuple[int, ...], blocks: tuple[int, ...], inner: list[int]) -> list[int]:
    """Returns the coordinates of each dimension, in blocks for those that have any, then those
    inside."""
    sizes = list(shape)
    for dim, size in zip(blocks, inner, strict=True):
        if size < 1 or sizes[dim] % size:
            raise _damaged(f"blocks of {size} don't fill {shape[dim]}")
        sizes[dim] //= size
    return [*sizes, *inner]


def _longer(paths: Ints, level: DimensionMetadata, dim: int, size: int) -> Ints:
    """Returns the paths with a coordinate of one more dimension, of ``size``."""
    count = len(paths)
    if level.format == DimensionType.DENSE:
        if level.dense_size != size or count * size > _MOST:
            raise _damaged(f"a level has {level.dense_size} coordinates, not {size}")
        found = np.repeat(paths, size, axis=0)
        found[:, dim] = np.tile(np.arange(size), count)
        return found
    segments = _listed(level.array_segments_type, level.array_segments)
    indices = _listed(level.array_indices_type, level.array_indices)
    lengths = np.diff(segments)
    if len(segments) != count + 1 or segments[0] or segments[-1] != len(indices) or (
        (lengths < 0).any() or ((indices < 0) | (indices >= size)).any()
    ):
        raise _damaged("the coordinates of a level don't fit")
    found = np.repeat(paths, lengths, axis=0)
    found[:, dim] = indices
    return found


def _listed(kind: int, vector: Union | None) -> Ints:
    if vector is None or kind not in _VECTORS:
        raise _damaged("a level has no coordinates")
    return np.array(vector.read(_VECTORS[kind]).values, np.int64)


def _damaged(problem: str) -> CrtExportError:
    return CrtExportError(
        f"its sparse format is damaged: {problem}", hint="convert the model without sparsity"
    )
