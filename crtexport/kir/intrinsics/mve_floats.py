"""Instructions of MVE on vectors of floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.fma import where_missing
from crtexport.kir.intrinsics.mve_base import V32, each_lane, intrinsic
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import fused_multiply_add

_FV = Scalar.F32X4
_FLOAT_HELPERS = "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)"


def _float(
    name: str, meaning: str, params: tuple[Scalar, ...], evaluate: Callable[..., object],
    arm: str, lane: str, llvm: str, declare: str = "", fused: bool = False,
    result: Scalar = _FV,
) -> Intrinsic:
    """Returns an operation on vectors of floats; ``fused``: its portable form uses
    ``crt_fused``."""
    made = intrinsic(
        name, meaning, params, result, evaluate, arm, each_lane(result, lane), llvm, declare
    )
    helper = made.c_helper.replace("defined(__ARM_FEATURE_MVE)", _FLOAT_HELPERS)
    guard = where_missing(_FLOAT_HELPERS) if fused else ""
    return replace(made, c_helper=guard + helper)


def _lanes_of(function: Callable[..., float]) -> Callable[..., tuple[np.float32, ...]]:
    def evaluate(*vectors: tuple[np.float32, ...]) -> tuple[np.float32, ...]:
        return tuple(np.float32(function(*lanes)) for lanes in zip(*vectors, strict=True))

    return evaluate


def _choice(op: str) -> Intrinsic:
    """MIN and MAX as the Kernel IR has them: NaN stays where it is."""
    name = f"@crt.mve.{op}.f32"
    compared = ("b", "a") if op == "min" else ("a", "b")

    def choose(a: float, b: float) -> float:
        return b if (b < a if op == "min" else a < b) else a

    return _float(
        f"{op}_f32", f"b where {compared[0]} is smaller than {compared[1]}, else a.", (_FV, _FV),
        _lanes_of(choose), f"vpselq_f32(b, a, vcmpltq_f32({compared[0]}, {compared[1]}))",
        f"({compared[0]}[i] < {compared[1]}[i]) ? b[i] : a[i]",
        f"call <4 x float> {name}(<4 x float> {{0}}, <4 x float> {{1}})",
        f"define internal <4 x float> {name}(<4 x float> %a, <4 x float> %b) alwaysinline nounwind"
        f" {{ %c = fcmp olt <4 x float> %{compared[0]}, %{compared[1]}"
        " %r = select <4 x i1> %c, <4 x float> %b, <4 x float> %a ret <4 x float> %r }",
    )


_FMA = "declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)"
_DUP = (
    "define internal <4 x float> @crt.mve.dup.f32(float %x) alwaysinline nounwind {"
    " %v = insertelement <4 x float> poison, float %x, i32 0"
    " %r = shufflevector <4 x float> %v, <4 x float> poison, <4 x i32> zeroinitializer"
    " ret <4 x float> %r }"
)
FLOATS = (
    _float(
        "dup_f32", "a in every lane.", (Scalar.F32,), lambda a: (np.float32(a),) * 4,
        "vdupq_n_f32(a)", "a", "call <4 x float> @crt.mve.dup.f32(float {0})", _DUP,
    ),
    _float(
        "fma_f32", "a + the products of the lanes, rounded once.", (_FV, _FV, _FV),
        _lanes_of(lambda a, b, c: fused_multiply_add(b, c, a)), "vfmaq_f32(a, b, c)",
        "crt_fused(b[i], c[i], a[i])",
        "call <4 x float> @llvm.fma.v4f32(<4 x float> {1}, <4 x float> {2}, <4 x float> {0})",
        _FMA, fused=True,
    ),
    _float(
        "fma_n_f32", "a + the lanes of b times c, rounded once.", (_FV, _FV, Scalar.F32),
        lambda a, b, c: tuple(
            np.float32(fused_multiply_add(y, c, x)) for x, y in zip(a, b, strict=True)
        ),
        "vfmaq_n_f32(a, b, c)", "crt_fused(b[i], c, a[i])",
        "call <4 x float> @crt.mve.fma.n.f32(<4 x float> {0}, <4 x float> {1}, float {2})",
        f"{_FMA}\n"
        "define internal <4 x float> @crt.mve.fma.n.f32(<4 x float> %a, <4 x float> %b, float %x)"
        " alwaysinline nounwind {"
        " %v = insertelement <4 x float> poison, float %x, i32 0"
        " %s = shufflevector <4 x float> %v, <4 x float> poison, <4 x i32> zeroinitializer"
        " %r = call <4 x float> @llvm.fma.v4f32(<4 x float> %b, <4 x float> %s, <4 x float> %a)"
        " ret <4 x float> %r }",
        fused=True,
    ),
    _float(
        "from_s32", "The lanes as floats, rounded to nearest.", (V32,),
        lambda a: tuple(np.float32(x) for x in a), "vcvtq_f32_s32(a)", "(float)a[i]",
        "sitofp <4 x i32> {0} to <4 x float>",
    ),
    _float(
        "as_f32", "The floats whose encodings the lanes are.", (V32,),
        lambda a: tuple(np.array(a, np.int32).view(np.float32)), "vreinterpretq_f32_s32(a)",
        "((union { int32_t bits; float real; }){a[i]}).real",
        "bitcast <4 x i32> {0} to <4 x float>",
    ),
    _float(
        "add_f32", "The sums of the lanes.", (_FV, _FV), _lanes_of(lambda a, b: a + b),
        "vaddq_f32(a, b)", "a[i] + b[i]", "fadd <4 x float> {0}, {1}",
    ),
    _float(
        "mul_f32", "The products of the lanes.", (_FV, _FV), _lanes_of(lambda a, b: a * b),
        "vmulq_f32(a, b)", "a[i] * b[i]", "fmul <4 x float> {0}, {1}",
    ),
    _float(
        "round_f32", "The lanes, within 2**22, to integers, halves to even.", (_FV,),
        lambda a: tuple(int(np.rint(x)) for x in a), "vcvtnq_s32_f32(a)",
        "(int32_t)((a[i] + 12582912.0f) - 12582912.0f)",
        "call <4 x i32> @crt.mve.round.f32(<4 x float> {0})",
        "declare <4 x i32> @llvm.arm.mve.vcvtn.v4i32.v4f32(i32, <4 x float>)\n"
        "define internal <4 x i32> @crt.mve.round.f32(<4 x float> %a) alwaysinline nounwind {"
        " %r = call <4 x i32> @llvm.arm.mve.vcvtn.v4i32.v4f32(i32 0, <4 x float> %a)"
        " ret <4 x i32> %r }",
        result=V32,
    ),
    _choice("min"),
    _choice("max"),
)
