"""The bytes that a cascade needs at each of its steps: a lower bound, without offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.lowering.facts import Facts
from crtexport.lowering.rows.schedule import Compute, RowSchedule, RowStep
from crtexport.plan.row_liveness import Needed, needed_rows

_Numbers = npt.NDArray[np.int64]


class LiveBytes(Struct, frozen=True):
    """``rings`` has the live bytes of each ring at each step; ``others`` the kernel's scratch at
    each step, less the bytes of its result that may lie over rows that are read for the last time.
    """

    rings: Mapping[int, _Numbers]
    others: _Numbers

    @property
    def peak(self) -> int:
        """Returns the most bytes of any step."""
        total = self.others.copy()
        for ring in self.rings.values():
            total += ring
        return int(total.max(initial=0))


def live_bytes(
    schedule: RowSchedule, row_sizes: Mapping[int, int], facts: Callable[[Compute], Facts]
) -> LiveBytes:
    """Returns the bytes that each step needs; ``facts`` are those of kernels, ``row_sizes`` bytes
    of a row of each tensor."""
    needed = needed_rows(schedule, row_sizes)
    others = np.zeros(len(schedule.steps), np.int64)
    for number, step in enumerate(schedule.steps):
        if isinstance(step.work, Compute):
            known = facts(step.work)
            others[number] = known.scratch - _shared(step, number, known, needed, row_sizes)
    rings = {tensor: one.ends - one.starts for tensor, one in needed.items()}
    return LiveBytes(rings, others)


def _shared(
    step: RowStep, number: int, facts: Facts, needed: Mapping[int, Needed],
    row_sizes: Mapping[int, int],
) -> int:
    """Returns the bytes of a step's result that may lie over rows that no later step reads."""
    if step.write.slot is None:
        return 0
    result = step.write.rows * row_sizes[step.write.tensor]
    most = 0
    for position, place in enumerate(step.reads):
        freedom = facts.forward.get((0, position))
        if place is None or place.slot is None or freedom is None:
            continue
        before, after = (needed[place.tensor].at(at) for at in (number, number + 1))
        dying = (before[1] - before[0]) - (after[1] - after[0])
        window = place.rows * row_sizes[place.tensor]
        most = max(most, min(dying, freedom.shared(window, result)))
    return most
