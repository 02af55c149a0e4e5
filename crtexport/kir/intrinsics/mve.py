"""Vector instructions of Armv8.1-M (MVE, also called Helium).

In C each is a function, which on other processors is a loop over the lanes; a lane of the result is
given as an expression over lane ``i`` of ``a``, ``b`` ….
"""

from __future__ import annotations

from collections.abc import Callable

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.mve_base import (
    LLVM,
    MANGLED,
    NAMES,
    V8,
    V16,
    V32,
    Lanes,
    bits_of,
    c_type,
    each_lane,
    intrinsic,
)
from crtexport.kir.intrinsics.mve_floats import FLOATS
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import saturate, wrap


def _lanewise(
    op: str, type_: Scalar, meaning: str, lane: Callable[[int, int], int], c_lane: str,
    llvm: str, declare: str = "", arm: str = "",
) -> Intrinsic:
    """Returns the intrinsic of an operation on the lanes of two vectors of one type."""

    def evaluate(a: Lanes, b: Lanes) -> Lanes:
        return tuple(lane(x, y) for x, y in zip(a, b, strict=True))

    suffix = NAMES[type_]
    vector = LLVM[type_]
    name = MANGLED[type_]
    return intrinsic(
        f"{op}_{suffix}", meaning, (type_, type_), type_, evaluate,
        arm or f"v{op}q_{suffix}(a, b)", each_lane(type_, c_lane),
        llvm.format(vector, name, "{0}", "{1}"), declare.format(vector, name),
    )


def _wrapping(op: str, type_: Scalar, meaning: str, function: Callable[[int, int], int], sign: str,
              llvm: str) -> Intrinsic:
    bits = bits_of(type_)
    return _lanewise(
        op, type_, meaning, lambda a, b: wrap(function(a, b), bits),
        f"(int{bits}_t)((uint32_t)a[i] {sign} (uint32_t)b[i])",
        f"{llvm} {{0}} {{2}}, {{3}}",
    )


def _extreme(op: str, type_: Scalar, function: Callable[[int, int], int], sign: str) -> Intrinsic:
    return _lanewise(
        op, type_, f"The {'smaller' if op == 'min' else 'larger'} of two lanes.", function,
        f"(a[i] {sign} b[i]) ? a[i] : b[i]",
        f"call {{0}} @llvm.s{op}.{{1}}({{0}} {{2}}, {{0}} {{3}})",
        f"declare {{0}} @llvm.s{op}.{{1}}({{0}}, {{0}})",
    )


def _mladav(a: Lanes, b: Lanes) -> int:
    return wrap(sum(x * y for x, y in zip(a, b, strict=True)), 32)


def _dot_body(type_: Scalar, start: str, x: str, y: str) -> str:
    return (
        f"    uint32_t sum = {start};\n"
        f"    for (int i = 0; i < {type_.lanes}; ++i) {{\n"
        f"        sum += (uint32_t)({x}[i] * {y}[i]);\n"
        "    }\n"
        "    return (int32_t)sum;\n"
    )


def _dots(type_: Scalar) -> tuple[Intrinsic, Intrinsic]:
    suffix, vector = NAMES[type_], LLVM[type_]
    name = f"@llvm.arm.mve.vmldava.{MANGLED[type_]}"
    dot = f"call i32 {name}(i32 0, i32 0, i32 0, i32 {{}}, {vector} {{}}, {vector} {{}})"
    declare = f"declare i32 {name}(i32, i32, i32, i32, {vector}, {vector})"
    return (
        intrinsic(
            f"mladav_{suffix}", "The sum of the products of all lanes.", (type_, type_),
            Scalar.I32, _mladav, f"vmladavq_{suffix}(a, b)", _dot_body(type_, "0u", "a", "b"),
            dot.format("0", "{0}", "{1}"), declare,
        ),
        intrinsic(
            f"mladava_{suffix}", "a + the sum of the products of all lanes.",
            (Scalar.I32, type_, type_), Scalar.I32,
            lambda total, a, b: wrap(total + _mladav(a, b), 32), f"vmladavaq_{suffix}(a, b, c)",
            _dot_body(type_, "(uint32_t)a", "b", "c"),
            dot.format("{0}", "{1}", "{2}"), declare,
        ),
    )


def _long_dot() -> Intrinsic:
    """VMLALDAVA, whose sum is a pair of registers."""
    name = "@crt.mve.mlaldava.s16"
    step = "@llvm.arm.mve.vmlldava.v8i16"
    return intrinsic(
        "mlaldava_s16", "a + the sum of the products of all lanes, in 64 bits.",
        (Scalar.I64, V16, V16), Scalar.I64,
        lambda total, a, b: wrap(total + sum(x * y for x, y in zip(a, b, strict=True)), 64),
        "vmlaldavaq_s16(a, b, c)",
        "    uint64_t sum = (uint64_t)a;\n"
        f"    for (int i = 0; i < {V16.lanes}; ++i) {{\n"
        "        sum += (uint64_t)(b[i] * c[i]);\n"
        "    }\n"
        "    return (int64_t)sum;\n",
        f"call i64 {name}(i64 {{0}}, <8 x i16> {{1}}, <8 x i16> {{2}})",
        f"declare {{ i32, i32 }} {step}(i32, i32, i32, i32, i32, <8 x i16>, <8 x i16>)\n"
        f"define internal i64 {name}(i64 %a, <8 x i16> %b, <8 x i16> %c) alwaysinline nounwind {{"
        " %l = trunc i64 %a to i32 %s = lshr i64 %a, 32 %h = trunc i64 %s to i32"
        f" %d = call {{ i32, i32 }} {step}"
        "(i32 0, i32 0, i32 0, i32 %l, i32 %h, <8 x i16> %b, <8 x i16> %c)"
        " %x = extractvalue { i32, i32 } %d, 0 %y = extractvalue { i32, i32 } %d, 1"
        " %u = zext i32 %x to i64 %v = zext i32 %y to i64 %w = shl i64 %v, 32"
        " %r = or i64 %w, %u ret i64 %r }",
    )


def _qrdmulh(a: int, b: int) -> int:
    return saturate((2 * a * b + (1 << 31)) >> 32, 32)


def _rshl(a: int, count: int) -> int:
    count = wrap(count, 8)
    if count >= 0:
        return wrap(a << min(count, 32), 32)
    return (a + (1 << (-count - 1))) >> -count


_SCALING = (
    _lanewise(
        "qrdmulh", V32, "The upper halves of doubled products, rounded, saturated.", _qrdmulh,
        "(a[i] == INT32_MIN && b[i] == INT32_MIN) ? INT32_MAX\n"
        "            : (int32_t)(((int64_t)a[i] * b[i] + (1 << 30)) >> 31)",
        "call {0} @llvm.arm.mve.vqrdmulh.{1}({0} {2}, {0} {3})",
        "declare {0} @llvm.arm.mve.vqrdmulh.{1}({0}, {0})",
    ),
    _lanewise(
        "rshl", V32, "a shifted left by b, or right by -b and rounded, halves up; |b| < 32.",
        _rshl,
        "(b[i] >= 0) ? (int32_t)((uint32_t)a[i] << b[i])\n"
        "            : (int32_t)((a[i] + ((int64_t)1 << (-b[i] - 1))) >> -b[i])",
        "call {0} @llvm.arm.mve.vshl.vector.{1}.{1}({0} {2}, {0} {3}, i32 0, i32 1, i32 0)",
        "declare {0} @llvm.arm.mve.vshl.vector.{1}.{1}({0}, {0}, i32, i32, i32)",
        arm="vrshlq_s32(a, b)",
    ),
    _lanewise(
        "mulh", V32, "The upper halves of products, rounded down.", lambda a, b: (a * b) >> 32,
        "(int32_t)(((int64_t)a[i] * b[i]) >> 32)",
        "call {0} @llvm.arm.mve.vmulh.{1}({0} {2}, {0} {3}, i32 0)",
        "declare {0} @llvm.arm.mve.vmulh.{1}({0}, {0}, i32)",
    ),
    _lanewise(
        "rmulh", V32, "The upper halves of products, rounded, halves up.",
        lambda a, b: wrap((a * b + (1 << 31)) >> 32, 32),
        "(int32_t)(((int64_t)a[i] * b[i] + 0x80000000) >> 32)",
        "call {0} @llvm.arm.mve.vrmulh.{1}({0} {2}, {0} {3}, i32 0)",
        "declare {0} @llvm.arm.mve.vrmulh.{1}({0}, {0}, i32)",
    ),
    intrinsic(
        "sign_s32", "-1 in negative lanes, else 0.", (V32,), V32,
        lambda a: tuple(x >> 31 for x in a), "vshrq_n_s32(a, 31)",
        each_lane(V32, "(a[i] < 0) ? -1 : 0"),
        "ashr <4 x i32> {0}, splat (i32 31)",
    ),
)


def _dup(type_: Scalar) -> Intrinsic:
    """Returns the intrinsic that puts the lower bits of a number into all lanes."""
    bits, suffix, vector = bits_of(type_), NAMES[type_], LLVM[type_]
    element = f"i{bits}"
    narrow = "" if bits == 32 else f" %n = trunc i32 %x to {element}"
    source = "%x" if bits == 32 else "%n"
    name = f"@crt.mve.dup.{suffix}"
    arm = f"vdupq_n_{suffix}({'a' if bits == 32 else f'(int{bits}_t)a'})"
    return intrinsic(
        f"dup_{suffix}", "a in every lane.", (Scalar.I32,), type_,
        lambda a: (wrap(a, bits),) * type_.lanes, arm,
        each_lane(type_, "a" if bits == 32 else f"(int{bits}_t)a"),
        f"call {vector} {name}(i32 {{0}})",
        f"define internal {vector} {name}(i32 %x) alwaysinline nounwind {{{narrow}"
        f" %v = insertelement {vector} poison, {element} {source}, i32 0"
        f" %r = shufflevector {vector} %v, {vector} poison, <{type_.lanes} x i32> zeroinitializer"
        f" ret {vector} %r }}",
    )


def _set_lanes() -> Intrinsic:
    steps = "".join(
        f" %v{i} = insertelement <4 x i32> {f'%v{i - 1}' if i else 'poison'}, i32 %{c}, i32 {i}"
        for i, c in enumerate("abcd")
    )
    arm = "vdupq_n_s32(a)"
    for i, c in ((1, "b"), (2, "c"), (3, "d")):
        arm = f"vsetq_lane_s32({c}, {arm}, {i})"
    return intrinsic(
        "lanes_s32", "Four numbers as lanes.", (Scalar.I32,) * 4, V32, lambda *lanes: lanes, arm,
        "    const crt_i32x4 result = {a, b, c, d};\n    return result;\n",
        "call <4 x i32> @crt.mve.lanes.s32(i32 {0}, i32 {1}, i32 {2}, i32 {3})",
        "define internal <4 x i32> @crt.mve.lanes.s32(i32 %a, i32 %b, i32 %c, i32 %d)"
        f" alwaysinline nounwind {{{steps} ret <4 x i32> %v3 }}",
    )


def _half_of(letter: str) -> int:
    return "bt".index(letter)


def _mull(letter: str, source: Scalar, result: Scalar) -> Intrinsic:
    first, suffix = _half_of(letter), NAMES[source]
    which = "even" if letter == "b" else "odd"
    index = f"2 * i + {first}" if first else "2 * i"
    narrow, wide = LLVM[source], LLVM[result]
    name = f"@llvm.arm.mve.vmull.{MANGLED[result]}.{MANGLED[source]}"
    return intrinsic(
        f"mull{letter}_{suffix}", f"The products of the {which} lanes, twice as wide.",
        (source, source), result,
        lambda a, b: tuple(x * y for x, y in zip(a[first::2], b[first::2], strict=True)),
        f"vmull{letter}q_int_{suffix}(a, b)",
        each_lane(result, f"(int{bits_of(result)}_t)(a[{index}] * b[{index}])"),
        f"call {wide} {name}({narrow} {{0}}, {narrow} {{1}}, i32 0, i32 {first})",
        f"declare {wide} {name}({narrow}, {narrow}, i32, i32)",
    )


def _movl(letter: str, source: Scalar, result: Scalar) -> Intrinsic:
    first, suffix = _half_of(letter), NAMES[source]
    which = "even" if letter == "b" else "odd"
    index = f"2 * i + {first}" if first else "2 * i"
    wide, narrow = LLVM[result], f"<{result.lanes} x i{bits_of(source)}>"
    chosen = ", ".join(f"i32 {2 * i + first}" for i in range(result.lanes))
    name = f"@crt.mve.movl{letter}.{suffix}"
    return intrinsic(
        f"movl{letter}_{suffix}", f"The {which} lanes, twice as wide.", (source,), result,
        lambda a: a[first::2], f"vmovl{letter}q_{suffix}(a)",
        each_lane(result, f"a[{index}]"),
        f"call {wide} {name}({LLVM[source]} {{0}})",
        f"define internal {wide} {name}({LLVM[source]} %x) alwaysinline nounwind {{"
        f" %h = shufflevector {LLVM[source]} %x, {LLVM[source]} poison,"
        f" <{result.lanes} x i32> <{chosen}> %r = sext {narrow} %h to {wide} ret {wide} %r }}",
    )


def _narrow(source: Scalar, result: Scalar) -> Intrinsic:
    """Returns the intrinsic that makes two vectors one of half the width: VQMOVNB, then VQMOVNT."""
    suffix, bits = NAMES[source], bits_of(result)

    def evaluate(a: Lanes, b: Lanes) -> Lanes:
        return tuple(saturate(x, bits) for pair in zip(a, b, strict=True) for x in pair)

    low, high = f"INT{bits}_MIN", f"INT{bits}_MAX"
    lane = "(i % 2 == 0) ? a[i / 2] : b[i / 2]"
    portable = (
        f"    {c_type(result)} result = {{0}};\n"
        f"    for (int i = 0; i < {result.lanes}; ++i) {{\n"
        f"        const int32_t lane = {lane};\n"
        f"        result[i] = (lane < {low}) ? {low}\n"
        f"            : (lane > {high}) ? {high} : (int{bits}_t)lane;\n"
        "    }\n"
        "    return result;\n"
    )
    narrow, wide = LLVM[result], LLVM[source]
    step = f"@llvm.arm.mve.vqmovn.{MANGLED[result]}.{MANGLED[source]}"
    name = f"@crt.mve.narrow.{suffix}"
    own = NAMES[result]
    return intrinsic(
        f"narrow_{suffix}", "The lanes of a and b in turn, saturated to half the width.",
        (source, source), result, evaluate,
        f"vqmovntq_{suffix}(vqmovnbq_{suffix}(vuninitializedq_{own}(), a), b)", portable,
        f"call {narrow} {name}({wide} {{0}}, {wide} {{1}})",
        f"declare {narrow} {step}({narrow}, {wide}, i32, i32, i32)\n"
        f"define internal {narrow} {name}({wide} %a, {wide} %b) alwaysinline nounwind {{"
        f" %x = call {narrow} {step}({narrow} poison, {wide} %a, i32 0, i32 0, i32 0)"
        f" %y = call {narrow} {step}({narrow} %x, {wide} %b, i32 0, i32 0, i32 1)"
        f" ret {narrow} %y }}",
    )


def _saturating_add() -> Intrinsic:
    return _lanewise(
        "qadd", V16, "The sums of the lanes, saturated.", lambda a, b: saturate(a + b, 16),
        "(int16_t)((a[i] + b[i] < INT16_MIN) ? INT16_MIN\n"
        "            : (a[i] + b[i] > INT16_MAX) ? INT16_MAX\n"
        "            : a[i] + b[i])",
        "call {0} @llvm.sadd.sat.{1}({0} {2}, {0} {3})",
        "declare {0} @llvm.sadd.sat.{1}({0}, {0})",
    )


def _multiply_add() -> Intrinsic:
    return intrinsic(
        "mlas_s16", "The products of the lanes plus c, which wrap.", (V16, V16, Scalar.I32), V16,
        lambda a, b, c: tuple(wrap(x * y + c, 16) for x, y in zip(a, b, strict=True)),
        "vmlasq_n_s16(a, b, (int16_t)c)",
        each_lane(V16, "(int16_t)((uint32_t)(a[i] * b[i]) + (uint32_t)c)"),
        "call <8 x i16> @crt.mve.mlas.s16(<8 x i16> {0}, <8 x i16> {1}, i32 {2})",
        "define internal <8 x i16> @crt.mve.mlas.s16(<8 x i16> %a, <8 x i16> %b, i32 %x)"
        " alwaysinline nounwind { %n = trunc i32 %x to i16"
        " %v = insertelement <8 x i16> poison, i16 %n, i32 0"
        " %s = shufflevector <8 x i16> %v, <8 x i16> poison, <8 x i32> zeroinitializer"
        " %p = mul <8 x i16> %a, %b %r = add <8 x i16> %p, %s ret <8 x i16> %r }",
    )


def _halves() -> tuple[Intrinsic, ...]:
    """Pairs of lanes of 16 bits as words, the first one below, and what moves halves of words."""
    return (
        intrinsic(
            "words_s16", "Pairs of lanes as words.", (V16,), V32,
            lambda a: tuple(
                wrap((low & 0xFFFF) | high << 16, 32)
                for low, high in zip(a[::2], a[1::2], strict=True)
            ),
            "vreinterpretq_s32_s16(a)",
            each_lane(
                V32,
                "(int32_t)((uint32_t)(uint16_t)a[2 * i] | (uint32_t)(uint16_t)a[2 * i + 1] << 16)",
            ),
            "bitcast <8 x i16> {0} to <4 x i32>",
        ),
        intrinsic(
            "upper_s32", "The upper halves of words, unsigned.", (V32,), V32,
            lambda a: tuple((x >> 16) & 0xFFFF for x in a),
            "vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), 16))",
            each_lane(V32, "(int32_t)((uint32_t)a[i] >> 16)"),
            "lshr <4 x i32> {0}, splat (i32 16)",
        ),
        intrinsic(
            "raised_s32", "The lower halves of words as upper ones.", (V32,), V32,
            lambda a: tuple(wrap(x << 16, 32) for x in a), "vshlq_n_s32(a, 16)",
            each_lane(V32, "(int32_t)((uint32_t)a[i] << 16)"),
            "shl <4 x i32> {0}, splat (i32 16)",
        ),
    )


INTRINSICS = (
    *FLOATS,
    *(each for t in (V8, V16) for each in _dots(t)),
    _long_dot(),
    *_SCALING,
    *(_wrapping("add", t, "The sums of the lanes, which wrap.", lambda a, b: a + b, "+", "add")
      for t in (V8, V16, V32)),
    *(_wrapping("sub", t, "The differences of the lanes, which wrap.", lambda a, b: a - b, "-",
                "sub") for t in (V16, V32)),
    *(_wrapping("mul", t, "The products of the lanes, which wrap.", lambda a, b: a * b, "*", "mul")
      for t in (V16, V32)),
    _wrapping("and", V32, "The bits that are set in both.", lambda a, b: a & b, "&", "and"),
    *(_extreme("min", t, min, "<") for t in (V8, V16, V32)),
    *(_extreme("max", t, max, ">") for t in (V8, V16, V32)),
    *(_dup(t) for t in (V8, V16, V32)),
    _set_lanes(),
    *(_mull(letter, s, r) for s, r in ((V8, V16), (V16, V32)) for letter in "bt"),
    *(_movl(letter, s, r) for s, r in ((V8, V16), (V16, V32)) for letter in "bt"),
    _narrow(V32, V16),
    _narrow(V16, V8),
    _saturating_add(),
    _multiply_add(),
    *_halves(),
)
