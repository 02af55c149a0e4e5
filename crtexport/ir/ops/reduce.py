"""Reductions over axes."""

from __future__ import annotations

from crtexport.ir.ops.base import Extreme, Op, Reducer, Running


class Mean(Reducer, frozen=True):
    """Arithmetic mean over ``axes`` (non-negative, ascending)."""


class Sum(Reducer, frozen=True):
    """Sum over ``axes`` (non-negative, ascending)."""


class ReduceMax(Reducer, frozen=True):
    """Largest element over ``axes`` (non-negative, ascending)."""


class ReduceMin(Reducer, frozen=True):
    """Smallest element over ``axes`` (non-negative, ascending)."""


class ReduceProd(Reducer, frozen=True):
    """Product over ``axes`` (non-negative, ascending)."""


class ReduceAny(Reducer, frozen=True):
    """1 where any element over ``axes`` (non-negative, ascending) is true, else 0."""


class ReduceAll(Reducer, frozen=True):
    """1 where all elements over ``axes`` (non-negative, ascending) are true, else 0."""


class ArgMax(Extreme, frozen=True):
    """Index along ``axis`` (non-negative) of the first largest element, as int32 or int64."""


class ArgMin(Extreme, frozen=True):
    """Index along ``axis`` (non-negative) of the first smallest element, as int32 or int64."""


class CumSum(Running, frozen=True):
    """Running sum along ``axis`` (non-negative); ``exclusive`` leaves the element itself out."""


class CumProd(Running, frozen=True):
    """Running product along ``axis`` (non-negative); ``exclusive``: without the element."""


class TopK(Op, frozen=True):
    """The ``count`` largest elements along ``axis`` (non-negative), or smallest, with their
    indices, as int32 or int64; of equal ones the first."""

    axis: int
    count: int
    largest: bool = True
