"""Instructions of Armv7E-M's DSP extension."""

from __future__ import annotations

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import wrap, wrap32


def _half(word: int, position: int) -> int:
    """Bits 16*position and up of a word, as a signed 16-bit number."""
    return ((word >> 16 * position & 0xFFFF) ^ 0x8000) - 0x8000


def _sxtb16(word: int) -> int:
    low, high = (((word >> shift & 0xFF) ^ 0x80) - 0x80 for shift in (0, 16))
    return wrap32(low & 0xFFFF | high << 16)


def _halves(a: int, b: int, sign: int) -> int:
    """The halves of a plus ``sign`` times those of b, each modulo 2**16."""
    low, high = (_half(a, position) + sign * _half(b, position) for position in (0, 1))
    return wrap32(low & 0xFFFF | high << 16)


def _smlad(a: int, b: int, total: int) -> int:
    total += _half(a, 0) * _half(b, 0) + _half(a, 1) * _half(b, 1)
    return wrap32(total)


# C sources of an Arm board also run on other computers, for simulation: hence the last halves.
# Compilers that know neither GNU's assembly nor have those have ACLE's header, as IAR's.
ACLE_HEADER = "<arm_acle.h>"
ACLE_WHERE = "!defined(__GNUC__) && defined(__ARM_ACLE)"
_ARM_SXTB16 = """\
/* Bytes {first} and {second} of x, sign-extended to two 16-bit halves. */
static inline int32_t {name}(int32_t x)
{{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32)
    int32_t result;
    __asm__("{instruction}" : "=r"(result) : "r"(x));
    return result;
#elif defined(__ARM_ACLE) && defined(__ARM_FEATURE_SIMD32)
    return __sxtb16({acle});
#else
    const int32_t low = (int8_t)(x >> {low} & 255);
    const int32_t high = (int8_t)(x >> {high} & 255);
    return (int32_t)(((uint32_t)low & 65535u) | (uint32_t)high << 16);
#endif
}}
"""
_ARM_SMLA = """\
/* total + the {a} half of a times the {b} half of b. */
static inline int32_t {name}(int32_t a, int32_t b, int32_t total)
{{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32)
    int32_t result;
    __asm__("{instruction} %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(total));
    return result;
#elif defined(__ARM_ACLE) && defined(__ARM_FEATURE_SIMD32)
    return __{instruction}(a, b, total);
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
#elif defined(__ARM_ACLE) && defined(__ARM_FEATURE_SIMD32)
    return __smlad(a, b, total);
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
        c_include=ACLE_HEADER,
        c_where=ACLE_WHERE,
        c_helper=_ARM_SXTB16.format(
            first=0, second=2, name="crt_sxtb16", instruction="sxtb16 %0, %1", acle="x",
            low=0, high=16,
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
        c_include=ACLE_HEADER,
        c_where=ACLE_WHERE,
        c_helper=_ARM_SXTB16.format(
            first=1, second=3, name="crt_sxtb16_ror8", instruction="sxtb16 %0, %1, ror #8",
            acle="(int32_t)__ror((uint32_t)x, 8)", low=8, high=24,
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
        c_include=ACLE_HEADER,
        c_where=ACLE_WHERE,
        c_helper=_ARM_SMLAD,
        llvm="call i32 @llvm.arm.smlad(i32 {0}, i32 {1}, i32 {2})",
        llvm_declare="declare i32 @llvm.arm.smlad(i32, i32, i32)",
    ),
)


_C_HALF = ("(int16_t)({} & 65535)", "({} >> 16)")


def _smla(letters: str) -> Intrinsic:
    """SMLABB, SMLABT, SMLATB or SMLATT: one half of each factor, B the lower, T the upper."""
    left, right = (int(letter == "t") for letter in letters[-2:])

    def evaluate(a: int, b: int, total: int) -> int:
        total += _half(a, left) * _half(b, right)
        return wrap32(total)

    return Intrinsic(
        name=f"arm_{letters}",
        params=(Scalar.I32, Scalar.I32, Scalar.I32),
        result=Scalar.I32,
        evaluate=evaluate,
        c_expression=f"crt_{letters}({{0}}, {{1}}, {{2}})",
        c_include=ACLE_HEADER,
        c_where=ACLE_WHERE,
        c_helper=_ARM_SMLA.format(
            a=("lower", "upper")[left], b=("lower", "upper")[right], name=f"crt_{letters}",
            instruction=letters,
            product=f"{_C_HALF[left].format('a')} * {_C_HALF[right].format('b')}",
        ),
        llvm=f"call i32 @llvm.arm.{letters}(i32 {{0}}, i32 {{1}}, i32 {{2}})",
        llvm_declare=f"declare i32 @llvm.arm.{letters}(i32, i32, i32)",
    )


_SMLAS = tuple(_smla(f"smla{a}{b}") for a in "bt" for b in "bt")

_ARM_HALVES = """\
/* The two halves of a {sign} those of b, each modulo 2**16. */
static inline int32_t crt_{instruction}(int32_t a, int32_t b)
{{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32)
    int32_t result;
    __asm__("{instruction} %0, %1, %2" : "=r"(result) : "r"(a), "r"(b));
    return result;
#elif defined(__ARM_ACLE) && defined(__ARM_FEATURE_SIMD32)
    return __{instruction}(a, b);
#else
    const uint32_t low = (uint32_t)a {sign} (uint32_t)b;
    const uint32_t high = ((uint32_t)a >> 16) {sign} ((uint32_t)b >> 16);
    return (int32_t)((low & 65535u) | high << 16);
#endif
}}
"""


def _of_halves(name: str, sign: int) -> Intrinsic:
    """SADD16 or SSUB16: sums or differences of halves."""
    return Intrinsic(
        name=f"arm_{name}",
        params=(Scalar.I32, Scalar.I32),
        result=Scalar.I32,
        evaluate=lambda a, b: _halves(a, b, sign),
        c_expression=f"crt_{name}({{0}}, {{1}})",
        c_include=ACLE_HEADER,
        c_where=ACLE_WHERE,
        c_helper=_ARM_HALVES.format(instruction=name, sign="+" if sign > 0 else "-"),
        llvm=f"call i32 @llvm.arm.{name}(i32 {{0}}, i32 {{1}})",
        llvm_declare=f"declare i32 @llvm.arm.{name}(i32, i32)",
    )


_PAIRS = _of_halves("sadd16", 1), _of_halves("ssub16", -1)

_PKHBT = Intrinsic(
    name="arm_pkhbt",
    params=(Scalar.I32, Scalar.I32),
    result=Scalar.I32,
    evaluate=lambda a, b: wrap32((a & 0xFFFF) | b << 16),
    c_expression="crt_pkhbt({0}, {1})",
    c_helper="""\
/* The lower half of a, and above it the lower half of b. */
static inline int32_t crt_pkhbt(int32_t a, int32_t b)
{
    return (int32_t)(((uint32_t)a & 65535u) | (uint32_t)b << 16);
}
""",
    llvm="call i32 @crt.pkhbt(i32 {0}, i32 {1})",
    llvm_declare=(
        "define internal i32 @crt.pkhbt(i32 %a, i32 %b) alwaysinline nounwind {"
        " %l = and i32 %a, 65535 %h = shl i32 %b, 16 %r = or i32 %l, %h ret i32 %r }"
    ),
)
_SMMULR = Intrinsic(
    name="arm_smmulr",
    params=(Scalar.I32, Scalar.I32),
    result=Scalar.I32,
    evaluate=lambda a, b: wrap32((a * b + 2**31) >> 32),
    c_expression="crt_smmulr({0}, {1})",
    c_helper="""\
/* a * b / 2**32, rounded, halves up. */
static inline int32_t crt_smmulr(int32_t a, int32_t b)
{
#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP)
    int32_t result;
    __asm__("smmulr %0, %1, %2" : "=r"(result) : "r"(a), "r"(b));
    return result;
#else
    return (int32_t)(((int64_t)a * b + 0x80000000) >> 32);
#endif
}
""",
    llvm="call i32 @crt.smmulr(i32 {0}, i32 {1})",
    llvm_declare=(
        "define internal i32 @crt.smmulr(i32 %a, i32 %b) alwaysinline nounwind {"
        " %x = sext i32 %a to i64 %y = sext i32 %b to i64 %p = mul i64 %x, %y"
        " %n = add i64 %p, 2147483648 %h = lshr i64 %n, 32 %r = trunc i64 %h to i32 ret i32 %r }"
    ),
)
_SMMLAR = Intrinsic(
    name="arm_smmlar",
    params=(Scalar.I32, Scalar.I32, Scalar.I32),
    result=Scalar.I32,
    evaluate=lambda a, b, total: wrap32(((a * b + 2**31) >> 32) + total),
    c_expression="crt_smmlar({0}, {1}, {2})",
    c_helper="""\
/* total + a * b / 2**32, rounded, halves up. */
static inline int32_t crt_smmlar(int32_t a, int32_t b, int32_t total)
{
#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP)
    int32_t result;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(total));
    return result;
#else
    const int32_t high = (int32_t)(((int64_t)a * b + 0x80000000) >> 32);
    return (int32_t)((uint32_t)high + (uint32_t)total);
#endif
}
""",
    llvm="call i32 @crt.smmlar(i32 {0}, i32 {1}, i32 {2})",
    llvm_declare=(
        "define internal i32 @crt.smmlar(i32 %a, i32 %b, i32 %c) alwaysinline nounwind {"
        " %x = sext i32 %a to i64 %y = sext i32 %b to i64 %p = mul i64 %x, %y"
        " %z = zext i32 %c to i64 %s = shl i64 %z, 32 %t = add i64 %p, %s"
        " %n = add i64 %t, 2147483648 %h = lshr i64 %n, 32 %r = trunc i64 %h to i32 ret i32 %r }"
    ),
)

_SMLALD = Intrinsic(
    name="arm_smlald",
    params=(Scalar.I32, Scalar.I32, Scalar.I64),
    result=Scalar.I64,
    evaluate=lambda a, b, total: wrap(
        total + _half(a, 0) * _half(b, 0) + _half(a, 1) * _half(b, 1), 64
    ),
    c_expression="crt_smlald({0}, {1}, {2})",
    c_include=ACLE_HEADER,
    c_where=ACLE_WHERE,
    c_helper="""\
/* total + the products of the two halves of a and b. */
static inline int64_t crt_smlald(int32_t a, int32_t b, int64_t total)
{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SIMD32)
    int64_t result = total;
    __asm__("smlald %Q0, %R0, %1, %2" : "+r"(result) : "r"(a), "r"(b));
    return result;
#elif defined(__ARM_ACLE) && defined(__ARM_FEATURE_SIMD32)
    return __smlald(a, b, total);
#else
    const int32_t low = (int16_t)(a & 65535) * (int16_t)(b & 65535);
    const int32_t high = (a >> 16) * (b >> 16);
    return (int64_t)((uint64_t)total + (uint64_t)low + (uint64_t)high);
#endif
}
""",
    llvm="call i64 @llvm.arm.smlald(i32 {0}, i32 {1}, i64 {2})",
    llvm_declare="declare i64 @llvm.arm.smlald(i32, i32, i64)",
)

_VCVTR = Intrinsic(
    name="arm_vcvtr",
    params=(Scalar.F32,),
    result=Scalar.I32,
    evaluate=round,
    c_expression="crt_vcvtr({0})",
    c_helper="""\
/* a, within 2**22, to an integer, halves to even. */
static inline int32_t crt_vcvtr(float a)
{
#if defined(__GNUC__) && defined(__ARM_FP) && (__ARM_FP & 4)
    int32_t result;
    __asm__("vcvtr.s32.f32 %1, %1\\n\\tvmov %0, %1" : "=r"(result), "+t"(a));
    return result;
#else
    return (int32_t)((a + 12582912.0f) - 12582912.0f);
#endif
}
""",
    llvm="call i32 @crt.vcvtr(float {0})",
    llvm_declare=(
        "declare float @llvm.arm.vcvtr.f32(float)\n"
        "define internal i32 @crt.vcvtr(float %a) alwaysinline nounwind {"
        " %x = call float @llvm.arm.vcvtr.f32(float %a) %r = bitcast float %x to i32 ret i32 %r }"
    ),
)

ARM_DSP = (_VCVTR, *_DSP, *_SMLAS, *_PAIRS, _PKHBT, _SMMULR, _SMMLAR, _SMLALD)
