"""Operators of audio front ends."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.ops import (
    Energy,
    FftAutoScale,
    FilterBank,
    FilterBankLog,
    FilterBankSquareRoot,
    Window,
)
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


def _row(type_: TensorType, what: str, *dtypes: DType) -> TensorType:
    """Returns a type that must have elements along a last axis."""
    if type_.dtype not in dtypes or not type_.shape or not type_.shape[-1]:
        names = " or ".join(dtype.value for dtype in dtypes)
        raise CrtExportError(f"{what} must be rows of {names}, found {type_}")
    return type_


def _vector(type_: TensorType, what: str, dtype: DType) -> int:
    """Returns the length of what must be a vector."""
    if len(_row(type_, what, dtype).shape) != 1:
        raise CrtExportError(f"{what} must be a vector, found {type_}")
    return type_.shape[0]


@infers(Window, required=2)
def window(_op: Window, inputs: InputTypes) -> tuple[TensorType, ...]:
    samples = _row(inputs[0], "the samples", DType.INT16)
    if samples.shape[-1] != _vector(inputs[1], "the weights", DType.INT16):
        raise CrtExportError(f"weights {inputs[1]} for samples {samples}")
    return (same(samples),)


@infers(FftAutoScale)
def fft_auto_scale(_op: FftAutoScale, inputs: InputTypes) -> tuple[TensorType, ...]:
    return same(_row(inputs[0], "the samples", DType.INT16)), TensorType(DType.INT32, ())


@infers(Energy)
def energy(op: Energy, inputs: InputTypes) -> tuple[TensorType, ...]:
    length = _vector(inputs[0], "the spectrum", DType.INT16)
    if length % 2 or not 0 <= op.start <= op.end <= length // 2:
        raise CrtExportError(f"bins {op.start} to {op.end} of {inputs[0]}")
    return (TensorType(DType.UINT32, (length // 2,)),)


@infers(FilterBank, required=6)
def filter_bank(_op: FilterBank, inputs: InputTypes) -> tuple[TensorType, ...]:
    _vector(inputs[0], "the bins", DType.UINT32)
    weights, complements = (
        _vector(inputs[i], what, DType.INT16) for i, what in ((1, "weights"), (2, "complements"))
    )
    counts = {_vector(inputs[i], "tables of channels", DType.INT16) for i in (3, 4, 5)}
    if weights != complements or len(counts) != 1 or counts == {1}:
        raise CrtExportError(
            f"{weights} weights, {complements} complements and tables of"
            f" {', '.join(map(str, sorted(counts)))} channels"
        )
    return (TensorType(DType.INT64, (counts.pop() - 1,)),)


@infers(FilterBankSquareRoot, required=2)
def filter_bank_square_root(
    _op: FilterBankSquareRoot, inputs: InputTypes
) -> tuple[TensorType, ...]:
    channels = _vector(inputs[0], "the numbers", DType.INT64)
    if inputs[1].dtype is not DType.INT32 or inputs[1].elements != 1:
        raise CrtExportError(f"the number of bits must be one of int32, found {inputs[1]}")
    return (TensorType(DType.UINT32, (channels,)),)


@infers(FilterBankLog)
def filter_bank_log(_op: FilterBankLog, inputs: InputTypes) -> tuple[TensorType, ...]:
    return (TensorType(DType.INT16, (_vector(inputs[0], "the numbers", DType.UINT32),)),)
