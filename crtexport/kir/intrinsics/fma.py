"""Products of floats that are added with one rounding, for processors that have it so."""

from __future__ import annotations

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import fused_multiply_add

FUSED = """\
/* a * b + c, rounded once: the sum is first rounded to odd in double. */
static inline float crt_fused(float a, float b, float c)
{
    const double product = (double)a * (double)b;
    const double total = product + (double)c;
    const double back = total - product;
    const double error = (product - (total - back)) + ((double)c - back);
    union { double real; uint64_t bits; } odd;
    odd.real = total;
    if ((total - total == 0.0) && ((error < 0.0) || (error > 0.0)) && ((odd.bits & 1u) == 0u)) {
        odd.bits += ((error > 0.0) == (total > 0.0)) ? 1u : UINT64_MAX;
    }
    return (float)odd.real;
}
"""
"""The same in C for any processor."""


def where_missing(present: str) -> str:
    """C that defines ``crt_fused`` once, unless the condition ``present`` holds."""
    return f"#if !({present}) && !defined(CRT_FUSED)\n#define CRT_FUSED\n{FUSED}#endif\n"


_HAS = "defined(__ARM_FEATURE_FMA)"

FMA = Intrinsic(
    name="fma_f32",
    params=(Scalar.F32, Scalar.F32, Scalar.F32),
    result=Scalar.F32,
    evaluate=fused_multiply_add,
    c_expression="crt_fma_f32({0}, {1}, {2})",
    c_helper=(
        f"{where_missing(_HAS)}"
        "/* a * b + c, rounded once. */\n"
        "static inline float crt_fma_f32(float a, float b, float c)\n"
        "{\n"
        f"#if {_HAS}\n"
        "    return __builtin_fmaf(a, b, c);\n"
        "#else\n"
        "    return crt_fused(a, b, c);\n"
        "#endif\n"
        "}\n"
    ),
    llvm="call float @llvm.fma.f32(float {0}, float {1}, float {2})",
    llvm_declare="declare float @llvm.fma.f32(float, float, float)",
)
