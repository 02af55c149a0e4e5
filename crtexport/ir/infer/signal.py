"""Operators of audio front ends."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.ops import (
    Energy,
    FftAutoScale,
    FilterBank,
    FilterBankLog,
    FilterBankSpectralSubtraction,
    FilterBankSquareRoot,
    Irfft,
    OverlapAdd,
    Pcan,
    Rfft,
    Window,
)
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


def _row(type_: TensorType, role: str, *dtypes: DType) -> TensorType:
    """Returns a type that must have elements along a last axis."""
    if type_.dtype not in dtypes or not type_.shape or not type_.shape[-1]:
        names = " or ".join(dtype.value for dtype in dtypes)
        raise CrtExportError(f"{role} must be rows of {names}, found {type_}")
    return type_


def _vector(type_: TensorType, role: str, dtype: DType) -> int:
    """Returns the length of what must be a vector."""
    if len(_row(type_, role, dtype).shape) != 1:
        raise CrtExportError(f"{role} must be a vector, found {type_}")
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


_TRANSFORMED = (DType.INT16, DType.INT32, DType.FLOAT32)
_LONGEST = 1 << 16
"""Samples of a transform, whose tables are made while exporting: more than a device could have."""


def _factored(length: int) -> int:
    """Returns the length of a transform, which must be even and have no large factors."""
    if length > _LONGEST:
        raise CrtExportError(f"transforms have at most {_LONGEST} samples, not {length}")
    rest = length // 2
    for factor in (2, 3, 5):
        while rest > 1 and rest % factor == 0:
            rest //= factor
    if length < 4 or length % 2 or rest != 1:
        raise CrtExportError(f"the length {length} is not twice a product of 2, 3 and 5")
    return length


@infers(Rfft)
def rfft(op: Rfft, inputs: InputTypes) -> tuple[TensorType, ...]:
    samples, length = _row(inputs[0], "the samples", *_TRANSFORMED), _factored(op.length)
    if samples.shape[-1] > length:
        raise CrtExportError(f"{samples} has rows of more than {length} samples")
    return (TensorType(samples.dtype, (*samples.shape[:-1], length + 2)),)


@infers(Irfft)
def irfft(op: Irfft, inputs: InputTypes) -> tuple[TensorType, ...]:
    bins, length = _row(inputs[0], "the bins", *_TRANSFORMED), _factored(op.length)
    if bins.shape[-1] != length + 2:
        raise CrtExportError(f"{bins} has no rows of {length // 2 + 1} bins")
    return (TensorType(bins.dtype, (*bins.shape[:-1], length)),)


def _pair(inputs: InputTypes) -> TensorType:
    """Returns the type of a result for numbers, the first input, and the noise in them."""
    numbers, noise = (_vector(inputs[i], "numbers and noise", DType.UINT32) for i in (0, 1))
    if numbers != noise:
        raise CrtExportError(f"noise {inputs[1]} in numbers {inputs[0]}")
    return TensorType(DType.UINT32, (numbers,))


@infers(FilterBankSpectralSubtraction, required=2)
def spectral_subtraction(
    _op: FilterBankSpectralSubtraction, inputs: InputTypes
) -> tuple[TensorType, ...]:
    return (_pair(inputs),) * 2


_GAINS = 125
"""Elements of a table of gains: 3 for the numbers up to 2, 4 for each further power of two."""


@infers(Pcan, required=3)
def pcan(_op: Pcan, inputs: InputTypes) -> tuple[TensorType, ...]:
    if _vector(inputs[2], "the gains", DType.INT16) != _GAINS:
        raise CrtExportError(f"a table of gains has {_GAINS} elements, found {inputs[2]}")
    return (_pair(inputs),)


@infers(OverlapAdd, required=2)
def overlap_add(op: OverlapAdd, inputs: InputTypes) -> tuple[TensorType, ...]:
    frames = _row(inputs[0], "frames", DType.INT16, DType.FLOAT32)
    if len(frames.shape) < 2 or not 1 <= op.step <= frames.shape[-1]:
        raise CrtExportError(f"frames {frames}, {op.step} apart")
    *outer, count, size = frames.shape
    left = TensorType(frames.dtype, (*outer, size - op.step))
    if same(inputs[1]) != left:
        raise CrtExportError(f"{inputs[1]} left of {frames}, {op.step} apart")
    return TensorType(frames.dtype, (*outer, count * op.step)), left
