"""Functions of one input."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers, same
from crtexport.ir.ops import (
    Elu,
    Gelu,
    HardSwish,
    LeakyRelu,
    Logistic,
    Op,
    Relu,
    Relu6,
    ReluN1To1,
    Softmax,
    Tanh,
)
from crtexport.ir.types import TensorType


@infers(Elu, Gelu, HardSwish, LeakyRelu, Logistic, Relu, Relu6, ReluN1To1, Tanh)
def unary(_op: Op, given: Given) -> tuple[TensorType, ...]:
    return (same(given[0]),)


@infers(Softmax)
def softmax(_op: Softmax, given: Given) -> tuple[TensorType, ...]:
    if not given[0].shape:
        raise CrtExportError("softmax of a scalar has no axis to run along")
    return (same(given[0]),)
