"""Operations on vectors that compilers know by themselves, for any number of lanes.

They are plain LLVM, which picks the instructions; names begin with a machine's and end in the
number of lanes. In C they are expressions over gcc's and clang's vectors.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator

import numpy as np

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import wrap32

Lanes = tuple[int, ...]
Reals = tuple[float, ...]

INTS = {4: Scalar.I32X4, 8: Scalar.I32X8, 16: Scalar.I32X16, 32: Scalar.I32X32}
FLOATS = {4: Scalar.F32X4, 8: Scalar.F32X8, 16: Scalar.F32X16, 32: Scalar.F32X32}

_LATE = (
    '"crt-inline-late" memory(none) nocallback nofree nosync nounwind speculatable willreturn'
)
"""Nothing looks into a weak function, whose body might be another; what calls of it may be moved
and left out by is said instead."""

_C = {Scalar.I32: "int32_t", Scalar.F32: "float"}
_LLVM = {Scalar.I32: "i32", Scalar.F32: "float", Scalar.I16: "i16", Scalar.I8: "i8"}


def c_type(type_: Scalar) -> str:
    """Returns the C name of the type of an argument."""
    return f"crt_{type_.value}" if type_.is_vector else _C[type_]


def llvm_type(type_: Scalar) -> str:
    """Returns the LLVM type of an argument."""
    return f"<{type_.lanes} x {_LLVM[type_.lane]}>" if type_.is_vector else _LLVM[type_]

LETTERS = "abcde"
"""Names of the arguments of operations."""


def intrinsic(
    full: str, meaning: str, params: tuple[Scalar, ...], result: Scalar,
    evaluate: Callable[..., object], c: str, body: str, declare: str = "", late: bool = False,
) -> Intrinsic:
    """Called ``full``; ``c``: statements over ``a`` to ``e``; ``body``: LLVM that ends by naming
    ``%r``, after what it ``declare``s. ``late``: LLVM's passes see but a call. A single instruction
    stands where it is asked for, else LLVM would have to put it there."""
    letters = LETTERS[: len(params)]
    arguments = ", ".join(f"{c_type(p)} {x}" for p, x in zip(params, letters, strict=True))
    helper = (
        f"/* {meaning} */\n"
        f"static inline {c_type(result)} crt_{full}({arguments})\n"
        f"{{\n{c}}}\n"
    )
    symbol = f"@crt.{full}"
    formal = ", ".join(f"{llvm_type(p)} %{x}" for p, x in zip(params, letters, strict=True))
    actual = ", ".join(f"{llvm_type(p)} {{{i}}}" for i, p in enumerate(params))
    linkage, attributes = ("weak hidden", _LATE) if late else ("internal", "alwaysinline nounwind")
    definition = (
        f"define {linkage} {llvm_type(result)} {symbol}({formal}) {attributes} "
        f"{{ {body} ret {llvm_type(result)} %r }}"
    )
    llvm, declared = f"call {llvm_type(result)} {symbol}({actual})", [declare, definition]
    if not late and body.count(" = ") == 1:
        llvm, declared = re.sub(rf"%([{LETTERS}])\b", _place, body.removeprefix("%r = ")), [declare]
    return Intrinsic(
        name=full, params=params, result=result, evaluate=evaluate,
        c_expression=f"crt_{full}({', '.join(f'{{{i}}}' for i in range(len(params)))})",
        c_helper=helper, llvm=llvm, llvm_declare="\n".join(filter(None, declared)),
    )


def _place(argument: re.Match[str]) -> str:
    """Places of arguments in the text of an instruction."""
    return f"{{{LETTERS.index(argument[1])}}}"


def gives(expression: str) -> str:
    """C that returns the value of an expression."""
    return f"    return {expression};\n"


def everywhere(type_: Scalar, value: str) -> str:
    """Returns a vector literal in C."""
    return f"({c_type(type_)}){{{', '.join([value] * type_.lanes)}}}"


def local_type(name: str, element: str, count: int, size: int) -> str:
    """Returns a local vector type in C."""
    return f"    typedef {element} {name} __attribute__((vector_size({count * size})));\n"


def lanewise(machine: str, width: int) -> tuple[Intrinsic, ...]:
    """Returns the intrinsics for sums and limits of 32-bit integers."""
    ints = INTS[width]
    vector, mangled = llvm_type(ints), f"v{width}i32"
    first = f"%v = insertelement {vector} poison, i32 %a, i32 0"
    spread = f"shufflevector {vector} %v, {vector} poison, <{width} x i32> zeroinitializer"

    def extreme(op: str, sign: str, function: Callable[[int, int], int]) -> Intrinsic:
        name = f"@llvm.s{op}.{mangled}"
        return intrinsic(
            f"{machine}_{op}_{width}",
            f"The {'smaller' if op == 'min' else 'larger'} of two lanes.",
            (ints, ints), ints,
            lambda a, b: tuple(function(x, y) for x, y in zip(a, b, strict=True)),
            f"    const {c_type(ints)} first = a {sign} b;\n"
            + gives("(a & first) | (b & ~first)"),
            f"%r = call {vector} {name}({vector} %a, {vector} %b)",
            f"declare {vector} {name}({vector}, {vector})",
        )

    return (
        intrinsic(
            f"{machine}_dup_{width}", "a in every lane.", (Scalar.I32,), ints,
            lambda a: (a,) * width,
            gives(everywhere(ints, "a")), f"{first} %r = {spread}",
        ),
        intrinsic(
            f"{machine}_add_{width}", "The sums of the lanes, which wrap.", (ints, ints), ints,
            lambda a, b: tuple(wrap32(x + y) for x, y in zip(a, b, strict=True)),
            local_type("crt_words", "uint32_t", width, 4)
            + gives(f"({c_type(ints)})((crt_words)a + (crt_words)b)"),
            f"%r = add {vector} %a, %b",
        ),
        intrinsic(
            f"{machine}_toward_{width}", "Negative lanes less 1.", (ints,), ints,
            lambda a: tuple(wrap32(x + (x >> 31)) for x in a),
            local_type("crt_words", "uint32_t", width, 4)
            + gives(f"({c_type(ints)})((crt_words)a + (crt_words)(a >> 31))"),
            f"%s = ashr {vector} %a, splat (i32 31) %r = add {vector} %a, %s",
        ),
        extreme("min", "<", min), extreme("max", ">", max),
    )


def f32(value: float) -> float:
    """Returns the nearest float32."""
    return float(np.float32(value))


def mean(machine: str, width: int, *, doubles: bool) -> Intrinsic:
    """Returns the intrinsic for averages, of which ``doubles`` are divided where there are no
    quotients of integers. Those, cut off, are exact: no quotient of numbers of 32 bits is so close
    below an integer that it is rounded to it."""
    ints = INTS[width]
    vector, words, real = llvm_type(ints), c_type(ints), f"<{width} x double>"
    places = f"<{width} x i32> zeroinitializer"
    total = f"({words})((crt_wrapped)a + (crt_wrapped)half - (crt_wrapped)(a >> 31))"
    quotient, divided = gives(f"{total} / b"), f"%r = sdiv {vector} %t, %s"
    if doubles:
        quotient = (
            local_type("crt_doubles", "double", width, 8)
            + f"    const {words} sum =\n        {total};\n"
            + gives(
                "__builtin_convertvector(\n"
                f"        __builtin_convertvector(sum, crt_doubles) / (double)b, {words})"
            )
        )
        divided = (
            f"%d = sitofp {vector} %t to {real} %e = sitofp i32 %b to double "
            f"%i = insertelement {real} poison, double %e, i32 0 "
            f"%j = shufflevector {real} %i, {real} poison, {places} "
            f"%q = fdiv {real} %d, %j %r = fptosi {real} %q to {vector}"
        )

    def evaluate(a: Lanes, b: int) -> Lanes:
        return tuple(_mean(x, b) for x in a)

    return intrinsic(
        f"{machine}_mean_{width}", "a / b to nearest, halves away from zero; b is positive.",
        (ints, Scalar.I32), ints, evaluate,
        local_type("crt_wrapped", "uint32_t", width, 4)
        + f"    const {words} half = {everywhere(ints, 'b / 2')} ^ (a >> 31);\n{quotient}",
        f"%v = insertelement {vector} poison, i32 %b, i32 0 "
        f"%s = shufflevector {vector} %v, {vector} poison, {places} "
        f"%h = ashr {vector} %s, splat (i32 1) %n = ashr {vector} %a, splat (i32 31) "
        f"%x = xor {vector} %h, %n %y = sub {vector} %x, %n %t = add {vector} %a, %y {divided}",
    )


def _mean(total: int, count: int) -> int:
    half = count // 2
    total = wrap32(total + (half if total >= 0 else -half))
    return abs(total) // count * (1 if total >= 0 else -1)


def real_arithmetic(machine: str, width: int, names: str) -> Iterator[Intrinsic]:
    """Yields the intrinsics of ``names``: sums, products and quotients of floats."""
    floats = FLOATS[width]
    operations: dict[str, tuple[str, str, Callable[[float, float], float]]] = {
        "fadd": ("sums", "+", operator.add), "fmul": ("products", "*", operator.mul),
        "fdiv": ("quotients", "/", operator.truediv),
    }

    def one(name: str) -> Intrinsic:
        what, sign, function = operations[name]
        return intrinsic(
            f"{machine}_{name}_{width}", f"The {what} of the lanes.", (floats, floats), floats,
            lambda a, b: tuple(f32(function(x, y)) for x, y in zip(a, b, strict=True)),
            gives(f"a {sign} b"), f"%r = {name} {llvm_type(floats)} %a, %b",
        )

    return map(one, names.split())


def reals(machine: str, width: int) -> tuple[Intrinsic, ...]:
    """Copies and limits of floats."""
    floats, ints = FLOATS[width], INTS[width]
    vector = llvm_type(floats)

    def extreme(op: str, compare: str, sign: str) -> Intrinsic:
        # As MIN and MAX of the Kernel IR.
        def evaluate(a: Reals, b: Reals) -> Reals:
            if op == "min":
                return tuple(y if y < x else x for x, y in zip(a, b, strict=True))
            return tuple(y if x < y else x for x, y in zip(a, b, strict=True))

        left, right = ("b", "a") if op == "min" else ("a", "b")
        return intrinsic(
            f"{machine}_f{op}_{width}", f"{op} of the lanes; b where it wins.",
            (floats, floats), floats, evaluate,
            f"    const {c_type(ints)} second = {left} {sign} {right};\n"
            + gives(
                f"({c_type(floats)})((({c_type(ints)})b & second) | (({c_type(ints)})a & ~second))"
            ),
            f"%c = fcmp {compare} {vector} %{left}, %{right} "
            f"%r = select <{width} x i1> %c, {vector} %b, {vector} %a",
        )

    return (
        intrinsic(
            f"{machine}_fdup_{width}", "a in every lane.", (Scalar.F32,), floats,
            lambda a: (a,) * width,
            gives(everywhere(floats, "a")),
            f"%v = insertelement {vector} poison, float %a, i32 0 "
            f"%r = shufflevector {vector} %v, {vector} poison, <{width} x i32> zeroinitializer",
        ),
        intrinsic(
            f"{machine}_real_{width}", "The lanes as floats.", (ints,), floats,
            lambda a: tuple(map(f32, a)),
            gives(f"__builtin_convertvector(a, {c_type(floats)})"),
            f"%r = sitofp {llvm_type(ints)} %a to {vector}",
        ),
        extreme("min", "olt", "<"), extreme("max", "olt", "<"),
    )
