"""The operators of a quantized network that are computed in float32."""

from __future__ import annotations

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Dequantize, Quantize, Reshape, Transpose
from crtexport.ir.types import DType
from crtexport.passes.drop_dead import drop_dead

_SCALING = "QuantizeLinear", "DequantizeLinear"
"""ONNX's operators that make integers of real numbers, or the reverse."""


def float_layers(graph: Graph) -> tuple[Node, ...]:
    """Returns the nodes of a quantized network that compute in float32, except unused ones and
    those that only move elements; empty if the network has no quantized tensors.

    Tensors of uint16 have no scales here: QuantizeLinear and DequantizeLinear are computed for
    them, too.
    """
    kept = drop_dead(graph)
    if all(tensor.type.quant is None for tensor in kept.tensors) and not any(
        node.is_from(*_SCALING) for node in kept.nodes
    ):
        return ()
    return tuple(node for node in kept.nodes if _in_floats(kept, node))


def _in_floats(graph: Graph, node: Node) -> bool:
    ends = (t for t in (*node.inputs[:1], *node.outputs) if t is not None)
    return not isinstance(node.op, Dequantize | Quantize | Reshape | Transpose) and any(
        graph.type(tensor).dtype is DType.FLOAT32 for tensor in ends
    )
