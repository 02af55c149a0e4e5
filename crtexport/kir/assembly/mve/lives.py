"""Values that share a register because an instruction changes it, and how many are alive."""

from __future__ import annotations

from crtexport.kir.assembly.mve.body import NONE, Body
from crtexport.kir.assembly.mve.instructions import VectorAccess


def roots_of(body: Body) -> dict[int, int]:
    """Returns the first value that the register of each one holds: tied destinations are what they
    were. Loaded values have none but those that are changed."""
    roots = {value: value for value in body.consumed}
    for op in body.ops:
        if op.dest == NONE or isinstance(op.form, VectorAccess):
            continue
        tied = op.form.tied and op.args[0] != NONE
        roots[op.dest] = roots.get(op.args[0], op.args[0]) if tied else op.dest
    return roots


class LiveCounts:
    """The number of values that are alive at each time of an interval: bits of ``levels[n]`` are
    the times with more than n."""

    def __init__(self, interval: int, most: int) -> None:
        self.interval, self.levels = interval, [0] * most
        self._everything = (1 << interval) - 1

    def add(self, begin: int, end: int) -> bool:
        """Adds a value that lives from ``begin`` to ``end``, or so much to its life; returns
        whether there is room for it."""
        length = end - begin
        if length <= 0:
            return True
        if length > self.interval:
            return False
        mask = ((1 << length) - 1) << begin % self.interval
        carry = mask & self._everything | mask >> self.interval
        for n, level in enumerate(self.levels):
            self.levels[n] |= carry
            carry &= level
            if not carry:
                return True
        return False
