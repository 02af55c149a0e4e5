"""Elementwise operators that give or take truth values, which are stored as bytes 0 and 1."""

from __future__ import annotations

from crtexport.ir.ops.base import Elementwise


class Equal(Elementwise, frozen=True):
    """Whether two real numbers are equal, with NumPy broadcasting."""


class NotEqual(Elementwise, frozen=True):
    """Whether two real numbers differ, with NumPy broadcasting."""


class Greater(Elementwise, frozen=True):
    """Whether the first real number is the larger one, with NumPy broadcasting."""


class GreaterEqual(Elementwise, frozen=True):
    """Whether the first real number is not the smaller one, with NumPy broadcasting."""


class Less(Elementwise, frozen=True):
    """Whether the first real number is the smaller one, with NumPy broadcasting."""


class LessEqual(Elementwise, frozen=True):
    """Whether the first real number is not the larger one, with NumPy broadcasting."""


class LogicalAnd(Elementwise, frozen=True):
    """Whether both are true, with NumPy broadcasting."""


class LogicalOr(Elementwise, frozen=True):
    """Whether one of two is true, with NumPy broadcasting."""


class LogicalNot(Elementwise, frozen=True):
    """Whether it is false."""


class Select(Elementwise, frozen=True):
    """The second input where the first is true, else the third; ``rows``: by their first axis."""

    rows: bool = False
