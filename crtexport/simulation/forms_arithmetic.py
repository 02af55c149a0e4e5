"""How TensorFlow Lite writes elementwise operators of two or three inputs."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import (
    Add,
    AddN,
    Div,
    Equal,
    FloorDiv,
    FloorMod,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Maximum,
    Minimum,
    Mul,
    NotEqual,
    Op,
    Select,
    SquaredDifference,
    Sub,
)
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


def _plain(code: str) -> Former:
    """An operator without options."""
    return lambda _graph, _node: Form(code)


FIRST_VERSIONS = (
    "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "EQUAL",
    "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL",
)
"""Operators whose first version does all that later ones do."""

FORMERS: Mapping[type[Op], Former] = {
    Add: _clamped,
    Sub: _clamped,
    Mul: _clamped,
    Div: _clamped,
    FloorDiv: _plain("FLOOR_DIV"),
    FloorMod: _plain("FLOOR_MOD"),
    Maximum: _plain("MAXIMUM"),
    Minimum: _plain("MINIMUM"),
    SquaredDifference: _plain("SQUARED_DIFFERENCE"),
    AddN: _plain("ADD_N"),
    Equal: _plain("EQUAL"),
    NotEqual: _plain("NOT_EQUAL"),
    Greater: _plain("GREATER"),
    GreaterEqual: _plain("GREATER_EQUAL"),
    Less: _plain("LESS"),
    LessEqual: _plain("LESS_EQUAL"),
    LogicalAnd: _plain("LOGICAL_AND"),
    LogicalOr: _plain("LOGICAL_OR"),
    LogicalNot: _plain("LOGICAL_NOT"),
    Select: _select,
}
"""How the operators of this family are written."""
