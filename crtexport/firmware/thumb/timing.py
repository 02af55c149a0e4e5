"""Cycles of instructions on Cortex-M0, M0+, M3 and M4, with memories that never wait.

After "Table of processor instructions" and "Load/store timings" of Arm's technical reference
manuals: DDI 0432 (M0), DDI 0484 (M0+), DDI 0337 (M3) and 100166 (M4). What they leave open has
bounds: what a branch takes to fill the pipeline (1, 2, 3), what a division takes (2, 7, 12), what
IT takes (0, 1, 1), whether a load that changes its base is like any other, and whether a result of
a product is there for the next instruction.
"""

from __future__ import annotations

import enum

from crtexport.firmware.thumb.instruction import PC, Decoded, Kind


class Core(enum.Enum):
    """A processor whose times are documented."""

    M0 = "cortex-m0"
    M0PLUS = "cortex-m0plus"
    M3 = "cortex-m3"
    M4 = "cortex-m4"


class Bound(enum.IntEnum):
    """The least cycles, those that are likeliest, and the most."""

    LOW = 0
    MID = 1
    HIGH = 2


_DIVISION = (2, 7, 12)
_LONG = {  # the M3's, by the values of factors
    Kind.LONG_MULTIPLY: (3, 4, 5), Kind.LONG_ACCUMULATE: (4, 5, 7), Kind.ACCUMULATE: (2, 2, 2),
}
_REFILL = {Core.M0: 2, Core.M0PLUS: 1}
"""Cycles that a branch takes more when it is taken."""


def core_of(cpu: str) -> Core | None:
    """Returns the core of that name, None where its times aren't documented."""
    return next((core for core in Core if core.value == cpu), None)


def refill(core: Core, bound: Bound) -> int:
    """Returns what a branch takes more when it is taken."""
    return _REFILL.get(core, bound + 1)


def cycles(instruction: Decoded, previous: Decoded | None, core: Core, bound: Bound) -> int:
    """Returns the cycles of an instruction behind another one, None where a branch leads to it;
    without those of a branch that is taken."""
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
    if bound is Bound.HIGH and previous.kind in _PRODUCTS and instruction.kind is not Kind.IT and (
        previous.writes & (instruction.reads - instruction.added)
    ):
        took += 1
    return took


_FLOATS = (Kind.FLOAT, Kind.FLOAT_ACCUMULATE, Kind.FLOAT_DIVIDE, Kind.TWO_MOVES)
_PRODUCTS = (Kind.MULTIPLY, Kind.ACCUMULATE, Kind.LONG_MULTIPLY, Kind.LONG_ACCUMULATE)


def _small(instruction: Decoded) -> int:
    """On cores without a pipeline for memory."""
    if instruction.count:
        return 1 + instruction.count
    return 2 if instruction.accesses else 1


def _alone(instruction: Decoded, previous: Decoded | None, core: Core, bound: Bound) -> int:
    if instruction.count:
        return 1 + instruction.count
    if instruction.accesses:
        return _access(instruction, previous, core, bound)
    match instruction.kind:
        case Kind.TABLE_BRANCH | Kind.TWO_MOVES:
            return 2
        case Kind.DIVIDE:
            return _DIVISION[bound]
        case Kind.IT:
            return min(bound, 1)
        case Kind.FLOAT_DIVIDE:
            return 14
        case Kind.FLOAT_ACCUMULATE:
            return 3
        case _:
            long = core is Core.M3 and instruction.kind in _LONG
            return _LONG[instruction.kind][bound] if long else 1


def _access(instruction: Decoded, previous: Decoded | None, core: Core, bound: Bound) -> int:
    piped = previous is not None and _pipes(previous, instruction, core, bound)
    if instruction.kind is Kind.STORE:
        return 2 if instruction.indexed and not piped else 1
    took = 2 if _waits(instruction, core, bound) or not piped else 1
    return took + (PC in instruction.base and bound is Bound.HIGH)


def _waits(instruction: Decoded, core: Core, bound: Bound) -> bool:
    """Returns whether nothing overlaps with a load, since it changes its base."""
    if instruction.kind is not Kind.LOAD or not instruction.updates:
        return False
    return bound is Bound.HIGH or core is Core.M3


def _pipes(previous: Decoded, instruction: Decoded, core: Core, bound: Bound) -> bool:
    """Returns whether a load or store overlaps with the one before."""
    if not previous.single or (previous.kind is Kind.STORE and bound is not Bound.LOW):
        return False
    wanted = previous.writes & instruction.base
    if previous.kind is Kind.LOAD and wanted and not (previous.updates and wanted <= previous.base):
        return False
    return not _waits(previous, core, bound)
