"""Operators that select, repeat or reorder elements by numbers in the model."""

from __future__ import annotations

import math

from crtexport.ir import ops
from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.types import TensorType
from crtexport.support.errors import CrtExportError

Pairs = tuple[tuple[int, int], ...]


@infers(ops.Slice)
def slice_(op: ops.Slice, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    if not len(op.begin) == len(op.size) == len(op.stride) == len(data.shape):
        raise CrtExportError(
            f"{len(op.begin)} begins, {len(op.size)} sizes and {len(op.stride)} strides for {data}"
        )
    if 0 in op.stride or min(op.size, default=0) < 0:
        raise CrtExportError(f"strides {list(op.stride)} and sizes {list(op.size)}")
    for whole, first, count, step in zip(
        data.shape, op.begin, op.size, op.stride, strict=True
    ):
        last = first + (count - 1) * step
        if count and not (0 <= first < whole and 0 <= last < whole):
            raise CrtExportError(f"elements {first} to {last} of {whole} in {data}")
    if min(op.shape, default=0) < 0 or math.prod(op.shape) != math.prod(op.size):
        raise CrtExportError(f"a slice of {list(op.size)} can't become {list(op.shape)}")
    return (TensorType(data.dtype, op.shape),)


@infers(ops.Transpose)
def transpose(op: ops.Transpose, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    if sorted(op.permutation) != list(range(len(data.shape))):
        raise CrtExportError(f"{list(op.permutation)} is no order of the axes of {data}")
    return (TensorType(data.dtype, tuple(data.shape[axis] for axis in op.permutation)),)


@infers(ops.BroadcastTo)
def broadcast_to(op: ops.BroadcastTo, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    new = len(op.shape) - len(data.shape)
    fits = new >= 0 and all(
        size in (1, wanted) for size, wanted in zip(data.shape, op.shape[new:], strict=True)
    )
    if not fits or min(op.shape, default=0) < 0:
        raise CrtExportError(f"{data} can't be repeated to {list(op.shape)}")
    return (TensorType(data.dtype, op.shape),)


@infers(ops.Tile)
def tile(op: ops.Tile, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    if len(op.multiples) != len(data.shape) or min(op.multiples, default=0) < 0:
        raise CrtExportError(f"{data} can't be repeated {list(op.multiples)} times")
    shape = tuple(n * count for n, count in zip(data.shape, op.multiples, strict=True))
    return (TensorType(data.dtype, shape),)


@infers(ops.SpaceToDepth)
def space_to_depth(op: ops.SpaceToDepth, inputs: InputTypes) -> tuple[TensorType, ...]:
    batch, rows, columns, channels = _image(inputs[0])
    block = op.block_size
    if block < 1 or rows % block or columns % block:
        raise CrtExportError(f"{inputs[0]} has no whole blocks of {block} x {block}")
    shape = (batch, rows // block, columns // block, channels * block * block)
    return (TensorType(inputs[0].dtype, shape),)


@infers(ops.DepthToSpace)
def depth_to_space(op: ops.DepthToSpace, inputs: InputTypes) -> tuple[TensorType, ...]:
    batch, rows, columns, channels = _image(inputs[0])
    block = op.block_size
    if block < 1 or channels % (block * block):
        raise CrtExportError(f"the channels of {inputs[0]} are no blocks of {block} x {block}")
    shape = (batch, rows * block, columns * block, channels // (block * block))
    return (TensorType(inputs[0].dtype, shape),)


def _image(data: TensorType) -> tuple[int, ...]:
    if len(data.shape) != 4:
        raise CrtExportError(f"the input must have 4 dimensions, found {data}")
    return data.shape


@infers(ops.SpaceToBatchNd)
def space_to_batch_nd(op: ops.SpaceToBatchNd, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    _check_blocks(data, op.block, op.paddings)
    sizes = []
    for whole, block, (before, after) in zip(data.shape[1:], op.block, op.paddings, strict=False):
        padded = before + whole + after
        if padded % block:
            raise CrtExportError(f"{padded} rows or columns are no whole blocks of {block}")
        sizes.append(padded // block)
    shape = (data.shape[0] * math.prod(op.block), *sizes, *data.shape[1 + len(sizes) :])
    return (TensorType(data.dtype, shape),)


@infers(ops.BatchToSpaceNd)
def batch_to_space_nd(op: ops.BatchToSpaceNd, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    _check_blocks(data, op.block, op.crops)
    positions = math.prod(op.block)
    if data.shape[0] % positions:
        raise CrtExportError(f"{data} has no {positions} batches for each position in a block")
    sizes = []
    for whole, block, (before, after) in zip(data.shape[1:], op.block, op.crops, strict=False):
        if before + after > whole * block:
            raise CrtExportError(f"{before} + {after} can't be cut off {whole * block}")
        sizes.append(whole * block - before - after)
    shape = (data.shape[0] // positions, *sizes, *data.shape[1 + len(sizes) :])
    return (TensorType(data.dtype, shape),)


def _check_blocks(data: TensorType, block: tuple[int, ...], ends: Pairs) -> None:
    if not 1 <= len(block) == len(ends) < len(data.shape):
        raise CrtExportError(f"blocks {list(block)} with {len(ends)} pairs of ends for {data}")
    if min(block) < 1 or any(amount < 0 for pair in ends for amount in pair):
        raise CrtExportError(f"blocks {list(block)} with ends {[list(pair) for pair in ends]}")
