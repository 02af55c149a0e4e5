"""TensorFlow Lite's encoding of recurrent operators."""

from __future__ import annotations

from collections.abc import Mapping

import tflite

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Op, Svdf, UnidirectionalSequenceLstm
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.simulation.tflite_form import Former, TfliteForm, by_operator, clamp

_LSTM_ORDER = (*range(9), None, None, None, *range(9, 13), None, None, 13, 14, *[None] * 4)


def _svdf(op: Svdf) -> TfliteForm:
    fields = clamp(op.activation) | {"Rank": op.rank}
    return TfliteForm("SVDF", "SVDFOptions", fields, order=(0, 1, 2, 4, 3))


def _lstm(graph: Graph, node: Node) -> TfliteForm:
    op = node.op
    if not isinstance(op, UnidirectionalSequenceLstm):
        raise TypeError(op)
    intermediates: tuple[TensorType, ...] = ()
    dtype = graph.type(graph.required(node, 0)).dtype
    if dtype is not DType.FLOAT32:
        # Empty tensors, since TensorFlow Lite Micro takes no others.
        gate = TensorType(DType.INT16, (0,), Quantization((2.0**-12,), (0,)))
        hidden = Quantization((op.hidden_scale,), (op.hidden_zero_point,))
        intermediates = (*[gate] * 4, TensorType(dtype, (0,), hidden))
    return TfliteForm(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions",
        {
            "FusedActivationFunction": int(tflite.ActivationFunctionType.TANH),
            "CellClip": op.cell_clip, "TimeMajor": op.time_major,
        },
        order=_LSTM_ORDER, intermediates=intermediates,
    )


FORMERS: Mapping[type[Op], Former] = {
    Svdf: by_operator(_svdf), UnidirectionalSequenceLstm: _lstm,
}
