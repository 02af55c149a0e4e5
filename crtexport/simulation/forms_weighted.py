"""How TensorFlow Lite writes operators with weights."""

from __future__ import annotations

import tflite

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import FullyConnected
from crtexport.ir.types import DType
from crtexport.simulation.tflite_form import Value


def sums(graph: Graph, node: Node) -> dict[str, Value]:
    """The field that says in how many bits an int16 operator accumulates.

    LiteRT 2.x goes by it, tflite-runtime 2.14 by the bias; without one, by the operator.
    """
    if graph.type(graph.required(node, 0)).dtype is not DType.INT16:
        return {}
    bias = graph.optional(node, 2)
    if bias is not None:
        dtype = graph.type(bias).dtype
    else:
        dtype = DType.INT32 if isinstance(node.op, FullyConnected) else DType.INT64
    return {"QuantizedBiasType": int(getattr(tflite.TensorType, dtype.name))}
