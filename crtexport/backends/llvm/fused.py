"""Fused multiply-add of floats for processors without an instruction for it.

LLVM would call ``fmaf`` of the C library, which firmware may not have.
"""

from __future__ import annotations

from crtexport.backends.llvm.types import ModuleText
from crtexport.support.target import Target

_INSTRUCTIONS = frozenset({
    "+fma", "+f", "+vfp4", "+vfp4sp", "+vfp4d16", "+vfp4d16sp", "+fp-armv8", "+fp-armv8sp",
    "+fp-armv8d16", "+fp-armv8d16sp", "+mve.fp",
})
_CPUS = frozenset({"x86-64-v3", "x86-64-v4"})

_FUSED = """\
define internal float @crt_fused(float %a, float %b, float %c) #0 section ".text.crt_fused" {
  %wide_a = fpext float %a to double
  %wide_b = fpext float %b to double
  %wide_c = fpext float %c to double
  %product = fmul double %wide_a, %wide_b
  %total = fadd double %product, %wide_c
  %back = fsub double %total, %product
  %rest = fsub double %total, %back
  %lost_product = fsub double %product, %rest
  %lost_c = fsub double %wide_c, %back
  %error = fadd double %lost_product, %lost_c
  %bits = bitcast double %total to i64
  %last = and i64 %bits, 1
  %even = icmp eq i64 %last, 0
  %inexact = fcmp one double %error, 0.0
  %change = and i1 %even, %inexact
  %more = fcmp ogt double %error, 0.0
  %positive = fcmp ogt double %total, 0.0
  %away = icmp eq i1 %more, %positive
  %step = select i1 %away, i64 1, i64 -1
  %moved = add i64 %bits, %step
  %odd = select i1 %change, i64 %moved, i64 %bits
  %real = bitcast i64 %odd to double
  %result = fptrunc double %real to float
  ret float %result
}
"""
"""The product is exact in double; the sum is first rounded to odd, so that rounding it to float
gives what one rounding would."""


def has_fused(target: Target) -> bool:
    """Returns whether the processor is known to have a fused multiply-add of floats."""
    return target.float_abi != "soft" and (
        target.triple.startswith(("aarch64", "arm64")) or target.cpu in _CPUS
        or not _INSTRUCTIONS.isdisjoint(target.features)
    )


def fused(module: ModuleText) -> str:
    """Returns the name of a function ``float (float, float, float)``, added to ``module``."""
    module.helpers.setdefault("crt_fused", _FUSED)
    return "crt_fused"
