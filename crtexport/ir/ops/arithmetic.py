"""Elementwise operators of two or more numbers."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import Activation, Elementwise


@dataclass(frozen=True)
class Add(Elementwise):
    """Elementwise sum with NumPy broadcasting; ``power_of_two_scales``: of int16, by a shift."""

    activation: Activation = Activation.NONE
    power_of_two_scales: bool = False


@dataclass(frozen=True)
class Sub(Elementwise):
    """Elementwise difference with NumPy broadcasting; ``power_of_two_scales`` as in Add."""

    activation: Activation = Activation.NONE
    power_of_two_scales: bool = False


@dataclass(frozen=True)
class Mul(Elementwise):
    """Elementwise product with NumPy broadcasting."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Div(Elementwise):
    """Elementwise quotient with NumPy broadcasting; integers are truncated toward zero."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class FloorDiv(Elementwise):
    """Elementwise quotient of stored numbers, rounded down, with NumPy broadcasting."""


@dataclass(frozen=True)
class FloorMod(Elementwise):
    """What FloorDiv leaves over, with the sign of the divisor."""


@dataclass(frozen=True)
class Maximum(Elementwise):
    """The larger of two stored numbers, with NumPy broadcasting."""


@dataclass(frozen=True)
class Minimum(Elementwise):
    """The smaller of two stored numbers, with NumPy broadcasting."""


@dataclass(frozen=True)
class SquaredDifference(Elementwise):
    """The square of the elementwise difference, with NumPy broadcasting."""


@dataclass(frozen=True)
class AddN(Elementwise):
    """The elementwise sum of any number of inputs of one shape."""
