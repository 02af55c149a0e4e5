"""Weighs kernels that may become one function, by the cost model, against the many."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence

from crtexport.kir.analysis.kernel_merging import MergeCosts, MergedCall, MergeLevel, Weigh
from crtexport.kir.assembly.assemble import assembled, features_of
from crtexport.kir.language import Kernel
from crtexport.kir.walk import marked
from crtexport.schedules.common.target_features import has_few_registers, is_x86_64
from crtexport.schedules.select.choose import BALANCE, WORTH, Costs
from crtexport.schedules.select.cost_model import machine_for
from crtexport.support.target import Target

DOUBT = 2
"""The factor by which parameters in innermost loops may cost more than estimated, at worst."""
ASSEMBLED_DOUBT = 4
"""The same where crtexport itself gives the loop registers: there are none left for parameters."""
SPILLED = 1.25
"""By how much parameters make a kernel slower where there are few registers: hot loops need all of
them. Of two convolutions on a Cortex-M0 it was 1.5."""
RATES = {
    "size": 0, "speed": 128 * BALANCE, **{level: DOUBT * worth for level, worth in WORTH.items()}
}
"""Bytes of code that an estimate of one percent of a network's instructions is worth."""
PASSING = 3
"""Instructions that it takes to pass a parameter."""
PASSED = 8
"""Bytes of code for that in a call."""
TAKEN = 2
"""And in the kernel."""


def weighing(target: Target, optimize: str, costs: Costs | None = None) -> Weigh:
    """Returns a function that weighs how much code and time it takes to merge kernels; ``costs``
    are those that are known.

    For machines that the cost model doesn't know, another stands in: what addresses and innermost
    loops are made of stays, unless only size counts. That of x86-64 is good enough for them, too.
    """
    cost_of = (costs or Costs(target)).of
    ordered = features_of(target) is not None
    levels: tuple[MergeLevel, ...] = (MergeLevel.COMPUTED,)
    if is_x86_64(target):
        levels = tuple(MergeLevel)
    elif machine_for(target) is not None or optimize == "size":
        levels = (MergeLevel.COMPUTED, MergeLevel.ANY)

    def weigh(kernels: Sequence[Kernel], runs: Sequence[int]) -> MergeCosts:
        @functools.cache
        def rate() -> float:
            total = math.fsum(
                times * cost_of(kernel).instructions
                for kernel, times in zip(kernels, runs, strict=True)
            )
            return 100 * RATES[optimize] / max(total, 1)

        @functools.cache
        def users() -> Counter[bytes]:
            distinct = {id(kernel): kernel for kernel in kernels}.values()
            return Counter(one for kernel in distinct for one in _functions(kernel, target))

        def call(sharing: MergedCall, calls: int, runs: int) -> float:
            doubt = ASSEMBLED_DOUBT / DOUBT if ordered and any(marked(sharing.kernel.body)) else 1
            names = [param.name for param in sharing.kernel.params]
            values = dict(zip(names, sharing.values, strict=True))
            instructions: float = cost_of(sharing.kernel, values).instructions
            if names and has_few_registers(target):
                instructions *= SPILLED
            instructions += PASSING * len(names)
            return doubt * rate() * instructions * runs + PASSED * len(names) * calls

        def code(kernel: Kernel) -> float:
            # A function that several kernels call is there once, whether they are merged or not.
            there = sum(len(one) for one in _functions(kernel, target) if users()[one] > 1)
            return cost_of(kernel).code + TAKEN * len(kernel.params) - there

        return MergeCosts(call, code, levels)

    return weigh


def _functions(kernel: Kernel, target: Target) -> set[bytes]:
    """Returns the code of the functions that crtexport itself makes of loops of ``kernel``."""
    functions = (assembled(loop, kernel, target) for loop in marked(kernel.body))
    return {function.code for function in functions if function is not None}
