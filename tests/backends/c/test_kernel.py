"""Kernels as C: each construct's text, and random kernels against the interpreter."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.backends.c.helpers import (
    _HELPERS,
    F16_FROM_F32,
    F32_FROM_F16,
    FLOATS,
    UNROLL,
    extremum_key,
    intrinsic_key,
)
from crtexport.backends.c.kernel import print_kernel
from crtexport.backends.c.literals import STORAGE
from crtexport.kir import interpreter
from crtexport.kir.builder import KernelBuilder, clamp, const
from crtexport.kir.language import (
    ARITHMETIC,
    Assign,
    Binary,
    BinaryOp,
    Body,
    Buffer,
    Call,
    Cast,
    Comment,
    Compare,
    CompareOp,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Scalar,
    Select,
    Store,
    Var,
)
from crtexport.support.errors import CrtExportError
from tests.backends.c.c_support import (
    assert_same,
    call_kernel,
    compile_object,
    entry,
    file_text,
    shared_library,
)
from tests.kir.strategies import Case, cases

Array = npt.NDArray[Any]

X, Y = Var("x", Scalar.I32), Var("y", Scalar.I32)
F, G = Var("f", Scalar.F32), Var("g", Scalar.F32)
L, U, N = Var("l", Scalar.I64), Var("u", Scalar.U32), Var("i", Scalar.INDEX)
L2, U2, N2 = Var("l2", Scalar.I64), Var("u2", Scalar.U32), Var("i2", Scalar.INDEX)
PAIRS = ((X, Y), (L, L2), (U, U2), (N, N2))
PARAMS = (X, Y, F, G, L, U, N, L2, U2, N2)
SINK = {
    t: Buffer(f"out_{t.value}", t, 4, writable=True, align=t.itemsize) for t in STORAGE
}


def binary(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b)


def kernel(*body: Any, buffers: tuple[Buffer, ...] | None = None) -> Kernel:
    return Kernel("k", tuple(SINK.values()) if buffers is None else buffers, body, PARAMS)


def value_text(e: Expr) -> str:
    """The C text of an expression of a storable type, after ``=``."""
    if e.type is Scalar.INDEX:
        e = Cast(e, Scalar.I64)
    elif e.type is Scalar.I1:
        e = Cast(e, Scalar.I32)
    text = print_kernel(kernel(Store(SINK[e.type], const(0), e)), "k").text
    line = next(line for line in text.splitlines() if line.startswith("    out_"))
    return line.split(" = ", 1)[1].rstrip(";")


def lines(*body: Any) -> list[str]:
    """The statements of a kernel, without the marks of unused parameters."""
    inside = print_kernel(kernel(*body), "k").text.split("\n{\n", 1)[1].splitlines()[:-1]
    return [line[4:] for line in inside if "(void)" not in line]


ADD, SUB, MUL, DIV = BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV
ONE, MINUS = Const(1, Scalar.I32), Const(-3, Scalar.I32)
LESS = Compare(CompareOp.LT, X, Y)


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (binary(ADD, X, binary(MUL, X, Y)), "x + x * y"),
        (binary(MUL, binary(ADD, X, Y), Y), "(x + y) * y"),
        (binary(SUB, X, binary(SUB, X, Y)), "x - (x - y)"),
        (binary(SUB, binary(SUB, X, Y), X), "x - y - x"),
        (binary(ADD, X, binary(ADD, X, Y)), "x + (x + y)"),
        (binary(SUB, X, MINUS), "x - (-3)"),
        (binary(MUL, X, MINUS), "x * -3"),
        (binary(DIV, binary(MUL, X, Y), Y), "(x * y) / y"),
        (binary(BinaryOp.SHR, binary(ADD, X, Y), ONE), "(x + y) >> 1"),
        (binary(BinaryOp.SHL, X, ONE), "(int32_t)((uint32_t)x << 1)"),
        (binary(BinaryOp.SHL, U, Const(3, Scalar.U32)), "u << 3"),
        (binary(BinaryOp.AND, X, binary(BinaryOp.OR, X, Y)), "x & (x | y)"),
        (binary(BinaryOp.WRAP_MUL, X, binary(ADD, X, Y)),
         "(int32_t)((uint32_t)x * (uint32_t)(x + y))"),
        (binary(BinaryOp.WRAP_ADD, L, L), "(int64_t)((uint64_t)l + (uint64_t)l)"),
        (binary(BinaryOp.WRAP_SUB, U, U), "u - u"),
        (binary(BinaryOp.WRAP_ADD, N, N), "(int64_t)(ptrdiff_t)((size_t)i + (size_t)i)"),
        (binary(BinaryOp.MIN, X, Y), "(y < x) ? y : x"),
        (binary(BinaryOp.MAX, X, Const(-128, Scalar.I32)), "(x < -128) ? -128 : x"),
        (binary(BinaryOp.MAX, binary(ADD, X, Y), ONE), "crt_max_i32(x + y, 1)"),
        (clamp(binary(ADD, X, Y), -128, 127), "crt_saturate_i8(x + y)"),
        (clamp(X, -32768, 32767), "crt_saturate_i16(x)"),
        (clamp(X, -127, 127), "crt_min_i32((x < -127) ? -127 : x, 127)"),
        (binary(BinaryOp.MIN, F, G), "(g < f) ? g : f"),
        (Select(LESS, X, binary(ADD, X, Y)), "(x < y) ? x : (x + y)"),
        (binary(BinaryOp.AND, binary(BinaryOp.AND, LESS, LESS), LESS),
         "(int32_t)((x < y) && (x < y) && (x < y))"),
        (binary(BinaryOp.OR, binary(BinaryOp.AND, LESS, LESS), LESS),
         "(int32_t)(((x < y) && (x < y)) || (x < y))"),
        (binary(BinaryOp.XOR, LESS, LESS), "(int32_t)((x < y) != (x < y))"),
        (Compare(CompareOp.GE, binary(ADD, X, Y), ONE), "(int32_t)((x + y) >= 1)"),
        (Cast(binary(ADD, X, Y), Scalar.I8), "(int8_t)(x + y)"),
        (Cast(F, Scalar.I32), "(int32_t)f"),
        (Cast(X, Scalar.F64), "(double)x"),
        (Cast(F, Scalar.F16), "crt_f16_from_f32(f)"),
        (Cast(Load(SINK[Scalar.F16], const(1)), Scalar.F32), "crt_f32_from_f16(out_f16[1])"),
        (Cast(Load(SINK[Scalar.U8], binary(ADD, N, const(1))), Scalar.I32),
         "(int32_t)out_u8[i + 1]"),
        (Call("f32_from_bits", (binary(ADD, X, Y),), Scalar.F32), "crt_f32_from_bits(x + y)"),
    ],
)
def test_expressions_have_few_but_sufficient_parentheses(e: Expr, text: str) -> None:
    assert value_text(e) == text


def test_statements_are_laid_out_as_written_by_hand() -> None:
    acc, z = Var("acc", Scalar.I32), Var("z", Scalar.I32)
    row = Var("row", Scalar.INDEX)
    out = SINK[Scalar.I32]
    body: Body = (
        Local(acc, Const(0, Scalar.I32)),
        Comment("sum */ of all"),
        For(row, const(4), (
            Let(z, binary(ADD, X, Cast(row, Scalar.I32))),
            Assign(acc, binary(ADD, acc, z)),
            If(LESS, (Store(out, row, acc),), (Assign(acc, Y),)),
        ), unroll=4),
        If(LESS, (Store(out, const(0), acc),)),
    )
    assert lines(*body) == [
        "int32_t acc = 0;",
        "/* sum * / of all */",
        "CRT_UNROLL(4)",
        "for (ptrdiff_t row = 0; row < 4; ++row) {",
        "    const int32_t z = x + (int32_t)row;",
        "    acc += z;",
        "    if (x < y) {",
        "        out_i32[row] = acc;",
        "    } else {",
        "        acc = y;",
        "    }",
        "}",
        "if (x < y) {",
        "    out_i32[0] = acc;",
        "}",
    ]


def test_variables_of_other_blocks_leave_their_names_free() -> None:
    """Kernels have names of their own for all; in C, blocks that others don't see share them."""
    out = SINK[Scalar.I32]
    names = [Var(name, Scalar.I32) for name in ("total", "total_2", "total_3", "total_4")]
    row, row_2 = Var("row", Scalar.INDEX), Var("row_2", Scalar.INDEX)
    body: Body = (
        For(row, const(4), (Let(names[0], binary(ADD, X, Y)), Store(out, row, names[0]))),
        For(row_2, const(4), (
            Let(names[1], binary(ADD, X, Y)),
            If(LESS, (Let(names[2], binary(MUL, X, names[1])), Store(out, row_2, names[2]))),
        )),
        Let(names[3], binary(SUB, X, Y)),
        Store(out, const(0), names[3]),
    )
    assert lines(*body) == [
        "for (ptrdiff_t row = 0; row < 4; ++row) {",
        "    const int32_t total = x + y;",
        "    out_i32[row] = total;",
        "}",
        "for (ptrdiff_t row = 0; row < 4; ++row) {",
        "    const int32_t total = x + y;",
        "    if (x < y) {",
        "        const int32_t total_2 = x * total;",
        "        out_i32[row] = total_2;",
        "    }",
        "}",
        "const int32_t total = x - y;",
        "out_i32[0] = total;",
    ]


def test_what_a_division_leaves_is_a_remainder() -> None:
    eight = Const(8, Scalar.I32)
    multiple = binary(MUL, binary(BinaryOp.DIV, X, eight), eight)
    rest, other = binary(SUB, X, multiple), binary(SUB, Y, multiple)
    assert value_text(rest) == "x % 8"
    assert value_text(binary(MUL, rest, eight)) == "(x % 8) * 8"
    assert value_text(other) == "y - (x / 8) * 8"


def test_long_statements_are_broken_at_the_outermost_operators() -> None:
    a, b = Var("a_rather_long_name", Scalar.I32), Var("another_rather_long_name", Scalar.I32)
    product = binary(MUL, binary(ADD, a, b), binary(SUB, a, b))
    long = binary(ADD, binary(ADD, product, product), product)
    k = Kernel("k", (SINK[Scalar.I32],), (
        Store(SINK[Scalar.I32], const(0), long),
        If(binary(BinaryOp.AND, Compare(CompareOp.LT, product, a), Compare(CompareOp.LT, a, b)), (
            Store(SINK[Scalar.I32], const(1), a),
        )),
    ), (a, b))
    assert print_kernel(k, "k").text.split("\n{\n")[1].splitlines() == [
        "    out_i32[0] = (a_rather_long_name + another_rather_long_name)",
        "        * (a_rather_long_name - another_rather_long_name)",
        "        + (a_rather_long_name + another_rather_long_name)",
        "        * (a_rather_long_name - another_rather_long_name)",
        "        + (a_rather_long_name + another_rather_long_name)",
        "        * (a_rather_long_name - another_rather_long_name);",
        "    if ((((a_rather_long_name + another_rather_long_name)",
        "        * (a_rather_long_name - another_rather_long_name)) < a_rather_long_name)",
        "        && (a_rather_long_name < another_rather_long_name)) {",
        "        out_i32[1] = a_rather_long_name;",
        "    }",
        "}",
    ]


def test_the_signature_says_what_is_read_written_and_alone() -> None:
    source = Buffer("source", Scalar.F32, 4, align=4)
    shared = Buffer("shared", Scalar.U8, 4, writable=True)
    k = Kernel("copy", (source, shared), (
        Store(shared, const(0), Cast(Cast(Load(source, const(0)), Scalar.I32), Scalar.U8)),
    ), (Var("count", Scalar.INDEX),), ("what it does", "and for whom"), overlapping=("shared",))
    assert print_kernel(k, "copy").text == (
        "/*\n * what it does\n * and for whom\n */\n"
        "static CRT_KERNEL void copy("
        "const float *restrict source, uint8_t *shared, ptrdiff_t count)\n"
        "{\n"
        "    (void)count;\n"
        "    shared[0] = (uint8_t)(int32_t)source[0];\n"
        "}\n"
    )


def test_helpers_are_asked_for_only_where_used() -> None:
    def needs(*body: Any) -> frozenset[str]:
        return print_kernel(kernel(*body), "k").needs

    out, real, half = SINK[Scalar.I32], SINK[Scalar.F32], SINK[Scalar.F16]
    assert needs(Store(out, const(0), X)) == frozenset()
    assert needs(Store(out, const(0), binary(BinaryOp.MIN, binary(ADD, X, Y), Y))) == {
        extremum_key(BinaryOp.MIN, Scalar.I32)
    }
    assert needs(Store(half, const(0), Cast(F, Scalar.F16))) == {F16_FROM_F32, FLOATS}
    assert needs(Store(real, const(0), Cast(Load(half, const(0)), Scalar.F32))) == {
        F32_FROM_F16, FLOATS
    }
    call = Call("f32_from_bits", (X,), Scalar.F32)
    assert needs(Store(real, const(0), call)) == {intrinsic_key("f32_from_bits"), FLOATS}
    loop = For(Var("n", Scalar.INDEX), const(2), (Store(out, const(0), X),), unroll=2)
    assert needs(loop) == {UNROLL}


def test_what_nothing_reads_is_left_out() -> None:
    unread, acc = Var("unread", Scalar.I32), Var("acc", Scalar.I32)
    n = Var("n", Scalar.INDEX)
    out = SINK[Scalar.I32]
    assert lines(
        Let(unread, X),
        Let(Var("second", Scalar.I32), binary(ADD, unread, X)),
        Local(acc, X),
        For(n, const(3), (Assign(acc, binary(ADD, acc, Y)), Comment("nothing left"))),
        If(LESS, (Assign(acc, Y),)),
        Store(out, const(0), Y),
    ) == ["out_i32[0] = y;"]


def test_names_that_c_or_the_file_has_taken_are_changed() -> None:
    b = KernelBuilder("k")
    out = b.buffer("register", Scalar.I32, 2, writable=True)
    for name in ("int", "int_", "weights", "crt_min_i32", "errno", "main"):
        local = b.local(name, Const(1, Scalar.I32))
        b.store(out, const(0), local)
    text = print_kernel(b.finish(), "k", frozenset({"weights"})).text
    names = [line.split()[1] for line in text.splitlines() if line.startswith("    int32_t")]
    assert names == ["int_", "int__", "weights_", "v_crt_min_i32", "errno_", "main_"]
    assert "int32_t *restrict register_)" in text


HALF = Const(1.0, Scalar.F16)


@pytest.mark.parametrize(
    "e",
    [
        Binary(ADD, HALF, HALF),
        Binary(ADD, Const(1, Scalar.I8), Const(1, Scalar.I8)),
        Binary(BinaryOp.XOR, F, G),
        Binary(BinaryOp.WRAP_ADD, F, G),
        Binary(BinaryOp.SHL, LESS, LESS),
        Cast(L, Scalar.F16),
        Call("no_such_thing", (), Scalar.I32),
        Call("f32_from_bits", (), Scalar.F32),
    ],
)
def test_what_the_kernel_ir_forbids_is_refused(e: Expr) -> None:
    with pytest.raises(CrtExportError, match="C has no spelling for") as caught:
        value_text(e)
    assert caught.value.location == ("kernel", "k")


def test_a_store_to_read_only_memory_is_refused() -> None:
    flash = Buffer("flash", Scalar.I32, 4, align=4)
    with pytest.raises(CrtExportError, match="read-only buffer flash"):
        print_kernel(kernel(Store(flash, const(0), X), buffers=(flash,)), "k")


# ---- compiled


@pytest.mark.parametrize("compiler", ["gcc", "gcc-i386", "clang", "arm", "riscv"])
@pytest.mark.parametrize("level", ["-O0", "-Os", "-O3"])
def test_every_construct_compiles_without_a_warning(
    compiler: str, level: str, tmp_path: Path
) -> None:
    values: list[Expr] = []
    for (v, w), op in itertools.product(PAIRS, BinaryOp):
        values += [binary(op, v, w), binary(op, binary(ADD, v, w), Const(1, v.type))]
    for v, op in itertools.product((F, G), (ADD, SUB, MUL, DIV, BinaryOp.MIN, BinaryOp.MAX)):
        values += [binary(op, v, G), binary(op, binary(MUL, v, v), Const(-0.5, Scalar.F32))]
    values += [Compare(op, v, w) for op in CompareOp for v, w in PAIRS]
    values += [Select(Compare(op, F, G), v, w) for op in CompareOp for v, w in PAIRS]
    for source, target in itertools.product((X, L, U, N, F), STORAGE):
        if target is not Scalar.F16 or source is F:
            values.append(Cast(source, target))
    values += [Const(v, Scalar.F32) for v in (float("inf"), float("nan"), -1e-45)]
    values += [Const(v, Scalar.F64) for v in (float("-inf"), float("nan"), 5e-324)]
    values += [Const(v, Scalar.I64) for v in (-(2**63), 2**63 - 1)]
    values += [Const(v, t) for t, v in ((Scalar.I8, -128), (Scalar.U8, 255), (Scalar.I16, -32768))]
    flag = Var("flag", Scalar.I1)
    body: list[Any] = [
        Let(flag, binary(BinaryOp.OR, LESS, Compare(CompareOp.EQ, X, Y))),
        If(flag, (Store(SINK[Scalar.I32], N, X),)),
        If(Const(1, Scalar.I1), (Store(SINK[Scalar.U16], N, Cast(X, Scalar.U16)),)),
        Store(SINK[Scalar.F32], N, Cast(Load(SINK[Scalar.F16], N), Scalar.F32)),
        For(Var("n", Scalar.INDEX), N, (Store(SINK[Scalar.I8], N, Cast(X, Scalar.I8)),), 2, 4),
        For(Var("m", Scalar.INDEX), const(3), (Store(SINK[Scalar.I8], N, Cast(X, Scalar.I8)),), 1),
    ]
    for e in values:
        stored = Cast(e, Scalar.I64) if e.type in (Scalar.INDEX, Scalar.I1) else e
        body.append(Store(SINK[stored.type], N, stored))
    k = kernel(*body)
    path = tmp_path / "all.c"
    path.write_text(file_text([print_kernel(k, "all")]) + entry(k, "all"))
    compile_object(path, compiler, level)


def test_floats_are_never_contracted(tmp_path: Path) -> None:
    """In GNU mode, where GCC would fuse, and for a processor that can."""
    a = Buffer("a", Scalar.F32, 4, writable=True, align=4)
    k = Kernel("k", (a,), (
        Store(a, const(0), binary(ADD, binary(MUL, F, G), Load(a, const(1)))),
    ), (F, G))
    path = tmp_path / "sum.c"
    path.write_text(file_text([print_kernel(k, "k")]) + entry(k, "k"))
    for compiler, flags in (
        ("arm", ("-mfpu=fpv4-sp-d16",)), ("gcc", ("-march=haswell",)), ("clang", ("-mfma",))
    ):
        text = compile_object(path, compiler, "-std=gnu99", "-O2", "-S", *flags).read_text()
        assert re.search(r"\sv?mul", text)
        assert not re.search(r"\sv?fn?m(a|s|add)", text)


def test_half_precision_is_converted_exactly(tmp_path: Path) -> None:
    count = 1 << 16
    halves = Buffer("halves", Scalar.F16, count, align=2)
    floats = Buffer("floats", Scalar.F32, count, align=4)
    wide = Buffer("wide", Scalar.F32, count, writable=True, align=4)
    narrow = Buffer("narrow", Scalar.F16, count, writable=True, align=2)
    n = Var("n", Scalar.INDEX)
    k = Kernel("k", (halves, floats, wide, narrow), (For(n, const(count), (
        Store(wide, n, Cast(Load(halves, n), Scalar.F32)),
        Store(narrow, n, Cast(Load(floats, n), Scalar.F16)),
    )),))
    path = tmp_path / "half.c"
    path.write_text(file_text([print_kernel(k, "k")]) + entry(k, "k"))
    every = np.arange(count, dtype=np.uint16).view(np.float16)
    rng = np.random.default_rng(1)
    near = every.astype(np.float32).view(np.uint32) + rng.integers(-2, 3, count, np.int64)
    ties = (near & 0xFFFFFFFF).astype(np.uint32) ^ np.where(rng.random(count) < 0.3, 0x1000, 0)
    real = ties.astype(np.uint32).view(np.float32)
    arrays = [every, real, np.zeros(count, np.float32), np.zeros(count, np.float16)]
    call_kernel(shared_library([path]), "k", k, arrays, ())
    with np.errstate(all="ignore"):
        assert_same(arrays[2], every.astype(np.float32))
        assert_same(arrays[3], real.astype(np.float16))


@pytest.mark.parametrize("flags", [("gcc", "-O2"), ("gcc", "-O1", "-fsanitize=undefined"),
                                   ("clang", "-O3")])
@settings(max_examples=5, deadline=None, suppress_health_check=[*HealthCheck])
@given(drawn=st.lists(cases(half=True), min_size=20, max_size=30))
def test_random_kernels_do_what_the_interpreter_does(
    flags: tuple[str, ...], capfd: pytest.CaptureFixture[str], drawn: list[Case]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "random.c"
        symbols = [f"k{i}" for i in range(len(drawn))]
        texts = [print_kernel(c.kernel, s) for c, s in zip(drawn, symbols, strict=True)]
        entries = [entry(c.kernel, s) for c, s in zip(drawn, symbols, strict=True)]
        path.write_text(file_text(texts) + "\n".join(entries))
        library = shared_library([path], *flags[1:], compiler=flags[0])
        for case, symbol in zip(drawn, symbols, strict=True):
            wanted, found = case.buffers(), case.buffers()
            interpreter.run(case.kernel, wanted, case.params)
            arrays = [found[b.name] for b in case.kernel.buffers]
            call_kernel(library, symbol, case.kernel, arrays, case.params)
            for name, array in wanted.items():
                assert_same(found[name], array)
    assert "runtime error" not in capfd.readouterr().err


@pytest.mark.parametrize("type_", sorted(ARITHMETIC, key=lambda t: t.value))
@pytest.mark.parametrize("op", [BinaryOp.MIN, BinaryOp.MAX])
def test_there_is_a_function_for_the_extremes_of_each_type(op: BinaryOp, type_: Scalar) -> None:
    assert "static" in _HELPERS[extremum_key(op, type_)].text
