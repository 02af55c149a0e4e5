"""Elementwise operators of the bits of whole numbers."""

from __future__ import annotations

from crtexport.ir.ops.base import Elementwise, Pairwise


class BitwiseAnd(Pairwise, frozen=True):
    """The bits that both stored numbers have, with NumPy broadcasting."""


class BitwiseOr(Pairwise, frozen=True):
    """The bits that one of two stored numbers or both have, with NumPy broadcasting."""


class BitwiseXor(Pairwise, frozen=True):
    """The bits that just one of two stored numbers has, with NumPy broadcasting."""


class ShiftLeft(Pairwise, frozen=True):
    """Bits moved up by the second input's number, with NumPy broadcasting; zeros follow."""


class ShiftRight(Pairwise, frozen=True):
    """Bits moved down by the second input's number, with NumPy broadcasting; the sign follows."""


class Bitcast(Elementwise, frozen=True):
    """The same bits as numbers of another element type of that size."""
