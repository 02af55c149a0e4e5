"""Functions of one input."""

from __future__ import annotations

from crtexport.ir.ops.base import Elementary, Elementwise, Op


class Softmax(Op, frozen=True):
    """exp(beta*x) over its sum along the last axis."""

    beta: float = 1.0


class Logistic(Elementary, frozen=True):
    """1 / (1 + exp(-x)) elementwise."""


class Tanh(Elementary, frozen=True):
    """Hyperbolic tangent elementwise."""


class Relu(Elementary, frozen=True):
    """max(x, 0) elementwise."""


class Relu6(Elementary, frozen=True):
    """min(max(x, 0), 6) elementwise."""


class ReluN1To1(Elementary, frozen=True):
    """min(max(x, -1), 1) elementwise."""


class LeakyRelu(Elementary, frozen=True):
    """x where it is positive, alpha*x elsewhere."""

    alpha: float = 0.2


class Elu(Elementary, frozen=True):
    """x where it is positive, exp(x) - 1 elsewhere."""


class Gelu(Elementary, frozen=True):
    """x times the normal distribution function at x; ``approximate``: with a hyperbolic tangent."""

    approximate: bool = False


class HardSwish(Elementary, frozen=True):
    """x * min(max(x + 3, 0), 6) / 6 elementwise."""


class Prelu(Elementwise, frozen=True):
    """x where it is not negative, elsewhere times the second input, which broadcasts."""


class LogSoftmax(Op, frozen=True):
    """The logarithm of the softmax along the last axis."""


class L2Normalization(Op, frozen=True):
    """Divided by the root of the sum of squares along the last axis, at least 1e-6."""
