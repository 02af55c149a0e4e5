"""Reductions over axes."""

from __future__ import annotations

from crtexport.ir.ops.base import Op


class Mean(Op, frozen=True):
    """Arithmetic mean over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class Sum(Op, frozen=True):
    """Sum over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceMax(Op, frozen=True):
    """Largest element over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceMin(Op, frozen=True):
    """Smallest element over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceProd(Op, frozen=True):
    """Product over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceAny(Op, frozen=True):
    """1 where any element over ``axes`` (non-negative, ascending) is true, else 0."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceAll(Op, frozen=True):
    """1 where all elements over ``axes`` (non-negative, ascending) are true, else 0."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ArgMax(Op, frozen=True):
    """Index along ``axis`` (non-negative) of the first largest element, as int32 or int64."""

    axis: int


class ArgMin(Op, frozen=True):
    """Index along ``axis`` (non-negative) of the first smallest element, as int32 or int64."""

    axis: int


class CumSum(Op, frozen=True):
    """Running sum along ``axis`` (non-negative); ``exclusive`` leaves the element itself out."""

    axis: int
    exclusive: bool = False
    reverse: bool = False


class CumProd(Op, frozen=True):
    """Running product along ``axis`` (non-negative); ``exclusive``: without the element."""

    axis: int
    exclusive: bool = False
    reverse: bool = False


class TopK(Op, frozen=True):
    """The ``count`` largest elements along ``axis`` (non-negative), or smallest, with their
    indices; of equal ones the first."""

    axis: int
    count: int
    largest: bool = True
