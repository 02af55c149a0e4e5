"""Vector operations that x86-64 does well: 4 lanes of 32 bits with SSE, 8 with AVX2.

But for PMADDWD and VPDPBUSD they are plain LLVM, which picks the instructions; names end in the
number of lanes. In C they are expressions over gcc's and clang's vectors, which compilers turn into
the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from crtexport.fixedpoint import fused_multiply_add, wrap, wrap32
from crtexport.kernels.intrinsic import Intrinsic
from crtexport.kernels.ir import Scalar

Lanes = tuple[int, ...]
Reals = tuple[float, ...]

WIDTHS = (4, 8)
INTS = {4: Scalar.I32X4, 8: Scalar.I32X8}
FLOATS = {4: Scalar.F32X4, 8: Scalar.F32X8}
PAIRS = {4: Scalar.I16X8, 8: Scalar.I16X16}
"""Vectors of as many pairs of 16 bits."""

_C = {Scalar.I32: "int32_t", Scalar.F32: "float", Scalar.I8: "int8_t"}
_LLVM = {Scalar.I32: "i32", Scalar.F32: "float", Scalar.I16: "i16", Scalar.I8: "i8"}
_MADD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd"}


def _c(type_: Scalar) -> str:
    return f"crt_{type_.value}" if type_.is_vector else _C[type_]


def _llvm(type_: Scalar) -> str:
    return f"<{type_.lanes} x {_LLVM[type_.lane]}>" if type_.is_vector else _LLVM[type_]


def _intrinsic(
    name: str, meaning: str, params: tuple[Scalar, ...], result: Scalar,
    evaluate: Callable[..., object], c: str, body: str, declare: str = "",
) -> Intrinsic:
    """``c``: statements over ``a``, ``b`` …; ``body``: LLVM that ends by naming ``%r``."""
    letters = "abc"[: len(params)]
    full = f"x86_{name}"
    arguments = ", ".join(f"{_c(p)} {x}" for p, x in zip(params, letters, strict=True))
    helper = (
        f"/* {meaning} */\n"
        f"static inline {_c(result)} crt_{full}({arguments})\n"
        f"{{\n{c}}}\n"
    )
    symbol = f"@crt.{full}"
    formal = ", ".join(f"{_llvm(p)} %{x}" for p, x in zip(params, letters, strict=True))
    actual = ", ".join(f"{_llvm(p)} {{{i}}}" for i, p in enumerate(params))
    definition = (
        f"define internal {_llvm(result)} {symbol}({formal}) alwaysinline nounwind "
        f"{{ {body} ret {_llvm(result)} %r }}"
    )
    return Intrinsic(
        name=full, params=params, result=result, evaluate=evaluate,
        c_expression=f"crt_{full}({', '.join(f'{{{i}}}' for i in range(len(params)))})",
        c_helper=helper, llvm=f"call {_llvm(result)} {symbol}({actual})",
        llvm_declare=f"{declare}\n{definition}" if declare else definition,
    )


def _gives(expression: str) -> str:
    return f"    return {expression};\n"


def _everywhere(type_: Scalar, value: str) -> str:
    """A vector literal in C."""
    return f"({_c(type_)}){{{', '.join([value] * type_.lanes)}}}"


def _of(name: str, element: str, count: int, size: int) -> str:
    """A local vector type in C."""
    return f"    typedef {element} {name} __attribute__((vector_size({count * size})));\n"


# ---- integers


def _low(value: int) -> int:
    return wrap(value, 16)


def _madd(a: Lanes, b: Lanes) -> Lanes:
    return tuple(
        wrap32(a[i] * b[i] + a[i + 1] * b[i + 1]) for i in range(0, len(a), 2)
    )


_BUILTIN = {4: ("__SSE2__", "128"), 8: ("__AVX2__", "256")}


def _c_madd(width: int, a: str, b: str) -> str:
    """PMADDWD of two vectors of pairs in C, or what it does."""
    asks, bits = _BUILTIN[width]
    ints, pairs = _c(INTS[width]), _c(PAIRS[width])
    return (
        f"#if defined({asks})\n"
        f"    typedef short crt_shorts __attribute__((vector_size({4 * width})));\n"
        f"    return ({ints})__builtin_ia32_pmaddwd{bits}((crt_shorts){a}, (crt_shorts){b});\n"
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
    vector, halves, name = _llvm(ints), _llvm(pairs), _MADD[width]
    declare = f"declare {vector} @{name}({halves}, {halves})"
    first = f"%v = insertelement {vector} poison, i32 %a, i32 0"
    spread = f"shufflevector {vector} %v, {vector} poison, <{width} x i32> zeroinitializer"
    return (
        _intrinsic(
            f"madd_{width}", "a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1], which wraps.",
            (pairs, pairs), ints, _madd, _c_madd(width, "a", "b"),
            f"%r = call {vector} @{name}({halves} %a, {halves} %b)", declare,
        ),
        _intrinsic(
            f"pairs_{width}", "The halves of a, the lower one first, over and over.",
            (Scalar.I32,), pairs, lambda a: (_low(a), _low(a >> 16)) * width,
            _gives(f"({_c(pairs)}){_everywhere(ints, 'a')}"),
            f"{first} %s = {spread} %r = bitcast {vector} %s to {halves}",
        ),
        _intrinsic(
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
        _intrinsic(
            f"dup_{width}", "a in every lane.", (Scalar.I32,), ints, lambda a: (a,) * width,
            _gives(_everywhere(ints, "a")), f"{first} %r = {spread}",
        ),
    )


def _bytes(word: int) -> tuple[int, ...]:
    return tuple(word >> shift & 0xFF for shift in (0, 8, 16, 24))


def _dot(total: Lanes, a: Lanes, b: Lanes) -> Lanes:
    return tuple(
        wrap32(t + sum(i * wrap(j, 8) for i, j in zip(_bytes(x), _bytes(y), strict=True)))
        for t, x, y in zip(total, a, b, strict=True)
    )


def _dots() -> tuple[Intrinsic, ...]:
    """VPDPBUSD of AVX-VNNI, and what turns int8 values into its uint8 ones."""
    ints, octets, name = _llvm(INTS[8]), "<32 x i8>", "llvm.x86.avx512.vpdpbusd.256"
    flip = Scalar.I8X16
    return (
        replace(_intrinsic(
            "dot_8", "a + the products of the bytes of b, unsigned, and of c, signed.",
            (INTS[8],) * 3, INTS[8], _dot,
            "#if defined(__AVXVNNI__)\n"
            f"    return ({_c(INTS[8])})_mm256_dpbusd_avx_epi32(\n"
            "        (__m256i)a, (__m256i)b, (__m256i)c);\n"
            "#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)\n"
            f"    return ({_c(INTS[8])})_mm256_dpbusd_epi32((__m256i)a, (__m256i)b, (__m256i)c);\n"
            "#else\n"
            "    for (int i = 0; i < 8; ++i) {\n"
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
        ), c_include="<immintrin.h>"),
        _intrinsic(
            "lift", "a plus 128 in each lane, as the bytes of uint8 values.",
            (flip,), flip, lambda a: tuple(x - 128 if x >= 0 else x + 128 for x in a),
            _gives(f"a ^ {_everywhere(flip, 'INT8_MIN')}"),
            "%r = xor <16 x i8> %a, splat (i8 -128)",
        ),
    )


def _rounded(a: Lanes, b: Lanes, shift: int) -> Lanes:
    half = 1 << (shift - 1)
    return tuple(wrap32((x * y + half) >> shift) for x, y in zip(a, b, strict=True))


def _scaling(width: int, shift: int) -> Intrinsic:
    ints = INTS[width]
    vector, wide = _llvm(ints), f"<{width} x i64>"
    return _intrinsic(
        f"mulr{shift}_{width}", f"(a * b + 2^{shift - 1}) >> {shift}, the lower 32 bits of it.",
        (ints, ints), ints, lambda a, b: _rounded(a, b, shift),
        _of("crt_long", "int64_t", width, 8)
        + "    const crt_long product = __builtin_convertvector(a, crt_long)\n"
        "        * __builtin_convertvector(b, crt_long);\n"
        + _gives(
            f"__builtin_convertvector((product + {1 << (shift - 1)}LL) >> {shift}, {_c(ints)})"
        ),
        f"%x = sext {vector} %a to {wide} %y = sext {vector} %b to {wide} "
        f"%p = mul {wide} %x, %y %n = add {wide} %p, splat (i64 {1 << (shift - 1)}) "
        f"%s = lshr {wide} %n, splat (i64 {shift}) %r = trunc {wide} %s to {vector}",
    )


def _lanewise(width: int) -> tuple[Intrinsic, ...]:
    ints = INTS[width]
    vector, mangled = _llvm(ints), f"v{width}i32"

    def extreme(op: str, sign: str, function: Callable[[int, int], int]) -> Intrinsic:
        name = f"@llvm.s{op}.{mangled}"
        return _intrinsic(
            f"{op}_{width}", f"The {'smaller' if op == 'min' else 'larger'} of two lanes.",
            (ints, ints), ints,
            lambda a, b: tuple(function(x, y) for x, y in zip(a, b, strict=True)),
            f"    const {_c(ints)} first = a {sign} b;\n"
            + _gives("(a & first) | (b & ~first)"),
            f"%r = call {vector} {name}({vector} %a, {vector} %b)",
            f"declare {vector} {name}({vector}, {vector})",
        )

    return (
        _intrinsic(
            f"add_{width}", "The sums of the lanes, which wrap.", (ints, ints), ints,
            lambda a, b: tuple(wrap32(x + y) for x, y in zip(a, b, strict=True)),
            _of("crt_words", "uint32_t", width, 4)
            + _gives(f"({_c(ints)})((crt_words)a + (crt_words)b)"),
            f"%r = add {vector} %a, %b",
        ),
        _intrinsic(
            f"toward_{width}", "Negative lanes less 1.", (ints,), ints,
            lambda a: tuple(wrap32(x + (x >> 31)) for x in a),
            _of("crt_words", "uint32_t", width, 4)
            + _gives(f"({_c(ints)})((crt_words)a + (crt_words)(a >> 31))"),
            f"%s = ashr {vector} %a, splat (i32 31) %r = add {vector} %a, %s",
        ),
        extreme("min", "<", min), extreme("max", ">", max),
        _scaling(width, 31), _scaling(width, 32),
    )


# ---- floats


def _f32(value: float) -> float:
    return float(np.float32(value))


def _fma(a: float, b: float, c: float) -> float:
    return _f32(fused_multiply_add(a, b, c))


def _floats(width: int) -> tuple[Intrinsic, ...]:
    reals, ints = FLOATS[width], INTS[width]
    vector, mangled = _llvm(reals), f"v{width}f32"

    def extreme(op: str, compare: str, sign: str) -> Intrinsic:
        # As MIN and MAX of the Kernel IR.
        def evaluate(a: Reals, b: Reals) -> Reals:
            if op == "min":
                return tuple(y if y < x else x for x, y in zip(a, b, strict=True))
            return tuple(y if x < y else x for x, y in zip(a, b, strict=True))

        left, right = ("b", "a") if op == "min" else ("a", "b")
        return _intrinsic(
            f"f{op}_{width}", f"{'min' if op == 'min' else 'max'} of the lanes; b where it wins.",
            (reals, reals), reals, evaluate,
            f"    const {_c(ints)} second = {left} {sign} {right};\n"
            + _gives(
                f"({_c(reals)})((({_c(ints)})b & second) | (({_c(ints)})a & ~second))"
            ),
            f"%c = fcmp {compare} {vector} %{left}, %{right} "
            f"%r = select <{width} x i1> %c, {vector} %b, {vector} %a",
        )

    return (
        _intrinsic(
            f"fdup_{width}", "a in every lane.", (Scalar.F32,), reals, lambda a: (a,) * width,
            _gives(_everywhere(reals, "a")),
            f"%v = insertelement {vector} poison, float %a, i32 0 "
            f"%r = shufflevector {vector} %v, {vector} poison, <{width} x i32> zeroinitializer",
        ),
        _intrinsic(
            f"fma_{width}", "a * b + c, rounded once.", (reals, reals, reals), reals,
            lambda a, b, c: tuple(map(_fma, a, b, c)),
            f"    {_c(reals)} result = {{0}};\n"
            f"    for (int i = 0; i < {width}; ++i) {{\n"
            "        result[i] = __builtin_fmaf(a[i], b[i], c[i]);\n"
            "    }\n"
            "    return result;\n",
            f"%r = call {vector} @llvm.fma.{mangled}({vector} %a, {vector} %b, {vector} %c)",
            f"declare {vector} @llvm.fma.{mangled}({vector}, {vector}, {vector})",
        ),
        _intrinsic(
            f"muladd_{width}", "a * b, rounded, plus c.", (reals, reals, reals), reals,
            lambda a, b, c: tuple(
                _f32(_f32(float(x) * y) + z) for x, y, z in zip(a, b, c, strict=True)
            ),
            _gives("a * b + c"),
            f"%p = fmul {vector} %a, %b %r = fadd {vector} %p, %c",
        ),
        _intrinsic(
            f"real_{width}", "The lanes as floats.", (ints,), reals,
            lambda a: tuple(map(_f32, a)),
            _gives(f"__builtin_convertvector(a, {_c(reals)})"),
            f"%r = sitofp {_llvm(ints)} %a to {vector}",
        ),
        extreme("min", "olt", "<"), extreme("max", "olt", "<"),
    )


X86 = tuple(
    intrinsic for width in WIDTHS
    for make in (_madd_intrinsics, _lanewise, _floats) for intrinsic in make(width)
) + _dots()
