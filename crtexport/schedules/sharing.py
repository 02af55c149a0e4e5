"""Which kernels become one function, by what the cost model says of the one and of the many."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from crtexport.kernels.ir import Kernel
from crtexport.kernels.share import Freedom, Sharing, Weigh, Worth
from crtexport.schedules.choice import BALANCE
from crtexport.schedules.cost import CORTEX_M3, Cost, estimate, extents, machine_for
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


def weighing(target: Target, optimize: str) -> Weigh:
    """What says how much code and time it takes to share kernels.

    For machines that the cost model doesn't know, one that it knows stands in: what addresses and
    innermost loops are made of stays, unless only size counts.
    """
    measured = machine_for(target)
    machine = measured or CORTEX_M3
    anything = measured is not None or optimize == "size"
    freedoms = (Freedom.COMPUTED, Freedom.ANY) if anything else (Freedom.COMPUTED,)

    def weigh(kernels: Sequence[Kernel]) -> Worth:
        # A kernel's identity is found faster than it, and only extents change what it costs.
        known: dict[tuple[int, tuple[int, ...]], tuple[Kernel, Cost]] = {}

        def cost_of(kernel: Kernel, values: Mapping[str, int] = MappingProxyType({})) -> Cost:
            key = id(kernel), tuple(values[name] for name in values and extents(kernel))
            if key not in known:
                known[key] = kernel, estimate(kernel, machine, values)
            return known[key][1]

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
