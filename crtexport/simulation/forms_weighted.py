"""TensorFlow Lite's encoding of operators with weights."""

from __future__ import annotations

from collections.abc import Mapping

import tflite

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import DType
from crtexport.simulation.tflite_form import Former, TfliteForm, Value, by_operator, clamp, integers
from crtexport.support.errors import CrtExportError


def sums(graph: Graph, node: Node) -> dict[str, Value]:
    """Returns the field with the accumulator's type of an int16 operator.

    LiteRT 2.x decides by it; tflite-runtime 2.14 decides by the type of the bias or, without a
    bias, by the operator.
    """
    if graph.type(graph.required(node, 0)).dtype is not DType.INT16:
        return {}
    bias = graph.optional(node, 2)
    if bias is not None:
        dtype = graph.type(bias).dtype
    else:
        windows = isinstance(node.op, ops.Conv2D | ops.DepthwiseConv2D)
        dtype = DType.INT64 if windows else DType.INT32
    return {"QuantizedBiasType": int(getattr(tflite.TensorType, dtype.name))}


def _transpose_conv(graph: Graph, node: Node) -> TfliteForm:
    op = node.op
    if not isinstance(op, ops.TransposeConv2D):
        raise TypeError(op)
    window = graph.type(graph.required(node, 1)).shape[1:3]
    same = tuple(
        max((-(-size // stride) - 1) * stride + taps - size, 0) // 2
        for size, stride, taps in zip(op.size, op.stride, window, strict=True)
    )
    if op.crop not in ((0, 0), same):
        raise CrtExportError(
            f"TensorFlow Lite has no TransposeConv2D of size {op.size} with crop {op.crop}, so its"
            " runtimes can't serve as a reference",
            location=(graph.source, str(node)),
        )
    padding = tflite.Padding.SAME if op.crop == same else tflite.Padding.VALID
    fields = clamp(op.activation) | {
        "Padding": int(padding), "StrideH": op.stride[0], "StrideW": op.stride[1],
    }
    shape = integers(graph.type(node.outputs[0]).shape)
    return TfliteForm(
        "TRANSPOSE_CONV", "TransposeConvOptions", fields | sums(graph, node), leading=(shape,),
        order=(1, 0, *range(2, len(node.inputs))),
    )


FORMERS: Mapping[type[ops.Op], Former] = {
    ops.TransposeConv2D: _transpose_conv,
    ops.BatchMatMul: by_operator(lambda op: TfliteForm(
        "BATCH_MATMUL", "BatchMatMulOptions", {"AdjX": op.adj_x, "AdjY": op.adj_y}
    )),
    ops.EmbeddingLookup: by_operator(lambda _: TfliteForm("EMBEDDING_LOOKUP")),
}
