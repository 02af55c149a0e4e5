"""Cycles of instructions on Cortex-M0, M0+, M3 and M4, with memories without wait states; those of
M7 and M33 are in :mod:`.pipelined`.

Sources are the sections "Processor instructions" and "Load/store timings" of Arm's technical
reference manuals: DDI 0432 (M0), DDI 0484 (M0+), DDI 0337 (M3) and 100166 (M4). Where they give a
range or nothing, there are three bounds (low, mid, high): refilling the pipeline after a branch
takes 1, 2 or 3 cycles, a division 2, 7 or 12, IT 0, 1 or 1. In the high bound, loads that change
their base don't overlap with others, and an instruction waits for the result of a preceding
multiplication.
"""

from __future__ import annotations

import enum

from crtexport.firmware.thumb.instruction import PC, Decoded, OpClass


class Core(enum.Enum):
    """A processor whose cycles are known: all but those of M7 and M33 from a manual."""

    M0 = "cortex-m0"
    M0PLUS = "cortex-m0plus"
    M3 = "cortex-m3"
    M4 = "cortex-m4"
    M7 = "cortex-m7"
    M33 = "cortex-m33"


class Bound(enum.IntEnum):
    """The lower bound of cycles, the likeliest number, and the upper bound."""

    LOW = 0
    MID = 1
    HIGH = 2


_DIVISION = (2, 7, 12)
_LONG = {  # the M3's, by the values of factors
    OpClass.LONG_MULTIPLY: (3, 4, 5), OpClass.LONG_ACCUMULATE: (4, 5, 7),
    OpClass.ACCUMULATE: (2, 2, 2),
}
_REFILL = {Core.M0: 2, Core.M0PLUS: 1}
"""Additional cycles of a branch that is taken, on cores where the manual gives one number."""


def core_of(cpu: str) -> Core | None:
    """Returns the core that compilers call ``cpu``; None if its cycles aren't known."""
    return next((core for core in Core if core.value == cpu), None)


def refill(core: Core, bound: Bound) -> int:
    """Returns the additional cycles of a branch that is taken."""
    return int(bound) if core is Core.M7 else _REFILL.get(core, bound + 1)


def cycles(instruction: Decoded, previous: Decoded | None, core: Core, bound: Bound) -> int:
    """Returns the cycles of an instruction after the instruction ``previous`` (None if a branch
    leads to it), without those of a branch that is taken. ``core`` is one that a manual tells of.
    """
    if core in _REFILL:
        return _small(instruction)
    took = _alone(instruction, previous, core, bound)
    if previous is None or bound is Bound.LOW:
        return took
    if instruction.accesses and instruction.base & previous.writes and not previous.accesses and (
        previous.kind not in _FLOATS
    ):
        took += 1
    if previous.kind in _FLOATS and previous.writes & instruction.reads:
        took += 1
    if (
        bound is Bound.HIGH and previous.kind in _PRODUCTS and instruction.kind is not OpClass.IT
        and previous.writes & (instruction.reads - instruction.added)
    ):
        took += 1
    return took


_FLOATS = (OpClass.FLOAT, OpClass.FLOAT_ACCUMULATE, OpClass.FLOAT_DIVIDE, OpClass.TWO_MOVES)
_PRODUCTS = (OpClass.MULTIPLY, OpClass.ACCUMULATE, OpClass.LONG_MULTIPLY, OpClass.LONG_ACCUMULATE)


def _small(instruction: Decoded) -> int:
    """Returns the cycles on cores that don't overlap accesses to memory."""
    if instruction.count:
        return 1 + instruction.count
    return 2 if instruction.accesses else 1


def _alone(instruction: Decoded, previous: Decoded | None, core: Core, bound: Bound) -> int:
    if instruction.count:
        return 1 + instruction.count
    if instruction.accesses:
        return _access(instruction, previous, core, bound)
    match instruction.kind:
        case OpClass.TABLE_BRANCH | OpClass.TWO_MOVES:
            return 2
        case OpClass.DIVIDE:
            return _DIVISION[bound]
        case OpClass.IT:
            return min(bound, 1)
        case OpClass.FLOAT_DIVIDE:
            return 14
        case OpClass.FLOAT_ACCUMULATE:
            return 3
        case _:
            long = core is Core.M3 and instruction.kind in _LONG
            return _LONG[instruction.kind][bound] if long else 1


def _access(instruction: Decoded, previous: Decoded | None, core: Core, bound: Bound) -> int:
    piped = previous is not None and _pipes(previous, instruction, core, bound)
    if instruction.kind is OpClass.STORE:
        return 2 if instruction.indexed and not piped else 1
    took = 2 if _waits(instruction, core, bound) or not piped else 1
    return took + (PC in instruction.base and bound is Bound.HIGH)


def _waits(instruction: Decoded, core: Core, bound: Bound) -> bool:
    """Returns whether a load doesn't overlap with other instructions because it changes its base.
    """
    if instruction.kind is not OpClass.LOAD or not instruction.updates:
        return False
    return bound is Bound.HIGH or core is Core.M3


def _pipes(previous: Decoded, instruction: Decoded, core: Core, bound: Bound) -> bool:
    """Returns whether a load or store overlaps with the previous one."""
    if not previous.single or (previous.kind is OpClass.STORE and bound is not Bound.LOW):
        return False
    wanted = previous.writes & instruction.base
    updated = previous.updates and wanted <= previous.base
    if previous.kind is OpClass.LOAD and wanted and not updated:
        return False
    return not _waits(previous, core, bound)
