"""How TensorFlow Lite writes functions of one input."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import (
    Abs,
    Ceil,
    Cos,
    Elu,
    Exp,
    Floor,
    Gelu,
    HardSwish,
    LeakyRelu,
    Log,
    Neg,
    Op,
    ReluN1To1,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
)
from crtexport.simulation.tflite_form import Form, Former

_CODES: Mapping[type[Op], str] = {
    Abs: "ABS", Neg: "NEG", Square: "SQUARE", Exp: "EXP", Log: "LOG", Sqrt: "SQRT",
    Rsqrt: "RSQRT", Sin: "SIN", Cos: "COS", Ceil: "CEIL", Floor: "FLOOR", Round: "ROUND",
    ReluN1To1: "RELU_N1_TO_1", LeakyRelu: "LEAKY_RELU", Elu: "ELU", Gelu: "GELU",
    HardSwish: "HARD_SWISH",
}


def _form(_graph: Graph, node: Node) -> Form:
    code, op = _CODES[type(node.op)], node.op
    match op:
        case LeakyRelu(alpha=alpha):
            return Form(code, "LeakyReluOptions", {"Alpha": alpha})
        case Gelu(approximate=approximate):
            return Form(code, "GeluOptions", {"Approximate": approximate})
        case _:
            return Form(code)


FORMERS: Mapping[type[Op], Former] = dict.fromkeys(_CODES, _form)

FIRST_VERSIONS = tuple(_CODES.values())
"""Operators whose first version takes every element type."""
