"""Elementary functions, each element alone."""

from __future__ import annotations

from crtexport.ir.ops.base import Elementary


class Abs(Elementary, frozen=True):
    """The absolute value, elementwise."""


class Neg(Elementary, frozen=True):
    """-x elementwise."""


class Square(Elementary, frozen=True):
    """x * x elementwise."""


class Exp(Elementary, frozen=True):
    """e to the power of x, elementwise."""


class Log(Elementary, frozen=True):
    """Natural logarithm elementwise."""


class Sqrt(Elementary, frozen=True):
    """Square root elementwise."""


class Rsqrt(Elementary, frozen=True):
    """1 over the square root, elementwise."""


class Sin(Elementary, frozen=True):
    """Sine elementwise."""


class Cos(Elementary, frozen=True):
    """Cosine elementwise."""


class Erf(Elementary, frozen=True):
    """The error function, elementwise."""


class Atan(Elementary, frozen=True):
    """Inverse tangent elementwise."""


class Ceil(Elementary, frozen=True):
    """The smallest integer that is not below x, elementwise."""


class Floor(Elementary, frozen=True):
    """The largest integer that is not above x, elementwise."""


class Round(Elementary, frozen=True):
    """The nearest integer, of two the even one, elementwise."""


class ZerosLike(Elementary, frozen=True):
    """Zeros of the input's shape and type."""
