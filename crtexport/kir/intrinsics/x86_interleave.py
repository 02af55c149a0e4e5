"""Bytes of several vectors brought together in lanes of 32 bits on x86-64: four for VPDPBUSD, or
two, widened, for PMADDWD."""

from __future__ import annotations

from msgspec import Struct

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.generic_vectors import (
    INTS,
    LETTERS,
    Lanes,
    c_type,
    gives,
    llvm_type,
    local_type,
)
from crtexport.kir.intrinsics.x86_base import mask, x86_intrinsic
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import wrap32

_BYTES = Scalar.I8X16


class _Spellings(Struct, frozen=True):
    """``needs``: the macro of what the instructions of ``c`` take."""

    needs: str
    c: str
    llvm: str


def interleaved(width: int) -> tuple[Intrinsic, ...]:
    """Returns the intrinsics that make vectors of ``width`` lanes."""
    fours = (_fours(width), _lifted(width)) if width in _FOURS else ()
    return _pairs(width), *fours


def _unpacked(result: str, operands: str, lane: int, first: int) -> str:
    """LLVM that interleaves half of the lanes, of ``lane`` bits, of two vectors of 128 bits, from
    number ``first`` on."""
    count = 128 // lane
    both = [first + i // 2 + i % 2 * count for i in range(count)]
    first_operand, second = operands.split()
    vector = f"<{count} x i{lane}>"
    return (
        f"%{result} = shufflevector {vector} %{first_operand}, {vector} %{second}, {mask(both)} "
    )


def _joined(result: str, operands: str, count: int, lane: int) -> str:
    """LLVM that puts a vector of ``count`` lanes behind another one."""
    first, second = operands.split()
    vector = f"<{count} x i{lane}>"
    return (
        f"%{result} = shufflevector {vector} %{first}, {vector} %{second}, "
        f"{mask(range(2 * count))} "
    )


def _c(spellings: _Spellings, width: int, parts: list[str]) -> str:
    """Returns C for compilers with what the spelling needs, and for others, which OR ``parts``."""
    ints = c_type(INTS[width])
    return (
        f"#if defined({spellings.needs})\n{spellings.c}#else\n"
        f"    {ints} result = {{0}};\n\n"
        f"    for (int i = 0; i < {width}; ++i) {{\n"
        f"        result[i] = (int32_t)({' | '.join(parts)});\n"
        "    }\n"
        "    return result;\n"
        "#endif\n"
    )


# ---- two bytes, widened


_LOW_BYTES = _unpacked("l", "a b", 8, 0)
_PAIRS = {
    4: _Spellings(
        "__SSE4_1__",
        "    return (crt_i32x4)_mm_cvtepi8_epi16(_mm_unpacklo_epi8((__m128i)a, (__m128i)b));\n",
        f"{_LOW_BYTES}%h = shufflevector <16 x i8> %l, <16 x i8> poison, {mask(range(8))} "
        "%w = sext <8 x i8> %h to <8 x i16> %r = bitcast <8 x i16> %w to <4 x i32>",
    ),
    8: _Spellings(
        "__AVX2__",
        "    return (crt_i32x8)_mm256_cvtepi8_epi16(\n"
        "        _mm_unpacklo_epi8((__m128i)a, (__m128i)b));\n",
        f"{_LOW_BYTES}%w = sext <16 x i8> %l to <16 x i16> %r = bitcast <16 x i16> %w to <8 x i32>",
    ),
    16: _Spellings(
        "__AVX512BW__",
        "    return (crt_i32x16)_mm512_cvtepi8_epi16(_mm256_set_m128i(\n"
        "        _mm_unpackhi_epi8((__m128i)a, (__m128i)b),\n"
        "        _mm_unpacklo_epi8((__m128i)a, (__m128i)b)));\n",
        f"{_LOW_BYTES}{_unpacked('h', 'a b', 8, 8)}{_joined('p', 'l h', 16, 8)}"
        "%w = sext <32 x i8> %p to <32 x i16> %r = bitcast <32 x i16> %w to <16 x i32>",
    ),
}
"""By lanes."""


def _pairs(width: int) -> Intrinsic:
    spellings = _PAIRS[width]

    def evaluate(a: Lanes, b: Lanes) -> Lanes:
        return tuple(wrap32((a[i] & 0xFFFF) | b[i] << 16) for i in range(width))

    return x86_intrinsic(
        f"interleave2_{width}", "The lanes of a as the lower, of b as the upper 16 bits.",
        (_BYTES, _BYTES), INTS[width], evaluate,
        _c(spellings, width, ["(uint32_t)(uint16_t)a[i]", "(uint32_t)(uint16_t)b[i] << 16"]),
        spellings.llvm,
    )


# ---- four bytes


_WORDS = [i // 4 + i % 4 * 4 for i in range(16)]
"""Four bytes of each of four vectors, over and over."""
_BYTES_OF_WORDS = [16 * (i // 16) + i % 16 // 4 + i % 4 * 4 for i in range(64)]
"""A byte of each of the four words of 128 bits, over and over."""
_FOURS = {
    8: _Spellings(
        "__AVX2__",
        "    const __m128i first = _mm_unpacklo_epi8((__m128i)a, (__m128i)b);\n"
        "    const __m128i second = _mm_unpacklo_epi8((__m128i)c, (__m128i)d);\n\n"
        "    return (crt_i32x8)_mm256_set_m128i(\n"
        "        _mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second));\n",
        f"{_LOW_BYTES}{_unpacked('h', 'c d', 8, 0)}"
        "%x = bitcast <16 x i8> %l to <8 x i16> %y = bitcast <16 x i8> %h to <8 x i16> "
        f"{_unpacked('s', 'x y', 16, 0)}{_unpacked('t', 'x y', 16, 4)}{_joined('u', 's t', 8, 16)}"
        "%r = bitcast <16 x i16> %u to <8 x i32>",
    ),
    16: _Spellings(
        "__AVX512BW__",
        "    const __m512i all = _mm512_inserti64x4(\n"
        "        _mm512_castsi256_si512(_mm256_set_m128i((__m128i)b, (__m128i)a)),\n"
        "        _mm256_set_m128i((__m128i)d, (__m128i)c), 1);\n"
        "    const __m512i words = _mm512_permutexvar_epi32(_mm512_setr_epi32(\n"
        f"        {', '.join(map(str, _WORDS))}), all);\n\n"
        "    return (crt_i32x16)_mm512_shuffle_epi8(\n"
        "        words, _mm512_set4_epi32(0x0F0B0703, 0x0E0A0602, 0x0D090501, 0x0C080400));\n",
        f"{_joined('p', 'a b', 16, 8)}{_joined('q', 'c d', 16, 8)}{_joined('s', 'p q', 32, 8)}"
        "%w = bitcast <64 x i8> %s to <16 x i32> "
        f"%x = shufflevector <16 x i32> %w, <16 x i32> poison, {mask(_WORDS)} "
        "%y = bitcast <16 x i32> %x to <64 x i8> "
        f"%z = shufflevector <64 x i8> %y, <64 x i8> poison, {mask(_BYTES_OF_WORDS)} "
        "%r = bitcast <64 x i8> %z to <16 x i32>",
    ),
}
"""By lanes."""


def _fours(width: int) -> Intrinsic:
    spellings = _FOURS[width]

    def evaluate(*vectors: Lanes) -> Lanes:
        return tuple(
            wrap32(sum((vector[i] & 0xFF) << 8 * n for n, vector in enumerate(vectors)))
            for i in range(width)
        )

    return x86_intrinsic(
        f"interleave4_{width}", "The lanes of a as the lowest bytes, then of b, c, d.",
        (_BYTES,) * 4, INTS[width], evaluate,
        _c(spellings, width, ["(uint32_t)(uint8_t)a[i]"] + [
            f"(uint32_t)(uint8_t){x}[i] << {8 * n}" for n, x in enumerate(LETTERS[:4]) if n
        ]),
        spellings.llvm,
    )


def _lifted(width: int) -> Intrinsic:
    ints = INTS[width]
    vector, flip = llvm_type(ints), 0x80808080
    return x86_intrinsic(
        f"lifted_{width}", "a plus 128 in each byte.", (ints,), ints,
        lambda a: tuple(wrap32(x ^ flip) for x in a),
        local_type("crt_words", "uint32_t", width, 4)
        + gives(f"({c_type(ints)})((crt_words)a ^ {flip:#X}U)".replace("0X", "0x")),
        f"%r = xor {vector} %a, splat (i32 {flip - (1 << 32)})",
    )
