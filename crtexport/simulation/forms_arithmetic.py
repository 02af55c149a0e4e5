"""TensorFlow Lite's encoding of elementwise operators of two or three inputs."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.ir.ops import Add, Div, Mul, Op, Select, Sub
from crtexport.simulation.tflite_form import Former, TfliteForm, by_operator, clamp


def _clamped(op: Add | Sub | Mul | Div) -> TfliteForm:
    name = type(op).__name__
    fields = clamp(op.activation)
    if isinstance(op, Add | Sub):
        fields |= {"PotScaleInt16": op.power_of_two_scales}
    return TfliteForm(name.upper(), f"{name}Options", fields)


FIRST_VERSIONS = (
    "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "POW", "EQUAL",
    "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL",
)
"""Operators whose first version covers every element type."""

FORMERS: Mapping[type[Op], Former] = {
    **dict.fromkeys((Add, Sub, Mul, Div), by_operator(_clamped)),
    Select: by_operator(lambda op: TfliteForm("SELECT" if op.rows else "SELECT_V2")),
}
"""The writers of this family, by operator."""
