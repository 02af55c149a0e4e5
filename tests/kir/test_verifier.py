"""The verifier proves every index of good kernels and names what is wrong with bad ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from crtexport.kir.analysis.address_intervals import addresses
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    const,
    div,
    eq,
    f32,
    ge,
    i32,
    load,
    lt,
    max_,
    min_,
    mul,
    or_,
    select,
    shl,
    shr,
    sub,
)
from crtexport.kir.interpreter import InterpreterError, run
from crtexport.kir.language import (
    Assign,
    Binary,
    BinaryOp,
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
    LoadVector,
    LoadWord,
    Local,
    Scalar,
    Select,
    Stmt,
    Store,
    StoreVector,
    Var,
)
from crtexport.kir.text import dump
from crtexport.kir.verifier import AccessInterval, KernelError, access_intervals, verify
from tests.kir.strategies import Case, cases

SOURCE = Buffer("source", Scalar.I8, 10)
TARGET = Buffer("target", Scalar.I32, 10, writable=True, align=4)
AT, N = Var("i", Scalar.INDEX), Var("n", Scalar.INDEX)
X = Var("x", Scalar.I32)


def kernel(*body: Stmt, params: tuple[Var, ...] = (), name: str = "k") -> Kernel:
    return Kernel(name, (SOURCE, TARGET), tuple(body), params)


def test_equal_buffers_are_the_same() -> None:
    same = Buffer(SOURCE.name, SOURCE.dtype, SOURCE.size)
    assert (same is not SOURCE, same) == (True, SOURCE)
    verify(kernel(Let(Var("v", Scalar.I8), Load(same, const(0)))))


def touching(index: Expr, *, extent: int = 10) -> Kernel:
    """Reads source[index] in a loop over i."""
    value = Cast(Load(SOURCE, index), Scalar.I32)
    return kernel(For(AT, const(extent), (Store(TARGET, const(0), value),)))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(half=True))
def test_random_kernels_verify_and_touch_only_what_was_proven(case: Case) -> None:
    verify(case.kernel, case.bounds)
    proven = access_intervals(case.kernel, case.bounds)
    assert set(proven) <= set(case.arrays)
    for buffer in case.kernel.buffers:
        found = proven.get(buffer.name)
        if found is not None:
            assert 0 <= found.lowest <= found.highest < buffer.size
        if buffer.writable:
            outside = [
                i for i in range(buffer.size)
                if found is None or not found.writes or not found.lowest <= i <= found.highest
            ]
            buffers = case.buffers()
            run(case.kernel, buffers, case.params)
            kept = buffers[buffer.name][outside].tobytes()
            assert kept == case.arrays[buffer.name][outside].tobytes()


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_dumps_are_stable_and_complete(case: Case) -> None:
    text = dump(case.kernel)
    assert text == dump(case.kernel)
    assert text.count("{") == text.count("}")
    assert all(f"{b.name}: {b.dtype.value}[{b.size}]" in text for b in case.kernel.buffers)


def guarded(condition: Expr, index: Expr, *, otherwise: bool = False) -> Kernel:
    """Reads source[index] under a condition on iy = i - 3, i below 20."""
    access = (Store(TARGET, const(0), Cast(Load(SOURCE, index), Scalar.I32)),)
    branch = If(condition, (), access) if otherwise else If(condition, access)
    return kernel(For(AT, const(20), (Let(Y, sub(AT, const(3))), branch)))


Y = Var("iy", Scalar.INDEX)
INSIDE = and_(ge(Y, const(0)), lt(Y, const(10)))


@pytest.mark.parametrize("good", [
    touching(AT),
    touching(sub(const(9), AT)),
    touching(add(mul(shr(AT, const(1)), const(2)), const(1))),
    touching(min_(max_(sub(mul(AT, const(5)), const(7)), const(0)), const(9))),
    touching(div(mul(AT, const(7)), const(7))),
    touching(sub(mul(AT, const(3)), mul(div(mul(AT, const(3)), const(10)), const(10)))),
    touching(and_(mul(AT, const(77)), const(7))),
    touching(or_(and_(AT, const(7)), const(1))),
    touching(shl(shr(AT, const(1)), const(1))),
    touching(select(lt(AT, const(10)), AT, const(9)), extent=50),
    touching(Cast(Cast(AT, Scalar.I32), Scalar.INDEX)),
    touching(add(Cast(lt(AT, const(5)), Scalar.INDEX), const(8))),
    guarded(INSIDE, Y),
    guarded(or_(lt(Y, const(0)), ge(Y, const(10))), Y, otherwise=True),
    guarded(and_(Compare(CompareOp.LE, const(0), Y), Compare(CompareOp.GT, const(10), Y)), Y),
    guarded(and_(ge(add(Y, const(2)), const(2)), lt(sub(Y, const(1)), const(9))), Y),
    guarded(eq(Y, const(4)), mul(Y, const(2))),
    guarded(lt(AT, const(13)), sub(max_(AT, const(3)), const(3))),
    guarded(and_(ge(Cast(Y, Scalar.I32), i32(0)), lt(Cast(Y, Scalar.I32), i32(10))), Y),
    guarded(and_(lt(Y, const(-5)), lt(Y, const(0))), const(99)),  # never reached
])
def test_indices_that_are_inside(good: Kernel) -> None:
    verify(good)


@pytest.mark.parametrize(("bad", "found"), [
    (touching(AT, extent=11), "from 0 to 10"),
    (touching(sub(AT, const(1))), "from -1 to 8"),
    (touching(mul(AT, AT)), "from 0 to 81"),
    (touching(select(lt(AT, const(10)), AT, const(10)), extent=50), "from 0 to 10"),
    (guarded(lt(Y, const(10)), Y), "from -3 to 9"),
    (guarded(ge(Y, const(0)), Y), "from 0 to 16"),
    (guarded(INSIDE, Y, otherwise=True), "from -3 to 16"),
    (guarded(or_(ge(Y, const(0)), lt(Y, const(10))), Y), "from -3 to 16"),
    (guarded(INSIDE, add(Y, const(1))), "from 1 to 10"),
], ids=lambda x: None if isinstance(x, Kernel) else x)
def test_indices_that_may_be_outside(bad: Kernel, found: str) -> None:
    with pytest.raises(KernelError, match=rf"kernel 'k': index of source\[10\] .* {found}"):
        verify(bad)


def test_both_sides_of_a_select_are_evaluated() -> None:
    value = Select(lt(AT, const(10)), Cast(Load(SOURCE, AT), Scalar.I32), i32(0))
    bad = kernel(For(AT, const(20), (Store(TARGET, const(0), value),)))
    with pytest.raises(KernelError, match="from 0 to 19"):
        verify(bad)


def test_what_is_known_of_a_local_ends_with_its_assignment() -> None:
    at = Var("at", Scalar.INDEX)
    access = Store(TARGET, at, i32(0))
    step = Assign(at, add(at, const(1)))
    with pytest.raises(KernelError, match="index of target"):
        verify(kernel(Local(at, const(0)), For(AT, const(20), (access, step))))
    verify(kernel(Local(at, const(3)), For(AT, const(20), (access,))))


def test_a_name_keeps_what_was_known_where_it_was_given() -> None:
    at = Var("at", Scalar.INDEX)
    named = Let(at, Binary(BinaryOp.ADD, AT, const(3)))
    inside = If(lt(AT, const(5)), (Store(TARGET, at, i32(0)),))
    verify(kernel(For(AT, const(7), (named, inside, Store(TARGET, at, i32(0))))))
    with pytest.raises(KernelError, match="from 3 to 12"):
        verify(kernel(For(AT, const(10), (named, inside))))


@pytest.mark.parametrize("bound", [9, 10])
def test_chains_of_names_may_be_long(bound: int) -> None:
    """Each is the one before it, but never more than ``bound``."""
    chain = [Var(f"n{number}", Scalar.INDEX) for number in range(5000)]
    lets = [
        Let(name, min_(before, const(bound)))
        for before, name in zip([AT, *chain], chain, strict=False)
    ]
    whole = kernel(For(AT, const(20), (*lets, Store(TARGET, chain[-1], i32(0)))))
    if bound < TARGET.size:
        verify(whole)
        (_, (low, high)) = addresses(whole, (), {"target"}).popitem()
        assert (float(low[0]), float(high[0])) == (0, 9)
    else:
        with pytest.raises(KernelError, match="from 0 to 10"):
            verify(whole)


def test_parameters_are_unknown_unless_given() -> None:
    loop = kernel(For(AT, N, (Store(TARGET, AT, i32(0)),)), params=(N,))
    with pytest.raises(KernelError, match="index of target"):
        verify(loop)
    verify(loop, {"n": 10})
    verify(loop, {"n": (0, 10)})
    with pytest.raises(KernelError, match="from 0 to 10"):
        verify(loop, {"n": (0, 11)})
    with pytest.raises(KernelError, match="no interval"):
        verify(loop, {"n": (3, 2)})
    with pytest.raises(KernelError, match=r"no parameters \['m'\]"):
        verify(loop, {"m": 3})


def test_access_intervals() -> None:
    body = For(AT, const(4), (
        Store(TARGET, add(AT, const(2)), Cast(Load(SOURCE, sub(const(9), AT)), Scalar.I32)),
        Store(TARGET, const(1), Load(TARGET, AT)),
    ))
    assert access_intervals(kernel(body)) == {
        "source": AccessInterval(6, 9, reads=True, writes=False),
        "target": AccessInterval(0, 5, reads=True, writes=True),
    }
    assert access_intervals(kernel(Comment("nothing"))) == {}


def test_an_access_to_neighbours_spans_all_of_them() -> None:
    four = LoadVector(SOURCE, add(AT, const(1)), Scalar.I8X16, 4)
    reads = For(AT, const(3), (Let(Var("v", Scalar.I8X16), four),))
    assert access_intervals(kernel(reads)) == {
        "source": AccessInterval(1, 6, reads=True, writes=False),
    }
    pair = LoadVector(TARGET, const(8), Scalar.I32X4, 2)
    writes = For(AT, const(3), (StoreVector(TARGET, AT, pair, 2),))
    assert access_intervals(kernel(writes)) == {
        "target": AccessInterval(0, 9, reads=True, writes=True),
    }
    word = Store(TARGET, const(0), LoadWord(SOURCE, const(2)))
    assert access_intervals(kernel(word))["source"] == AccessInterval(2, 5, True, False)


def stores(value: Expr) -> Kernel:
    return kernel(Store(TARGET, const(0), value))


def lets(value: Expr) -> Kernel:
    return kernel(Let(Var("v", value.type), value))


FLOAT = f32(1.0)
BYTE = Load(SOURCE, const(0))


@pytest.mark.parametrize(("bad", "problem"), [
    (stores(BYTE), "target needs i32, got i8"),
    (stores(X), "x is not in scope"),
    (lets(Binary(BinaryOp.ADD, i32(1), const(1))), "add needs i32, got index"),
    (lets(Binary(BinaryOp.ADD, BYTE, BYTE)), "add of i8"),
    (lets(Binary(BinaryOp.SHL, FLOAT, FLOAT)), "shl of f32"),
    (lets(Binary(BinaryOp.WRAP_ADD, FLOAT, FLOAT)), "wrap_add of f32"),
    (lets(Binary(BinaryOp.MAX, lt(X, X), lt(X, X))), "x is not in scope"),
    (lets(Binary(BinaryOp.ADD, Const(1, Scalar.I1), Const(1, Scalar.I1))), "add of i1"),
    (lets(Compare(CompareOp.LT, BYTE, BYTE)), "a comparison of i8"),
    (lets(Compare(CompareOp.LT, i32(1), FLOAT)), "a comparison needs i32, got f32"),
    (lets(Select(i32(1), i32(1), i32(2))), "a condition needs i1, got i32"),
    (lets(Select(Const(1, Scalar.I1), BYTE, BYTE)), "a select of i8"),
    (lets(Select(Const(1, Scalar.I1), i32(1), FLOAT)), "a select needs i32, got f32"),
    (lets(Cast(i32(1), Scalar.I1)), "a cast to i1"),
    (lets(Cast(i32(1), Scalar.F16)), "a cast from i32 to f16"),
    (lets(Const(1, Scalar.F32)), "constant 1 is no f32"),
    (lets(Const(1.0, Scalar.I32)), "constant 1.0 is no i32"),
    (lets(Const(True, Scalar.I32)), "constant True is no i32"),
    (lets(Const(128, Scalar.I8)), "constant 128 is no i8"),
    (lets(Call("frobnicate", (), Scalar.I32)), "no intrinsic 'frobnicate'"),
    (lets(Call("f32_from_bits", (FLOAT,), Scalar.F32)), "called with"),
    (lets(Load(TARGET, i32(0))), "index of target needs index, got i32"),
    (lets(Load(Buffer("source", Scalar.I8, 11), const(0))), "source is no argument"),
    (lets(Load(Buffer("other", Scalar.I8, 1), const(0))), "other is no argument"),
    (kernel(Let(X, FLOAT)), "x needs i32, got f32"),
    (kernel(Let(X, i32(1)), Let(X, i32(2))), "x is defined twice"),
    (kernel(Let(Var("source", Scalar.I32), i32(1))), "source is defined twice"),
    (kernel(Let(Var("X", Scalar.I32), i32(1))), "'X' is no identifier"),
    (kernel(Let(Var("x\n", Scalar.I32), i32(1))), "is no identifier"),
    (kernel(Local(Var("v", Scalar.I8), BYTE)), "v can't be a local i8"),
    (kernel(Local(X, i32(1), 32)), "x can't be known to have 32 bits"),
    (kernel(Local(X, i32(0), 0)), "x can't be known to have 0 bits"),
    (kernel(Local(Var("f", Scalar.F32), FLOAT, 24)), "f can't be known to have 24 bits"),
    (kernel(Let(X, i32(1)), Assign(X, i32(2))), "x can't be assigned"),
    (kernel(For(AT, const(2), (Assign(AT, const(0)),))), "i can't be assigned"),
    (kernel(Local(X, i32(1)), Assign(X, FLOAT)), "x needs i32, got f32"),
    (kernel(For(AT, const(2), (Let(X, i32(1)),)), Let(Var("y", Scalar.I32), X)), "not in scope"),
    (kernel(If(lt(i32(1), i32(2)), (Let(X, i32(1)),), (Let(Var("y", Scalar.I32), X),))),
     "not in scope"),
    (kernel(For(X, const(2), ())), "loop variable x is no index"),
    (kernel(For(AT, i32(2), ())), "extent of i needs index"),
    (kernel(For(AT, const(-1), ())), "extent of i is -1"),
    (kernel(Let(N, add(Cast(BYTE, Scalar.INDEX), const(1))), For(AT, N, ())), "neither"),
    (kernel(For(AT, add(N, const(1)), ()), params=(N,)), "neither"),
    (kernel(For(AT, const(2), (), unroll=0)), "hint 0"),
    (kernel(Store(SOURCE, const(0), BYTE)), "source is read-only"),
    (kernel(If(i32(1), ())), "a condition needs i1"),
    (kernel(Comment("one\ntwo")), "several lines"),
    (kernel(params=(Var("p", Scalar.I8),)), "parameter p: i8"),
    (kernel(name="Bad name"), "the name is no identifier"),
    (Kernel("k", (Buffer("b", Scalar.I32, 1, align=2),), ()), "align 2"),
    (Kernel("k", (Buffer("b", Scalar.I8, 1, align=3),), ()), "align 3"),
    (Kernel("k", (Buffer("b", Scalar.I8, -1),), ()), "size -1"),
    (Kernel("k", (Buffer("b", Scalar.INDEX, 1, align=8),), ()), "no storage type"),
    (Kernel("k", (SOURCE, SOURCE), ()), "source is defined twice"),
    (Kernel("k", (SOURCE,), (), overlapping=("target",)), r"no buffers \['target'\]"),
])
def test_what_is_wrong_is_named(bad: Kernel, problem: str) -> None:
    with pytest.raises(KernelError, match=problem):
        verify(bad)


def test_an_unproven_kernel_is_caught_when_it_runs() -> None:
    """The interpreter's checks don't depend on the verifier's."""
    with pytest.raises(InterpreterError, match="index outside source"):
        run(touching(AT, extent=11), [np.zeros(10, np.int8), np.zeros(10, np.int32)])


def test_the_dump_of_a_small_kernel() -> None:
    b = KernelBuilder("scale")
    source = b.buffer("source", Scalar.I8, 4)
    target = b.buffer("target", Scalar.F32, 4, writable=True)
    factor = b.param("factor", Scalar.F32)
    with b.loop("i", 4, unroll=2) as i:
        b.comment("twice\tas slow")
        value = b.let("value", load(source, i))
        with b.if_(lt(i, const(2))):
            b.store(target, i, mul(Cast(value, Scalar.F32), factor))
        with b.else_():
            b.store(target, i, f32(0.5))
    assert dump(b.finish("layer 1")) == (
        "# layer 1\n"
        "kernel scale(\n"
        "    source: i8[4] align 1 noalias,\n"
        "    target: f32[4] align 4 writable noalias,\n"
        "    factor: f32,\n"
        ") {\n"
        "    for i < 4 unroll 2 {\n"
        "        # twice\\tas slow\n"
        "        let value: i8 = source[i]\n"
        "        if i < 2 {\n"
        "            target[i] = f32(value) * factor\n"
        "        } else {\n"
        "            target[i] = 0.5:f32\n"
        "        }\n"
        "    }\n"
        "}\n"
    )
