"""Operators that fold axes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mean:
    """Arithmetic mean over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


@dataclass(frozen=True)
class Sum:
    """Sum over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


@dataclass(frozen=True)
class ReduceMax:
    """Largest element over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


@dataclass(frozen=True)
class ReduceMin:
    """Smallest element over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


@dataclass(frozen=True)
class ReduceProd:
    """Product over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


@dataclass(frozen=True)
class ReduceAny:
    """Whether any element over ``axes`` (non-negative, ascending) is true."""

    axes: tuple[int, ...]
    keep_dims: bool = False


@dataclass(frozen=True)
class ReduceAll:
    """Whether all elements over ``axes`` (non-negative, ascending) are true."""

    axes: tuple[int, ...]
    keep_dims: bool = False


@dataclass(frozen=True)
class ArgMax:
    """Where along ``axis`` (non-negative) the first largest element is, as int32 or int64."""

    axis: int


@dataclass(frozen=True)
class ArgMin:
    """Where along ``axis`` (non-negative) the first smallest element is, as int32 or int64."""

    axis: int


@dataclass(frozen=True)
class CumSum:
    """Running sum along ``axis`` (non-negative); ``exclusive`` leaves the element itself out."""

    axis: int
    exclusive: bool = False
    reverse: bool = False
