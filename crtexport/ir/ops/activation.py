"""Functions of one input."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import Elementwise


@dataclass(frozen=True)
class Softmax:
    """exp(beta*x) over its sum along the last axis."""

    beta: float = 1.0


@dataclass(frozen=True)
class Logistic(Elementwise):
    """1 / (1 + exp(-x)) elementwise."""


@dataclass(frozen=True)
class Tanh(Elementwise):
    """Hyperbolic tangent elementwise."""


@dataclass(frozen=True)
class Relu(Elementwise):
    """max(x, 0) elementwise."""


@dataclass(frozen=True)
class Relu6(Elementwise):
    """min(max(x, 0), 6) elementwise."""


@dataclass(frozen=True)
class ReluN1To1(Elementwise):
    """min(max(x, -1), 1) elementwise."""


@dataclass(frozen=True)
class LeakyRelu(Elementwise):
    """x where it is positive, alpha*x elsewhere."""

    alpha: float = 0.2


@dataclass(frozen=True)
class Elu(Elementwise):
    """x where it is positive, exp(x) - 1 elsewhere."""


@dataclass(frozen=True)
class Gelu(Elementwise):
    """x times the normal distribution function at x; ``approximate``: with a hyperbolic tangent."""

    approximate: bool = False


@dataclass(frozen=True)
class HardSwish(Elementwise):
    """x * min(max(x + 3, 0), 6) / 6 elementwise."""


@dataclass(frozen=True)
class Prelu(Elementwise):
    """x where it is not negative, elsewhere times the second input, which broadcasts."""


@dataclass(frozen=True)
class LogSoftmax:
    """The logarithm of the softmax along the last axis."""


@dataclass(frozen=True)
class L2Normalization:
    """Divided by the root of the sum of squares along the last axis, at least 1e-6."""
