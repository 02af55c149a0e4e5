"""Changes of scale and element type."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.ops import Bitcast, Cast, Dequantize, Lookup, Quantize
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

QUANTIZED = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.INT32})
"""Element types that Quantize may produce and Dequantize may read."""


@infers(Quantize)
def quantize(_op: Quantize, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, result = inputs[0], inputs.declared[0]
    if result not in QUANTIZED or not (data.dtype is DType.FLOAT32 or data.dtype in QUANTIZED):
        raise CrtExportError(f"{data.dtype.value} can't be quantized to {result.value}")
    return (TensorType(result, data.shape),)


@infers(Dequantize)
def dequantize(_op: Dequantize, inputs: InputTypes) -> tuple[TensorType, ...]:
    data = inputs[0]
    if data.dtype is not DType.FLOAT16 and data.dtype not in QUANTIZED:
        raise CrtExportError(f"{data.dtype.value} can't be dequantized")
    return (TensorType(DType.FLOAT32, data.shape),)


@infers(Lookup, required=2)
def lookup(_op: Lookup, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, table = inputs[0], inputs[1]
    if data.dtype not in (DType.INT8, DType.UINT8) or table.shape != (256,):
        raise CrtExportError(f"{data} needs a table of 256 entries, found {table}")
    return (TensorType(table.dtype, data.shape),)


@infers(Cast)
def cast(_op: Cast, inputs: InputTypes) -> tuple[TensorType, ...]:
    return (TensorType(inputs.declared[0], inputs[0].shape),)


@infers(Bitcast)
def bitcast(_op: Bitcast, inputs: InputTypes) -> tuple[TensorType, ...]:
    data, result = inputs[0], inputs.declared[0]
    if data.dtype.itemsize != result.itemsize:
        raise CrtExportError(f"{data.dtype.value} and {result.value} differ in size")
    return (TensorType(result, data.shape),)
