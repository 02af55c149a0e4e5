"""Cycles of instructions on Cortex-M7 and M33.

No manual of Arm's says how long they take. The rules are those by which
:mod:`crtexport.kir.assembly.armv7em.issue` orders instructions, and of its sources; floats,
divisions and accesses of several registers take what was measured of the M7. It predicts branches:
one that is taken takes 0, 1 or 2 cycles more in the three bounds, as against 1, 2 or 3. In the high
bound instructions of the M7 also finish in their order, as in LLVM's model: nothing begins in a
cycle behind a product.
"""

from __future__ import annotations

from crtexport.firmware.thumb.instruction import FLOAT, PC, Decoded, OpClass
from crtexport.firmware.thumb.timing import Bound
from crtexport.kir.assembly.armv7em.issue import (
    Issue,
    IssueRules,
    Operands,
    Pipeline,
    Unit,
    issue,
    latency,
)

_REGISTERS = FLOAT + 64
_PRODUCTS = (
    OpClass.MULTIPLY, OpClass.ACCUMULATE, OpClass.LONG_MULTIPLY, OpClass.LONG_ACCUMULATE,
    OpClass.DIVIDE,
)
_FLOATS = {OpClass.FLOAT: 3, OpClass.FLOAT_ACCUMULATE: 4, OpClass.FLOAT_DIVIDE: 14}
"""Latencies; a sum that a product is added to is wanted a cycle later."""


class Pipelined:
    """Instructions that are executed one after the other on a core that has ``rules``."""

    def __init__(self, rules: IssueRules, bound: Bound) -> None:
        self._rules = rules
        self._pipeline = Pipeline(_REGISTERS, rules, in_order=bound is Bound.HIGH)
        self._took = 0

    def cycles(self, one: Decoded) -> int:
        """Returns the cycles that the next instruction takes more; 0 for one that begins beside the
        instruction before."""
        advanced = next(iter(one.base & one.writes), None) if one.updates else None
        self._pipeline.begin(_issue(one, self._rules), one.reads, one.writes, advanced)
        before, self._took = self._took, self._pipeline.took
        return self._took - before


def _issue(one: Decoded, rules: IssueRules) -> Issue:
    unit, slow = _unit(one), one.saturates or (one.slow and rules.slow_shifts)
    took = _FLOATS.get(one.kind) or latency(unit, divides=one.kind is OpClass.DIVIDE, slow=slow)
    operands = Operands(one.reads, one.base - {PC}, one.added, one.shifted)
    return issue(unit, took, _count(one, rules.per_cycle), operands, rules)


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


def _count(one: Decoded, per_cycle: int) -> int:
    """Returns how many instructions could begin while this one does, of ``per_cycle`` in each: as
    many words are accessed."""
    if one.count:
        return per_cycle * -(-one.count // per_cycle)
    if one.kind is OpClass.FLOAT_DIVIDE:
        return per_cycle * _FLOATS[one.kind]
    return 2 if one.kind in (OpClass.TWO_MOVES, OpClass.TABLE_BRANCH) else 1
