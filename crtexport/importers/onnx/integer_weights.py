"""Real weights of layers between quantized tensors, as ONNX Runtime's optimizer quantizes them."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.quantized_constants import as_int8
from crtexport.importers.onnx.values import Value
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType


def integer_weights(
    node: OnnxNode, w: Value, bias: Value | None, *, result: str | None = None,
    clamped: bool = True,
) -> tuple[Value, Value | None]:
    """Returns the weights of a layer as the real numbers of int8 with one scale and zero point, and
    its bias as those of int32 on the scale of the products, where ONNX Runtime's optimizer has such
    (:meth:`Dataflow.scale_before`, also for ``clamped``); elsewhere as they are.

    ``result``: the name of the sum, if another node adds the bias (default: the node's own result).
    """
    builder = node.builder
    if not is_real_constant(node, w):
        return w, bias
    if bias is not None and not (len(bias.shape) == 1 and is_real_constant(node, bias)):
        return w, bias
    scale = node.walk.scale_before(node.info.outputs[0], result, clamped=clamped)
    if scale is None or scale.elements != 1 or node.dtype(scale) is not DType.FLOAT32:
        return w, bias
    bytes_ = as_int8(builder.tensors[w.tensor])
    if bytes_ is None or bytes_.type.quant is None:
        return w, bias
    builder.tensors.append(bytes_)
    weights = replace(w, tensor=builder.real_constant(len(builder.tensors) - 1))
    product = np.float32(node.array(scale, "the scale").item()) * np.float32(
        bytes_.type.quant.scale[0]
    )
    return weights, None if bias is None else _integer_bias(node, bias, product)


def is_real_constant(node: OnnxNode, value: Value) -> bool:
    """Returns whether a value is a constant of float32 that isn't dequantized."""
    builder = node.builder
    return builder.is_constant(value) and value.tensor not in builder.integers and (
        node.dtype(value) is DType.FLOAT32
    )


def _integer_bias(node: OnnxNode, bias: Value, scale: np.float32) -> Value:
    builder = node.builder
    known = builder.tensors[builder.arranged(bias)]
    if known.constant is None:
        raise ValueError("the bias is a constant")
    with np.errstate(all="ignore"):
        steps = np.rint(known.constant.array(known.type).astype(np.float32) / scale)
    if not scale or not (np.abs(steps) < 1 << 31).all():
        return bias
    type_ = TensorType(DType.INT32, known.type.shape, Quantization((float(scale),), (0,)))
    made = builder.tensor(type_, ConstantRef.of(steps.astype(np.int32)))
    return replace(bias, tensor=builder.real_constant(made))
