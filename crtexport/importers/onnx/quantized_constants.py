"""Constants of integers with scales: dequantizes them, and reorders their elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt
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
        channel = _channels(first, len(values), self.inner, self.quant)
        zeros = np.array(self.quant.zero_point, np.int64)[channel]
        scales = np.array(self.quant.scale, np.float32)[channel]
        with np.errstate(over="ignore"):
            return ((values - zeros).astype(np.float32) * scales).astype("<f4").tobytes()


class _Steps(Struct, frozen=True):
    """rint(x / scale) + zero point of float32, saturated at ``ends``, as integers of ``dtype``;
    ``inner`` neighbours have the same scale."""

    dtype: DType
    quant: Quantization
    inner: int
    ends: tuple[int, int]

    def __call__(self, position: int, piece: bytes) -> bytes:
        values = np.frombuffer(piece, np.float32)
        channel = _channels(position // 4, len(values), self.inner, self.quant)
        with np.errstate(all="ignore"):
            steps = np.nan_to_num(values / np.array(self.quant.scale, np.float32)[channel])
        steps = np.rint(steps.astype(np.float64)) + np.array(self.quant.zero_point)[channel]
        found: npt.NDArray[np.float64] = np.clip(steps, *self.ends)
        return found.astype(self.dtype.numpy).tobytes()


class _Centred(Struct, frozen=True):
    """int8 less its zero point."""

    quant: Quantization
    inner: int

    def __call__(self, position: int, piece: bytes) -> bytes:
        return self.steps(position, piece).astype(np.int8).tobytes()

    def steps(self, position: int, piece: bytes) -> npt.NDArray[np.int64]:
        values = np.frombuffer(piece, np.int8)
        channel = _channels(position, len(values), self.inner, self.quant)
        return values - np.array(self.quant.zero_point, np.int64)[channel]


def _channels(first: int, count: int, inner: int, quant: Quantization) -> npt.NDArray[np.int64]:
    return (first + np.arange(count)) // inner % len(quant.scale)


def _inner(shape: Sequence[int], quant: Quantization) -> int:
    """Returns how many neighbours have the same scale."""
    return 1 if quant.per_tensor else max(prod(shape[(quant.axis or 0) + 1 :]), 1)


def steps_of(
    tensor: Tensor, dtype: DType, quant: Quantization, bits: int | None
) -> tuple[TensorType, ConstantRef]:
    """Returns a constant of float32 in integers of this scale, made while it is written."""
    if tensor.constant is None:
        raise ValueError("only constants are known")
    low, high = (limit >> (dtype.itemsize * 8 - bits if bits else 0) for limit in dtype.limits)
    shape = tensor.type.shape
    rule = _Steps(dtype, quant, _inner(shape, quant), (low, high))
    type_ = TensorType(dtype, shape)
    made = Made(tensor.constant, rule, (4, dtype.itemsize))
    return type_, ConstantRef(nbytes=type_.nbytes, made=made)


def as_int8(tensor: Tensor) -> Tensor | None:
    """Returns a constant of float32 as int8 with one scale and zero point, as ONNX Runtime's
    optimizer quantizes the weights of a layer: its least and its largest number and 0 are within
    the range. None where no scale does that."""
    if tensor.constant is None:
        raise ValueError("only constants are known")
    low = high = np.float32(0)
    for piece in tensor.constant.chunks():
        values = np.frombuffer(piece, np.float32)
        # Of NaN these give NaN.
        low = np.minimum(low, values.min(initial=0))
        high = np.maximum(high, values.max(initial=0))
    with np.errstate(all="ignore"):
        scale = np.float32(1) if low == high else (high - low) / np.float32(255)
        zero = np.rint(np.clip(np.float32(-128) - low / scale, -128, 127))
    if not (np.isfinite(zero) and 0 < scale < np.inf):
        return None
    quant = Quantization((float(scale),), (int(zero),))
    type_, constant = steps_of(tensor, DType.INT8, quant, None)
    return centred(replace(tensor, type=replace(type_, quant=quant), constant=constant))


def centred(tensor: Tensor) -> Tensor:
    """Returns a constant of int8 with its zero points taken off, where its numbers still fit; else
    as it is."""
    quant, constant = tensor.type.quant, tensor.constant
    if quant is None or constant is None or tensor.type.dtype is not DType.INT8 or (
        not any(quant.zero_point)
    ):
        return tensor
    rule = _Centred(quant, _inner(tensor.type.shape, quant))
    at = 0
    for piece in constant.chunks():
        steps = rule.steps(at, piece)
        if len(steps) and not -128 <= steps.min() <= steps.max() <= 127:
            return tensor
        at += len(piece)
    return replace(
        tensor, type=replace(
            tensor.type, quant=replace(quant, zero_point=(0,) * len(quant.zero_point))
        ),
        constant=ConstantRef(nbytes=tensor.type.nbytes, made=Made(constant, rule, (1, 1))),
    )


def real_numbers(type_: TensorType, constant: ConstantRef) -> ConstantRef:
    """Returns the constant as float32, made while it is written."""
    quant = type_.quant
    if quant is None:
        raise ValueError("integers without a scale")
    rule = RealNumbers(type_.dtype, quant, _inner(type_.shape, quant))
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
