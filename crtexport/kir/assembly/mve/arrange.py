"""The order of an iteration's instructions, before they are given times."""

from __future__ import annotations

from crtexport.kir.assembly.mve.body import NONE, Body, MveOp
from crtexport.kir.assembly.mve.instructions import FORMS, Bank

_COLLECTING = FORMS["set_02"], FORMS["set_13"]
_LAST = 3
"""Products of an iteration between which nothing is scaled."""


def arrange(body: Body) -> None:
    """Moves what is computed from sums to where registers are free, or, as another order, to where
    it runs beside the next iteration's products."""
    _early(body)
    early = body.ops[:]
    _late(body)
    if body.ops != early:
        body.otherwise = early


def sums_of(body: Body) -> int:
    """Returns how many sums there are at once, at least."""
    last: dict[int, int] = {}
    for number, op in enumerate(body.ops):
        for arg in op.args:
            if arg != NONE and body.banks[arg] is Bank.EVEN:
                last[arg] = number
    most, alive = 0, set[int]()
    for number, op in enumerate(body.ops):
        alive -= {arg for arg in op.args if last.get(arg) == number}
        if op.dest in last:
            alive.add(op.dest)
        most = max(most, len(alive))
    return most


def _early(body: Body) -> None:
    """Moves what collects sums in vectors, and what is computed from these, behind the last sum
    that it takes, so that registers are free again."""
    moved: set[int] = set()
    for op in body.ops:
        if op.dest != NONE and (op.form in _COLLECTING or moved & {*op.args}):
            moved.add(op.dest)
    if not moved:
        return
    kept = [op for op in body.ops if op.dest not in moved]
    position = {op.dest: i for i, op in enumerate(kept) if op.dest != NONE}
    waiting: dict[int, list[MveOp]] = {}
    for op in body.ops:
        if op.dest in moved:
            at = max(position[arg] for arg in op.args if arg in position)
            position[op.dest] = at
            waiting.setdefault(at, []).append(op)
    body.ops[:] = [
        one for i, op in enumerate(kept) for one in (op, *waiting.get(i, ()))
    ]


def _late(body: Body) -> None:
    """Moves what is computed from a vector of sums that is complete just before the last sum of all
    behind that, so that it can run beside the next iteration's products."""
    products = [number for number, op in enumerate(body.ops) if _is_sum(body, op)]
    if not products:
        return
    first, last = products[-min(_LAST, len(products))], products[-1] + 1
    stay = {
        number for number, op in enumerate(body.ops[first:last], first)
        if op.form in _COLLECTING or _is_sum(body, op)
    }
    numbers = range(first, last)
    order = [*(n for n in numbers if n in stay), *(n for n in numbers if n not in stay)]
    body.ops[first:last] = [body.ops[number] for number in order]


def _is_sum(body: Body, op: MveOp) -> bool:
    return op.dest != NONE and body.banks[op.dest] is Bank.EVEN
