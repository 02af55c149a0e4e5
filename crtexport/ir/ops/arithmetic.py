"""Elementwise operators of two or more numbers."""

from __future__ import annotations

from crtexport.ir.ops.base import Activation, Elementwise, Pairwise


class Add(Pairwise, frozen=True):
    """Elementwise sum with NumPy broadcasting; ``power_of_two_scales``: of int16, by a shift;
    ``from_uint8``: int8 stands for uint8 less 128, as which ONNX Runtime computes."""

    activation: Activation = Activation.NONE
    power_of_two_scales: bool = False
    from_uint8: bool = False


class Sub(Pairwise, frozen=True):
    """Elementwise difference with NumPy broadcasting; ``power_of_two_scales`` as in Add."""

    activation: Activation = Activation.NONE
    power_of_two_scales: bool = False


class Mul(Pairwise, frozen=True):
    """Elementwise product with NumPy broadcasting; ``from_uint8`` as in Add."""

    activation: Activation = Activation.NONE
    from_uint8: bool = False


class Div(Pairwise, frozen=True):
    """Elementwise quotient with NumPy broadcasting; integers are truncated toward zero."""

    activation: Activation = Activation.NONE


class FloorDiv(Pairwise, frozen=True):
    """Elementwise quotient of stored numbers, rounded down, with NumPy broadcasting."""


class FloorMod(Pairwise, frozen=True):
    """Elementwise remainder of FloorDiv, with the sign of the divisor and NumPy broadcasting."""


class Pow(Pairwise, frozen=True):
    """The first input to the power of the second, elementwise, with NumPy broadcasting."""


class Maximum(Pairwise, frozen=True):
    """The larger of two stored numbers, with NumPy broadcasting."""


class Minimum(Pairwise, frozen=True):
    """The smaller of two stored numbers, with NumPy broadcasting."""


class SquaredDifference(Pairwise, frozen=True):
    """The square of the elementwise difference, with NumPy broadcasting."""


class AddN(Elementwise, frozen=True):
    """The elementwise sum of any number of inputs of one shape."""
