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


def cycles(one: Decoded, before: Decoded | None, core: Core, bound: Bound) -> int:
    """Returns the cycles of an instruction behind another one, None where a branch leads to it;
    without those of a branch that is taken."""
    if core in _REFILL:
        return _small(one)
    took = _alone(one, before, core, bound)
    if before is None or bound is Bound.LOW:
        return took
    if one.accesses and one.base & before.writes and not before.accesses and (
        before.kind not in _FLOATS
    ):
        took += 1
    if before.kind in _FLOATS and before.writes & one.reads:
        took += 1
    if bound is Bound.HIGH and before.kind in _PRODUCTS and one.kind is not Kind.IT and (
        before.writes & (one.reads - one.added)
    ):
        took += 1
    return took


_FLOATS = (Kind.FLOAT, Kind.FLOAT_ACCUMULATE, Kind.FLOAT_DIVIDE, Kind.TWO_MOVES)
_PRODUCTS = (Kind.MULTIPLY, Kind.ACCUMULATE, Kind.LONG_MULTIPLY, Kind.LONG_ACCUMULATE)


def _small(one: Decoded) -> int:
    """On cores without a pipeline for memory."""
    if one.count:
        return 1 + one.count
    return 2 if one.accesses else 1


def _alone(one: Decoded, before: Decoded | None, core: Core, bound: Bound) -> int:
    if one.count:
        return 1 + one.count
    if one.accesses:
        return _access(one, before, core, bound)
    match one.kind:
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
            return _LONG[one.kind][bound] if core is Core.M3 and one.kind in _LONG else 1


def _access(one: Decoded, before: Decoded | None, core: Core, bound: Bound) -> int:
    piped = before is not None and _pipes(before, one, core, bound)
    if one.kind is Kind.STORE:
        return 2 if one.indexed and not piped else 1
    took = 2 if _waits(one, core, bound) or not piped else 1
    return took + (PC in one.base and bound is Bound.HIGH)


def _waits(one: Decoded, core: Core, bound: Bound) -> bool:
    """Returns whether nothing overlaps with a load, since it changes its base."""
    return one.kind is Kind.LOAD and one.updates and (bound is Bound.HIGH or core is Core.M3)


def _pipes(before: Decoded, one: Decoded, core: Core, bound: Bound) -> bool:
    """Returns whether a load or store overlaps with the one before."""
    if not before.single or (before.kind is Kind.STORE and bound is not Bound.LOW):
        return False
    wanted = before.writes & one.base
    if before.kind is Kind.LOAD and wanted and not (before.updates and wanted <= before.base):
        return False
    return not _waits(before, core, bound)
