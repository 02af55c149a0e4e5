"""Instruction set extensions that schedules are written for.

This module is imported before the schedules, which are imported only for targets that have their
instructions.
"""

from __future__ import annotations

from crtexport.support.target import USUAL_FLASH, Flash, Target

_FPU = ("+vfp4d16sp", "+fp-armv8d16sp", "+fp-armv8d16")
_RVV = {"+v", "+zve32x", "+zve32f", "+zve64x", "+zve64f", "+zve64d"}
_RVV_FLOATS = _RVV - {"+zve32x", "+zve64x"}
_RVV_LEAST_BITS = 128
"""Bits of a register for which schedules are written; in longer ones they work, too."""


def is_x86_64(target: Target) -> bool:
    """Returns whether it is an x86-64, each of which has vectors of 128 bits."""
    return target.triple.startswith("x86_64")


def has_mve(target: Target) -> bool:
    """Returns whether a Cortex-M has vectors of integers."""
    return any(feature in ("+mve", "+mve.fp") for feature in target.features)


def has_mve_floats(target: Target) -> bool:
    """Returns whether a Cortex-M has vectors of floats."""
    return "+mve.fp" in target.features


def has_dsp(target: Target) -> bool:
    """Returns whether a Cortex-M multiplies pairs of 16-bit integers."""
    return "+dsp" in target.features


def has_fpu(target: Target) -> bool:
    """Returns whether a Cortex-M multiplies floats by itself, one at a time."""
    return any(feature in _FPU for feature in target.features)


def fuses_fast(target: Target) -> bool:
    """Returns whether a multiply-add of a Cortex-M that is rounded once takes no longer than a
    multiplication and an addition: on Cortex-M4, M33 and M35P it takes three cycles instead of
    two."""
    return target.cpu not in ("cortex-m4", "cortex-m33", "cortex-m35p", "star-mc1")


def computes_floats(target: Target) -> bool:
    """Returns whether a processor has instructions for float32, of any kind; True where nothing is
    known of it, but that it isn't of 16 bits."""
    if target.triple.startswith("thumb"):
        return has_fpu(target) or has_mve_floats(target)
    if target.triple.startswith("riscv"):
        return any(feature in ("+f", "+d") for feature in target.features)
    return target.pointer_bits > 16


def has_few_registers(target: Target) -> bool:
    """Returns whether most instructions have eight registers, and products 32 bits: on Armv6-M and
    Armv8-M Baseline."""
    return target.triple.startswith(("thumbv6m", "thumbv8m.base"))


def flash_of(target: Target) -> Flash | None:
    """Returns the flash that variants for a target are chosen for: on Armv7E-M, whose unrolled
    loops are longer than the caches of most chips; None elsewhere."""
    if not target.triple.startswith("thumbv7em"):
        return None
    return target.flash or USUAL_FLASH


def has_rvv(target: Target) -> bool:
    """Returns whether a RISC-V has registers of at least 128 bits for vectors of integers."""
    features = set(target.features)
    longest = max(
        (int(name[4:-1]) for name in features if name.startswith("+zvl") and name[4:-1].isdigit()),
        default=128 if "+v" in features else 0,
    )
    return (
        target.triple.startswith("riscv") and bool(features & _RVV) and longest >= _RVV_LEAST_BITS
    )


def has_rvv_floats(target: Target) -> bool:
    """Returns whether a RISC-V has such vectors of floats."""
    return has_rvv(target) and bool(set(target.features) & _RVV_FLOATS)
