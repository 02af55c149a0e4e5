"""Cycles of instructions on Cortex-M7, which issues two at once.

No manual of Arm's says how long they take. The rules are those by which
:mod:`crtexport.kir.assembly.armv7em.dual_issue` orders instructions, and of its sources; floats,
divisions and accesses of several registers take what was measured there. Branches are predicted:
one that is taken takes 0, 1 or 2 cycles more in the three bounds. In the high bound instructions
also finish in their order, as in LLVM's model: nothing begins in a cycle behind a product.
"""

from __future__ import annotations

from crtexport.firmware.thumb.instruction import FLOAT, PC, Decoded, OpClass
from crtexport.firmware.thumb.timing import Bound
from crtexport.kir.assembly.armv7em.dual_issue import PER_CYCLE, Issue, Pipeline, Unit

_REGISTERS = FLOAT + 64
_PRODUCTS = (
    OpClass.MULTIPLY, OpClass.ACCUMULATE, OpClass.LONG_MULTIPLY, OpClass.LONG_ACCUMULATE,
    OpClass.DIVIDE,
)
_FLOATS = {OpClass.FLOAT: 3, OpClass.FLOAT_ACCUMULATE: 4, OpClass.FLOAT_DIVIDE: 14}
"""Latencies; a sum that a product is added to is wanted a cycle later."""
_DIVISION = 6


class InPairs:
    """Instructions that are executed one after the other."""

    def __init__(self, bound: Bound) -> None:
        self._pipeline = Pipeline(_REGISTERS, in_order=bound is Bound.HIGH)
        self._took = 0

    def cycles(self, one: Decoded) -> int:
        """Returns the cycles that the next instruction takes more; 0 for one that begins beside the
        instruction before."""
        advanced = next(iter(one.base & one.writes), None) if one.updates else None
        self._pipeline.begin(_issue(one), sorted(one.reads), sorted(one.writes), advanced)
        before, self._took = self._took, self._pipeline.took
        return self._took - before


def _issue(one: Decoded) -> Issue:
    unit = _unit(one)
    early = one.reads if one.shifted else one.base
    late = one.reads - one.base if one.kind is OpClass.STORE else one.added
    return Issue(unit, _latency(one, unit), _count(one), early - {PC}, late)


def _unit(one: Decoded) -> Unit:
    match one.kind:
        case OpClass.LOAD | OpClass.TABLE_BRANCH:
            return Unit.LOAD
        case OpClass.STORE:
            return Unit.STORE
        case OpClass.SHIFT:
            return Unit.SHIFT
        case OpClass.TWO_MOVES:
            return Unit.FLOAT
        case kind if kind in _PRODUCTS:
            return Unit.MULTIPLY
        case kind if kind in _FLOATS:
            return Unit.FLOAT
        case _:
            return Unit.ARITHMETIC


def _latency(one: Decoded, unit: Unit) -> int:
    if one.kind is OpClass.DIVIDE:
        return _DIVISION
    return _FLOATS.get(one.kind, 2 if unit in (Unit.LOAD, Unit.MULTIPLY) else 1)


def _count(one: Decoded) -> int:
    """Returns how many instructions could begin while this one does."""
    if one.count:
        return one.count + one.count % PER_CYCLE
    if one.kind is OpClass.FLOAT_DIVIDE:
        return PER_CYCLE * _FLOATS[one.kind]
    return PER_CYCLE if one.kind in (OpClass.TWO_MOVES, OpClass.TABLE_BRANCH) else 1
