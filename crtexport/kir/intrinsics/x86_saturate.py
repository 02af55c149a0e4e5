"""Results of 8 bits of vectors of 32 bits on x86-64, by PACKSSDW and PACKSSWB, which saturate, and
sums scaled in floats, by CVTPS2DQ, which rounds halves to even."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.generic_vectors import (
    FLOATS,
    INTS,
    LETTERS,
    Lanes,
    Reals,
    c_type,
    everywhere,
    f32,
    gives,
    intrinsic,
    llvm_type,
)
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import saturate, wrap

_WORDS, _BYTES = "llvm.x86.sse2.packssdw.128", "llvm.x86.sse2.packsswb.128"
_PACKS = (
    f"declare <8 x i16> @{_WORDS}(<4 x i32>, <4 x i32>)\n"
    f"declare <16 x i8> @{_BYTES}(<8 x i16>, <8 x i16>)"
)
_SUMS = "declare <{0} x i16> @llvm.sadd.sat.v{0}i16(<{0} x i16>, <{0} x i16>)\n"


def results(width: int) -> tuple[Intrinsic, ...]:
    """Of vectors of ``width`` lanes."""
    return _saturated(width), _scaled(width), *(_results(width, count) for count in (8, 16))


SCALED_BELOW = 1 << 22
"""Scaled sums must stay below it."""


def _scaled_lanes(a: Lanes, b: Reals) -> Lanes:
    return tuple(int(np.rint(f32(f32(x) * y))) for x, y in zip(a, b, strict=True))


def _scaled(width: int) -> Intrinsic:
    ints, floats = INTS[width], FLOATS[width]
    asks, name, c = {
        4: ("__SSE2__", "llvm.x86.sse2.cvtps2dq", "_mm"),
        8: ("__AVX__", "llvm.x86.avx.cvt.ps2dq.256", "_mm256"),
    }[width]
    register = "__m128" if width == 4 else "__m256"
    return replace(intrinsic(
        f"x86_scaled_{width}", "a * b, rounded to floats, within 2**22, then halves to even.",
        (ints, floats), ints, _scaled_lanes,
        f"    const {c_type(floats)} real = __builtin_convertvector(a, {c_type(floats)}) * b;\n"
        f"#if defined({asks})\n"
        f"    return ({c_type(ints)}){c}_cvtps_epi32(({register})real);\n"
        "#else\n"
        f"    const {c_type(floats)} large = {everywhere(floats, '12582912.0f')};\n"
        f"    return __builtin_convertvector((real + large) - large, {c_type(ints)});\n"
        "#endif\n",
        f"%f = sitofp {llvm_type(ints)} %a to {llvm_type(floats)} "
        f"%p = fmul {llvm_type(floats)} %f, %b "
        f"%r = call {llvm_type(ints)} @{name}({llvm_type(floats)} %p)",
        f"declare {llvm_type(ints)} @{name}({llvm_type(floats)})", late=True,
    ), c_include="<immintrin.h>", c_where="defined(__x86_64__)")


def _lanes(first: int, count: int) -> str:
    """Returns the mask of a shuffle that takes ``count`` lanes from ``first`` on."""
    return f"<{count} x i32> <{', '.join(f'i32 {first + i}' for i in range(count))}>"


def _halves(name: str) -> str:
    """LLVM that makes %x and %y of the halves of a vector of 8."""
    return " ".join(
        f"%{half} = shufflevector <8 x i32> %{name}, <8 x i32> poison, {_lanes(first, 4)}"
        for half, first in (("x", 0), ("y", 4))
    ) + " "


def _saturated(width: int) -> Intrinsic:
    """After it, storing bytes takes nothing more."""
    ints = INTS[width]
    first, second = ("x", "y") if width == 8 else ("a", "a")
    return intrinsic(
        f"x86_saturated_{width}", "The nearest number that fits into 8 bits.", (ints,), ints,
        lambda a: tuple(saturate(x, 8) for x in a),
        f"    const {c_type(ints)} low = {everywhere(ints, 'INT8_MIN')};\n"
        f"    const {c_type(ints)} top = {everywhere(ints, 'INT8_MAX')};\n"
        f"    const {c_type(ints)} less = a < low;\n"
        f"    const {c_type(ints)} more = a > top;\n"
        + gives("(a & ~less & ~more) | (low & less) | (top & more)"),
        f"{_halves('a') if width == 8 else ''}"
        f"%w = call <8 x i16> @{_WORDS}(<4 x i32> %{first}, <4 x i32> %{second}) "
        f"%b = call <16 x i8> @{_BYTES}(<8 x i16> %w, <8 x i16> %w) "
        f"%f = shufflevector <16 x i8> %b, <16 x i8> poison, {_lanes(0, width)} "
        f"%r = sext <{width} x i8> %f to {llvm_type(ints)}",
        _PACKS, late=True,
    )


class _Spelling(Struct, frozen=True):
    """``asks``: the macro of what ``c`` takes; ``llvm`` begins after %z, the number in all of
    ``lanes`` of 16 bits."""

    asks: str
    c: str
    lanes: int
    llvm: str
    declare: str


_EIGHT_C = (
    "    return (crt_i16x8)_mm_max_epi16(\n"
    "        _mm_min_epi16(words, _mm_set1_epi16(INT8_MAX)), _mm_set1_epi16(INT8_MIN));\n"
)
_EIGHT_LLVM = (
    f"%v = call <16 x i8> @{_BYTES}(<8 x i16> %s, <8 x i16> %s) "
    f"%w = shufflevector <16 x i8> %v, <16 x i8> poison, {_lanes(0, 8)} "
    "%r = sext <8 x i8> %w to <8 x i16>"
)


def _words(name: str, first: str, second: str) -> str:
    """LLVM that makes %``name`` of two vectors of 4."""
    return (
        f"%{name}p = call <8 x i16> @{_WORDS}(<4 x i32> %{first}, <4 x i32> %{second}) "
        f"%{name} = call <8 x i16> @llvm.sadd.sat.v8i16(<8 x i16> %{name}p, <8 x i16> %z) "
    )


_SPELLINGS = {
    (4, 8): _Spelling(
        "__SSE2__",
        "    const __m128i words = _mm_adds_epi16(\n"
        "        _mm_packs_epi32((__m128i)a, (__m128i)b), _mm_set1_epi16((int16_t)c));\n\n"
        + _EIGHT_C,
        8, _words("s", "a", "b") + _EIGHT_LLVM, _SUMS.format(8) + _PACKS,
    ),
    (4, 16): _Spelling(
        "__SSE2__",
        "    const __m128i more = _mm_set1_epi16((int16_t)e);\n\n"
        "    return (crt_i8x16)_mm_packs_epi16(\n"
        "        _mm_adds_epi16(_mm_packs_epi32((__m128i)a, (__m128i)b), more),\n"
        "        _mm_adds_epi16(_mm_packs_epi32((__m128i)c, (__m128i)d), more));\n",
        8, _words("s", "a", "b") + _words("t", "c", "d")
        + f"%r = call <16 x i8> @{_BYTES}(<8 x i16> %s, <8 x i16> %t)",
        _SUMS.format(8) + _PACKS,
    ),
    (8, 8): _Spelling(
        "__AVX2__",
        "    const __m128i packed = _mm_packs_epi32(\n"
        "        _mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));\n"
        "    const __m128i words = _mm_adds_epi16(packed, _mm_set1_epi16((int16_t)b));\n\n"
        + _EIGHT_C,
        8, _halves("a") + _words("s", "x", "y") + _EIGHT_LLVM, _SUMS.format(8) + _PACKS,
    ),
    # Of each half of a and b by itself, so that fours are in the order 0 2 1 3.
    (8, 16): _Spelling(
        "__AVX2__",
        "    const __m256i words = _mm256_adds_epi16(\n"
        "        _mm256_packs_epi32((__m256i)a, (__m256i)b), _mm256_set1_epi16((int16_t)c));\n"
        "    const __m128i packed = _mm_packs_epi16(\n"
        "        _mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));\n\n"
        "    return (crt_i8x16)_mm_shuffle_epi32(packed, _MM_SHUFFLE(3, 1, 2, 0));\n",
        16,
        "%p = call <16 x i16> @llvm.x86.avx2.packssdw(<8 x i32> %a, <8 x i32> %b) "
        "%s = call <16 x i16> @llvm.sadd.sat.v16i16(<16 x i16> %p, <16 x i16> %z) "
        f"%x = shufflevector <16 x i16> %s, <16 x i16> poison, {_lanes(0, 8)} "
        f"%y = shufflevector <16 x i16> %s, <16 x i16> poison, {_lanes(8, 8)} "
        f"%v = call <16 x i8> @{_BYTES}(<8 x i16> %x, <8 x i16> %y) "
        "%w = bitcast <16 x i8> %v to <4 x i32> "
        "%o = shufflevector <4 x i32> %w, <4 x i32> poison, "
        "<4 x i32> <i32 0, i32 2, i32 1, i32 3> %r = bitcast <4 x i32> %o to <16 x i8>",
        "declare <16 x i16> @llvm.x86.avx2.packssdw(<8 x i32>, <8 x i32>)\n"
        + _SUMS.format(16) + f"declare <16 x i8> @{_BYTES}(<8 x i16>, <8 x i16>)",
    ),
}
"""By lanes of the vectors and how many results there are."""


def _evaluate(*args: Any) -> Lanes:
    *vectors, more = args
    words = (saturate(x, 16) for vector in vectors for x in vector)
    return tuple(saturate(saturate(x + wrap(more, 16), 16), 8) for x in words)


def _results(width: int, count: int) -> Intrinsic:
    """Returns the intrinsic for ``count`` results of vectors and a number that is added to all of
    them."""
    spelling, vectors = _SPELLINGS[width, count], count // width
    letters = LETTERS[: vectors + 1]
    result = {8: Scalar.I16X8, 16: Scalar.I8X16}[count]
    words = f"<{spelling.lanes} x i16>"
    return replace(intrinsic(
        f"x86_results{count}_{width}",
        f"The nearest numbers of 16 bits, plus {letters[-1]}, as the nearest of 8 bits.",
        (*(INTS[width],) * vectors, Scalar.I32), result, _evaluate,
        f"#if defined({spelling.asks})\n{spelling.c}#else\n"
        f"    const {c_type(INTS[width])} vectors[] = {{{', '.join(letters[:-1])}}};\n"
        f"    {c_type(result)} result = {{0}};\n\n"
        f"    for (int i = 0; i < {count}; ++i) {{\n"
        f"        int32_t value = vectors[i / {width}][i % {width}];\n\n"
        "        value = value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value;\n"
        f"        value += (int16_t){letters[-1]};\n"
        "        value = value < INT8_MIN ? INT8_MIN : value > INT8_MAX ? INT8_MAX : value;\n"
        "        result[i] = (int8_t)value;\n"
        "    }\n"
        "    return result;\n"
        "#endif\n",
        f"%n = trunc i32 %{letters[-1]} to i16 "
        f"%i = insertelement {words} poison, i16 %n, i32 0 "
        f"%z = shufflevector {words} %i, {words} poison, "
        f"<{spelling.lanes} x i32> zeroinitializer {spelling.llvm}",
        spelling.declare, late=True,
    ), c_include="<immintrin.h>", c_where="defined(__x86_64__)")
