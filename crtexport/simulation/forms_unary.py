"""TensorFlow Lite's encoding of functions of one input."""

from __future__ import annotations

from collections.abc import Mapping

import tflite

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Activation, Cast, Gelu, L2Normalization, LeakyRelu, Op
from crtexport.simulation.tflite_form import Former, TfliteForm, clamp


def _form(graph: Graph, node: Node) -> TfliteForm:
    match node.op:
        case LeakyRelu(alpha=alpha):
            return TfliteForm("LEAKY_RELU", "LeakyReluOptions", {"Alpha": alpha})
        case Gelu(approximate=approximate):
            return TfliteForm("GELU", "GeluOptions", {"Approximate": approximate})
        case L2Normalization():
            return TfliteForm("L2_NORMALIZATION", "L2NormOptions", clamp(Activation.NONE))
        case Cast():
            types = {
                "InDataType": graph.type(graph.required(node, 0)).dtype,
                "OutDataType": graph.type(node.outputs[0]).dtype,
            }
            numbers = {k: int(getattr(tflite.TensorType, t.name)) for k, t in types.items()}
            return TfliteForm("CAST", "CastOptions", numbers)
        case _:
            raise TypeError(node.op)


FORMERS: Mapping[type[Op], Former] = dict.fromkeys((LeakyRelu, Gelu, L2Normalization, Cast), _form)
"""The writers of the functions that have options."""
