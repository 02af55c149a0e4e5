"""Operators on variables, tensors that keep their values between runs."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.ops import AssignVariable, ReadVariable
from crtexport.ir.types import TensorType
from crtexport.support.errors import CrtExportError


@infers(ReadVariable)
def read_variable(op: ReadVariable, inputs: InputTypes) -> tuple[TensorType, ...]:
    del op
    return (same(inputs[0]),)


@infers(AssignVariable, required=2)
def assign_variable(op: AssignVariable, inputs: InputTypes) -> tuple[TensorType, ...]:
    del op
    variable, value = same(inputs[0]), same(inputs[1])
    if variable != value:
        raise CrtExportError(f"the variable is {variable}, its new value {value}")
    return ()
