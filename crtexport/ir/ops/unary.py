"""Elementary functions, each element alone."""

from __future__ import annotations

from crtexport.ir.ops.base import Elementwise


class Abs(Elementwise, frozen=True):
    """The absolute value, elementwise."""


class Neg(Elementwise, frozen=True):
    """-x elementwise."""


class Square(Elementwise, frozen=True):
    """x * x elementwise."""


class Exp(Elementwise, frozen=True):
    """e to the power of x, elementwise."""


class Log(Elementwise, frozen=True):
    """Natural logarithm elementwise."""


class Sqrt(Elementwise, frozen=True):
    """Square root elementwise."""


class Rsqrt(Elementwise, frozen=True):
    """1 over the square root, elementwise."""


class Sin(Elementwise, frozen=True):
    """Sine elementwise."""


class Cos(Elementwise, frozen=True):
    """Cosine elementwise."""


class Ceil(Elementwise, frozen=True):
    """The smallest integer that is not below x, elementwise."""


class Floor(Elementwise, frozen=True):
    """The largest integer that is not above x, elementwise."""


class Round(Elementwise, frozen=True):
    """The nearest integer, of two the even one, elementwise."""


class ZerosLike(Elementwise, frozen=True):
    """Zeros of the input's shape and type."""
