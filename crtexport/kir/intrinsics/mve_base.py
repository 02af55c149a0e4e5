"""Functions of one instruction of MVE each, in C and in LLVM."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.language import Scalar

Lanes = tuple[int, ...]

_C_NAMES = {Scalar.I32: "int32_t", Scalar.I64: "int64_t", Scalar.F32: "float"}
LLVM = {
    Scalar.I8X16: "<16 x i8>", Scalar.I16X8: "<8 x i16>", Scalar.I32X4: "<4 x i32>",
    Scalar.F32X4: "<4 x float>", Scalar.I32: "i32", Scalar.F32: "float",
}
V8, V16, V32 = Scalar.I8X16, Scalar.I16X8, Scalar.I32X4
NAMES = {V8: "s8", V16: "s16", V32: "s32"}
MANGLED = {V8: "v16i8", V16: "v8i16", V32: "v4i32"}


def bits_of(type_: Scalar) -> int:
    """Returns the bits of a lane."""
    return 8 * type_.lane.itemsize


def c_type(type_: Scalar) -> str:
    """Returns the name of a type in C."""
    return f"crt_{type_.value}" if type_.is_vector else _C_NAMES[type_]


def _helper(
    name: str, meaning: str, params: tuple[Scalar, ...], result: Scalar, arm: str, portable: str
) -> str:
    named = zip(params, "abcd", strict=False)
    arguments = ", ".join(f"{c_type(p)} {letter}" for p, letter in named)
    return (
        f"/* {meaning} */\n"
        f"static inline {c_type(result)} crt_{name}({arguments})\n"
        "{\n"
        "#if defined(__ARM_FEATURE_MVE)\n"
        f"    return {arm};\n"
        "#else\n"
        f"{portable}"
        "#endif\n"
        "}\n"
    )


def each_lane(result: Scalar, lane: str) -> str:
    """Returns the portable body of a function whose result has the lanes ``lane``."""
    return (
        f"    {c_type(result)} result = {{0}};\n"
        f"    for (int i = 0; i < {result.lanes}; ++i) {{\n"
        f"        result[i] = {lane};\n"
        "    }\n"
        "    return result;\n"
    )


def intrinsic(
    name: str, meaning: str, params: tuple[Scalar, ...], result: Scalar,
    evaluate: Callable[..., object], arm: str, portable: str, llvm: str, declare: str = "",
) -> Intrinsic:
    """Returns the instruction ``mve_NAME``. ``arm``: how C has it with ``arm_mve.h``, ``portable``:
    the function's body without."""
    full = f"mve_{name}"
    places = ", ".join(f"{{{i}}}" for i in range(len(params)))
    return Intrinsic(
        name=full, params=params, result=result,
        evaluate=evaluate,
        c_expression=f"crt_{full}({places})",
        c_helper=_helper(full, meaning, params, result, arm, portable),
        llvm=llvm, llvm_declare=declare,
    )
