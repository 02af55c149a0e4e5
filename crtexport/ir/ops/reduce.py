"""Operators that fold axes."""

from __future__ import annotations

from msgspec import Struct


class Mean(Struct, frozen=True):
    """Arithmetic mean over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class Sum(Struct, frozen=True):
    """Sum over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceMax(Struct, frozen=True):
    """Largest element over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceMin(Struct, frozen=True):
    """Smallest element over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceProd(Struct, frozen=True):
    """Product over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceAny(Struct, frozen=True):
    """Whether any element over ``axes`` (non-negative, ascending) is true."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ReduceAll(Struct, frozen=True):
    """Whether all elements over ``axes`` (non-negative, ascending) are true."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class ArgMax(Struct, frozen=True):
    """Where along ``axis`` (non-negative) the first largest element is, as int32 or int64."""

    axis: int


class ArgMin(Struct, frozen=True):
    """Where along ``axis`` (non-negative) the first smallest element is, as int32 or int64."""

    axis: int


class CumSum(Struct, frozen=True):
    """Running sum along ``axis`` (non-negative); ``exclusive`` leaves the element itself out."""

    axis: int
    exclusive: bool = False
    reverse: bool = False
