"""Functions of one input."""

from __future__ import annotations

from crtexport.ir.infer.arithmetic import broadcast_shape
from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.ops import L2Normalization, LogSoftmax, Prelu, Softmax
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


@infers(Softmax)
def softmax(_op: Softmax, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, result = _with_an_axis(inputs), inputs.declared[0]
    # 8-bit numbers become probabilities of 8 bits, or of 16 where the model says so.
    wide = data.dtype in (DType.INT8, DType.UINT8) and result is DType.INT16
    return (TensorType(result if wide else data.dtype, data.shape),)


@infers(LogSoftmax, L2Normalization)
def along_the_last_axis(
    _op: LogSoftmax | L2Normalization, inputs: InputTypes
) -> tuple[TensorType, ...]:
    return (same(_with_an_axis(inputs)),)


def _with_an_axis(inputs: InputTypes) -> TensorType:
    if not inputs[0].shape:
        raise CrtExportError("a scalar has no axis to run along")
    return inputs[0]


@infers(Prelu, required=2)
def prelu(_op: Prelu, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, slopes = inputs[0], inputs[1]
    if slopes.dtype is not data.dtype and (data.dtype, slopes.dtype) != (DType.INT16, DType.INT8):
        raise CrtExportError(f"the inputs differ in type: {data} and {slopes}")
    if broadcast_shape(data, slopes) != data.shape:
        raise CrtExportError(f"slopes {slopes} don't broadcast to {data}")
    return (same(data),)
