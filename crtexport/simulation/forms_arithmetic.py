"""TensorFlow Lite's encoding of elementwise operators of two or three inputs."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Add, Div, Mul, Op, Select, Sub
from crtexport.simulation.tflite_form import Form, Former, clamp


def _clamped(_graph: Graph, node: Node) -> Form:
    op = node.op
    if not isinstance(op, Add | Sub | Mul | Div):
        raise TypeError(op)
    name = type(op).__name__
    fields = clamp(op.activation)
    if isinstance(op, Add | Sub):
        fields |= {"PotScaleInt16": op.power_of_two_scales}
    return Form(name.upper(), f"{name}Options", fields)


def _select(_graph: Graph, node: Node) -> Form:
    rows = isinstance(node.op, Select) and node.op.rows
    return Form("SELECT" if rows else "SELECT_V2")


FIRST_VERSIONS = (
    "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "POW", "EQUAL",
    "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL",
)
"""Operators whose first version covers every element type."""

FORMERS: Mapping[type[Op], Former] = {
    Add: _clamped,
    Sub: _clamped,
    Mul: _clamped,
    Div: _clamped,
    Select: _select,
}
"""The writers of this family, by operator."""
