"""Functions of one input."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.arithmetic import broadcast_shape
from crtexport.ir.infer.base import Given, infers, same
from crtexport.ir.ops import (
    Elu,
    Gelu,
    HardSwish,
    L2Normalization,
    LeakyRelu,
    Logistic,
    LogSoftmax,
    Op,
    Prelu,
    Relu,
    Relu6,
    ReluN1To1,
    Softmax,
    Tanh,
)
from crtexport.ir.types import DType, TensorType


@infers(Elu, Gelu, HardSwish, LeakyRelu, Logistic, Relu, Relu6, ReluN1To1, Tanh)
def unary(_op: Op, given: Given) -> tuple[TensorType, ...]:
    return (same(given[0]),)


@infers(Softmax)
def softmax(_op: Softmax, given: Given) -> tuple[TensorType, ...]:
    data, result = _with_an_axis(given), given.declared[0]
    # 8-bit numbers become probabilities of 8 bits, or of 16 where the model says so.
    wide = data.dtype in (DType.INT8, DType.UINT8) and result is DType.INT16
    return (TensorType(result if wide else data.dtype, data.shape),)


@infers(LogSoftmax, L2Normalization)
def along_the_last_axis(
    _op: LogSoftmax | L2Normalization, given: Given
) -> tuple[TensorType, ...]:
    return (same(_with_an_axis(given)),)


def _with_an_axis(given: Given) -> TensorType:
    if not given[0].shape:
        raise CrtExportError("a scalar has no axis to run along")
    return given[0]


@infers(Prelu, required=2)
def prelu(_op: Prelu, given: Given) -> tuple[TensorType, ...]:
    data, slopes = given[0], given[1]
    if slopes.dtype is not data.dtype:
        raise CrtExportError(f"the inputs differ in type: {data} and {slopes}")
    if broadcast_shape(data, slopes) != data.shape:
        raise CrtExportError(f"slopes {slopes} don't broadcast to {data}")
    return (same(data),)
