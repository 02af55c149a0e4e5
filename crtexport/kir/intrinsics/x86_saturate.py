"""Results of 8 bits of vectors of 32 bits on x86-64, by PACKSSDW and PACKSSWB, which saturate, and
sums scaled in floats, by CVTPS2DQ, which rounds halves to even."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

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
    llvm_type,
)
from crtexport.kir.intrinsics.x86_base import REGISTERS, mask, x86_intrinsic
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
    several = [_results_16()] if width == 16 else [_results(width, count) for count in (8, 16)]
    return _saturated(width), _scaled(width), *several


SCALED_BELOW = 1 << 22
"""Scaled sums must stay below it."""


def _scaled_lanes(a: Lanes, b: Reals) -> Lanes:
    return tuple(int(np.rint(f32(f32(x) * y))) for x, y in zip(a, b, strict=True))


def _scaled(width: int) -> Intrinsic:
    ints, floats, c = INTS[width], FLOATS[width], REGISTERS[width]
    vector, reals = llvm_type(ints), llvm_type(floats)
    # AVX-512 takes what masked lanes keep, the mask, and how to round: as always.
    asks, name, types, more = {
        4: ("__SSE2__", "sse2.cvtps2dq", "", ""),
        8: ("__AVX__", "avx.cvt.ps2dq.256", "", ""),
        16: (
            "__AVX512F__", "avx512.mask.cvtps2dq.512", f", {vector}, i16, i32",
            f", {vector} zeroinitializer, i16 -1, i32 4",
        ),
    }[width]
    return x86_intrinsic(
        f"scaled_{width}", "a * b, rounded to floats, within 2**22, then halves to even.",
        (ints, floats), ints, _scaled_lanes,
        f"    const {c_type(floats)} real = __builtin_convertvector(a, {c_type(floats)}) * b;\n"
        f"#if defined({asks})\n"
        f"    return ({c_type(ints)}){c.prefix}_cvtps_epi32(({c.floats})real);\n"
        "#else\n"
        f"    const {c_type(floats)} large = {everywhere(floats, '12582912.0f')};\n"
        f"    return __builtin_convertvector((real + large) - large, {c_type(ints)});\n"
        "#endif\n",
        f"%f = sitofp {vector} %a to {reals} %p = fmul {reals} %f, %b "
        f"%r = call {vector} @llvm.x86.{name}({reals} %p{more})",
        f"declare {vector} @llvm.x86.{name}({reals}{types})",
    )


def _lanes(first: int, count: int) -> str:
    """Returns the mask of a shuffle that takes ``count`` lanes from ``first`` on."""
    return mask(range(first, first + count))


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
    packed = (
        f"{_halves('a') if width == 8 else ''}"
        f"%w = call <8 x i16> @{_WORDS}(<4 x i32> %{first}, <4 x i32> %{second}) "
        f"%b = call <16 x i8> @{_BYTES}(<8 x i16> %w, <8 x i16> %w) "
        f"%f = shufflevector <16 x i8> %b, <16 x i8> poison, {_lanes(0, width)} "
        f"%r = sext <{width} x i8> %f to {llvm_type(ints)}"
    )
    clamped = f"{_CLAMPED.format('a')}%r = freeze <16 x i32> %h"
    return x86_intrinsic(
        f"saturated_{width}", "The nearest number that fits into 8 bits.", (ints,), ints,
        lambda a: tuple(saturate(x, 8) for x in a),
        f"    const {c_type(ints)} low = {everywhere(ints, 'INT8_MIN')};\n"
        f"    const {c_type(ints)} top = {everywhere(ints, 'INT8_MAX')};\n"
        f"    const {c_type(ints)} less = a < low;\n"
        f"    const {c_type(ints)} more = a > top;\n"
        + gives("(a & ~less & ~more) | (low & less) | (top & more)"),
        *((clamped, _CLAMPS) if width == 16 else (packed, _PACKS)),
    )


_CLAMPED = (
    "%l = call <16 x i32> @llvm.smax.v16i32(<16 x i32> %{0}, <16 x i32> splat (i32 -128)) "
    "%h = call <16 x i32> @llvm.smin.v16i32(<16 x i32> %l, <16 x i32> splat (i32 127)) "
)
"""The lanes within 8 bits, whose lower bytes VPMOVSDB then takes."""
_CLAMPS = (
    "declare <16 x i32> @llvm.smax.v16i32(<16 x i32>, <16 x i32>)\n"
    "declare <16 x i32> @llvm.smin.v16i32(<16 x i32>, <16 x i32>)"
)


def _results_16() -> Intrinsic:
    """Returns the intrinsic for 16 results of a vector, which VPMOVSDB saturates, and a number that
    is added to all of them."""
    ints, bytes_ = INTS[16], Scalar.I8X16
    return x86_intrinsic(
        "results16_16", "a + b, which wraps, as the nearest number of 8 bits.",
        (ints, Scalar.I32), bytes_,
        lambda a, b: tuple(saturate(wrap(x + b, 32), 8) for x in a),
        "#if defined(__AVX512F__)\n"
        f"    return ({c_type(bytes_)})_mm512_cvtsepi32_epi8(\n"
        "        _mm512_add_epi32((__m512i)a, _mm512_set1_epi32(b)));\n"
        "#else\n"
        f"    {c_type(bytes_)} result = {{0}};\n\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        const int32_t value = (int32_t)((uint32_t)a[i] + (uint32_t)b);\n\n"
        "        result[i] = (int8_t)(value < INT8_MIN ? INT8_MIN\n"
        "            : value > INT8_MAX ? INT8_MAX : value);\n"
        "    }\n"
        "    return result;\n"
        "#endif\n",
        "%i = insertelement <16 x i32> poison, i32 %b, i32 0 "
        "%z = shufflevector <16 x i32> %i, <16 x i32> poison, <16 x i32> zeroinitializer "
        f"%s = add <16 x i32> %a, %z {_CLAMPED.format('s')}"
        "%r = trunc <16 x i32> %h to <16 x i8>", _CLAMPS,
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
    return x86_intrinsic(
        f"results{count}_{width}",
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
        spelling.declare,
    )
