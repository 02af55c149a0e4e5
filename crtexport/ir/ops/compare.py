"""Elementwise operators on or to truth values, which are stored as bytes 0 and 1."""

from __future__ import annotations

from crtexport.ir.ops.base import Comparison, Elementwise


class Equal(Comparison, frozen=True):
    """1 where two real numbers are equal, else 0, with NumPy broadcasting."""


class NotEqual(Comparison, frozen=True):
    """1 where two real numbers differ, else 0, with NumPy broadcasting."""


class Greater(Comparison, frozen=True):
    """1 where the first real number is the larger one, else 0, with NumPy broadcasting."""


class GreaterEqual(Comparison, frozen=True):
    """1 where the first real number is not the smaller one, else 0, with NumPy broadcasting."""


class Less(Comparison, frozen=True):
    """1 where the first real number is the smaller one, else 0, with NumPy broadcasting."""


class LessEqual(Comparison, frozen=True):
    """1 where the first real number is not the larger one, else 0, with NumPy broadcasting."""


class LogicalAnd(Elementwise, frozen=True):
    """1 where both inputs are true, else 0, with NumPy broadcasting."""


class LogicalOr(Elementwise, frozen=True):
    """1 where one of two inputs or both are true, else 0, with NumPy broadcasting."""


class LogicalNot(Elementwise, frozen=True):
    """1 where the input is false, else 0."""


class Select(Elementwise, frozen=True):
    """The second input where the first is true, else the third; ``rows``: by their first axis."""

    rows: bool = False
