"""How kernels are shaped for an instruction set. Meaning never changes here, only speed and size.

:func:`forms` has what a node's kernel can look like on a target: the forms that are written for
its instructions where there are such, else the operator's plain form;
:mod:`crtexport.schedules.choice` picks one of them.
A faster form of an operator on some machine is one more module of this package.

Modules for an instruction set are imported by the functions at the end, which are called for
targets that have it: there are many, and an export needs those of one target.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from msgspec.structs import replace

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.kernels import families, fused
from crtexport.kernels.joints import Vectors
from crtexport.kernels.registry import Context, Lowered, refusing_extremes
from crtexport.schedules import generic, machines
from crtexport.schedules.candidates import Candidate, changed, single
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
        if not machines.has_rvv(target):
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
    blocked = _blocks(context, target) or [plain]
    found = _unrolled(blocked, copies)
    for other in _COPIES:
        if other != copies:
            found += [
                replace(form, name=f"{form.name}, {other} copies")
                for form in _unrolled(blocked, other)
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


def _vectors(context: Context, target: Target) -> list[Candidate]:
    if machines.is_x86_64(target):
        return _x86(context, target)
    if machines.has_mve(target):
        return _mve(context, target)
    return _rvv(context, target) if machines.has_rvv(target) else []


def _registers(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """The forms that keep sums in registers, for RISC-V and for Cortex-M from M0 on."""
    if target.triple.startswith("riscv32"):
        return _riscv(context, optimize)
    if target.triple.startswith(_FEW_REGISTERS):
        return _few_registers(context, optimize)
    if not target.triple.startswith(_ARM):
        return []
    if machines.has_fpu(target) and (found := _fpu(context)) is not None:
        return found
    return (_dsp if machines.has_dsp(target) else _arm)(context, optimize)


def _unrolled(found: Iterable[Candidate], copies: int) -> list[Candidate]:
    def change(lowered: Lowered) -> Lowered:
        return replace(lowered, kernel=generic.unroll_inner_loops(lowered.kernel, copies))

    return changed(found, change)


def _handed(target: Target) -> Vectors | None:
    """What computes with the results of layers."""
    if machines.has_mve(target):
        from crtexport.schedules import mve_elementwise

        return mve_elementwise.Handed()
    if machines.has_rvv(target):
        from crtexport.schedules import rvv_handed

        return rvv_handed.Handed()
    return None


def _x86(context: Context, target: Target) -> list[Candidate]:
    from crtexport.schedules import x86_dense, x86_depthwise, x86_winograd
    from crtexport.schedules.x86_machine import machine_of

    machine = machine_of(target)
    return single(
        "vectors",
        x86_winograd.lower(context, machine) or x86_dense.lower(context, machine)
        or x86_depthwise.lower(context, machine),
    )


def _mve(context: Context, target: Target) -> list[Candidate]:
    from crtexport.schedules import mve

    return mve.candidates(context, floats=machines.has_mve_floats(target))


def _rvv(context: Context, target: Target) -> list[Candidate]:
    from crtexport.schedules import rvv

    return rvv.candidates(context, floats=machines.has_rvv_floats(target))


def _riscv(context: Context, optimize: str) -> list[Candidate]:
    from crtexport.schedules import planes, quads

    return (
        quads.candidates(context, optimize, quads.RISCV)
        or planes.candidates(context, planes.BYTES)
    )


def _few_registers(context: Context, optimize: str) -> list[Candidate]:
    from crtexport.schedules import pixel_pairs, planes, quads

    return (
        pixel_pairs.candidates(context) + quads.candidates(context, optimize, quads.ARMV6M)
        or planes.candidates(context, planes.LONE_WORDS)
    )


def _arm(context: Context, optimize: str) -> list[Candidate]:
    from crtexport.schedules import planes, quads

    return (
        quads.candidates(context, optimize) or planes.candidates(context, planes.WORDS)
    )


def _dsp(context: Context, optimize: str) -> list[Candidate]:
    from crtexport.schedules import halves, paired, planes

    return (
        paired.candidates(context) or halves.candidates(context, optimize)
        or planes.candidates(context, planes.PAIRS)
    )


def _fpu(context: Context) -> list[Candidate] | None:
    """None for what is no layer of floats."""
    from crtexport.schedules.reals import layer_of

    layer = layer_of(context)
    if layer is None:
        return None
    if isinstance(layer, DepthwiseConv2D):
        from crtexport.schedules import fpu_depthwise

        return single("planes", fpu_depthwise.lower(context, layer))
    from crtexport.schedules import fpu

    return fpu.candidates(context, layer)


def _blocks(context: Context, target: Target) -> list[Candidate]:
    """The forms of layers for machines with few registers, or none that are known."""
    from crtexport.schedules import dot_products, windows
    from crtexport.schedules.steps import step_for

    step = step_for(target)
    return (
        single("blocks", dot_products.lower(context, step))
        or single("windows", windows.lower(context, step))
    )
