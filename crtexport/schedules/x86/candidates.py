"""Kernels for x86-64 processors."""

from __future__ import annotations

from crtexport.lowering.registry import Context
from crtexport.schedules.common.candidates import Candidate, single
from crtexport.schedules.x86 import dense, depthwise, elementwise, pool, winograd
from crtexport.schedules.x86.machine import machine_of
from crtexport.support.target import Target


def candidates(context: Context, target: Target) -> list[Candidate]:
    """Returns a list with the variant in vectors of a node that keeps its operator's rules; an
    empty one where there is none."""
    machine = machine_of(target)
    schedules = winograd, dense, depthwise, elementwise, pool
    found = (schedule.lower(context, machine) for schedule in schedules)
    return single("vectors", next((lowered for lowered in found if lowered is not None), None))


def vector_ops() -> None:
    """Returns None: the results of layers are stored one by one."""
