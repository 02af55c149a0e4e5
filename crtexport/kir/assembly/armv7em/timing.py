"""Cycles of instructions on Cortex-M3 and M4, with memories that never wait.

From "Table of processor instructions" and "Load/store timings" of Arm's technical reference manuals
(DDI 0337 of the M3, 100166 of the M4): a load takes 2 cycles, one behind another load or store 1,
unless it needs that one's result for its address; a store takes 1, products of 64 bits several on
the M3. An address that the instruction before computes is a cycle late. What depends on values is
in the middle of its range.
"""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.kir.assembly.armv7em.instructions import Instruction, Kind
from crtexport.kir.assembly.armv7em.issue import at_least
from crtexport.kir.assembly.armv7em.spellings import Features

_TAKEN = 3
"""Cycles of a branch that is taken: one and, to fetch what is there, two, in the middle."""
_DIVISION = 7
_M3 = {Kind.ACCUMULATE: 2, Kind.LONG: 4, Kind.LONG_ACCUMULATE: 5}


def taken(features: Features) -> int:
    """Returns the cycles of a branch that is taken."""
    return features.rules.taken if features.rules else _TAKEN


def in_any_order(body: Sequence[Instruction], loads: int, features: Features) -> int:
    """Returns cycles that instructions behind a branch, and some ``loads`` more, take in whichever
    order."""
    if features.rules:
        return at_least(body, loads, features.rules)
    first_load = any(one.kind is Kind.LOAD for one in body)
    return sum(least_cycles(one, features) for one in body) + first_load + loads


def least_cycles(instruction: Instruction, features: Features) -> int:
    """Returns the cycles of an instruction wherever it takes the fewest."""
    if instruction.kind is Kind.LOAD:
        return 1
    if instruction.kind is Kind.DIVIDE:
        return _DIVISION
    return instruction.count if features.dsp else _M3.get(instruction.kind, instruction.count)
