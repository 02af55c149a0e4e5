"""How TensorFlow Lite writes functions of one input."""

from __future__ import annotations

from collections.abc import Mapping

import tflite

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import (
    Abs,
    Activation,
    Cast,
    Ceil,
    Cos,
    Elu,
    Exp,
    Floor,
    Gelu,
    HardSwish,
    L2Normalization,
    LeakyRelu,
    Log,
    LogSoftmax,
    Neg,
    Op,
    Prelu,
    ReluN1To1,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
    ZerosLike,
)
from crtexport.simulation.tflite_form import Form, Former, clamp

_CODES: Mapping[type[Op], str] = {
    Abs: "ABS", Neg: "NEG", Square: "SQUARE", Exp: "EXP", Log: "LOG", Sqrt: "SQRT",
    Rsqrt: "RSQRT", Sin: "SIN", Cos: "COS", Ceil: "CEIL", Floor: "FLOOR", Round: "ROUND",
    ReluN1To1: "RELU_N1_TO_1", LeakyRelu: "LEAKY_RELU", Elu: "ELU", Gelu: "GELU",
    HardSwish: "HARD_SWISH", Prelu: "PRELU", LogSoftmax: "LOG_SOFTMAX",
    L2Normalization: "L2_NORMALIZATION", Cast: "CAST", ZerosLike: "ZEROS_LIKE",
}


def _form(graph: Graph, node: Node) -> Form:
    code, op = _CODES[type(node.op)], node.op
    match op:
        case LeakyRelu(alpha=alpha):
            return Form(code, "LeakyReluOptions", {"Alpha": alpha})
        case Gelu(approximate=approximate):
            return Form(code, "GeluOptions", {"Approximate": approximate})
        case L2Normalization():
            return Form(code, "L2NormOptions", clamp(Activation.NONE))
        case Cast():
            types = {
                "InDataType": graph.type(graph.required(node, 0)).dtype,
                "OutDataType": graph.type(node.outputs[0]).dtype,
            }
            numbers = {k: int(getattr(tflite.TensorType, t.name)) for k, t in types.items()}
            return Form(code, "CastOptions", numbers)
        case _:
            return Form(code)


FORMERS: Mapping[type[Op], Former] = dict.fromkeys(_CODES, _form)

FIRST_VERSIONS = tuple(_CODES.values())
"""Operators whose first version takes every element type."""
