"""Vector operations that x86-64 does well: 4 lanes of 32 bits with SSE, 8 with AVX2, 16 with
AVX-512.

But for PMADDWD and VPDPBUSD they are plain LLVM, most of them those of
:mod:`crtexport.kir.intrinsics.generic_vectors`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.generic_vectors import (
    FLOATS,
    INTS,
    Lanes,
    c_type,
    everywhere,
    f32,
    gives,
    lanewise,
    llvm_type,
    local_type,
    mean,
    real_arithmetic,
    reals,
)
from crtexport.kir.intrinsics.x86_base import REGISTERS, x86_intrinsic
from crtexport.kir.intrinsics.x86_interleave import interleaved
from crtexport.kir.intrinsics.x86_saturate import results
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import fused_multiply_add, wrap, wrap32

WIDTHS = (4, 8, 16)
PAIRS = {4: Scalar.I16X8, 8: Scalar.I16X16, 16: Scalar.I16X32}
"""Vectors of as many pairs of 16 bits."""
DOT_WIDTHS = (8, 16)
"""Lanes of vectors that there is VPDPBUSD for."""

_MADD = {
    4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512",
}


# ---- integers


def _low(value: int) -> int:
    return wrap(value, 16)


def _madd(a: Lanes, b: Lanes) -> Lanes:
    return tuple(
        wrap32(a[i] * b[i] + a[i + 1] * b[i + 1]) for i in range(0, len(a), 2)
    )


_MADD_NEEDS = {4: "__SSE2__", 8: "__AVX2__", 16: "__AVX512BW__"}


def _c_madd(width: int, a: str, b: str) -> str:
    """PMADDWD of two vectors of pairs in C, or what it does."""
    ints, pairs, c = c_type(INTS[width]), c_type(PAIRS[width]), REGISTERS[width]
    return (
        f"#if defined({_MADD_NEEDS[width]})\n"
        f"    return ({ints}){c.prefix}_madd_epi16(({c.ints}){a}, ({c.ints}){b});\n"
        "#else\n"
        f"    const {pairs} x = ({pairs}){a};\n"
        f"    const {pairs} y = ({pairs}){b};\n"
        f"    {ints} result = {{0}};\n"
        f"    for (int i = 0; i < {width}; ++i) {{\n"
        "        result[i] = (int32_t)((uint32_t)(x[2 * i] * y[2 * i])\n"
        "            + (uint32_t)(x[2 * i + 1] * y[2 * i + 1]));\n"
        "    }\n"
        "    return result;\n"
        "#endif\n"
    )


def _madd_intrinsics(width: int) -> tuple[Intrinsic, ...]:
    ints, pairs = INTS[width], PAIRS[width]
    vector, halves, name = llvm_type(ints), llvm_type(pairs), _MADD[width]
    declare = f"declare {vector} @{name}({halves}, {halves})"
    first = f"%v = insertelement {vector} poison, i32 %a, i32 0"
    spread = f"shufflevector {vector} %v, {vector} poison, <{width} x i32> zeroinitializer"
    return (
        x86_intrinsic(
            f"madd_{width}", "a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1], which wraps.",
            (pairs, pairs), ints, _madd, _c_madd(width, "a", "b"),
            f"%r = call {vector} @{name}({halves} %a, {halves} %b)", declare,
        ),
        x86_intrinsic(
            f"pairs_{width}", "The halves of a, the lower one first, over and over.",
            (Scalar.I32,), pairs, lambda a: (_low(a), _low(a >> 16)) * width,
            gives(f"({c_type(pairs)}){everywhere(ints, 'a')}"),
            f"{first} %s = {spread} %r = bitcast {vector} %s to {halves}",
        ),
        x86_intrinsic(
            f"product_{width}", "The products of the lower halves; b has no upper ones.",
            (ints, ints), ints,
            lambda a, b: tuple(
                wrap32(_low(x) * _low(y) + _low(x >> 16) * _low(y >> 16))
                for x, y in zip(a, b, strict=True)
            ),
            _c_madd(width, "a", "b"),
            f"%x = bitcast {vector} %a to {halves} %y = bitcast {vector} %b to {halves} "
            f"%r = call {vector} @{name}({halves} %x, {halves} %y)", declare,
        ),
    )


def _arithmetic(type_: Scalar, suffix: str, names: str) -> tuple[Intrinsic, ...]:
    """Returns the intrinsics for sums, differences and products of lanes, the lower bits of
    them."""
    bits, vector = 8 * type_.lane.itemsize, llvm_type(type_)
    operations: dict[str, tuple[str, str, Callable[[int, int], int]]] = {
        "add": ("sums", "+", operator.add), "sub": ("differences", "-", operator.sub),
        "mul": ("products", "*", operator.mul),
    }

    def one(name: str) -> Intrinsic:
        what, sign, function = operations[name]
        return x86_intrinsic(
            f"{name}{suffix}", f"The {what} of the lanes, which wrap.", (type_, type_), type_,
            lambda a, b: tuple(wrap(function(x, y), bits) for x, y in zip(a, b, strict=True)),
            local_type("crt_lanes", f"uint{bits}_t", type_.lanes, type_.lane.itemsize)
            + gives(f"({c_type(type_)})((crt_lanes)a {sign} (crt_lanes)b)"),
            f"%r = {name} {vector} %a, %b",
        )

    return tuple(map(one, names.split()))


def _cells() -> tuple[Intrinsic, ...]:
    """Returns the intrinsics that put a number of 8 or of 16 bits into all 16 bytes of a vector."""

    def dup(cells: Scalar) -> Intrinsic:
        bits, vector = 8 * cells.lane.itemsize, llvm_type(cells)
        return x86_intrinsic(
            f"dup{bits}_{cells.lanes}", f"a, of {bits} bits, in every lane.", (Scalar.I32,), cells,
            lambda a: (wrap(a, bits),) * cells.lanes,
            gives(everywhere(cells, f"(int{bits}_t)a")),
            f"%n = trunc i32 %a to i{bits} %v = insertelement {vector} poison, i{bits} %n, i32 0 "
            f"%r = shufflevector {vector} %v, {vector} poison, "
            f"<{cells.lanes} x i32> zeroinitializer",
        )

    return dup(Scalar.I8X16), dup(Scalar.I16X8)


def _winograd() -> tuple[Intrinsic, ...]:
    """Winograd transforms F(4, 3) of cells, in 16 bits, and with sums of products."""
    cells = Scalar.I16X8

    def part24(width: int) -> Intrinsic:
        ints = INTS[width]
        third = wrap32(pow(3, -1, 1 << 32))
        return x86_intrinsic(
            f"part24_{width}", "a / 24, of which a is a multiple; 8 * (a / 24) has 32 bits.",
            (ints,), ints, lambda a: tuple(wrap32(x * third) >> 3 for x in a),
            local_type("crt_words", "uint32_t", width, 4)
            + gives(f"({c_type(ints)})((crt_words)a * {third % (1 << 32)}U) >> 3"),
            f"%p = mul {llvm_type(ints)} %a, splat (i32 {third}) "
            f"%r = ashr {llvm_type(ints)} %p, splat (i32 3)",
        )

    return (
        *_arithmetic(cells, "16_8", "add sub mul"),
        *(part24(width) for width in WIDTHS),
    )


def _bytes(word: int) -> tuple[int, ...]:
    return tuple(word >> shift & 0xFF for shift in (0, 8, 16, 24))


def _dot(total: Lanes, a: Lanes, b: Lanes) -> Lanes:
    return tuple(
        wrap32(t + sum(i * wrap(j, 8) for i, j in zip(_bytes(x), _bytes(y), strict=True)))
        for t, x, y in zip(total, a, b, strict=True)
    )


def _c_dot(width: int, function: str) -> str:
    """Returns the sums by a function of C."""
    arguments = ", ".join(f"({REGISTERS[width].ints}){x}" for x in "abc")
    return f"    return ({c_type(INTS[width])}){function}(\n        {arguments});\n"


def _dot_product(width: int) -> Intrinsic:
    """VPDPBUSD of AVX-VNNI, or of AVX-512 with its VNNI."""
    vector, name = INTS[width], f"llvm.x86.avx512.vpdpbusd.{32 * width}"
    ints, octets = llvm_type(vector), f"<{4 * width} x i8>"
    if width == 16:
        known = "#if defined(__AVX512VNNI__)\n" + _c_dot(width, "_mm512_dpbusd_epi32")
    else:
        known = (
            "#if defined(__AVXVNNI__)\n" + _c_dot(width, "_mm256_dpbusd_avx_epi32")
            + "#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)\n"
            + _c_dot(width, "_mm256_dpbusd_epi32")
        )
    return x86_intrinsic(
        f"dot_{width}", "a + the products of the bytes of b, unsigned, and of c, signed.",
        (vector,) * 3, vector, _dot,
        f"{known}#else\n"
        f"    for (int i = 0; i < {width}; ++i) {{\n"
        "        uint32_t sum = (uint32_t)a[i];\n"
        "        for (unsigned shift = 0; shift < 32U; shift += 8U) {\n"
        "            sum += (((uint32_t)b[i] >> shift) & 0xFFU)\n"
        "                * (uint32_t)(int32_t)(int8_t)(uint8_t)((uint32_t)c[i] >> shift);\n"
        "        }\n"
        "        a[i] = (int32_t)sum;\n"
        "    }\n"
        "    return a;\n"
        "#endif\n",
        f"%x = bitcast {ints} %b to {octets} %y = bitcast {ints} %c to {octets} "
        f"%r = call {ints} @{name}({ints} %a, {octets} %x, {octets} %y)",
        f"declare {ints} @{name}({ints}, {octets}, {octets})",
    )


def _lift() -> Intrinsic:
    """Turns int8 values into uint8 ones for VPDPBUSD."""
    flip = Scalar.I8X16
    return x86_intrinsic(
        "lift", "a plus 128 in each lane, as the bytes of uint8 values.",
        (flip,), flip, lambda a: tuple(x - 128 if x >= 0 else x + 128 for x in a),
        gives(f"a ^ {everywhere(flip, 'INT8_MIN')}"),
        "%r = xor <16 x i8> %a, splat (i8 -128)",
    )


def _widened(width: int, name: str) -> str:
    """LLVM that widens every second lane of ``%name`` to ``%name0`` and the others to ``%name1``.

    Both forms end as nothing but the shift that brings the others there: the first is decided
    sooner, the second doesn't cross the halves of vectors of 8.
    """
    vector, wide = llvm_type(INTS[width]), f"<{width // 2} x i64>"
    if width == 4:
        return " ".join(
            f"%{name}n{first} = shufflevector {vector} %{name}, {vector} poison, "
            f"<2 x i32> <i32 {first}, i32 {first + 2}> "
            f"%{name}{first} = sext <2 x i32> %{name}n{first} to {wide}" for first in (0, 1)
        )
    upper = f"<{width} x i32> <{', '.join(f'i32 {i | 1}' for i in range(width))}>"
    both = (f"%{name}", f"%{name}u")
    return (
        f"%{name}u = shufflevector {vector} %{name}, {vector} poison, {upper} "
    ) + " ".join(
        f"%{name}w{first} = bitcast {vector} {lanes} to {wide} "
        f"%{name}l{first} = shl {wide} %{name}w{first}, splat (i64 32) "
        f"%{name}{first} = ashr {wide} %{name}l{first}, splat (i64 32)"
        for first, lanes in enumerate(both)
    )


def _scaling(width: int, shift: int, *, rounded: bool = True) -> Intrinsic:
    """Of 64-bit products, each instruction makes those of every second lane; what is wanted of the
    others ends in their upper halves."""
    ints, half = INTS[width], 1 << (shift - 1) if rounded else 0
    vector, wide = llvm_type(ints), f"<{width // 2} x i64>"
    # Shifted to the left instead, factors that are known would be, beyond 32 bits.
    lanes = ", ".join(f"i32 {i if i % 2 == 0 else width + i - 1}" for i in range(width))
    return x86_intrinsic(
        f"mul{'r' if rounded else 'h'}{shift}_{width}",
        f"(a * b{f' + 2^{shift - 1}' if rounded else ''}) >> {shift}, the lower 32 bits of it.",
        (ints, ints), ints,
        lambda a, b: tuple(wrap32((x * y + half) >> shift) for x, y in zip(a, b, strict=True)),
        _c_scaling(width, shift, half),
        f"{_widened(width, 'a')} {_widened(width, 'b')} " + " ".join(
            f"%p{first} = mul nsw {wide} %a{first}, %b{first} "
            f"%n{first} = add nsw {wide} %p{first}, splat (i64 {half}) "
            f"%s{first} = lshr {wide} %n{first}, splat (i64 {shift}) "
            f"%r{first} = bitcast {wide} %s{first} to {vector}" for first in (0, 1)
        ) + f" %s = shufflevector {vector} %r0, {vector} %r1, <{width} x i32> <{lanes}>"
        # Else code generation looks for known bits through chains of them, in vain.
        f" %r = freeze {vector} %s",
    )


def _c_scaling(width: int, shift: int, half: int) -> str:
    ints, m, long = c_type(INTS[width]), REGISTERS[width].prefix, REGISTERS[width].ints
    asks, dup, blend = {
        4: ("__SSE4_1__", "epi64x", "_mm_blend_epi16(\n        {}, 0xCC)"),
        8: ("__AVX2__", "epi64x", "_mm256_blend_epi32(\n        {}, 0xAA)"),
        16: ("__AVX512F__", "epi64", "_mm512_mask_blend_epi32(\n        0xAAAA, {})"),
    }[width]
    both = f"{m}_srli_epi64(even, {shift}), {m}_slli_epi64(odd, {32 - shift})"
    return (
        f"#if defined({asks})\n"
        f"    const {long} half = {m}_set1_{dup}({half}LL);\n"
        f"    const {long} even = {m}_add_epi64(\n"
        f"        {m}_mul_epi32(({long})a, ({long})b), half);\n"
        f"    const {long} odd = {m}_add_epi64({m}_mul_epi32(\n"
        f"        {m}_srli_epi64(({long})a, 32), {m}_srli_epi64(({long})b, 32)), half);\n"
        f"    return ({ints}){blend.format(both)};\n"
        "#else\n"
        + local_type("crt_long", "int64_t", width, 8)
        + "    const crt_long product = __builtin_convertvector(a, crt_long)\n"
        "        * __builtin_convertvector(b, crt_long);\n"
        + gives(
            f"__builtin_convertvector((product + {half}LL) >> {shift}, {ints})"
        )
        + "#endif\n"
    )


# ---- floats


def _fma(a: float, b: float, c: float) -> float:
    return f32(fused_multiply_add(a, b, c))


def _sums(width: int) -> tuple[Intrinsic, ...]:
    """Of products of floats."""
    floats, c = FLOATS[width], REGISTERS[width]
    vector, mangled = llvm_type(floats), f"v{width}f32"
    needs = "__AVX512F__" if width == 16 else "__FMA__"

    return (
        x86_intrinsic(
            f"fma_{width}", "a * b + c, rounded once.", (floats, floats, floats), floats,
            lambda a, b, c: tuple(map(_fma, a, b, c)),
            f"#if defined({needs})\n"
            f"    return ({c_type(floats)}){c.prefix}_fmadd_ps(\n"
            f"        ({c.floats})a, ({c.floats})b, ({c.floats})c);\n"
            "#else\n"
            f"    {c_type(floats)} result = {{0}};\n\n"
            f"    for (int i = 0; i < {width}; ++i) {{\n"
            "        result[i] = __builtin_fmaf(a[i], b[i], c[i]);\n"
            "    }\n"
            "    return result;\n"
            "#endif\n",
            f"%r = call {vector} @llvm.fma.{mangled}({vector} %a, {vector} %b, {vector} %c)",
            f"declare {vector} @llvm.fma.{mangled}({vector}, {vector}, {vector})",
        ),
        x86_intrinsic(
            f"muladd_{width}", "a * b, rounded, plus c.", (floats,) * 3, floats,
            lambda a, b, c: tuple(
                f32(f32(float(x) * y) + z) for x, y, z in zip(a, b, c, strict=True)
            ),
            gives("a * b + c"),
            f"%p = fmul {vector} %a, %b %r = fadd {vector} %p, %c",
        ),
    )


_HALVED = "(a / 2^(b + 1)) to the nearest, halves up; a / 2^b + 1 wraps."


def _halved(value: int, places: int) -> int:
    return wrap32((value >> places) + 1) >> 1


def _c_halved(width: int) -> str:
    return local_type("crt_words", "uint32_t", width, 4) + gives(
        f"({c_type(INTS[width])})((crt_words)(a >> b) + 1U) >> 1"
    )


def _shifts(width: int) -> tuple[Intrinsic, ...]:
    """Shifts by the same number of places in each lane."""
    ints = INTS[width]
    vector = llvm_type(ints)
    places = (
        f"%i = insertelement {vector} poison, i32 {{}}, i32 0 "
        f"%s = shufflevector {vector} %i, {vector} poison, <{width} x i32> zeroinitializer "
    )
    return (
        x86_intrinsic(
            f"raised_{width}", "a * 2^b, which wraps.", (ints, Scalar.I32), ints,
            lambda a, b: tuple(wrap32(x << b) for x in a),
            local_type("crt_words", "uint32_t", width, 4)
            + gives(f"({c_type(ints)})((crt_words)a << (uint32_t)b)"),
            f"{places.format('%b')}%r = shl {vector} %a, %s",
        ),
        x86_intrinsic(
            f"rounded_{width}", _HALVED, (ints, Scalar.I32), ints,
            lambda a, b: tuple(_halved(x, b) for x in a), _c_halved(width),
            f"{places.format('%b')}%l = ashr {vector} %a, %s %n = add {vector} %l, splat (i32 1) "
            f"%r = ashr {vector} %n, splat (i32 1)",
        ),
    )


def _halving(width: int) -> Intrinsic:
    """SSE has no shifts by lanes."""
    ints = INTS[width]
    vector = llvm_type(ints)
    return x86_intrinsic(
        f"halved_{width}", _HALVED, (ints, ints), ints,
        lambda a, b: tuple(map(_halved, a, b)), _c_halved(width),
        f"%s = ashr {vector} %a, %b %n = add {vector} %s, splat (i32 1) "
        f"%r = ashr {vector} %n, splat (i32 1)",
    )


def _of_width(width: int) -> tuple[Intrinsic, ...]:
    return (
        *_madd_intrinsics(width), *lanewise("x86", width),
        *_arithmetic(INTS[width], f"_{width}", "sub mul"), mean("x86", width, doubles=True),
        *_shifts(width), _scaling(width, 31), _scaling(width, 32),
        _scaling(width, 32, rounded=False), *results(width), *interleaved(width),
        *reals("x86", width), *real_arithmetic("x86", width, "fadd fdiv"), *_sums(width),
    )


INTRINSICS = (
    *itertools.chain.from_iterable(map(_of_width, WIDTHS)),
    *map(_dot_product, DOT_WIDTHS), _lift(), *map(_halving, (8, 16)), *_cells(), *_winograd(),
)
