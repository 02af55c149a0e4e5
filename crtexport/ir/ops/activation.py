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
