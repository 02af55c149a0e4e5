"""Operations of RISC-V's vectors (V, Zve32x): 16 or 32 lanes in registers of 128 bits and more.

A vector of 32-bit lanes takes 4 or 8 registers of 128 bits, one of bytes 1 or 2. But for products
and shifts that round they are plain LLVM, which forms the widening instructions; names end in the
number of lanes. In C they are expressions over gcc's and clang's vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crtexport.fixedpoint import fused_multiply_add, wrap, wrap32
from crtexport.kernels.intrinsic import Intrinsic
from crtexport.kernels.intrinsics_fused import where_missing
from crtexport.kernels.intrinsics_vectors import (
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
    reals,
)
from crtexport.kernels.ir import Scalar

WIDTHS = (16, 32)
BYTES = {16: Scalar.I8X16, 32: Scalar.I8X32}
HALVES = {16: Scalar.I16X16, 32: Scalar.I16X32}

_NEAREST_UP = 0
"""vxrm: results are rounded to nearest, halves up."""


def _wrapped(type_: Scalar) -> str:
    """The C name of unsigned lanes, in which sums wrap, and its definition."""
    size = type_.lane.itemsize
    return local_type("crt_wrapped", f"uint{8 * size}_t", type_.lanes, size)


def _lanes(function: Callable[..., int]) -> Callable[..., Lanes]:
    return lambda *vectors: tuple(map(function, *vectors))


def _multiply(width: int) -> tuple[Intrinsic, ...]:
    """Sums of products of 16-bit integers."""
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
            f"rvv_widen_{width}", "a + the lanes of b.", (ints, halves), ints,
            _lanes(lambda x, y: wrap32(x + y)), unsigned.format(wide("b")),
            f"%x = sext {half} %b to {vector} %r = add {vector} %a, %x",
        ),
        intrinsic(
            f"rvv_short_mac_{width}", "a + b * c, which wraps to 16 bits.", (halves,) * 3, halves,
            _lanes(lambda x, y, z: wrap(x + y * z, 16)),
            _wrapped(halves) + gives(
                f"({c_type(halves)})((crt_wrapped)a + (crt_wrapped)b * (crt_wrapped)c)"
            ),
            f"%p = mul {half} %b, %c %r = add {half} %a, %p",
        ),
        intrinsic(
            f"rvv_short_mul_{width}", "a * b, which wraps to 16 bits.", (halves,) * 2, halves,
            _lanes(lambda x, y: wrap(x * y, 16)),
            _wrapped(halves) + gives(f"({c_type(halves)})((crt_wrapped)a * (crt_wrapped)b)"),
            f"%r = mul {half} %a, %b",
        ),
    )


def _rounding(
    width: int, name: str, meaning: str, evaluate: Callable[[int, int], int], product: str
) -> Intrinsic:
    """``product``: the wide result in C of wide operands ``x`` and ``y``."""
    ints = INTS[width]
    vector, scalable = llvm_type(ints), f"nxv{width // 2}i32"
    whole = f"<vscale x {width // 2} x i32>"
    insert = f"{whole} @llvm.vector.insert.{scalable}.v{width}i32({whole}"
    call = f"{whole} @llvm.riscv.{name}.{scalable}.{scalable}.i32({whole}"
    extract = f"{vector} @llvm.vector.extract.v{width}i32.{scalable}({whole}"
    return intrinsic(
        f"rvv_{name}_{width}", meaning, (ints, ints), ints, _lanes(evaluate),
        local_type("crt_long", "int64_t", width, 8)
        + "    const crt_long x = __builtin_convertvector(a, crt_long);\n"
        "    const crt_long y = __builtin_convertvector(b, crt_long);\n"
        + gives(f"__builtin_convertvector({product}, {c_type(ints)})"),
        f"%x = call {insert} poison, {vector} %a, i64 0) "
        f"%y = call {insert} poison, {vector} %b, i64 0) "
        f"%p = call {call} poison, {whole} %x, {whole} %y, i32 {_NEAREST_UP}, i32 {width}) "
        f"%r = call {extract} %p, i64 0)",
        f"declare {insert}, {vector}, i64)\n"
        f"declare {call}, {whole}, {whole}, i32, i32)\n"
        f"declare {extract}, i64)",
    )


def _smul(x: int, y: int) -> int:
    return min((x * y + (1 << 30)) >> 31, (1 << 31) - 1)


def _ssra(x: int, y: int) -> int:
    places = y & 31
    return (x + (1 << places >> 1)) >> places


def _scaling(width: int) -> tuple[Intrinsic, ...]:
    return (
        _rounding(
            width, "vsmul",
            "a * b / 2^31 to nearest, halves up; no lane of both is the lowest number.",
            _smul, "(x * y + (1LL << 30)) >> 31",
        ),
        _rounding(
            width, "vssra", "a / 2^b to nearest, halves up; b is 0 to 31.",
            _ssra, "(x + ((1LL << y) >> 1)) >> y",
        ),
    )


def _others(width: int) -> tuple[Intrinsic, ...]:
    """Of elements: differences and products; of bytes: copies, the smaller and larger ones."""
    ints, octets = INTS[width], BYTES[width]
    vector, bytes_ = llvm_type(ints), llvm_type(octets)

    def wraps(name: str, meaning: str, sign: str, function: Callable[[int, int], int]) -> Intrinsic:
        return intrinsic(
            f"rvv_{name}_{width}", f"The {meaning} of the lanes, which wrap.", (ints, ints), ints,
            _lanes(lambda x, y: wrap32(function(x, y))),
            _wrapped(ints) + gives(f"({c_type(ints)})((crt_wrapped)a {sign} (crt_wrapped)b)"),
            f"%r = {name} {vector} %a, %b",
        )

    limit = f"@llvm.{{}}.v{width}i8".format
    return (
        wraps("sub", "differences", "-", lambda x, y: x - y),
        wraps("mul", "products", "*", lambda x, y: x * y),
        intrinsic(
            f"rvv_bytes_{width}", "The lower byte of a in every lane.", (Scalar.I32,), octets,
            lambda a: (wrap(a, 8),) * width,
            gives(everywhere(octets, "(int8_t)(uint8_t)a")),
            f"%t = trunc i32 %a to i8 %v = insertelement {bytes_} poison, i8 %t, i32 0 "
            f"%r = shufflevector {bytes_} %v, {bytes_} poison, <{width} x i32> zeroinitializer",
        ),
        *(
            intrinsic(
                f"rvv_byte_{name}_{width}", f"The {meaning} of two lanes.", (octets,) * 2, octets,
                _lanes(function),
                f"    const {c_type(octets)} first = a {sign} b;\n"
                + gives("(a & first) | (b & ~first)"),
                f"%r = call {bytes_} {limit('s' + name)}({bytes_} %a, {bytes_} %b)",
                f"declare {bytes_} {limit('s' + name)}({bytes_}, {bytes_})",
            )
            for name, meaning, sign, function in (
                ("min", "smaller", "<", min), ("max", "larger", ">", max),
            )
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


RVV = tuple(
    operation for width in WIDTHS
    for operation in (
        *lanewise("rvv", width), *_multiply(width), *_scaling(width), *_others(width),
        *reals("rvv", width), _fused(width),
    )
)
