"""How kernels are shaped for an instruction set. Meaning never changes here, only speed and size.

:func:`forms` has what a node's kernel can look like on a target: the forms that are written for
its instructions where there are such, else the operator's plain form;
:mod:`crtexport.schedules.choice` picks one of them.
A faster form of an operator on some machine is one more module of this package.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.kernels import families, fused
from crtexport.kernels.joints import Vectors
from crtexport.kernels.registry import Context, Lowered, refusing_extremes
from crtexport.schedules import (
    dot_products,
    fpu,
    fpu_depthwise,
    generic,
    halves,
    mve,
    mve_elementwise,
    paired,
    pixel_pairs,
    planes,
    quads,
    rvv,
    rvv_handed,
    rvv_machine,
    windows,
    x86_dense,
    x86_depthwise,
)
from crtexport.schedules.candidates import Candidate, changed, single
from crtexport.schedules.reals import layer_of
from crtexport.schedules.steps import ARM_DSP, step_for
from crtexport.schedules.x86_machine import machine_of
from crtexport.target import Target

_ARM = ("thumbv7m", "thumbv7em", "thumbv8m.main")
"""Instruction sets with MLA, SMULL and LDRD."""
_FEW_REGISTERS = ("thumbv6m", "thumbv8m.base")
"""Those whose instructions take eight registers, and whose products have 32 bits."""
_COPIES = (4, 8, 1)
"""How often innermost loops may be copied on scalar machines."""
_USUAL_COPIES = {"balanced": 4, "speed": 8}


def forms(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """The forms of a node's kernel, at least one, the usual one first.

    ``optimize`` is size, balanced or speed. Raises CrtExportError, naming the rules that are
    broken, where no kernel takes the node.
    """
    plain = Candidate("plain", functools.partial(families.lower, context))
    if context.node.parts:
        return fused_forms(context, target, optimize) or [plain]
    if optimize == "size" or families.check(context):
        return [plain]
    with refusing_extremes(context):
        if not generic.vectorizes(target):
            return _scalars(context, target, optimize, plain)
        found = _vectors(context, target) or [plain]
        if not rvv_machine.has_vectors(target):
            return found
        # Compilers of C, gcc 12 for one, take such vectors apart, lane by lane.
        scalars = _scalars(context, target, optimize, plain)
        return [
            *(replace(form, objects=True) for form in found),
            *(replace(form, name=f"scalar, {form.name}", rare=True) for form in scalars),
        ]


def _scalars(
    context: Context, target: Target, optimize: str, plain: Candidate
) -> list[Candidate]:
    """The forms for machines without vectors."""
    found = _registers(context, target, optimize)
    copies = _USUAL_COPIES[optimize]
    if found:
        return _unrolled(found, copies)
    step = step_for(target)
    blocked = (
        single("blocks", dot_products.lower(context, step))
        or single("windows", windows.lower(context, step))
    )
    found = _unrolled(blocked or [plain], copies)
    for other in _COPIES:
        if other != copies:
            found += [
                replace(form, name=f"{form.name}, {other} copies")
                for form in _unrolled(blocked or [plain], other)
            ]
    return found


def fused_forms(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """The forms of a fused node: those of its first part, if the results of its usual form can be
    handed on; else none."""
    vectors = _handed(target)
    found = forms(fused.layer_of(context), target, optimize)
    usual = fused.joined(context, found[0].make(), vectors)
    if usual is None:
        return []

    def change(lowered: Lowered) -> Lowered:
        return fused.joined(context, lowered, vectors) or usual

    return changed(found, change)


def _handed(target: Target) -> Vectors | None:
    """What computes with the results of layers."""
    if mve.has_mve(target):
        return mve_elementwise.Handed()
    return rvv_handed.Handed() if rvv_machine.has_vectors(target) else None


def _vectors(context: Context, target: Target) -> list[Candidate]:
    machine = machine_of(target)
    if machine is not None:
        return single("vectors", (
            x86_dense.lower(context, machine) or x86_depthwise.lower(context, machine)
        ))
    if mve.has_mve(target):
        return mve.candidates(context, floats=mve.has_floats(target))
    if rvv_machine.has_vectors(target):
        return rvv.candidates(context, floats=rvv_machine.has_floats(target))
    return []


def _registers(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """The forms that keep sums in registers, for RISC-V and for Cortex-M from M3 on."""
    if target.triple.startswith("riscv32"):
        return (
            quads.candidates(context, optimize, quads.RISCV)
            or planes.candidates(context, planes.BYTES)
        )
    if target.triple.startswith(_FEW_REGISTERS):
        return (
            pixel_pairs.candidates(context) + quads.candidates(context, optimize, quads.ARMV6M)
            or planes.candidates(context, planes.LONE_WORDS)
        )
    if not target.triple.startswith(_ARM):
        return []
    if fpu.has_floats(target) and (layer := layer_of(context)) is not None:
        if isinstance(layer, DepthwiseConv2D):
            return single("planes", fpu_depthwise.lower(context, layer))
        return fpu.candidates(context, layer)
    dsp = step_for(target) is ARM_DSP
    sums = (
        paired.candidates(context) or halves.candidates(context, optimize) if dsp
        else quads.candidates(context, optimize)
    )
    return sums or planes.candidates(context, planes.PAIRS if dsp else planes.WORDS)


def _unrolled(found: Iterable[Candidate], copies: int) -> list[Candidate]:
    def change(lowered: Lowered) -> Lowered:
        return replace(lowered, kernel=generic.unroll_inner_loops(lowered.kernel, copies))

    return changed(found, change)
