"""The part of the iterations in which a condition on loops' variables holds."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping

from crtexport.kir.language import Compare, CompareOp, Expr, Var
from crtexport.kir.linear_form import linear_form

_MOST = 4096
"""Most iterations of loops that are looked at."""
_COMPARE = {
    CompareOp.EQ: operator.eq, CompareOp.NE: operator.ne, CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le, CompareOp.GT: operator.gt, CompareOp.GE: operator.ge,
}


def likelihood(
    condition: Expr, extents: Mapping[str, int], values: Mapping[str, Expr]
) -> float | None:
    """Returns the part of the iterations in which a condition holds; None where that isn't known.

    ``extents``: how often the loops around it run, by their variables; ``values``: those of
    variables that are made of these.
    """
    if not isinstance(condition, Compare):
        return None
    terms: dict[str, int] = {}
    constant = 0
    for side, sign in ((condition.a, 1), (condition.b, -1)):
        added = _add(terms, side, sign, extents, values)
        if added is None:
            return None
        constant += added
    counted = [name for name, factor in terms.items() if factor]
    iterations = 1
    for name in counted:
        iterations *= extents[name]
    if not 0 < iterations <= _MOST:
        return None
    holds = _COMPARE[condition.op]
    found = [
        bool(holds(constant + sum(terms[n] * i for n, i in zip(counted, at, strict=True)), 0))
        for at in itertools.product(*(range(extents[name]) for name in counted))
    ]
    return sum(found) / iterations


def _add(
    terms: dict[str, int], expr: Expr, factor: int, extents: Mapping[str, int],
    values: Mapping[str, Expr],
) -> int | None:
    """Adds the variables of an expression to ``terms``; returns its constant, None where other
    things are in it."""
    parts, constant = linear_form(expr)
    total = factor * constant
    for part, times in parts:
        if not isinstance(part, Var):
            return None
        if part.name in extents:
            terms[part.name] = terms.get(part.name, 0) + factor * times
        elif part.name in values:
            added = _add(terms, values[part.name], factor * times, extents, values)
            if added is None:
                return None
            total += added
        else:
            return None
    return total
