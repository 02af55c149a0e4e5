"""Which kernels become one function, by what the cost model says of the one and of the many."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from crtexport.kernels.ir import Kernel
from crtexport.kernels.share import Freedom, Sharing, Weigh, Worth
from crtexport.schedules.choice import BALANCE, Costs
from crtexport.schedules.cost import machine_for
from crtexport.schedules.machines import is_x86_64
from crtexport.target import Target

DOUBT = 2
"""How many times what is estimated parameters may cost in innermost loops, at worst."""
RATES = {"size": 0, "balanced": DOUBT * BALANCE, "speed": 128 * BALANCE}
"""Bytes of code that an estimate of one percent of a network's instructions is worth."""
PASSING = 3
"""Instructions that it takes to pass a parameter."""
PASSED = 8
"""Bytes of code for that in a call."""
TAKEN = 2
"""And in the kernel."""


def weighing(target: Target, optimize: str, costs: Costs | None = None) -> Weigh:
    """What says how much code and time it takes to share kernels; ``costs`` are those that are
    known.

    For machines that the cost model doesn't know, another stands in: what addresses and innermost
    loops are made of stays, unless only size counts. That of x86-64 is good enough for them, too.
    """
    cost_of = (costs or Costs(target)).of
    freedoms: tuple[Freedom, ...] = (Freedom.COMPUTED,)
    if is_x86_64(target):
        freedoms = tuple(Freedom)
    elif machine_for(target) is not None or optimize == "size":
        freedoms = (Freedom.COMPUTED, Freedom.ANY)

    def weigh(kernels: Sequence[Kernel]) -> Worth:
        @functools.cache
        def rate() -> float:
            total = sum(cost_of(kernel).instructions for kernel in kernels)
            return 100 * RATES[optimize] / max(total, 1)

        def call(sharing: Sharing) -> float:
            names = [param.name for param in sharing.kernel.params]
            values = dict(zip(names, sharing.values, strict=True))
            passed = PASSING * len(names)
            instructions = cost_of(sharing.kernel, values).instructions + passed
            return rate() * instructions + PASSED * len(names)

        def code(kernel: Kernel) -> float:
            return cost_of(kernel).code + TAKEN * len(kernel.params)

        return Worth(call, code, freedoms)

    return weigh
