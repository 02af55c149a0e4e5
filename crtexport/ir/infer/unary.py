"""Elementary functions: the output has the input's type."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers, same
from crtexport.ir.ops import Elementary, Op
from crtexport.ir.types import TensorType


@infers(Elementary)
def elementary(_op: Op, inputs: InputTypes) -> tuple[TensorType, ...]:
    return (same(inputs[0]),)
