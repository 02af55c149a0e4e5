"""How kernels are shaped for an instruction set. Meaning never changes here, only speed and size.

:func:`lower` makes the kernel of a node for a target: a form written for its instructions where
there is one, else the operator's plain form. A faster form of an operator on some machine is one
more module of this package.
"""

from __future__ import annotations

from dataclasses import replace

from crtexport.kernels import families
from crtexport.kernels.registry import Context, Lowered, refusing_extremes
from crtexport.schedules import (
    dot_products,
    generic,
    mve,
    paired,
    planes,
    quads,
    windows,
    x86_dense,
    x86_depthwise,
)
from crtexport.schedules.steps import ARM_DSP, step_for
from crtexport.schedules.x86_machine import machine_of
from crtexport.target import Target

_ARM = ("thumbv7m", "thumbv7em", "thumbv8m.main")
"""Instruction sets with MLA, SMULL and LDRD."""


def _arm(context: Context, target: Target, optimize: str) -> Lowered | None:
    """The forms for Cortex-M from M3 on."""
    if not target.triple.startswith(_ARM):
        return None
    if step_for(target) is ARM_DSP:
        return paired.lower(context, optimize) or planes.lower(context)
    return quads.lower(context, optimize) or planes.lower(context, dsp=False)


def lower(context: Context, target: Target, optimize: str) -> Lowered:
    """The kernel of a node on ``target``; ``optimize`` is size, balanced or speed."""
    if optimize == "size" or families.check(context):
        return families.lower(context)  # which names the rules that are broken
    if generic.vectorizes(target):
        vectors, machine = None, machine_of(target)
        with refusing_extremes(context):
            if machine is not None:
                vectors = (
                    x86_dense.lower(context, machine) or x86_depthwise.lower(context, machine)
                )
            elif mve.has_mve(target):
                vectors = mve.lower(context, floats=mve.has_floats(target))
        return vectors or families.lower(context)
    step = step_for(target)
    with refusing_extremes(context):
        blocked = (
            _arm(context, target, optimize)
            or dot_products.lower(context, step) or windows.lower(context, step)
        )
    lowered = blocked or families.lower(context)
    factor = 4 if optimize == "balanced" else 8
    return replace(lowered, kernel=generic.unroll_inner_loops(lowered.kernel, factor))
