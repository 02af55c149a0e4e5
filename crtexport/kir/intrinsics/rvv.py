"""Operations of RISC-V's vectors (V, Zve32x): 16 or 32 lanes in registers of 128 bits and more.

A vector of 32-bit lanes takes 4 or 8 registers of 128 bits, one of bytes 1 or 2. But for products
and shifts that round they are plain LLVM, which forms the widening instructions; names end in the
number of lanes. In C they are expressions over gcc's and clang's vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.fma import where_missing
from crtexport.kir.intrinsics.generic_vectors import (
    FLOATS,
    INTS,
    Lanes,
    c_type,
    everywhere,
    f32,
    gives,
    intrinsic,
    lanewise,
    llvm_type,
    local_type,
    mean,
    real_arithmetic,
    reals,
)
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import fused_multiply_add, wrap, wrap32

WIDTHS = (16, 32)
BYTES = {16: Scalar.I8X16, 32: Scalar.I8X32}
HALVES = {16: Scalar.I16X16, 32: Scalar.I16X32}

_AGNOSTIC = 3
"""A policy: lanes beyond a vector's may be anything."""
_NEAREST_UP = 0
"""vxrm: results are rounded to nearest, halves up."""


def _wrapped(type_: Scalar) -> str:
    """Returns the C name of unsigned lanes, in which sums wrap, and its definition."""
    size = type_.lane.itemsize
    return local_type("crt_wrapped", f"uint{8 * size}_t", type_.lanes, size)


def _lanes(function: Callable[..., int]) -> Callable[..., Lanes]:
    return lambda *vectors: tuple(map(function, *vectors))


def _multiply(width: int) -> tuple[Intrinsic, ...]:
    """Returns the intrinsics for sums of products of 16-bit integers."""
    ints, halves = INTS[width], HALVES[width]
    vector, half = llvm_type(ints), llvm_type(halves)
    wide = f"__builtin_convertvector({{}}, {c_type(ints)})".format
    unsigned = _wrapped(ints) + gives(
        f"({c_type(ints)})((crt_wrapped)a + (crt_wrapped)({{}}))"
    )
    every = f"<{width} x i32> zeroinitializer"
    return (
        intrinsic(
            f"rvv_mac_{width}", "a + the products of the lower half of b and the lanes of c.",
            (ints, Scalar.I32, halves), ints,
            lambda a, b, c: tuple(wrap32(x + wrap(b, 16) * y) for x, y in zip(a, c, strict=True)),
            unsigned.format(f"(int32_t)(int16_t)(uint16_t)b * {wide('c')}"),
            f"%t = trunc i32 %b to i16 %v = insertelement {half} poison, i16 %t, i32 0 "
            f"%s = shufflevector {half} %v, {half} poison, {every} "
            f"%x = sext {half} %s to {vector} %y = sext {half} %c to {vector} "
            f"%p = mul {vector} %x, %y %r = add {vector} %a, %p",
        ),
        intrinsic(
            f"rvv_wide_mac_{width}", "a + the products of the lanes of b and c.",
            (ints, halves, halves), ints, _lanes(lambda x, y, z: wrap32(x + y * z)),
            unsigned.format(f"{wide('b')} * {wide('c')}"),
            f"%x = sext {half} %b to {vector} %y = sext {half} %c to {vector} "
            f"%p = mul {vector} %x, %y %r = add {vector} %a, %p",
        ),
        intrinsic(
            f"rvv_widen_{width}", "a + the lanes of b.", (ints, halves), ints,
            _lanes(lambda x, y: wrap32(x + y)), unsigned.format(wide("b")),
            f"%x = sext {half} %b to {vector} %r = add {vector} %a, %x",
        ),
    )


class _Scalable:
    """LLVM of one of RISC-V's instructions, which takes vectors of a processor's own length."""

    def __init__(self, params: tuple[Scalar, ...], result: Scalar) -> None:
        self._params, self._result = params, result

    @staticmethod
    def _names(type_: Scalar) -> tuple[str, str]:
        """Returns (type of the processor's vector, as names of intrinsics have it)"""
        lane = llvm_type(type_.lane)
        return f"<vscale x {type_.lanes // 2} x {lane}>", f"nxv{type_.lanes // 2}{lane}"

    def instruction(
        self, name: str, types: tuple[Scalar, ...], first_argument: str, last_argument: str
    ) -> tuple[str, str]:
        """Returns (body, declarations) of a call of an RVV intrinsic. ``types`` are part of its
        name; ``first_argument`` and ``last_argument`` are passed around those of the function."""
        body, declared, values = "", [], []
        for letter, type_ in zip("abc", self._params, strict=False):
            whole, short = self._names(type_)
            fixed = llvm_type(type_)
            insert = f"@llvm.vector.insert.{short}.v{type_.lanes}{llvm_type(type_.lane)}"
            declared.append(f"declare {whole} {insert}({whole}, {fixed}, i64)")
            body += f"%{letter}s = call {whole} {insert}({whole} poison, {fixed} %{letter}, i64 0) "
            values.append(f"{whole} %{letter}s")
        whole, short = self._names(self._result)
        fixed = llvm_type(self._result)
        called = f"@llvm.riscv.{name}.{'.'.join(self._names(t)[1] for t in types)}.i32"
        extra = [f"{whole} {first_argument}"] if first_argument else []
        values = [*extra, *values, *(f"i32 {value}" for value in last_argument.split())]
        formal = ", ".join(value.rsplit(" ", 1)[0] for value in values)
        lanes = f"v{self._result.lanes}{llvm_type(self._result.lane)}"
        extract = f"@llvm.vector.extract.{lanes}.{short}"
        declared += [
            f"declare {whole} {called}({formal})", f"declare {fixed} {extract}({whole}, i64)"
        ]
        body += (
            f"%p = call {whole} {called}({', '.join(values)}) "
            f"%r = call {fixed} {extract}({whole} %p, i64 0)"
        )
        return body, "\n".join(dict.fromkeys(declared))


def _short(width: int) -> tuple[Intrinsic, ...]:
    """Returns the intrinsics for sums of bytes, and of products of bytes, in 16 bits."""
    halves, octets = HALVES[width], BYTES[width]
    words, pair = c_type(halves), (octets, octets)
    product = f"(crt_wrapped)__builtin_convertvector({{}}, {words})".format
    return (
        intrinsic(
            f"rvv_short_mul_{width}", "a * b in 16 bits.", pair, halves,
            _lanes(lambda x, y: x * y),
            gives(f"__builtin_convertvector(a, {words}) * __builtin_convertvector(b, {words})"),
            *_Scalable(pair, halves).instruction(
                "vwmul", (halves, octets, octets), "poison", str(width)
            ),
        ),
        intrinsic(
            f"rvv_short_mac_{width}", "a + b * c, which wraps to 16 bits.", (halves, *pair), halves,
            _lanes(lambda x, y, z: wrap(x + y * z, 16)),
            _wrapped(halves) + gives(
                f"({words})((crt_wrapped)a\n"
                f"        + {product('b')} * {product('c')})"
            ),
            *_Scalable((halves, *pair), halves).instruction(
                "vwmacc", (halves, octets, octets), "", f"{width} {_AGNOSTIC}"
            ),
        ),
        intrinsic(
            f"rvv_short_add_{width}", "a + the lanes of b, which wraps.", (halves, octets), halves,
            _lanes(lambda x, y: wrap(x + y, 16)),
            _wrapped(halves) + gives(f"({words})((crt_wrapped)a + {product('b')})"),
            f"%x = sext {llvm_type(octets)} %b to {llvm_type(halves)} "
            f"%r = add {llvm_type(halves)} %a, %x",
        ),
    )


def _wide(
    width: int, name: str, meaning: str, evaluate: Callable[[int, int], int], product: str,
    mode: str = f"{_NEAREST_UP} ",
) -> Intrinsic:
    """``product``: the wide result in C of wide operands ``x`` and ``y``; ``mode``: how the
    instruction rounds, if it does."""
    ints = INTS[width]
    return intrinsic(
        f"rvv_{name}_{width}", meaning, (ints, ints), ints, _lanes(evaluate),
        local_type("crt_long", "int64_t", width, 8)
        + "    const crt_long x = __builtin_convertvector(a, crt_long);\n"
        "    const crt_long y = __builtin_convertvector(b, crt_long);\n"
        + gives(f"__builtin_convertvector({product}, {c_type(ints)})"),
        *_Scalable((ints, ints), ints).instruction(
            name, (ints, ints), "poison", f"{mode}{width}"
        ),
    )


def _smul(x: int, y: int) -> int:
    return min((x * y + (1 << 30)) >> 31, (1 << 31) - 1)


def _ssra(x: int, y: int) -> int:
    places = y & 31
    return (x + (1 << places >> 1)) >> places


def _scaling(width: int) -> tuple[Intrinsic, ...]:
    return (
        _wide(
            width, "vsmul",
            "a * b / 2^31 to nearest, halves up; no lane of both is the lowest number.",
            _smul, "(x * y + (1LL << 30)) >> 31",
        ),
        _wide(
            width, "vssra", "a / 2^b to nearest, halves up; b is 0 to 31.",
            _ssra, "(x + ((1LL << y) >> 1)) >> y",
        ),
        _wide(
            width, "vmulh", "The upper words of a * b.", lambda x, y: x * y >> 32,
            "(x * y) >> 32", mode="",
        ),
    )


def _elements(width: int) -> tuple[Intrinsic, ...]:
    """Of integers: differences, products and quotients."""
    ints, floats = INTS[width], FLOATS[width]
    vector, real, words = llvm_type(ints), llvm_type(floats), c_type(ints)

    def wraps(name: str, meaning: str, sign: str, function: Callable[[int, int], int]) -> Intrinsic:
        return intrinsic(
            f"rvv_{name}_{width}", f"The {meaning} of the lanes, which wrap.", (ints, ints), ints,
            _lanes(lambda x, y: wrap32(function(x, y))),
            _wrapped(ints) + gives(f"({words})((crt_wrapped)a {sign} (crt_wrapped)b)"),
            f"%r = {name} {vector} %a, %b",
        )

    return (
        wraps("sub", "differences", "-", lambda x, y: x - y),
        wraps("mul", "products", "*", lambda x, y: x * y),
        mean("rvv", width, doubles=False),
        intrinsic(
            f"rvv_scaled_{width}", "a * b, rounded to floats, within 2**22, then halves to even.",
            (ints, floats), ints,
            lambda a, b: tuple(round(f32(f32(x) * y)) for x, y in zip(a, b, strict=True)),
            f"    const {c_type(floats)} real = __builtin_convertvector(a, {c_type(floats)}) * b;\n"
            f"    const {c_type(floats)} moved = real + {everywhere(floats, '12582912.0f')};\n"
            + gives(f"({words})moved - {everywhere(ints, '0x4B400000')}"),
            f"%f = sitofp {vector} %a to {real} %p = fmul {real} %f, %b "
            f"%m = fadd {real} %p, splat (float 12582912.0) %w = bitcast {real} %m to {vector} "
            f"%r = sub {vector} %w, splat (i32 {0x4B400000})",
        ),
    )


def _real_elements(width: int) -> tuple[Intrinsic, ...]:
    """Of floats: sums, products and quotients, from integers and to them."""
    ints, floats = INTS[width], FLOATS[width]
    vector, real, words = llvm_type(ints), llvm_type(floats), c_type(ints)

    return (
        intrinsic(
            f"rvv_nearest_{width}", "The nearest integers within 2**22, halves to even.",
            (floats,), ints, lambda a: tuple(round(x) for x in a),
            f"    const {c_type(floats)} moved = a + {everywhere(floats, '12582912.0f')};\n"
            + gives(f"({words})moved - {everywhere(ints, '0x4B400000')}"),
            f"%m = fadd {real} %a, splat (float 12582912.0) %w = bitcast {real} %m to {vector} "
            f"%r = sub {vector} %w, splat (i32 {0x4B400000})",
        ),
        intrinsic(
            f"rvv_real_{width}", "The lanes as floats.", (ints,), floats,
            lambda a: tuple(f32(x) for x in a),
            gives(f"__builtin_convertvector(a, {c_type(floats)})"),
            f"%r = sitofp {vector} %a to {real}",
        ),
        *real_arithmetic("rvv", width, "fadd fmul fdiv"),
    )


def _narrow(type_: Scalar, one: str, lanes: str, part: str) -> tuple[Intrinsic, ...]:
    """Of lanes narrower than a word: copies, the smaller and larger ones. Lanes are called
    ``one`` or ``lanes`` of them, a word has a ``part``."""
    lane, width = llvm_type(type_.lane), type_.lanes
    vector, words, bits = llvm_type(type_), c_type(type_), 8 * type_.lane.itemsize
    limit = f"@llvm.{{}}.v{width}{lane}".format
    extremes = (("min", "smaller", "<", min), ("max", "larger", ">", max))
    return (
        intrinsic(
            f"rvv_{lanes}_{width}", f"The lower {part} of a in every lane.", (Scalar.I32,), type_,
            lambda a: (wrap(a, bits),) * width,
            gives(everywhere(type_, f"(int{bits}_t)(uint{bits}_t)a")),
            f"%t = trunc i32 %a to {lane} %v = insertelement {vector} poison, {lane} %t, i32 0 "
            f"%r = shufflevector {vector} %v, {vector} poison, <{width} x i32> zeroinitializer",
        ),
        *(
            intrinsic(
                f"rvv_{one}_{name}_{width}", f"The {meaning} of two lanes.", (type_,) * 2, type_,
                _lanes(function),
                f"    const {words} first = a {sign} b;\n" + gives("(a & first) | (b & ~first)"),
                f"%r = call {vector} {limit('s' + name)}({vector} %a, {vector} %b)",
                f"declare {vector} {limit('s' + name)}({vector}, {vector})",
            )
            for name, meaning, sign, function in extremes
        ),
    )


_FUSES = "defined(__riscv_flen) || defined(__ARM_FEATURE_FMA) || defined(__FMA__)"


def _fused(width: int) -> Intrinsic:
    floats = FLOATS[width]
    vector, name = llvm_type(floats), f"@llvm.fma.v{width}f32"
    made = intrinsic(
        f"rvv_fma_{width}", "a * b + c, rounded once.", (floats,) * 3, floats,
        lambda a, b, c: tuple(
            f32(fused_multiply_add(x, y, z)) for x, y, z in zip(a, b, c, strict=True)
        ),
        f"    {c_type(floats)} result = {{0}};\n"
        f"    for (int i = 0; i < {width}; ++i) {{\n"
        f"#if {_FUSES}\n"
        "        result[i] = __builtin_fmaf(a[i], b[i], c[i]);\n"
        "#else\n"
        "        result[i] = crt_fused(a[i], b[i], c[i]);\n"
        "#endif\n"
        "    }\n"
        "    return result;\n",
        f"%r = call {vector} {name}({vector} %a, {vector} %b, {vector} %c)",
        f"declare {vector} {name}({vector}, {vector}, {vector})",
    )
    return replace(made, c_helper=where_missing(_FUSES) + made.c_helper)


INTRINSICS = tuple(
    operation for width in WIDTHS
    for operation in (
        *lanewise("rvv", width), *_multiply(width), *_short(width), *_scaling(width),
        *_elements(width), *_real_elements(width), *_narrow(BYTES[width], "byte", "bytes", "byte"),
        *_narrow(HALVES[width], "half", "halves", "half"), *reals("rvv", width), _fused(width),
    )
)
