"""Changes of scale and element type."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers
from crtexport.ir.ops import Cast, Dequantize, Quantize
from crtexport.ir.types import DType, TensorType

QUANTIZED = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.INT32})
"""What Quantize may produce and Dequantize may read."""


@infers(Quantize)
def quantize(_op: Quantize, given: Given) -> tuple[TensorType, ...]:
    data, result = given[0], given.declared[0]
    if result not in QUANTIZED or not (data.dtype is DType.FLOAT32 or data.dtype in QUANTIZED):
        raise CrtExportError(f"{data.dtype.value} can't be quantized to {result.value}")
    return (TensorType(result, data.shape),)


@infers(Dequantize)
def dequantize(_op: Dequantize, given: Given) -> tuple[TensorType, ...]:
    data = given[0]
    if data.dtype is not DType.FLOAT16 and data.dtype not in QUANTIZED:
        raise CrtExportError(f"{data.dtype.value} can't be dequantized")
    return (TensorType(DType.FLOAT32, data.shape),)


CASTABLE = frozenset({
    DType.BOOL, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.UINT32, DType.INT64,
    DType.FLOAT32,
})
"""What Cast may read and produce."""


@infers(Cast)
def cast(_op: Cast, given: Given) -> tuple[TensorType, ...]:
    data, result = given[0], given.declared[0]
    if data.dtype not in CASTABLE or result not in CASTABLE:
        raise CrtExportError(f"{data.dtype.value} can't be cast to {result.value}")
    return (TensorType(result, data.shape),)
