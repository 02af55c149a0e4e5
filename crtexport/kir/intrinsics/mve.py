"""Vector instructions of Armv8.1-M (MVE, also called Helium).

In C each is a function, which on other processors is a loop over the lanes; a lane of the result is
given as an expression over lane ``i`` of ``a``, ``b`` ….
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.fma import where_missing
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import fused_multiply_add, saturate, wrap

Lanes = tuple[int, ...]

_C = {Scalar.I32: "int32_t", Scalar.I64: "int64_t", Scalar.F32: "float"}
_LLVM = {
    Scalar.I8X16: "<16 x i8>", Scalar.I16X8: "<8 x i16>", Scalar.I32X4: "<4 x i32>",
    Scalar.F32X4: "<4 x float>", Scalar.I32: "i32", Scalar.F32: "float",
}
_V8, _V16, _V32 = Scalar.I8X16, Scalar.I16X8, Scalar.I32X4
_NAMES = {_V8: "s8", _V16: "s16", _V32: "s32"}
_MANGLED = {_V8: "v16i8", _V16: "v8i16", _V32: "v4i32"}


def _bits(type_: Scalar) -> int:
    return 8 * type_.lane.itemsize


def _c(type_: Scalar) -> str:
    return f"crt_{type_.value}" if type_.is_vector else _C[type_]


def _helper(
    name: str, meaning: str, params: tuple[Scalar, ...], result: Scalar, arm: str, portable: str
) -> str:
    arguments = ", ".join(f"{_c(p)} {letter}" for p, letter in zip(params, "abcd", strict=False))
    return (
        f"/* {meaning} */\n"
        f"static inline {_c(result)} crt_{name}({arguments})\n"
        "{\n"
        "#if defined(__ARM_FEATURE_MVE)\n"
        f"    return {arm};\n"
        "#else\n"
        f"{portable}"
        "#endif\n"
        "}\n"
    )


def _each_lane(result: Scalar, lane: str) -> str:
    """The portable body of a function whose result has the lanes ``lane``."""
    return (
        f"    {_c(result)} result = {{0}};\n"
        f"    for (int i = 0; i < {result.lanes}; ++i) {{\n"
        f"        result[i] = {lane};\n"
        "    }\n"
        "    return result;\n"
    )


def _intrinsic(
    name: str, meaning: str, params: tuple[Scalar, ...], result: Scalar,
    evaluate: Callable[..., object], arm: str, portable: str, llvm: str, declare: str = "",
) -> Intrinsic:
    full = f"mve_{name}"
    places = ", ".join(f"{{{i}}}" for i in range(len(params)))
    return Intrinsic(
        name=full, params=params, result=result,
        evaluate=evaluate,
        c_expression=f"crt_{full}({places})",
        c_helper=_helper(full, meaning, params, result, arm, portable),
        llvm=llvm, llvm_declare=declare,
    )


def _lanewise(
    op: str, type_: Scalar, meaning: str, lane: Callable[[int, int], int], c_lane: str,
    llvm: str, declare: str = "", arm: str = "",
) -> Intrinsic:
    """An operation on the lanes of two vectors of one type."""

    def evaluate(a: Lanes, b: Lanes) -> Lanes:
        return tuple(lane(x, y) for x, y in zip(a, b, strict=True))

    suffix = _NAMES[type_]
    vector = _LLVM[type_]
    name = _MANGLED[type_]
    return _intrinsic(
        f"{op}_{suffix}", meaning, (type_, type_), type_, evaluate,
        arm or f"v{op}q_{suffix}(a, b)", _each_lane(type_, c_lane),
        llvm.format(vector, name, "{0}", "{1}"), declare.format(vector, name),
    )


def _wrapping(op: str, type_: Scalar, meaning: str, function: Callable[[int, int], int], sign: str,
              llvm: str) -> Intrinsic:
    bits = _bits(type_)
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
    suffix, vector = _NAMES[type_], _LLVM[type_]
    name = f"@llvm.arm.mve.vmldava.{_MANGLED[type_]}"
    dot = f"call i32 {name}(i32 0, i32 0, i32 0, i32 {{}}, {vector} {{}}, {vector} {{}})"
    declare = f"declare i32 {name}(i32, i32, i32, i32, {vector}, {vector})"
    return (
        _intrinsic(
            f"mladav_{suffix}", "The sum of the products of all lanes.", (type_, type_),
            Scalar.I32, _mladav, f"vmladavq_{suffix}(a, b)", _dot_body(type_, "0u", "a", "b"),
            dot.format("0", "{0}", "{1}"), declare,
        ),
        _intrinsic(
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
    return _intrinsic(
        "mlaldava_s16", "a + the sum of the products of all lanes, in 64 bits.",
        (Scalar.I64, _V16, _V16), Scalar.I64,
        lambda total, a, b: wrap(total + sum(x * y for x, y in zip(a, b, strict=True)), 64),
        "vmlaldavaq_s16(a, b, c)",
        "    uint64_t sum = (uint64_t)a;\n"
        f"    for (int i = 0; i < {_V16.lanes}; ++i) {{\n"
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
        "qrdmulh", _V32, "The upper halves of doubled products, rounded, saturated.", _qrdmulh,
        "(a[i] == INT32_MIN && b[i] == INT32_MIN) ? INT32_MAX\n"
        "            : (int32_t)(((int64_t)a[i] * b[i] + (1 << 30)) >> 31)",
        "call {0} @llvm.arm.mve.vqrdmulh.{1}({0} {2}, {0} {3})",
        "declare {0} @llvm.arm.mve.vqrdmulh.{1}({0}, {0})",
    ),
    _lanewise(
        "rshl", _V32, "a shifted left by b, or right by -b and rounded, halves up; |b| < 32.",
        _rshl,
        "(b[i] >= 0) ? (int32_t)((uint32_t)a[i] << b[i])\n"
        "            : (int32_t)((a[i] + ((int64_t)1 << (-b[i] - 1))) >> -b[i])",
        "call {0} @llvm.arm.mve.vshl.vector.{1}.{1}({0} {2}, {0} {3}, i32 0, i32 1, i32 0)",
        "declare {0} @llvm.arm.mve.vshl.vector.{1}.{1}({0}, {0}, i32, i32, i32)",
        arm="vrshlq_s32(a, b)",
    ),
    _lanewise(
        "mulh", _V32, "The upper halves of products, rounded down.", lambda a, b: (a * b) >> 32,
        "(int32_t)(((int64_t)a[i] * b[i]) >> 32)",
        "call {0} @llvm.arm.mve.vmulh.{1}({0} {2}, {0} {3}, i32 0)",
        "declare {0} @llvm.arm.mve.vmulh.{1}({0}, {0}, i32)",
    ),
    _lanewise(
        "rmulh", _V32, "The upper halves of products, rounded, halves up.",
        lambda a, b: wrap((a * b + (1 << 31)) >> 32, 32),
        "(int32_t)(((int64_t)a[i] * b[i] + 0x80000000) >> 32)",
        "call {0} @llvm.arm.mve.vrmulh.{1}({0} {2}, {0} {3}, i32 0)",
        "declare {0} @llvm.arm.mve.vrmulh.{1}({0}, {0}, i32)",
    ),
    _intrinsic(
        "sign_s32", "-1 in negative lanes, else 0.", (_V32,), _V32,
        lambda a: tuple(x >> 31 for x in a), "vshrq_n_s32(a, 31)",
        _each_lane(_V32, "(a[i] < 0) ? -1 : 0"),
        "ashr <4 x i32> {0}, splat (i32 31)",
    ),
)


def _dup(type_: Scalar) -> Intrinsic:
    """All lanes from the lower bits of one number."""
    bits, suffix, vector = _bits(type_), _NAMES[type_], _LLVM[type_]
    element = f"i{bits}"
    narrow = "" if bits == 32 else f" %n = trunc i32 %x to {element}"
    source = "%x" if bits == 32 else "%n"
    name = f"@crt.mve.dup.{suffix}"
    arm = f"vdupq_n_{suffix}({'a' if bits == 32 else f'(int{bits}_t)a'})"
    return _intrinsic(
        f"dup_{suffix}", "a in every lane.", (Scalar.I32,), type_,
        lambda a: (wrap(a, bits),) * type_.lanes, arm,
        _each_lane(type_, "a" if bits == 32 else f"(int{bits}_t)a"),
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
    return _intrinsic(
        "lanes_s32", "Four numbers as lanes.", (Scalar.I32,) * 4, _V32, lambda *lanes: lanes, arm,
        "    const crt_i32x4 result = {a, b, c, d};\n    return result;\n",
        "call <4 x i32> @crt.mve.lanes.s32(i32 {0}, i32 {1}, i32 {2}, i32 {3})",
        "define internal <4 x i32> @crt.mve.lanes.s32(i32 %a, i32 %b, i32 %c, i32 %d)"
        f" alwaysinline nounwind {{{steps} ret <4 x i32> %v3 }}",
    )


def _half_of(letter: str) -> int:
    return "bt".index(letter)


def _mull(letter: str, source: Scalar, result: Scalar) -> Intrinsic:
    first, suffix = _half_of(letter), _NAMES[source]
    which = "even" if letter == "b" else "odd"
    index = f"2 * i + {first}" if first else "2 * i"
    narrow, wide = _LLVM[source], _LLVM[result]
    name = f"@llvm.arm.mve.vmull.{_MANGLED[result]}.{_MANGLED[source]}"
    return _intrinsic(
        f"mull{letter}_{suffix}", f"The products of the {which} lanes, twice as wide.",
        (source, source), result,
        lambda a, b: tuple(x * y for x, y in zip(a[first::2], b[first::2], strict=True)),
        f"vmull{letter}q_int_{suffix}(a, b)",
        _each_lane(result, f"(int{_bits(result)}_t)(a[{index}] * b[{index}])"),
        f"call {wide} {name}({narrow} {{0}}, {narrow} {{1}}, i32 0, i32 {first})",
        f"declare {wide} {name}({narrow}, {narrow}, i32, i32)",
    )


def _movl(letter: str, source: Scalar, result: Scalar) -> Intrinsic:
    first, suffix = _half_of(letter), _NAMES[source]
    which = "even" if letter == "b" else "odd"
    index = f"2 * i + {first}" if first else "2 * i"
    wide, narrow = _LLVM[result], f"<{result.lanes} x i{_bits(source)}>"
    chosen = ", ".join(f"i32 {2 * i + first}" for i in range(result.lanes))
    name = f"@crt.mve.movl{letter}.{suffix}"
    return _intrinsic(
        f"movl{letter}_{suffix}", f"The {which} lanes, twice as wide.", (source,), result,
        lambda a: a[first::2], f"vmovl{letter}q_{suffix}(a)",
        _each_lane(result, f"a[{index}]"),
        f"call {wide} {name}({_LLVM[source]} {{0}})",
        f"define internal {wide} {name}({_LLVM[source]} %x) alwaysinline nounwind {{"
        f" %h = shufflevector {_LLVM[source]} %x, {_LLVM[source]} poison,"
        f" <{result.lanes} x i32> <{chosen}> %r = sext {narrow} %h to {wide} ret {wide} %r }}",
    )


def _narrow(source: Scalar, result: Scalar) -> Intrinsic:
    """Two vectors as one of half the width: VQMOVNB, then VQMOVNT."""
    suffix, bits = _NAMES[source], _bits(result)

    def evaluate(a: Lanes, b: Lanes) -> Lanes:
        return tuple(saturate(x, bits) for pair in zip(a, b, strict=True) for x in pair)

    low, high = f"INT{bits}_MIN", f"INT{bits}_MAX"
    lane = "(i % 2 == 0) ? a[i / 2] : b[i / 2]"
    portable = (
        f"    {_c(result)} result = {{0}};\n"
        f"    for (int i = 0; i < {result.lanes}; ++i) {{\n"
        f"        const int32_t lane = {lane};\n"
        f"        result[i] = (lane < {low}) ? {low}\n"
        f"            : (lane > {high}) ? {high} : (int{bits}_t)lane;\n"
        "    }\n"
        "    return result;\n"
    )
    narrow, wide = _LLVM[result], _LLVM[source]
    step = f"@llvm.arm.mve.vqmovn.{_MANGLED[result]}.{_MANGLED[source]}"
    name = f"@crt.mve.narrow.{suffix}"
    own = _NAMES[result]
    return _intrinsic(
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
        "qadd", _V16, "The sums of the lanes, saturated.", lambda a, b: saturate(a + b, 16),
        "(int16_t)((a[i] + b[i] < INT16_MIN) ? INT16_MIN\n"
        "            : (a[i] + b[i] > INT16_MAX) ? INT16_MAX\n"
        "            : a[i] + b[i])",
        "call {0} @llvm.sadd.sat.{1}({0} {2}, {0} {3})",
        "declare {0} @llvm.sadd.sat.{1}({0}, {0})",
    )


_FV = Scalar.F32X4
_FLOAT_HELPERS = "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)"


def _float(
    name: str, meaning: str, params: tuple[Scalar, ...], evaluate: Callable[..., object],
    arm: str, lane: str, llvm: str, declare: str = "", fused: bool = False,
    result: Scalar = _FV,
) -> Intrinsic:
    """An operation on vectors of floats; ``fused``: its portable form uses ``crt_fused``."""
    made = _intrinsic(
        name, meaning, params, result, evaluate, arm, _each_lane(result, lane), llvm, declare
    )
    helper = made.c_helper.replace("defined(__ARM_FEATURE_MVE)", _FLOAT_HELPERS)
    guard = where_missing(_FLOAT_HELPERS) if fused else ""
    return replace(made, c_helper=guard + helper)


def _lanes_of(function: Callable[..., float]) -> Callable[..., tuple[np.float32, ...]]:
    def evaluate(*vectors: tuple[np.float32, ...]) -> tuple[np.float32, ...]:
        return tuple(np.float32(function(*lanes)) for lanes in zip(*vectors, strict=True))

    return evaluate


def _choice(op: str) -> Intrinsic:
    """MIN and MAX as the Kernel IR has them: NaN stays where it is."""
    name = f"@crt.mve.{op}.f32"
    compared = ("b", "a") if op == "min" else ("a", "b")

    def choose(a: float, b: float) -> float:
        return b if (b < a if op == "min" else a < b) else a

    return _float(
        f"{op}_f32", f"b where {compared[0]} is smaller than {compared[1]}, else a.", (_FV, _FV),
        _lanes_of(choose), f"vpselq_f32(b, a, vcmpltq_f32({compared[0]}, {compared[1]}))",
        f"({compared[0]}[i] < {compared[1]}[i]) ? b[i] : a[i]",
        f"call <4 x float> {name}(<4 x float> {{0}}, <4 x float> {{1}})",
        f"define internal <4 x float> {name}(<4 x float> %a, <4 x float> %b) alwaysinline nounwind"
        f" {{ %c = fcmp olt <4 x float> %{compared[0]}, %{compared[1]}"
        " %r = select <4 x i1> %c, <4 x float> %b, <4 x float> %a ret <4 x float> %r }",
    )


_FMA = "declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)"
_DUP = (
    "define internal <4 x float> @crt.mve.dup.f32(float %x) alwaysinline nounwind {"
    " %v = insertelement <4 x float> poison, float %x, i32 0"
    " %r = shufflevector <4 x float> %v, <4 x float> poison, <4 x i32> zeroinitializer"
    " ret <4 x float> %r }"
)
_FLOATS = (
    _float(
        "dup_f32", "a in every lane.", (Scalar.F32,), lambda a: (np.float32(a),) * 4,
        "vdupq_n_f32(a)", "a", "call <4 x float> @crt.mve.dup.f32(float {0})", _DUP,
    ),
    _float(
        "fma_f32", "a + the products of the lanes, rounded once.", (_FV, _FV, _FV),
        _lanes_of(lambda a, b, c: fused_multiply_add(b, c, a)), "vfmaq_f32(a, b, c)",
        "crt_fused(b[i], c[i], a[i])",
        "call <4 x float> @llvm.fma.v4f32(<4 x float> {1}, <4 x float> {2}, <4 x float> {0})",
        _FMA, fused=True,
    ),
    _float(
        "fma_n_f32", "a + the lanes of b times c, rounded once.", (_FV, _FV, Scalar.F32),
        lambda a, b, c: tuple(
            np.float32(fused_multiply_add(y, c, x)) for x, y in zip(a, b, strict=True)
        ),
        "vfmaq_n_f32(a, b, c)", "crt_fused(b[i], c, a[i])",
        "call <4 x float> @crt.mve.fma.n.f32(<4 x float> {0}, <4 x float> {1}, float {2})",
        f"{_FMA}\n"
        "define internal <4 x float> @crt.mve.fma.n.f32(<4 x float> %a, <4 x float> %b, float %x)"
        " alwaysinline nounwind {"
        " %v = insertelement <4 x float> poison, float %x, i32 0"
        " %s = shufflevector <4 x float> %v, <4 x float> poison, <4 x i32> zeroinitializer"
        " %r = call <4 x float> @llvm.fma.v4f32(<4 x float> %b, <4 x float> %s, <4 x float> %a)"
        " ret <4 x float> %r }",
        fused=True,
    ),
    _float(
        "from_s32", "The lanes as floats, rounded to nearest.", (_V32,),
        lambda a: tuple(np.float32(x) for x in a), "vcvtq_f32_s32(a)", "(float)a[i]",
        "sitofp <4 x i32> {0} to <4 x float>",
    ),
    _float(
        "as_f32", "The floats whose encodings the lanes are.", (_V32,),
        lambda a: tuple(np.array(a, np.int32).view(np.float32)), "vreinterpretq_f32_s32(a)",
        "((union { int32_t bits; float real; }){a[i]}).real",
        "bitcast <4 x i32> {0} to <4 x float>",
    ),
    _float(
        "add_f32", "The sums of the lanes.", (_FV, _FV), _lanes_of(lambda a, b: a + b),
        "vaddq_f32(a, b)", "a[i] + b[i]", "fadd <4 x float> {0}, {1}",
    ),
    _float(
        "mul_f32", "The products of the lanes.", (_FV, _FV), _lanes_of(lambda a, b: a * b),
        "vmulq_f32(a, b)", "a[i] * b[i]", "fmul <4 x float> {0}, {1}",
    ),
    _float(
        "round_f32", "The lanes, within 2**22, to integers, halves to even.", (_FV,),
        lambda a: tuple(int(np.rint(x)) for x in a), "vcvtnq_s32_f32(a)",
        "(int32_t)((a[i] + 12582912.0f) - 12582912.0f)",
        "call <4 x i32> @crt.mve.round.f32(<4 x float> {0})",
        "declare <4 x i32> @llvm.arm.mve.vcvtn.v4i32.v4f32(i32, <4 x float>)\n"
        "define internal <4 x i32> @crt.mve.round.f32(<4 x float> %a) alwaysinline nounwind {"
        " %r = call <4 x i32> @llvm.arm.mve.vcvtn.v4i32.v4f32(i32 0, <4 x float> %a)"
        " ret <4 x i32> %r }",
        result=_V32,
    ),
    _choice("min"),
    _choice("max"),
)

INTRINSICS = (
    *_FLOATS,
    *(intrinsic for t in (_V8, _V16) for intrinsic in _dots(t)),
    _long_dot(),
    *_SCALING,
    *(_wrapping("add", t, "The sums of the lanes, which wrap.", lambda a, b: a + b, "+", "add")
      for t in (_V8, _V16, _V32)),
    *(_wrapping("sub", t, "The differences of the lanes, which wrap.", lambda a, b: a - b, "-",
                "sub") for t in (_V16, _V32)),
    *(_wrapping("mul", t, "The products of the lanes, which wrap.", lambda a, b: a * b, "*", "mul")
      for t in (_V16, _V32)),
    _wrapping("and", _V32, "The bits that are set in both.", lambda a, b: a & b, "&", "and"),
    *(_extreme("min", t, min, "<") for t in (_V8, _V16, _V32)),
    *(_extreme("max", t, max, ">") for t in (_V8, _V16, _V32)),
    *(_dup(t) for t in (_V8, _V16, _V32)),
    _set_lanes(),
    *(_mull(letter, s, r) for s, r in ((_V8, _V16), (_V16, _V32)) for letter in "bt"),
    *(_movl(letter, s, r) for s, r in ((_V8, _V16), (_V16, _V32)) for letter in "bt"),
    _narrow(_V32, _V16),
    _narrow(_V16, _V8),
    _saturating_add(),
)
