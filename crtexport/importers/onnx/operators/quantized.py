"""Quantized operators, read as what they mean: real numbers between a Dequantize and a Quantize.

What ONNX Runtime computes in integers becomes an operator of integers afterwards
(:mod:`crtexport.importers.onnx.integer_operators`), wherever the two were: in QuantizeLinear and
DequantizeLinear around an operator (QDQ), or inside of a QLinear one (QOperator).
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.importers.onnx.builder import Blocks
from crtexport.importers.onnx.constants import bits_of, element_type
from crtexport.importers.onnx.domains import MICROSOFT
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.numbers import FLOAT
from crtexport.importers.onnx.quantized_constants import as_signed, centred, signed_scale, steps_of
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import (
    Add,
    Dequantize,
    Div,
    Equal,
    Maximum,
    Minimum,
    Mul,
    Neg,
    ReduceMax,
    ReduceMin,
    Round,
    Select,
    Sub,
)
from crtexport.ir.types import DType, Quantization
from crtexport.support.errors import CrtExportError

_SCALED = (DType.INT8, DType.UINT8, DType.INT16)


def _known(node: OnnxNode, scale: Value, zero: Value | None) -> Quantization | None:
    """Returns a scale that is known, or some of an axis that isn't yet; None where it is computed
    or belongs to blocks."""
    builder = node.builder
    if not builder.is_constant(scale) or len(scale.shape) > 1 or (
        zero is not None and not builder.is_constant(zero)
    ):
        return None
    scales = node.array(scale, "the scale").reshape(-1).astype(np.float32)
    zeros = np.zeros(len(scales), np.int64) if zero is None else (
        node.array(zero, "the zero point").reshape(-1).astype(np.int64)
    )
    if not (np.isfinite(scales) & (scales > 0)).all():
        return None
    zeros = np.broadcast_to(zeros, scales.shape)
    return Quantization(tuple(scales.tolist()), tuple(zeros.tolist()))


def _per_axis(node: OnnxNode, part: Value, x: Value, axis: int, block: int) -> Value:
    """Returns scales or zero points, one for all, one of each slice of an axis or one for each
    block of it, so that they broadcast with ``x``."""
    if part.elements == 1:
        return node.builder.reshaped(part, ())
    axis = node.axis(axis, len(x.shape))
    if (len(part.shape) == 1 and len(x.shape) != 1) or not block:
        return node.builder.reshaped(
            part, [part.elements if i == axis else 1 for i in range(len(x.shape))]
        )
    repeated = np.repeat(node.array(part, "the scale of each block"), block, axis)
    return node.constant(
        np.take(repeated, range(x.shape[axis]), axis), node.dtype(part)
    )


def _computed_with(node: OnnxNode, x: Value, quant: Quantization) -> int:
    """Returns the tensor of integers as int8 or int16, with its scale; of uint8, less 128."""
    builder = node.builder
    if node.dtype(x) is not DType.UINT8:
        return x.tensor
    if x.tensor not in builder.signed:
        if not builder.scaled(x.tensor, quant):
            raise CrtExportError("the tensor has another scale and zero point elsewhere")
        signed = builder.quantize(x.tensor, DType.INT8, signed_scale(quant))
        builder.signed[x.tensor] = signed
    return builder.signed[x.tensor]


def dequantized(
    node: OnnxNode, x: Value, scale: Value, zero: Value | None, *, axis: int = 1, block: int = 0
) -> Value:
    """Returns (x - zero) * scale."""
    builder, quant = node.builder, _known(node, scale, zero)
    if quant is not None and not quant.per_tensor:
        quant = Quantization(quant.scale, quant.zero_point, node.axis(axis, len(x.shape)))
    if quant is not None and builder.is_constant(x):
        known = builder.tensors[builder.arranged(x)]
        if known.type.dtype is DType.UINT8:
            known = as_signed(known, quant)
        else:
            known = replace(known, type=replace(known.type, quant=quant))
        builder.tensors.append(centred(known))
        return stored(builder.real_constant(len(builder.tensors) - 1), x.shape)
    if quant is not None and quant.per_tensor and node.dtype(x) in _SCALED:
        tensor = _computed_with(node, x, quant)
        if node.dtype(x) is DType.UINT8:
            quant = signed_scale(quant)
        if builder.scaled(tensor, quant):
            (made,) = builder.emit(Dequantize(), tensor, dtypes=(FLOAT,))
            return replace(x, tensor=made)
    steps = node.cast(x, FLOAT)
    if zero is not None:
        steps = node.elementwise(
            Sub(), steps, node.cast(_per_axis(node, zero, x, axis, block), FLOAT)
        )
    result = node.elementwise(Mul(), steps, _per_axis(node, scale, x, axis, block))
    blocks = _blocks(node, steps, scale, axis, block)
    if blocks is not None:
        builder.blocks[result.tensor] = blocks
    return result


def _blocks(
    node: OnnxNode, steps: Value, scale: Value, axis: int, block: int
) -> Blocks | None:
    """Returns constant whole numbers with scales by blocks of rows; None for others."""
    builder = node.builder
    if not block or len(steps.shape) != 2 or node.axis(axis, 2) or not (
        builder.is_constant(steps) and builder.is_constant(scale)
    ):
        return None
    known = builder.tensors[builder.arranged(steps)]
    if known.constant is None:
        return None
    numbers = known.constant.array(known.type).astype(np.int64)
    return Blocks.of(numbers, node.array(scale, "the scales").astype(np.float32), block)


def quantized(
    node: OnnxNode, x: Value, scale: Value, zero: Value | None, dtype: DType, *, axis: int = 1,
    block: int = 0, bits: int | None = None,
) -> Value:
    """Returns rint(x / scale) + zero in a type of integers, saturated; those of ``bits`` at what
    these can hold."""
    builder, quant = node.builder, _known(node, scale, zero)
    x = node.cast(x, FLOAT)
    if quant is not None and builder.is_constant(x):
        if not quant.per_tensor:
            quant = replace(quant, axis=node.axis(axis, len(x.shape)))
        known = builder.tensors[builder.arranged(x)]
        made = builder.tensor(*steps_of(known, dtype, quant, bits))
        builder.narrow(made, bits)
        return stored(made, x.shape)
    if quant is not None and quant.per_tensor and dtype in _SCALED and bits is None:
        if dtype is not DType.UINT8:
            return replace(x, tensor=builder.quantize(x.tensor, dtype, quant))
        signed = builder.quantize(x.tensor, DType.INT8, signed_scale(quant))
        made = builder.quantize(signed, dtype, quant)
        builder.signed[made] = signed
        return replace(x, tensor=made)
    steps = node.unary(
        Round(), node.elementwise(Div(), x, _per_axis(node, scale, x, axis, block))
    )
    if zero is not None:
        steps = node.elementwise(
            Add(), steps, node.cast(_per_axis(node, zero, x, axis, block), FLOAT)
        )
    low, high = (limit >> (8 - bits if bits else 0) for limit in dtype.limits)
    steps = node.elementwise(Maximum(), steps, node.like(low, steps))
    steps = node.elementwise(Minimum(), steps, node.like(high, steps))
    result = node.cast(steps, dtype)
    builder.floats[result.tensor] = steps.tensor
    builder.narrow(result.tensor, bits)
    return result


@operator("QuantizeLinear", inputs=(2, 3), follows=True)
@operator("QuantizeLinear", inputs=(2, 3), follows=True, domain=MICROSOFT)
def quantize_linear(node: OnnxNode) -> Value:
    zero = node.optional(2)
    asked = node.integer("output_dtype", 0)
    dtype = node.dtype(zero) if zero is not None else (
        element_type(asked) if asked else DType.UINT8
    )
    bits = bits_of(asked) if zero is None else node.builder.bits.get(zero.tensor)
    node.ignore("saturate", "precision")
    return quantized(
        node, node.input(0), node.input(1), zero, dtype, axis=node.integer("axis", 1),
        block=node.integer("block_size", 0), bits=bits,
    )


@operator("DequantizeLinear", inputs=(2, 3), follows=True)
@operator("DequantizeLinear", inputs=(2, 3), follows=True, domain=MICROSOFT)
def dequantize_linear(node: OnnxNode) -> Value:
    node.ignore("output_dtype")
    return dequantized(
        node, node.input(0), node.input(1), node.optional(2), axis=node.integer("axis", 1),
        block=node.integer("block_size", 0),
    )


@operator("DynamicQuantizeLinear", oldest=11)
def dynamic_quantize_linear(node: OnnxNode) -> list[Value]:
    """Returns uint8 values, their scale and zero point; the range of the values, and 0, fit 255
    steps of the scale."""
    x = node.input(0)
    axes = range(len(x.shape))
    low = node.elementwise(Minimum(), node.reduce(ReduceMin, x, axes, keep=False), node.like(0, x))
    high = node.elementwise(Maximum(), node.reduce(ReduceMax, x, axes, keep=False), node.like(0, x))
    range_ = node.elementwise(Sub(), high, low)
    scale = node.elementwise(Div(), range_, node.like(255, x))
    # As ONNX Runtime has it: where all is 0, nothing is divided by it.
    nothing = node.elementwise(Equal(), range_, node.like(0, x))
    scale = node.elementwise(Select(), nothing, node.like(1, x), scale)
    first = node.unary(Round(), node.elementwise(Div(), node.unary(Neg(), low), scale))
    limited = node.elementwise(Minimum(), node.elementwise(Maximum(), first, node.like(0, x)),
                               node.like(255, x))
    zero = node.cast(limited, DType.UINT8)
    node.builder.floats[zero.tensor] = limited.tensor
    return [quantized(node, x, scale, zero, DType.UINT8), scale, zero]


# -- QOperator


def _pair(node: OnnxNode, index: int, *, axis: int = 1) -> Value:
    """Returns the real numbers of inputs ``index`` to ``index`` + 2: integers, scale, zero point.
    """
    return dequantized(
        node, node.input(index), node.input(index + 1), node.optional(index + 2), axis=axis
    )


def _result(node: OnnxNode, x: Value, index: int, dtype: DType) -> Value:
    """Returns ``x`` in integers, of the scale and zero point of inputs ``index`` and the next."""
    zero = node.optional(index + 1)
    return quantized(
        node, x, node.input(index), zero, dtype if zero is None else node.dtype(zero)
    )


def _bias(node: OnnxNode, index: int, x: int, w: int) -> Value | None:
    """Returns the real numbers of a bias whose scale is that of the products, if there is one."""
    bias = node.optional(index)
    if bias is None:
        return None
    scale = node.elementwise(
        Mul(), node.builder.reshaped(node.input(x), ()), node.input(w)
    )
    return dequantized(node, bias, scale, None, axis=0)


@operator("QLinearConv", inputs=(8, 9), image=True, oldest=10)
def qlinear_conv(node: OnnxNode) -> Value:
    values = [_pair(node, 0), _pair(node, 3, axis=0)]
    bias = _bias(node, 8, 1, 4)
    made = node.read_as("Conv", values if bias is None else [*values, bias])
    return _result(node, made, 6, node.dtype(node.input(0)))


@operator("QLinearMatMul", inputs=(8, 8), oldest=10)
def qlinear_matmul(node: OnnxNode) -> Value:
    b = _pair(node, 3, axis=len(node.input(3).shape) - 1)
    return _result(node, node.read_as("MatMul", [_pair(node, 0), b]), 6, node.dtype(node.input(0)))


@operator("QGemm", inputs=(6, 9), domain=MICROSOFT)
def qgemm(node: OnnxNode) -> Value:
    columns = 0 if node.integer("transB", 0) else 1
    values = [_pair(node, 0), _pair(node, 3, axis=columns)]
    bias = _bias(node, 6, 1, 4)
    made = node.read_as("Gemm", values if bias is None else [*values, bias])
    return made if node.optional(7) is None else (
        _result(node, made, 7, node.dtype(node.input(0)))
    )


@operator("QLinearAdd", "QLinearMul", inputs=(7, 8), domain=MICROSOFT)
def qlinear_binary(node: OnnxNode) -> Value:
    name = node.info.operator.removeprefix("QLinear")
    made = node.read_as(name, [_pair(node, 0), _pair(node, 3)])
    return _result(node, made, 6, node.dtype(node.input(0)))


@operator(
    "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", inputs=(4, 5), domain=MICROSOFT,
    follows=True,
)
@operator(
    "QLinearAveragePool", "QLinearGlobalAveragePool", inputs=(4, 5), domain=MICROSOFT, image=True,
)
def qlinear_unary(node: OnnxNode) -> Value:
    if node.integer("channels_last", 0):
        raise CrtExportError("channels behind rows and columns are not supported")
    version = node.integer("opset") if node.info.operator == "QLinearSoftmax" else None
    made = node.read_as(
        node.info.operator.removeprefix("QLinear"), [_pair(node, 0)], version=version
    )
    return _result(node, made, 3, node.dtype(node.input(0)))


@operator("QLinearWhere", inputs=(9, 9), domain=MICROSOFT)
def qlinear_where(node: OnnxNode) -> Value:
    made = node.read_as("Where", [node.input(0), _pair(node, 1), _pair(node, 4)])
    return _result(node, made, 7, node.dtype(node.input(1)))


@operator("QLinearConcat", inputs=(5, None), domain=MICROSOFT)
def qlinear_concat(node: OnnxNode) -> Value:
    parts = [_pair(node, index) for index in range(2, len(node.inputs), 3)]
    return _result(node, node.read_as("Concat", parts), 0, node.dtype(node.input(2)))
