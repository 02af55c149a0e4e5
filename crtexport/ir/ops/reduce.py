"""Operators that fold axes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mean:
    """Arithmetic mean over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False
