"""Evaluates operators on constants: shape and index arithmetic, and operators that only move
elements.

Nothing here rounds: floats and quantized numbers are moved and never computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir import ops
from crtexport.ir.graph import Tensor
from crtexport.ir.types import DType

Array = npt.NDArray[Any]

SMALL = 4096
"""Bytes up to which a folded constant may be larger than its inputs."""

_WHOLE = (DType.INT32, DType.INT64)

_BINARY: Mapping[type[ops.Op], Callable[[Array, Array], Array]] = {
    ops.Add: np.add, ops.Sub: np.subtract, ops.Mul: np.multiply, ops.FloorDiv: np.floor_divide,
    ops.FloorMod: np.mod, ops.Maximum: np.maximum, ops.Minimum: np.minimum,
}


def evaluate(
    op: ops.Op, inputs: Sequence[Tensor | None], declared: Sequence[DType]
) -> list[Array] | None:
    """Returns the outputs of ``op``, with the types ``declared``, if all its inputs are constants;
    else None.

    None also for operators that aren't evaluated here, and where the outputs would be larger than
    both the inputs and :data:`SMALL`. Inputs must fit the operator, as inference checks.
    """
    constants = [tensor for tensor in inputs if tensor is not None and tensor.constant is not None]
    if not constants or len(constants) != len(inputs):
        return None
    nbytes = max(SMALL, sum(tensor.type.nbytes for tensor in constants))
    if _grows(op, constants) > nbytes:
        return None
    if isinstance(op, _ARITHMETIC):
        results = _computed(op, constants, declared[0])
    elif isinstance(op, _MOVING) and alike(op, constants):
        results = move(op, [_values(tensor) for tensor in constants])
    else:
        return None
    if results is None or sum(array.nbytes for array in results) > nbytes:
        return None
    return results


_ARITHMETIC: tuple[type[ops.Op], ...] = (*_BINARY, ops.Cast, ops.Neg, ops.ReduceProd, ops.Sum)
_MOVING = (
    ops.Reshape, ops.Transpose, ops.Slice, ops.BroadcastTo, ops.Tile, ops.Split, ops.Unpack,
    ops.Pack, ops.Concatenation, ops.Gather, ops.GatherNd,
)  # fmt: skip


def _values(tensor: Tensor) -> Array:
    if tensor.constant is None:
        raise ValueError(f"{tensor.name!r} is no constant")
    return tensor.constant.array(tensor.type)


def _grows(op: ops.Op, inputs: Sequence[Tensor]) -> int:
    """Returns the bytes of the output of an operator that repeats its input; 0 for the others."""
    data = inputs[0].type
    match op:
        case ops.BroadcastTo(shape=shape):
            return data.dtype.itemsize * int(np.prod(shape, dtype=object))
        case ops.Tile(multiples=multiples):
            return data.nbytes * int(np.prod(multiples, dtype=object))
        case ops.Gather() | ops.GatherNd():
            return data.nbytes * max(inputs[1].type.elements, 1) if data.elements else 0
        case _:
            return 0


def alike(op: ops.Op, inputs: Sequence[Tensor]) -> bool:
    """Returns whether all joined inputs have one scale."""
    if not isinstance(op, ops.Concatenation | ops.Pack):
        return True
    plain = not isinstance(op, ops.Concatenation) or op.activation is ops.Activation.NONE
    return plain and len({tensor.type.quant for tensor in inputs}) == 1


def _computed(op: ops.Op, inputs: Sequence[Tensor], declared: DType) -> list[Array] | None:
    """Arithmetic on unscaled int32 and int64; sums and products wrap."""
    if any(t.type.dtype not in _WHOLE or t.type.quant is not None for t in inputs):
        return None
    if isinstance(op, ops.Add | ops.Sub | ops.Mul) and op.activation is not ops.Activation.NONE:
        return None
    arrays = [_values(tensor) for tensor in inputs]
    if isinstance(op, ops.FloorDiv | ops.FloorMod) and not np.all(arrays[1]):
        return None
    if declared not in _WHOLE:
        return None
    dtype = declared.numpy
    match op:
        case ops.Cast():
            result = arrays[0].astype(dtype)
        case ops.Neg():
            result = np.negative(arrays[0])
        case ops.ReduceProd(axes=axes, keep_dims=keep):
            result = np.prod(arrays[0], axis=axes, keepdims=keep, dtype=dtype)
        case ops.Sum(axes=axes, keep_dims=keep):
            result = np.sum(arrays[0], axis=axes, keepdims=keep, dtype=dtype)
        case _:
            with np.errstate(over="ignore"):
                result = _BINARY[type(op)](arrays[0], arrays[1])
    return [np.asarray(result, dtype)]


def move(op: ops.Op, arrays: Sequence[Array]) -> list[Array] | None:
    """Returns the outputs of an operator that only moves elements; None for others."""
    first = arrays[0]
    match op:
        case ops.Reshape(shape=shape):
            return [first.reshape(shape)]
        case ops.Transpose(permutation=permutation):
            return [first.transpose(permutation)]
        case ops.Slice(begin=begin, size=size, stride=stride, shape=shape):
            picked = [
                start + step * np.arange(count)
                for start, count, step in zip(begin, size, stride, strict=True)
            ]
            return [(first[np.ix_(*picked)] if picked else first).reshape(shape)]
        case ops.BroadcastTo(shape=shape):
            return [np.broadcast_to(first, shape)]
        case ops.Tile(multiples=multiples):
            return [np.tile(first, multiples)]
        case ops.Split(axis=axis, sizes=sizes):
            return list(np.split(first, np.cumsum(sizes)[:-1], axis))
        case ops.Unpack(axis=axis):
            return [np.take(first, i, axis) for i in range(first.shape[axis])]
        case ops.Pack(axis=axis):
            return [np.stack(arrays, axis)]
        case ops.Concatenation(axis=axis):
            return [np.concatenate(arrays, axis)]
        case ops.Gather(axis=axis, batch_dims=0):
            return [np.take(first, arrays[1], axis, mode="clip")]
        case ops.GatherNd():
            positions = np.moveaxis(arrays[1], -1, 0)
            inside = [
                np.clip(position, 0, size - 1)
                for position, size in zip(positions, first.shape, strict=False)
            ]
            return [first[tuple(inside)]]
        case _:
            return None
