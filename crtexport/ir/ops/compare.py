"""Elementwise operators that give or take truth values, which are stored as bytes 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import Elementwise


@dataclass(frozen=True)
class Equal(Elementwise):
    """Whether two real numbers are equal, with NumPy broadcasting."""


@dataclass(frozen=True)
class NotEqual(Elementwise):
    """Whether two real numbers differ, with NumPy broadcasting."""


@dataclass(frozen=True)
class Greater(Elementwise):
    """Whether the first real number is the larger one, with NumPy broadcasting."""


@dataclass(frozen=True)
class GreaterEqual(Elementwise):
    """Whether the first real number is not the smaller one, with NumPy broadcasting."""


@dataclass(frozen=True)
class Less(Elementwise):
    """Whether the first real number is the smaller one, with NumPy broadcasting."""


@dataclass(frozen=True)
class LessEqual(Elementwise):
    """Whether the first real number is not the larger one, with NumPy broadcasting."""


@dataclass(frozen=True)
class LogicalAnd(Elementwise):
    """Whether both are true, with NumPy broadcasting."""


@dataclass(frozen=True)
class LogicalOr(Elementwise):
    """Whether one of two is true, with NumPy broadcasting."""


@dataclass(frozen=True)
class LogicalNot(Elementwise):
    """Whether it is false."""


@dataclass(frozen=True)
class Select(Elementwise):
    """The second input where the first is true, else the third; ``rows``: by their first axis."""

    rows: bool = False
