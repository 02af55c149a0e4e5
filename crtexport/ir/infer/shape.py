"""Operators that move elements."""

from __future__ import annotations

from crtexport.ir import ops
from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.types import TensorType
from crtexport.support.errors import CrtExportError


@infers(ops.Reshape)
def reshape(op: ops.Reshape, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    result = TensorType(data.dtype, op.shape)
    if min(op.shape, default=0) < 0 or result.elements != data.elements:
        raise CrtExportError(
            f"{data} has {data.elements} elements and can't become {list(op.shape)}"
        )
    return (result,)


@infers(ops.Pad)
def pad(op: ops.Pad, inputs: InputTypes) -> tuple[TensorType, ...]:
    return (_padded(inputs[0], op.paddings),)


@infers(ops.PadV2, required=2)
def pad_v2(op: ops.PadV2, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, value = inputs[0], inputs[1]
    if value.dtype is not data.dtype or value.elements != 1:
        raise CrtExportError(f"{value} is no single element to pad {data} with")
    return (_padded(data, op.paddings),)


@infers(ops.MirrorPad)
def mirror_pad(op: ops.MirrorPad, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    result = _padded(data, op.paddings)
    for size, pair in zip(data.shape, op.paddings, strict=True):
        if max(pair) > size - (0 if op.symmetric else 1):
            raise CrtExportError(f"paddings of {max(pair)} for {size} elements to be mirrored")
    return (result,)


def _padded(data: TensorType, paddings: tuple[tuple[int, int], ...]) -> TensorType:
    if len(paddings) != len(data.shape):
        raise CrtExportError(f"{len(paddings)} pairs of paddings for {data}")
    if any(amount < 0 for pair in paddings for amount in pair):
        raise CrtExportError("paddings must not be negative")
    shape = tuple(
        before + size + after for size, (before, after) in zip(data.shape, paddings, strict=True)
    )
    return TensorType(data.dtype, shape)


@infers(ops.Concatenation, most=None)
def concatenation(op: ops.Concatenation, inputs: InputTypes) -> tuple[TensorType, ...]:
    parts = inputs.all()
    first = parts[0]
    if not 0 <= op.axis < len(first.shape):
        raise CrtExportError(f"axis {op.axis} is not one of the {len(first.shape)} of {first}")
    for part in parts[1:]:
        if part.dtype is not first.dtype:
            raise CrtExportError(f"the inputs differ in type: {first} and {part}")
        if _without(part.shape, op.axis) != _without(first.shape, op.axis):
            raise CrtExportError(f"{first} and {part} can't be joined along axis {op.axis}")
    total = sum(part.shape[op.axis] for part in parts)
    shape = (*first.shape[: op.axis], total, *first.shape[op.axis + 1 :])
    return (TensorType(first.dtype, shape),)


@infers(ops.Pack, most=None)
def pack(op: ops.Pack, inputs: InputTypes) -> tuple[TensorType, ...]:
    parts = inputs.all()
    first = parts[0]
    if not 0 <= op.axis <= len(first.shape):
        raise CrtExportError(f"a new axis {op.axis} of {first}")
    for part in parts[1:]:
        if (part.dtype, part.shape) != (first.dtype, first.shape):
            raise CrtExportError(f"the inputs differ: {first} and {part}")
    shape = (*first.shape[: op.axis], len(parts), *first.shape[op.axis :])
    return (TensorType(first.dtype, shape),)


@infers(ops.Split)
def split(op: ops.Split, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    _check_axis(op.axis, data)
    whole = data.shape[op.axis]
    if not op.sizes or min(op.sizes) < 0 or sum(op.sizes) != whole:
        raise CrtExportError(f"{list(op.sizes)} are no parts of the {whole} along {op.axis}")
    return tuple(
        TensorType(data.dtype, (*data.shape[: op.axis], size, *data.shape[op.axis + 1 :]))
        for size in op.sizes
    )


@infers(ops.Unpack)
def unpack(op: ops.Unpack, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    _check_axis(op.axis, data)
    # Every position is an output, of which a model lists each: the node's own count is compared.
    if data.shape[op.axis] > len(inputs.declared):
        raise CrtExportError(
            f"expected {data.shape[op.axis]} outputs, found {len(inputs.declared)}"
        )
    shape = data.shape[: op.axis] + data.shape[op.axis + 1 :]
    return (TensorType(data.dtype, shape),) * data.shape[op.axis]


def _check_axis(axis: int, data: TensorType) -> None:
    if not 0 <= axis < len(data.shape):
        raise CrtExportError(f"axis {axis} is not one of the {len(data.shape)} of {data}")


def _without(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return shape[:axis], shape[axis + 1 :]
