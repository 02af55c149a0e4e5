"""Operators on variables, tensors that keep their values between runs."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers, same
from crtexport.ir.ops import AssignVariable, ReadVariable
from crtexport.ir.types import TensorType


@infers(ReadVariable)
def read_variable(op: ReadVariable, given: Given) -> tuple[TensorType, ...]:
    del op
    return (same(given[0]),)


@infers(AssignVariable, required=2)
def assign_variable(op: AssignVariable, given: Given) -> tuple[TensorType, ...]:
    del op
    variable, value = same(given[0]), same(given[1])
    if variable != value:
        raise CrtExportError(f"the variable is {variable}, its new value {value}")
    return ()
