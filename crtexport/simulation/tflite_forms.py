"""TensorFlow Lite's encoding of each operator: the reverse of the importer's decoders."""

from __future__ import annotations

from collections.abc import Mapping

import tflite

from crtexport.importers.tflite import ops_unary
from crtexport.importers.tflite.operators import Plain
from crtexport.importers.tflite.schema import BuiltinOperator, constant_names
from crtexport.importers.tflite.tflite_ops import DECODERS
from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import DType
from crtexport.simulation import (
    forms_arithmetic,
    forms_detection,
    forms_recurrent,
    forms_reduce,
    forms_shape,
    forms_unary,
    forms_weighted,
)
from crtexport.simulation.forms_weighted import sums
from crtexport.simulation.tflite_form import Former, TfliteForm, Value, clamp, integers
from crtexport.support.errors import CrtExportError

Windowed = ops.Conv2D | ops.DepthwiseConv2D | ops.Pool2D


_NAMES = constant_names(BuiltinOperator)


def _plain(code: int) -> Former:
    return lambda _graph, _node: TfliteForm(_NAMES[code])


FORMERS: Mapping[type[ops.Op], Former] = {
    **{type(row.op): _plain(code) for code, row in DECODERS.items() if isinstance(row, Plain)},
    **forms_arithmetic.FORMERS, **forms_detection.FORMERS, **forms_recurrent.FORMERS,
    **forms_reduce.FORMERS, **forms_shape.FORMERS, **forms_unary.FORMERS,
    **forms_weighted.FORMERS,
}
"""The writers by operator: the importer's rows in reverse, then those of operators with options."""


def form(graph: Graph, node: Node) -> TfliteForm:
    """Returns the encoding of ``node``.

    Raises CrtExportError, naming the node, for a padding that is neither SAME nor VALID.
    """
    op = node.op
    match op:
        case ops.Conv2D():
            return TfliteForm("CONV_2D", "Conv2DOptions", _convolution(graph, node, op))
        case ops.DepthwiseConv2D(depth_multiplier=multiplier):
            fields = _convolution(graph, node, op) | {"DepthMultiplier": multiplier}
            return TfliteForm("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", fields)
        case ops.FullyConnected(keep_num_dims=keep):
            fields = clamp(op.activation) | {"KeepNumDims": keep} | sums(graph, node)
            return TfliteForm("FULLY_CONNECTED", "FullyConnectedOptions", fields)
        case ops.AveragePool2D():
            return TfliteForm("AVERAGE_POOL_2D", "Pool2DOptions", _pool(graph, node, op))
        case ops.MaxPool2D():
            return TfliteForm("MAX_POOL_2D", "Pool2DOptions", _pool(graph, node, op))
        case ops.L2Pool2D():
            return TfliteForm("L2_POOL_2D", "Pool2DOptions", _pool(graph, node, op))
        case ops.Reshape(shape=shape):
            return TfliteForm("RESHAPE", "ReshapeOptions", {"NewShape": integers(shape)})
        case ops.Pad(paddings=paddings):
            return TfliteForm("PAD", steering=(integers(paddings).reshape(-1, 2),))
        case ops.Concatenation(axis=axis):
            fields = clamp(op.activation) | {"Axis": axis}
            return TfliteForm("CONCATENATION", "ConcatenationOptions", fields)
        case ops.Softmax(beta=beta):
            return TfliteForm("SOFTMAX", "SoftmaxOptions", {"Beta": beta})
        case _:
            write = FORMERS.get(type(op))
            if write is None:
                raise CrtExportError(
                    f"TensorFlow Lite has no operator like {type(op).__name__}, so its runtimes"
                    " can't check this network",
                    location=str(node),
                )
            return write(graph, node)


_INT8_AND_INT16 = {DType.INT8: 2, DType.INT16: 3}
_VERSIONS: Mapping[str, Mapping[DType, int]] = {
    "CONV_2D": {DType.INT8: 3, DType.INT16: 4},
    "DEPTHWISE_CONV_2D": {DType.FLOAT32: 2, DType.UINT8: 2, DType.INT8: 3, DType.INT16: 5},
    "FULLY_CONNECTED": {DType.FLOAT32: 5, DType.UINT8: 5, DType.INT8: 5, DType.INT16: 7},
    "TRANSPOSE_CONV": dict.fromkeys(DType, 3),
    "RESHAPE": {},
    **{_NAMES[code]: {} for code in ops_unary.DECODERS},
    **{code: {} for code in forms_arithmetic.FIRST_VERSIONS},
    "READ_VARIABLE": {},
    "SVDF": {DType.INT8: 3},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": {DType.INT8: 3},
    "ASSIGN_VARIABLE": {},
    "QUANTIZE": {DType.INT16: 2},
    "DEQUANTIZE": {DType.INT8: 2, DType.INT16: 3, DType.FLOAT16: 3},
    **forms_reduce.VERSIONS,
}
_HYBRID_VERSIONS = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 4}


def version(code: str, types: tuple[DType, ...]) -> int:
    """Returns an old version of builtin operator ``code`` that takes inputs of ``types``."""
    if types[:2] == (DType.FLOAT32, DType.INT8) and code in _HYBRID_VERSIONS:
        return _HYBRID_VERSIONS[code]
    if code in forms_shape.VERSIONS:
        return forms_shape.VERSIONS[code]
    return _VERSIONS.get(code, _INT8_AND_INT16).get(types[0], 1)


def implicit_padding(graph: Graph, node: Node, op: Windowed) -> int | None:
    """Returns the ``tflite.Padding`` that places the windows as ``op`` does; None if neither does.
    """
    image = graph.type(graph.required(node, 0)).shape[1:3]
    counts = graph.type(node.outputs[0]).shape[1:3]
    if isinstance(op, ops.Conv2D | ops.DepthwiseConv2D):
        window, dilation = graph.type(graph.required(node, 1)).shape[1:3], op.dilation
    else:
        window, dilation = op.window, (1, 1)
    extents = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    before = (op.padding.top, op.padding.left)
    axes = list(zip(image, counts, extents, op.stride, before, strict=True))
    if all(_is_valid(*axis) for axis in axes):
        return int(tflite.Padding.VALID)
    if all(_is_same(*axis) for axis in axes):
        return int(tflite.Padding.SAME)
    return None


# What is added after the last cell matters only in how many windows there are.
def _is_valid(size: int, count: int, extent: int, stride: int, pad_before: int) -> bool:
    return pad_before == 0 and count == (size - extent) // stride + 1


def _is_same(size: int, count: int, extent: int, stride: int, pad_before: int) -> bool:
    missing = max((count - 1) * stride + extent - size, 0)
    return pad_before == missing // 2 and count == -(-size // stride)


def _convolution(
    graph: Graph, node: Node, op: ops.Conv2D | ops.DepthwiseConv2D
) -> dict[str, Value]:
    fields = _windows(graph, node, op) | {
        "DilationHFactor": op.dilation[0], "DilationWFactor": op.dilation[1],
    }
    return fields | sums(graph, node) if isinstance(op, ops.Conv2D) else fields


def _pool(graph: Graph, node: Node, op: ops.Pool2D) -> dict[str, Value]:
    return _windows(graph, node, op) | {
        "FilterHeight": op.window[0], "FilterWidth": op.window[1],
    }


def _windows(graph: Graph, node: Node, op: Windowed) -> dict[str, Value]:
    padding = implicit_padding(graph, node, op)
    if padding is None:
        raise CrtExportError(
            f"TensorFlow Lite has no {type(op).__name__} with {op.padding}, so its runtimes can't"
            " serve as a reference",
            location=(graph.source, str(node)),
            hint="use a padding that TensorFlow Lite calls SAME or VALID",
        )
    return clamp(op.activation) | {
        "Padding": padding, "StrideH": op.stride[0], "StrideW": op.stride[1],
    }
