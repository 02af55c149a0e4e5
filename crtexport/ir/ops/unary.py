"""Elementary functions, each element alone."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import Elementwise


@dataclass(frozen=True)
class Abs(Elementwise):
    """The absolute value, elementwise."""


@dataclass(frozen=True)
class Neg(Elementwise):
    """-x elementwise."""


@dataclass(frozen=True)
class Square(Elementwise):
    """x * x elementwise."""


@dataclass(frozen=True)
class Exp(Elementwise):
    """e to the power of x, elementwise."""


@dataclass(frozen=True)
class Log(Elementwise):
    """Natural logarithm elementwise."""


@dataclass(frozen=True)
class Sqrt(Elementwise):
    """Square root elementwise."""


@dataclass(frozen=True)
class Rsqrt(Elementwise):
    """1 over the square root, elementwise."""


@dataclass(frozen=True)
class Sin(Elementwise):
    """Sine elementwise."""


@dataclass(frozen=True)
class Cos(Elementwise):
    """Cosine elementwise."""


@dataclass(frozen=True)
class Ceil(Elementwise):
    """The smallest integer that is not below x, elementwise."""


@dataclass(frozen=True)
class Floor(Elementwise):
    """The largest integer that is not above x, elementwise."""


@dataclass(frozen=True)
class Round(Elementwise):
    """The nearest integer, of two the even one, elementwise."""


@dataclass(frozen=True)
class ZerosLike(Elementwise):
    """Zeros of the input's shape and type."""
