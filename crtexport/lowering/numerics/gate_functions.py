"""The functions of gates of recurrent operators, with their parameters."""

from __future__ import annotations

from msgspec import Struct

from crtexport.ir.ops import GateFunction, Recurrent
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    clamp,
    div,
    f32,
    ge,
    max_,
    mul,
    select,
    sub,
)
from crtexport.kir.language import Expr
from crtexport.lowering.numerics import float_math


class Gate(Struct, frozen=True):
    """A function with its parameters."""

    function: GateFunction
    alpha: float
    beta: float

    def __call__(self, b: KernelBuilder, x: Expr) -> Expr:
        """Returns f32: its value at ``x`` (f32)."""
        alpha, beta = f32(self.alpha), f32(self.beta)
        match self.function:
            case GateFunction.SIGMOID:
                return float_math.logistic(b, x)
            case GateFunction.TANH:
                return float_math.tanh(b, x)
            case GateFunction.RELU:
                return max_(x, f32(0.0))
            case GateFunction.AFFINE:
                return add(mul(alpha, x), beta)
            case GateFunction.LEAKY_RELU:
                return select(ge(x, f32(0.0)), x, mul(alpha, x))
            case GateFunction.THRESHOLDED_RELU:
                return select(ge(x, alpha), x, f32(0.0))
            case GateFunction.SCALED_TANH:
                return mul(alpha, float_math.tanh(b, b.let("scaled", mul(beta, x))))
            case GateFunction.HARD_SIGMOID:
                return clamp(add(mul(alpha, x), beta), 0.0, 1.0)
            case GateFunction.ELU:
                return select(ge(x, f32(0.0)), x, mul(alpha, float_math.expm1_of_negative(b, x)))
            case GateFunction.SOFTSIGN:
                return div(x, add(f32(1.0), float_math.magnitude_of(b, x)))
            case GateFunction.SOFTPLUS:
                small = float_math.exp(b, sub(f32(0.0), float_math.magnitude_of(b, x)))
                return add(max_(x, f32(0.0)), float_math.log(b, add(f32(1.0), small)))


def gates_of(op: Recurrent, directions: int) -> list[tuple[Gate, ...]]:
    """Returns the functions of each direction's gates."""
    count = len(op.usual)
    functions = op.functions or op.usual * directions
    alpha, beta = (values or (0.0,) * len(functions) for values in (op.alpha, op.beta))
    every = [Gate(*one) for one in zip(functions, alpha, beta, strict=True)]
    return [tuple(every[first : first + count]) for first in range(0, len(every), count)]
