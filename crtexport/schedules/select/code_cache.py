"""Estimates how often a kernel's loops read their code again from flash, behind a small cache.

A loop that fits the cache is read once each time that it begins. Of one that doesn't, the lines
that were used longest ago are dropped before they are needed again: each iteration reads all of
what is directly in it, and what its inner loops read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from crtexport.support.target import Flash

if TYPE_CHECKING:
    from crtexport.schedules.select.cost_model import Machine, Work


class LoopCode(Struct, frozen=True):
    """A loop: ``turns`` each time that it begins; ``code``: work as it stands in its code, of
    branches as far as they are likely, that of the loops ``inside`` included."""

    turns: float
    code: Mapping[Work, float]
    inside: tuple[LoopCode, ...] = ()


def missed_lines(loops: Sequence[LoopCode], machine: Machine, flash: Flash) -> float:
    """Returns the lines of code that a run of ``loops`` reads from flash."""
    return sum(_missed(loop, machine, flash) for loop in loops)


def _missed(loop: LoopCode, machine: Machine, flash: Flash) -> float:
    size = _bytes(loop, machine)
    if size <= flash.code_cache:
        return size / flash.line
    direct = max(size - sum(_bytes(one, machine) for one in loop.inside), 0.0)
    return loop.turns * (direct / flash.line + missed_lines(loop.inside, machine, flash))


def _bytes(loop: LoopCode, machine: Machine) -> float:
    return machine.width * machine.instructions(loop.code)
