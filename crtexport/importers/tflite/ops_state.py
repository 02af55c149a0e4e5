"""Decoders of operators on variables."""

from __future__ import annotations

from collections.abc import Mapping

from crtexport.importers.tflite.operators import Decoder, Plain
from crtexport.importers.tflite.schema import BuiltinOperator
from crtexport.ir.ops import AssignVariable, ReadVariable

DECODERS: Mapping[int, Decoder] = {
    BuiltinOperator.READ_VARIABLE: Plain(ReadVariable()),
    BuiltinOperator.ASSIGN_VARIABLE: Plain(AssignVariable()),
}
