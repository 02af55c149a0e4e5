"""Estimates how often a kernel's loops read their code again from flash, behind a small cache.

A loop that fits the cache is read once each time that it begins. Of one that doesn't, the lines
that were used longest ago are dropped before they are needed again: each iteration reads all of
what is directly in it, and what its inner loops read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from crtexport.support.target import Flash

Work = TypeVar("Work")
CodeBytes: TypeAlias = Callable[[Mapping[Work, float]], float]
"""A function from work, the number of operations of each kind, to the bytes of its code."""


class LoopCode(Struct, Generic[Work], frozen=True):
    """A loop, with ``turns`` iterations each time that it begins. ``code`` is the work that stands
    in its code, including that of the loops ``inside``; that of branches is weighted with their
    likelihood."""

    turns: float
    code: Mapping[Work, float]
    inside: tuple[LoopCode[Work], ...] = ()


def missed_lines(
    loops: Sequence[LoopCode[Work]], code_bytes: CodeBytes[Work], flash: Flash
) -> float:
    """Returns the lines of code that a run of ``loops`` reads from flash."""
    return math.fsum(_missed(loop, code_bytes, flash) for loop in loops)


def _missed(loop: LoopCode[Work], code_bytes: CodeBytes[Work], flash: Flash) -> float:
    size = code_bytes(loop.code)
    if size <= flash.code_cache - flash.line:  # it may begin within a line
        return size / flash.line
    direct = max(size - math.fsum(code_bytes(inner.code) for inner in loop.inside), 0.0)
    return loop.turns * (direct / flash.line + missed_lines(loop.inside, code_bytes, flash))
