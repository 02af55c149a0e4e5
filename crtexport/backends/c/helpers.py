"""Small pieces of C that generated files may need: each is printed once, and only where used."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from crtexport.backends.c import vectors as c_vectors
from crtexport.backends.c.literals import STORAGE, IntBits
from crtexport.kir.intrinsics.registry import find_intrinsic
from crtexport.kir.language import ARITHMETIC, BinaryOp, Scalar
from crtexport.support.errors import CrtExportError

INDEX_TYPE = "ptrdiff_t"
"""Index arithmetic: as wide as a pointer, and the type that C subscripts with anyway."""

ASSEMBLY = {extension: f"assembly {extension}" for extension in ("", "DSP", "MVE", "MVE.FP")}
UNROLL, FLOATS, DOUBLES, SPECIAL, F32_FROM_F16, F16_FROM_F32, WORD, ALIGNED_WORD = (
    "unroll", "floats", "doubles", "special", "f32_from_f16", "f16_from_f32", "word",
    "aligned word",
)
_INTRINSIC = "intrinsic "
_UNSIGNED_WORD = re.compile(r"\b(0x[0-9a-f]+|[0-9]+)u\b")
SATURATED = {Scalar.I8: (-128, 127), Scalar.I16: (-32768, 32767)}
"""Types to whose numbers words are clamped by a function."""


ALIGNED = """\
/* What C99 has no words for. */
#if defined(__GNUC__)
#define CRT_ALIGNED(bytes) __attribute__((aligned(bytes)))
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define CRT_ALIGNED(bytes) _Alignas(bytes)
#else
#error "this compiler can't align arrays: use GCC, Clang or a C11 compiler"
#endif
"""
KERNEL = """\
/*
 * Kernels are compiled on their own, for any addresses: where GCC 12 folds the addresses of their
 * buffers into them, it can come to believe that they store nothing, and drop calls (-O3, AVX2).
 */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define CRT_KERNEL __attribute__((noipa))
#elif defined(__GNUC__)
#define CRT_KERNEL __attribute__((noinline))
#else
#define CRT_KERNEL
#endif
"""
SHARED = """\
/* What models of one package share: seen by their files, not by users of a library made of them. */
#if defined(__GNUC__) && defined(__ELF__)
#define CRT_SHARED __attribute__((visibility("hidden")))
#else
#define CRT_SHARED
#endif
"""


_ACLE_SAT = "!defined(__GNUC__) && defined(__ARM_ACLE) && defined(__ARM_FEATURE_SAT)"


class Helper(Struct, frozen=True):
    """``text`` stands after the includes; ``include`` are the lines that include a header."""

    text: str = ""
    include: str = ""


def intrinsic_key(name: str) -> str:
    """Returns the key of what the intrinsic ``name`` needs."""
    return _INTRINSIC + name


def extremum_key(op: BinaryOp, type_: Scalar) -> str:
    """Returns the key of the function that evaluates both operands of MIN or MAX once."""
    return f"{op.value}_{type_.value}"


def _extremum(op: BinaryOp, type_: Scalar) -> Helper:
    c = INDEX_TYPE if type_ is Scalar.INDEX else STORAGE[type_]
    test = "b < a" if op is BinaryOp.MIN else "a < b"
    return Helper(
        f"static inline {c} crt_{extremum_key(op, type_)}({c} a, {c} b)\n"
        "{\n"
        f"    return ({test}) ? b : a;\n"
        "}\n"
    )


def saturation_key(type_: Scalar) -> str:
    """Returns the key of the function that clamps a word to the numbers of ``type_``."""
    return f"saturate_{type_.value}"


def _saturation(type_: Scalar) -> Helper:
    low, high = SATURATED[type_]
    bits = 8 * type_.itemsize
    return Helper(
        f"/* {low} to {high}; GCC doesn't find the instruction by itself. */\n"
        f"static inline int32_t crt_{saturation_key(type_)}(int32_t x)\n"
        "{\n"
        "#if defined(__GNUC__) && !defined(__clang__) && defined(__ARM_FEATURE_SAT)\n"
        "    int32_t result;\n"
        f'    __asm__("ssat %0, #{bits}, %1" : "=r"(result) : "r"(x));\n'
        "    return result;\n"
        f"#elif {_ACLE_SAT}\n"
        f"    return __ssat(x, {bits});\n"
        "#else\n"
        f"    return (x < {low}) ? {low} : (x > {high}) ? {high} : x;\n"
        "#endif\n"
        "}\n",
        "#if !defined(__GNUC__) && defined(__ARM_ACLE)\n#include <arm_acle.h>\n#endif",
    )


_SPECIAL = """\
/* Values that C99 has only in <math.h>, which freestanding compilers lack. */
#if defined(__GNUC__)
#define CRT_INFINITY __builtin_inff()
#define CRT_NAN __builtin_nanf("")
#else
#include <math.h>
#define CRT_INFINITY INFINITY
#define CRT_NAN NAN
#endif
"""

_UNROLL = """\
/* Unrolls the loop that follows, where the compiler has a way to say so. */
#define CRT_PRAGMA(text) _Pragma(#text)
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define CRT_UNROLL(count) CRT_PRAGMA(GCC unroll count)
#else
#define CRT_UNROLL(count)
#endif
"""

_ASSEMBLY = """\
/*
 * Some loops are functions of instructions, in the order that takes the fewest cycles, for GNU C
 * and the board's processor. Other compilers get the loops; this one, too, with -DCRT_ASSEMBLY=0.
 */
#ifndef CRT_ASSEMBLY
#if defined(__GNUC__) && defined(__thumb2__)%s
#define CRT_ASSEMBLY 1
#else
#define CRT_ASSEMBLY 0
#endif
#endif
#if CRT_ASSEMBLY
#define CRT_GIVEN __attribute__((unused))
#endif
"""

_FLOATS = """\
/* a * b + c is rounded twice, on every target: no fused multiply-add. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__STRICT_ANSI__)
#pragma GCC optimize ("fp-contract=off")
#endif
"""

_DOUBLES = """\
/* Some compilers for small processors have doubles that are floats, with other results. */
#if defined(__SIZEOF_DOUBLE__) && __SIZEOF_DOUBLE__ < 8
#error "this model needs a double of 64 bits (newer compilers for AVR: -mdouble=64)"
#endif
"""

_F32_FROM_F16 = """\
/* The value of an IEEE 754 half precision number. */
static inline float crt_f32_from_f16(uint16_t half)
{
    union { uint32_t u; float f; } result, magic;
    const uint32_t magnitude = (uint32_t)half & 0x7fffu;
    magic.u = 113u << 23;
    result.u = magnitude << 13;
    if (magnitude >= 0x7c00u) {
        result.u += (uint32_t)(255 - 31) << 23;
    } else if (magnitude >= 0x0400u) {
        result.u += (uint32_t)(127 - 15) << 23;
    } else {
        result.u += 113u << 23;
        result.f -= magic.f;
    }
    result.u |= ((uint32_t)half & 0x8000u) << 16;
    return result.f;
}
"""

_F16_FROM_F32 = """\
/* The nearest IEEE 754 half precision number, ties to even. */
static inline uint16_t crt_f16_from_f32(float value)
{
    union { uint32_t u; float f; } x;
    uint32_t sign, magnitude, half;
    x.f = value;
    sign = (x.u >> 16) & 0x8000u;
    magnitude = x.u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
    } else if (magnitude >= 0x47800000u) {
        half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {
        magnitude -= 112u << 23;
        half = (magnitude + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
    } else if (magnitude > 0x33000000u) {
        const uint32_t shift = 126u - (magnitude >> 23);
        const uint32_t mantissa = (magnitude & 0x007fffffu) | 0x00800000u;
        const uint32_t rest = mantissa & ((1u << shift) - 1u);
        const uint32_t halfway = 1u << (shift - 1u);
        half = mantissa >> shift;
        if ((rest > halfway) || ((rest == halfway) && ((half & 1u) != 0u))) {
            ++half;
        }
    } else {
        half = 0u;
    }
    return (uint16_t)(sign | half);
}
"""


_WORD = """\
/* Four bytes at any address, in the machine's order. */
static inline int32_t crt_load_word(const void *bytes)
{
#if defined(__GNUC__)
    int32_t word;
    __builtin_memcpy(&word, bytes, sizeof word);
    return word;
#else
    union { int32_t word; unsigned char bytes[4]; } result;
    for (int i = 0; i < 4; ++i) {
        result.bytes[i] = ((const unsigned char *)bytes)[i];
    }
    return result.word;
#endif
}
"""
_ALIGNED_WORD = """\
/* Four bytes at an address that is a multiple of four, in the machine's order. */
static inline int32_t crt_load_aligned_word(const void *bytes)
{
#if defined(__GNUC__)
    /* A load of its own: where size counts, the function above may be called, for any address. */
    int32_t word;
    __builtin_memcpy(&word, __builtin_assume_aligned(bytes, 4), sizeof word);
    return word;
#else
    return crt_load_word(bytes);
#endif
}
"""


def _catalogue() -> dict[str, Helper]:
    """Returns all helpers in the order in which files print them."""
    helpers = {
        SPECIAL: Helper(_SPECIAL),
        ASSEMBLY[""]: Helper(_ASSEMBLY % ""),
        ASSEMBLY["DSP"]: Helper(_ASSEMBLY % " && defined(__ARM_FEATURE_DSP)"),
        ASSEMBLY["MVE"]: Helper(_ASSEMBLY % " && defined(__ARM_FEATURE_MVE)"),
        ASSEMBLY["MVE.FP"]: Helper(
            _ASSEMBLY % " && defined(__ARM_FEATURE_MVE) \\\n    && (__ARM_FEATURE_MVE & 2)"
        ),
        FLOATS: Helper(_FLOATS),
        DOUBLES: Helper(_DOUBLES),
        UNROLL: Helper(_UNROLL),
        F32_FROM_F16: Helper(_F32_FROM_F16),
        F16_FROM_F32: Helper(_F16_FROM_F32),
        WORD: Helper(_WORD),
        ALIGNED_WORD: Helper(_ALIGNED_WORD),
    }
    vectors = {**c_vectors.types_text(), **c_vectors.accesses()}
    helpers |= {key: Helper(text) for key, text in vectors.items()}
    for op in (BinaryOp.MIN, BinaryOp.MAX):
        for type_ in sorted(ARITHMETIC, key=lambda t: t.value):
            helpers[extremum_key(op, type_)] = _extremum(op, type_)
    helpers |= {saturation_key(type_): _saturation(type_) for type_ in SATURATED}
    return helpers


_HELPERS = _catalogue()


def _intrinsic(name: str) -> Helper:
    found = find_intrinsic(name)
    if found is None:
        raise CrtExportError(f"no intrinsic is called {name!r}")
    include = f"#include {found.c_include}" if found.c_include else ""
    if found.c_where:
        include = f"#if {found.c_where}\n{include}\n#endif"
    return Helper(found.c_helper, include)


def select_helpers(keys: Iterable[str], int_bits: IntBits = 32) -> tuple[Helper, ...]:
    """Returns the helpers behind ``keys``: the general ones in a fixed order, then intrinsics by
    name.

    They compute in words, whatever the bits of ``int``.
    """
    wanted = frozenset(keys)
    general = [helper for key, helper in _HELPERS.items() if key in wanted]
    if int_bits < 32:
        general = [
            Helper(_UNSIGNED_WORD.sub(r"UINT32_C(\1)", h.text), h.include) for h in general
        ]
    intrinsics = sorted(wanted - _HELPERS.keys())
    return (*general, *(_intrinsic(key.removeprefix(_INTRINSIC)) for key in intrinsics))
