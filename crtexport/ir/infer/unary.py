"""Elementary functions: the output has the input's type."""

from __future__ import annotations

from crtexport.ir.infer.base import Given, infers, same
from crtexport.ir.ops import (
    Abs,
    Ceil,
    Cos,
    Exp,
    Floor,
    Log,
    Neg,
    Op,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
    ZerosLike,
)
from crtexport.ir.types import TensorType


@infers(Abs, Ceil, Cos, Exp, Floor, Log, Neg, Round, Rsqrt, Sin, Sqrt, Square, ZerosLike)
def elementary(_op: Op, given: Given) -> tuple[TensorType, ...]:
    return (same(given[0]),)
