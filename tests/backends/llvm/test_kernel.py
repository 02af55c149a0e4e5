"""Each expression and statement of the Kernel IR, printed as LLVM IR, computes what it says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.backends.llvm.compile import compile_modules
from crtexport.backends.llvm.kernel import print_kernel
from crtexport.backends.llvm.types import ModuleText, normalized_triple, numbered
from crtexport.kir import builder
from crtexport.kir.builder import KernelBuilder, const, load
from crtexport.kir.language import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Kernel,
    Local,
    Scalar,
    Select,
    Store,
    Var,
)
from crtexport.support.errors import CrtExportError
from tests.backends.llvm.llvm_support import TARGETS, Array, elf, run_kernels

NUMPY = {
    Scalar.I1: np.bool_, Scalar.I8: np.int8, Scalar.U8: np.uint8, Scalar.I16: np.int16,
    Scalar.U16: np.uint16, Scalar.I32: np.int32, Scalar.U32: np.uint32, Scalar.I64: np.int64,
    Scalar.F16: np.float16, Scalar.F32: np.float32, Scalar.F64: np.float64,
}
INTEGERS = (Scalar.I32, Scalar.U32, Scalar.I64)
NAN, INF = float("nan"), float("inf")


def _map(
    value: Callable[[Expr, Expr], Expr], result: Scalar, a: Array, b: Array | None = None
) -> tuple[Kernel, dict[str, Array], tuple[()]]:
    """A kernel that computes ``value`` of each pair of elements, and its data."""
    second = a if b is None else b
    k = KernelBuilder("map")
    types = {np.dtype(v): t for t, v in NUMPY.items()}
    x, y = k.buffer("x", types[a.dtype], a.size), k.buffer("y", types[second.dtype], a.size)
    z = k.buffer("z", result, a.size, writable=True)
    with k.loop("i", a.size) as i:
        k.store(z, i, value(load(x, i), load(y, i)))
    return k.finish(), {"x": a, "y": second, "z": np.zeros(a.size, NUMPY[result])}, ()


def _binary(op: BinaryOp, type_: Scalar, a: list[float], b: list[float]) -> Array:
    with np.errstate(over="ignore"):
        x, y = np.array(a).astype(NUMPY[type_]), np.array(b).astype(NUMPY[type_])
    case = _map(lambda p, q: Binary(op, p, q), type_, x, y)
    return run_kernels([case])[0]["z"]


@pytest.mark.parametrize("type_", INTEGERS)
def test_integer_arithmetic(type_: Scalar) -> None:
    a, b = [100, 7, 20, 9], [7, 7, 3, 4]
    ops = {
        BinaryOp.ADD: [107, 14, 23, 13], BinaryOp.SUB: [93, 0, 17, 5],
        BinaryOp.MUL: [700, 49, 60, 36], BinaryOp.DIV: [14, 1, 6, 2],
        BinaryOp.AND: [100 & 7, 7, 20 & 3, 9 & 4], BinaryOp.OR: [100 | 7, 7, 20 | 3, 9 | 4],
        BinaryOp.XOR: [100 ^ 7, 0, 20 ^ 3, 9 ^ 4], BinaryOp.SHL: [12800, 896, 160, 144],
        BinaryOp.SHR: [0, 0, 2, 0], BinaryOp.MIN: [7, 7, 3, 4], BinaryOp.MAX: [100, 7, 20, 9],
    }
    for op, expected in ops.items():
        assert _binary(op, type_, a, b).tolist() == expected, op


def test_negative_integers_divide_toward_zero_and_shift_arithmetically() -> None:
    assert _binary(BinaryOp.DIV, Scalar.I32, [-7, 7, -8], [2, -2, 3]).tolist() == [-3, -3, -2]
    assert _binary(BinaryOp.SHR, Scalar.I32, [-7, -1, -256], [1, 31, 4]).tolist() == [-4, -1, -16]
    assert _binary(BinaryOp.SHR, Scalar.I64, [-(1 << 40)], [36]).tolist() == [-16]
    assert _binary(BinaryOp.MIN, Scalar.I32, [-1], [1]).tolist() == [-1]


def test_unsigned_integers_are_unsigned() -> None:
    high = 4000000000
    assert _binary(BinaryOp.MAX, Scalar.U32, [high], [1]).tolist() == [high]
    assert _binary(BinaryOp.DIV, Scalar.U32, [high], [3]).tolist() == [high // 3]
    assert _binary(BinaryOp.SHR, Scalar.U32, [high], [8]).tolist() == [high >> 8]
    assert _binary(BinaryOp.ADD, Scalar.U32, [high], [high]).tolist() == [2 * high - (1 << 32)]


@pytest.mark.parametrize(("type_", "bits"), [(Scalar.I32, 32), (Scalar.I64, 64)])
def test_wrapping_operations_wrap(type_: Scalar, bits: int) -> None:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    kernels = [
        _map(lambda p, q, op=op: Binary(op, p, q), type_,
             np.array([a], NUMPY[type_]), np.array([b], NUMPY[type_]))
        for op, a, b in (
            (BinaryOp.WRAP_ADD, high, 1), (BinaryOp.WRAP_SUB, low, 1),
            (BinaryOp.WRAP_MUL, high, high),
        )
    ]
    assert [r["z"][0] for r in run_kernels(kernels)] == [low, high, 1]


def test_signed_promises_are_printed_and_only_those() -> None:
    a, b = Var("a", Scalar.I32), Var("b", Scalar.I32)
    u = Var("u", Scalar.U32)
    y = Buffer("y", Scalar.I32, 1, writable=True, align=4)
    body = (
        Store(y, const(0), Binary(BinaryOp.MUL, a, b)),
        Store(y, const(0), Binary(BinaryOp.WRAP_MUL, a, b)),
        Store(y, const(0), Cast(Binary(BinaryOp.MUL, u, u), Scalar.I32)),
    )
    text = print_kernel("k", Kernel("k", (y,), body, (a, b, u)), ModuleText(TARGETS["m4"], "size"))
    assert [line.split("= ")[1] for line in text.splitlines() if "= mul" in line] == [
        "mul nsw i32 %a, %b", "mul i32 %a, %b", "mul i32 %u, %u",
    ]
    assert "fast" not in text


def test_float_minimum_and_maximum_treat_nan_and_zero_as_documented() -> None:
    a, b = [NAN, 1.0, 0.0, -0.0, 3.0], [1.0, NAN, -0.0, 0.0, 2.0]
    low = _binary(BinaryOp.MIN, Scalar.F32, a, b)  # b < a ? b : a
    high = _binary(BinaryOp.MAX, Scalar.F32, a, b)  # a < b ? b : a
    np.testing.assert_array_equal(low, np.array([NAN, 1.0, 0.0, -0.0, 2.0], np.float32))
    np.testing.assert_array_equal(high, np.array([NAN, 1.0, 0.0, -0.0, 3.0], np.float32))
    assert np.signbit(low[2:4]).tolist() == np.signbit(high[2:4]).tolist() == [False, True]


@pytest.mark.parametrize("type_", [Scalar.F32, Scalar.F64])
def test_float_arithmetic_is_not_contracted(type_: Scalar) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(64).astype(NUMPY[type_]) for _ in range(2))
    case = _map(lambda p, q: builder.sub(builder.mul(p, q), builder.div(p, q)), type_, a, b)
    np.testing.assert_array_equal(run_kernels([case], "speed")[0]["z"], a * b - a / b)


@pytest.mark.parametrize("type_", [*INTEGERS, Scalar.F32, Scalar.F64])
@pytest.mark.parametrize("op", list(CompareOp))
def test_comparisons_and_selection(op: CompareOp, type_: Scalar) -> None:
    values = [1, 2, 2, 3]
    if type_.is_signed:
        values = [-1, 2, -3, 3]
    a = np.array([*values, 5], NUMPY[type_])
    b = np.array([2, 2, 1, 3, 4], NUMPY[type_])
    if type_.is_float:
        a[4] = np.nan
    case = _map(lambda p, q: Select(Compare(op, p, q), p, q), type_, a, b)
    relation = {
        CompareOp.EQ: a == b, CompareOp.NE: a != b, CompareOp.LT: a < b, CompareOp.LE: a <= b,
        CompareOp.GT: a > b, CompareOp.GE: a >= b,
    }[op]
    np.testing.assert_array_equal(run_kernels([case])[0]["z"], np.where(relation, a, b))


def test_integer_casts_wrap_and_extend_by_the_source() -> None:
    cases = []
    expected = []
    values = np.array([-1, 0, 1, 127, 128, 255, 32768, -32769, 1 << 31, -(1 << 40)], np.int64)
    storage = (
        Scalar.I8, Scalar.U8, Scalar.I16, Scalar.U16, Scalar.I32, Scalar.U32, Scalar.I64,
    )
    for source in storage:
        for result in storage:
            x = values.astype(NUMPY[source])
            cases.append(_map(lambda p, _, r=result: Cast(p, r), result, x))
            expected.append(x.astype(NUMPY[result]))
    for got, wanted in zip(run_kernels(cases), expected, strict=True):
        np.testing.assert_array_equal(got["z"], wanted)


def test_float_casts() -> None:
    reals = np.array([0.0, -0.5, 0.75, -3.99, 200.5, -100.25])
    cases, expected = [], []
    for source in (Scalar.F32, Scalar.F64):
        x = reals.astype(NUMPY[source])
        for result in (Scalar.I32, Scalar.I64, Scalar.F32, Scalar.F64, Scalar.F16):
            cases.append(_map(lambda p, _, r=result: Cast(p, r), result, x))
            expected.append(x.astype(NUMPY[result]))
        cases.append(_map(lambda p, _: Cast(p, Scalar.U8), Scalar.U8, abs(x)))
        expected.append(abs(x).astype(np.uint8))
    for source in (Scalar.I8, Scalar.U16, Scalar.I32, Scalar.U32, Scalar.I64):
        x = np.array([0, 1, 100, 16777217, 4000000001]).astype(NUMPY[source])
        for result in (Scalar.F16, Scalar.F32, Scalar.F64):
            cases.append(_map(lambda p, _, r=result: Cast(p, r), result, x))
            with np.errstate(over="ignore"):
                expected.append(x.astype(NUMPY[result]))
    for got, wanted in zip(run_kernels(cases), expected, strict=True):
        np.testing.assert_array_equal(got["z"], wanted)


def test_every_half_widens_exactly() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(np.float16)
    got = run_kernels([_map(lambda p, _: Cast(p, Scalar.F32), Scalar.F32, x)])[0]["z"]
    np.testing.assert_array_equal(got, x.astype(np.float32))
    assert (np.signbit(got) == np.signbit(x)).all()


@pytest.mark.parametrize("type_", [Scalar.F32, Scalar.F64])
def test_narrowing_to_half_rounds_once_to_nearest_even(type_: Scalar) -> None:
    halves = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(NUMPY[type_])
    halves[-1] = 65536.0
    middles = (halves[:-1] + halves[1:]) / 2
    x = np.concatenate([
        halves, middles, np.nextafter(middles, 0, dtype=middles.dtype),
        np.nextafter(middles, np.inf, dtype=middles.dtype),
        np.array([INF, NAN, 1e30, 1e-40], middles.dtype),
    ])
    x = np.concatenate([x, -x])
    got = run_kernels([_map(lambda p, _: Cast(p, Scalar.F16), Scalar.F16, x)])[0]["z"]
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16)
    np.testing.assert_array_equal(got, wanted)
    known = ~np.isnan(x)
    assert (np.signbit(got[known]) == np.signbit(x[known])).all()


def test_truth_values_are_stored_as_bytes() -> None:
    k = KernelBuilder("truth")
    x = k.buffer("x", Scalar.I32, 4)
    flags = k.buffer("flags", Scalar.I1, 4, writable=True)
    y = k.buffer("y", Scalar.I32, 4, writable=True)
    with k.loop("i", 4) as i:
        positive = k.local("positive", builder.gt(load(x, i), const(0, Scalar.I32)))
        k.assign(positive, Binary(BinaryOp.XOR, positive, Const(True, Scalar.I1)))
        k.store(flags, i, positive)
        k.store(y, i, Cast(load(flags, i), Scalar.I32))
    data = {
        "x": np.array([-1, 0, 1, 2], np.int32), "flags": np.zeros(4, np.bool_),
        "y": np.zeros(4, np.int32),
    }
    got = run_kernels([(k.finish(), data, ())])[0]
    assert got["flags"].view(np.uint8).tolist() == got["y"].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("extent", [0, 1, 5])
def test_loops_with_a_parameter_as_extent_may_have_no_iteration(extent: int) -> None:
    k = KernelBuilder("fill")
    y = k.buffer("y", Scalar.I32, 5, writable=True)
    count = k.param("count", Scalar.INDEX)
    start = k.param("start", Scalar.I64)
    with k.loop("i", count) as i:
        k.store(y, i, Cast(builder.add(start, Cast(i, Scalar.I64)), Scalar.I32))
    got = run_kernels([(k.finish(), {"y": np.full(5, -1, np.int32)}, (extent, 40))])[0]["y"]
    assert got.tolist() == [40, 41, 42, 43, 44][:extent] + [-1] * (5 - extent)


def test_branches_inside_of_loops() -> None:
    k = KernelBuilder("branches")
    x = k.buffer("x", Scalar.I8, 6)
    y = k.buffer("y", Scalar.I8, 6, writable=True)
    with k.loop("i", 6) as i:
        value = k.let("value", builder.cast(load(x, i), Scalar.I32))
        result = k.local("result", const(0, Scalar.I32))
        with k.if_(builder.lt(value, const(0, Scalar.I32))):
            k.assign(result, builder.sub(const(0, Scalar.I32), value))
        with k.else_(), k.if_(builder.gt(value, const(2, Scalar.I32))):
            k.assign(result, const(2, Scalar.I32))
        k.store(y, i, Cast(result, Scalar.I8))
    data = {"x": np.array([-3, -1, 0, 1, 2, 9], np.int8), "y": np.zeros(6, np.int8)}
    assert run_kernels([(k.finish(), data, ())])[0]["y"].tolist() == [3, 1, 0, 0, 0, 2]


def test_intrinsics() -> None:
    x = np.array([0x3F800000, -0x40000000], np.int32)
    case = _map(lambda p, _: Call("f32_from_bits", (p,), Scalar.F32), Scalar.F32, x)
    assert run_kernels([case])[0]["z"].tolist() == [1.0, -2.0]


def test_constants_of_every_type() -> None:
    wanted = {
        Scalar.I8: -128, Scalar.U8: 255, Scalar.I16: -32768, Scalar.U16: 65535,
        Scalar.I32: -(1 << 31), Scalar.U32: (1 << 32) - 1, Scalar.I64: -(1 << 63),
        Scalar.F16: 0.1, Scalar.F32: 1e-45, Scalar.F64: -NAN, Scalar.I1: True,
    }
    cases = [
        _map(lambda *_, t=type_, v=value: Const(v, t), type_, np.zeros(1, np.int32))
        for type_, value in wanted.items()
    ]
    for (type_, value), got in zip(wanted.items(), run_kernels(cases), strict=True):
        np.testing.assert_array_equal(got["z"], np.array([value]).astype(NUMPY[type_]))


def test_hints_become_metadata_of_the_latch() -> None:
    k = KernelBuilder("hints")
    y = k.buffer("y", Scalar.I32, 64, writable=True)
    for unroll, vectorize in ((1, None), (4, 1), (None, 16), (None, None)):
        with k.loop("i", 64, unroll=unroll, vectorize=vectorize) as i:
            k.store(y, i, Cast(i, Scalar.I32))
    module = ModuleText(TARGETS["m4"], "speed")
    text = print_kernel("hints", k.finish(), module)
    assert text.count("!llvm.loop") == 3
    assert module.metadata == [
        '!0 = !{!"llvm.loop.unroll.disable"}', "!1 = distinct !{!1, !0}",
        '!2 = !{!"llvm.loop.unroll.count", i32 4}', '!3 = !{!"llvm.loop.vectorize.width", i32 1}',
        '!4 = !{!"llvm.loop.interleave.count", i32 1}', "!5 = distinct !{!5, !2, !3, !4}",
        '!6 = !{!"llvm.loop.vectorize.width", i32 16}', "!7 = distinct !{!7, !6}",
    ]


def _dot_size(target: str, extent: int, unroll: int | None, optimize: str) -> int:
    """Bytes of code of a dot product."""
    k = KernelBuilder("dot")
    x, w = k.buffer("x", Scalar.I8, extent), k.buffer("w", Scalar.I8, extent)
    y = k.buffer("y", Scalar.I32, 1, writable=True)
    total = k.local("total", const(0, Scalar.I32))
    with k.loop("i", extent, unroll=unroll) as i:
        factors = [builder.cast(load(b, i), Scalar.I32) for b in (x, w)]
        k.assign(total, builder.add(total, builder.mul(*factors)))
    k.store(y, const(0), total)
    module = ModuleText(TARGETS[target], optimize)
    kernel = print_kernel("dot", k.finish(), module)
    text = module.text("k.ll", (), [kernel.replace("define internal", "define")])
    data = compile_modules({"k.ll": text}, module.target, optimize)["k.o"]
    return int(elf(data).get_section_by_name(".text.dot")["sh_size"])


def test_unrolling_follows_the_hint_unless_speed_is_all() -> None:
    rolled = _dot_size("m3", 256, None, "balanced")
    assert _dot_size("m3", 256, 8, "balanced") > rolled
    assert _dot_size("m3", 256, None, "speed") > rolled >= _dot_size("m3", 256, None, "size")


@pytest.mark.parametrize("optimize", ["balanced", "speed"])
def test_short_loops_are_vectorized_and_not_unrolled_before(optimize: str) -> None:
    # Two loads of 16 bytes and one VMLAVA; unrolled it would be 16 times three instructions.
    assert _dot_size("m55", 16, None, optimize) <= 32


def test_unknown_names_are_errors_that_name_the_kernel() -> None:
    y = Buffer("y", Scalar.I32, 1, writable=True, align=4)

    one = Const(1.0, Scalar.F32)

    def printed(value: Expr) -> None:
        kernel = Kernel("conv2d", (y,), (Store(y, const(0), value),))
        print_kernel("k", kernel, ModuleText(TARGETS["m4"], "size"))

    with pytest.raises(CrtExportError, match=r"conv2d → arm\.magic: there is no intrinsic"):
        printed(Call("arm.magic", (), Scalar.I32))
    with pytest.raises(CrtExportError, match="conv2d → ghost: a kernel uses an unknown variable"):
        printed(Var("ghost", Scalar.I32))
    with pytest.raises(CrtExportError, match="conv2d: floats have no operation xor"):
        printed(Cast(Binary(BinaryOp.XOR, one, one), Scalar.I32))
    with pytest.raises(CrtExportError, match="no optimization called fast"):
        ModuleText(TARGETS["m4"], "fast")


def test_index_has_the_width_of_pointers() -> None:
    k = KernelBuilder("k")
    y = k.buffer("y", Scalar.I32, 8, writable=True)
    with k.loop("i", 8) as i:
        total = k.local("at", i)
        k.store(y, total, const(1, Scalar.I32))
    kernel = k.finish()
    assert any(isinstance(s, Local) for s in kernel.body[0].body)  # type: ignore[union-attr]
    for name, width in (("m4", 32), ("host", 64)):
        text = print_kernel("k", kernel, ModuleText(TARGETS[name], "size"))
        assert f"%i = phi i{width}" in text
        assert f"alloca i{width}, align {width // 8}" in text


def test_triples_get_four_parts_and_the_abi_that_calls_memcpy() -> None:
    wanted = {
        "m4": "thumbv7em-unknown-none-gnueabihf", "m0": "thumbv6m-unknown-none-gnueabi",
        "i386": "i386-unknown-none-elf", "host": "x86_64-unknown-linux-gnu",
    }
    assert {n: normalized_triple(TARGETS[n]) for n in wanted} == wanted
    short = replace(TARGETS["i386"], triple="i686-none-elf")
    assert normalized_triple(short) == "i686-unknown-none-elf"
    with pytest.raises(CrtExportError, match="the float ABI is soft, but the triple"):
        normalized_triple(replace(TARGETS["m4"], float_abi="soft"))


def test_numbers_take_the_place_of_names_of_values_and_of_nothing_else() -> None:
    head = 'define i32 @r(i32 %a, i32 %aa) "x=y" {'
    named = f"{head} %r = add i32 %a, %aa %aaa = mul i32 %r, %a ret i32 %aaa }}"
    text = numbered(named)
    assert text == f"{head} %1 = add i32 %a, %aa %2 = mul i32 %1, %a ret i32 %2 }}"
    first, second = (
        compile_modules({"x.ll": module}, TARGETS["m4"], "balanced") for module in (named, text)
    )
    assert first == second
    assert numbered("declare { i32, i32 } @r(i32)") == "declare { i32, i32 } @r(i32)"


def test_what_a_kernel_computes_has_no_name() -> None:
    k = KernelBuilder("k")
    y = k.buffer("y", Scalar.I32, 3, writable=True)
    with k.loop("i", 3) as i:
        k.store(y, i, load(y, i))
    text = print_kernel("k", k.finish(), ModuleText(TARGETS["m4"], "balanced"))
    defined = [line.split(" = ")[0].strip() for line in text.splitlines() if " = " in line]
    assert defined == ["%i", *(f"%{number}" for number in range(len(defined) - 1))]


@pytest.mark.parametrize(("target", "optimize", "assembled", "smallest"), [
    ("m4", "compact", True, True), ("m4", "compact", False, False), ("m4", "balanced", True, False),
    ("m0", "compact", True, False),
])
def test_compact_compiles_for_size_what_is_around_hot_loops_of_instructions(
    target: str, optimize: str, assembled: bool, smallest: bool
) -> None:
    """Loops that LLVM makes itself, as on a Cortex-M0, are left whole."""
    k = KernelBuilder("k")
    y = k.buffer("y", Scalar.I32, 30, writable=True)
    with k.loop("i", 30, assembled=assembled) as i:
        k.store(y, i, builder.add(load(y, i), builder.i32(1)))
    text = print_kernel("k", k.finish(), ModuleText(TARGETS[target], optimize))
    (head,) = (line for line in text.splitlines() if line.startswith("define"))
    assert ("minsize" in head.split()) == smallest
