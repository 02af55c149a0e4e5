"""Instructions of Armv7E-M's DSP extension."""

from __future__ import annotations

from crtexport.kernels.intrinsic import Intrinsic
from crtexport.kernels.ir import Scalar


def _half(word: int, position: int) -> int:
    """Bits 16*position and up of a word, as a signed 16-bit number."""
    return ((word >> 16 * position & 0xFFFF) ^ 0x8000) - 0x8000


def _sxtb16(word: int) -> int:
    low, high = (((word >> shift & 0xFF) ^ 0x80) - 0x80 for shift in (0, 16))
    return ((low & 0xFFFF | high << 16) + 2**31) % 2**32 - 2**31


def _smlad(a: int, b: int, total: int) -> int:
    total += _half(a, 0) * _half(b, 0) + _half(a, 1) * _half(b, 1)
    return (total + 2**31) % 2**32 - 2**31


# C sources of an Arm board also run on other computers, for simulation: hence the second halves.
_ARM_SXTB16 = """\
/* Bytes {first} and {second} of x, sign-extended to two 16-bit halves. */
static inline int32_t {name}(int32_t x)
{{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32)
    int32_t result;
    __asm__("{instruction}" : "=r"(result) : "r"(x));
    return result;
#else
    const int32_t low = (int8_t)(x >> {low} & 255);
    const int32_t high = (int8_t)(x >> {high} & 255);
    return (int32_t)(((uint32_t)low & 65535u) | (uint32_t)high << 16);
#endif
}}
"""
_ARM_SMLA = """\
/* total + the product of the {which} halves of a and b. */
static inline int32_t {name}(int32_t a, int32_t b, int32_t total)
{{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32)
    int32_t result;
    __asm__("{instruction} %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(total));
    return result;
#else
    const int32_t product = {product};
    return (int32_t)((uint32_t)total + (uint32_t)product);
#endif
}}
"""
_ARM_SMLAD = """\
/* total + the products of the two halves of a and b. */
static inline int32_t crt_smlad(int32_t a, int32_t b, int32_t total)
{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32)
    int32_t result;
    __asm__("smlad %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(total));
    return result;
#else
    const int32_t low = (int16_t)(a & 65535) * (int16_t)(b & 65535);
    const int32_t high = (a >> 16) * (b >> 16);
    return (int32_t)((uint32_t)total + (uint32_t)low + (uint32_t)high);
#endif
}
"""

_DSP = (
    Intrinsic(
        name="arm_sxtb16",
        params=(Scalar.I32,),
        result=Scalar.I32,
        evaluate=_sxtb16,
        c_expression="crt_sxtb16({0})",
        c_helper=_ARM_SXTB16.format(
            first=0, second=2, name="crt_sxtb16", instruction="sxtb16 %0, %1", low=0, high=16
        ),
        llvm="call i32 @llvm.arm.sxtb16(i32 {0})",
        llvm_declare="declare i32 @llvm.arm.sxtb16(i32)",
    ),
    Intrinsic(
        name="arm_sxtb16_ror8",
        params=(Scalar.I32,),
        result=Scalar.I32,
        evaluate=lambda word: _sxtb16((word & 0xFFFFFFFF) >> 8),
        c_expression="crt_sxtb16_ror8({0})",
        c_helper=_ARM_SXTB16.format(
            first=1, second=3, name="crt_sxtb16_ror8", instruction="sxtb16 %0, %1, ror #8",
            low=8, high=24,
        ),
        llvm="call i32 @crt.sxtb16.ror8(i32 {0})",
        llvm_declare=(
            "declare i32 @llvm.arm.sxtb16(i32)\n"
            "declare i32 @llvm.fshl.i32(i32, i32, i32)\n"
            "define internal i32 @crt.sxtb16.ror8(i32 %x) alwaysinline nounwind {"
            " %r = call i32 @llvm.fshl.i32(i32 %x, i32 %x, i32 24)"
            " %y = call i32 @llvm.arm.sxtb16(i32 %r) ret i32 %y }"
        ),
    ),
    Intrinsic(
        name="arm_smlad",
        params=(Scalar.I32, Scalar.I32, Scalar.I32),
        result=Scalar.I32,
        evaluate=_smlad,
        c_expression="crt_smlad({0}, {1}, {2})",
        c_helper=_ARM_SMLAD,
        llvm="call i32 @llvm.arm.smlad(i32 {0}, i32 {1}, i32 {2})",
        llvm_declare="declare i32 @llvm.arm.smlad(i32, i32, i32)",
    ),
)


def _smla(letters: str, position: int, which: str, product: str) -> Intrinsic:
    """SMLABB or SMLATT: one half of each factor."""

    def evaluate(a: int, b: int, total: int) -> int:
        total += _half(a, position) * _half(b, position)
        return (total + 2**31) % 2**32 - 2**31

    return Intrinsic(
        name=f"arm_{letters}",
        params=(Scalar.I32, Scalar.I32, Scalar.I32),
        result=Scalar.I32,
        evaluate=evaluate,
        c_expression=f"crt_{letters}({{0}}, {{1}}, {{2}})",
        c_helper=_ARM_SMLA.format(
            which=which, name=f"crt_{letters}", instruction=letters, product=product
        ),
        llvm=f"call i32 @llvm.arm.{letters}(i32 {{0}}, i32 {{1}}, i32 {{2}})",
        llvm_declare=f"declare i32 @llvm.arm.{letters}(i32, i32, i32)",
    )


_SMLAS = (
    _smla("smlabb", 0, "lower", "(int16_t)(a & 65535) * (int16_t)(b & 65535)"),
    _smla("smlatt", 1, "upper", "(a >> 16) * (b >> 16)"),
)

ARM_DSP = (*_DSP, *_SMLAS)
