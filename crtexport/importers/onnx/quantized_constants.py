"""Constants of integers with scales: the real numbers that they stand for, and their elements in
another order."""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.importers.onnx.folding import fold
from crtexport.ir.graph import Tensor
from crtexport.ir.ops import Reshape, Transpose
from crtexport.ir.types import ConstantRef, DType, Made, Quantization, TensorType


class RealNumbers(Struct, frozen=True):
    """(x - zero point) * scale in float32, of elements of which ``inner`` neighbours have the same
    scale."""

    dtype: DType
    quant: Quantization
    inner: int

    def __call__(self, position: int, piece: bytes) -> bytes:
        values = np.frombuffer(piece, self.dtype.numpy).astype(np.int64)
        first = position // self.dtype.itemsize
        channel = (first + np.arange(len(values))) // self.inner % len(self.quant.scale)
        zeros = np.array(self.quant.zero_point, np.int64)[channel]
        scales = np.array(self.quant.scale, np.float32)[channel]
        with np.errstate(over="ignore"):
            return ((values - zeros).astype(np.float32) * scales).astype("<f4").tobytes()


def real_numbers(type_: TensorType, constant: ConstantRef) -> ConstantRef:
    """Returns the constant as float32, made while it is written."""
    quant = type_.quant
    if quant is None:
        raise ValueError("integers without a scale")
    inner = prod(type_.shape[(quant.axis or 0) + 1 :]) if not quant.per_tensor else 1
    rule = RealNumbers(type_.dtype, quant, max(inner, 1))
    return ConstantRef(
        nbytes=4 * type_.elements, made=Made(constant, rule, (type_.dtype.itemsize, 4))
    )


class _FlippedSigns(Struct, frozen=True):
    """Bytes less 128."""

    def __call__(self, _position: int, piece: bytes) -> bytes:
        return (np.frombuffer(piece, np.uint8) ^ 0x80).tobytes()


def signed_scale(quant: Quantization) -> Quantization:
    """Returns the scale of uint8 numbers less 128, which int8 is computed with instead."""
    return replace(quant, zero_point=tuple(zero - 128 for zero in quant.zero_point))


def as_signed(tensor: Tensor, quant: Quantization) -> Tensor:
    """Returns a constant of uint8 as int8 with the same real numbers; ``quant`` is its scale."""
    if tensor.constant is None:
        raise ValueError("only constants are known")
    made = Made(tensor.constant, _FlippedSigns(), (1, 1))
    return replace(
        tensor, type=TensorType(DType.INT8, tensor.type.shape, signed_scale(quant)),
        constant=ConstantRef(nbytes=tensor.type.nbytes, made=made),
    )


def moved_axis(op: Reshape | Transpose, tensor: Tensor) -> tuple[TensorType, ConstantRef] | None:
    """Returns a constant with its elements moved and the axis of its scales with them; None where
    the scales would belong to no axis."""
    quant, shape = tensor.type.quant, tensor.type.shape
    if quant is None or tensor.constant is None:
        return None
    plain = replace(tensor, type=replace(tensor.type, quant=None))
    if isinstance(op, Reshape):
        result = TensorType(tensor.type.dtype, op.shape)
        constant: ConstantRef | None = tensor.constant
    else:
        result = TensorType(tensor.type.dtype, tuple(shape[axis] for axis in op.permutation))
        (constant,) = fold(op, [plain], [result]) or (None,)
    if constant is None:
        return None
    axis = quant.axis
    if isinstance(op, Transpose):
        axis = None if axis is None else op.permutation.index(axis)
    elif axis is not None:
        before, size = prod(shape[:axis]), shape[axis]
        places = [
            place for place, found in enumerate(op.shape)
            if found == size and prod(op.shape[:place]) == before
        ]
        if not places:
            return None
        axis = places[0]
    return replace(result, quant=replace(quant, axis=axis)), constant
