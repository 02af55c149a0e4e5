"""The interpreter computes what the Kernel IR means and notices each broken promise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from crtexport.kir.builder import KernelBuilder, add, const, f32, i32, load, mul
from crtexport.kir.interpreter import InterpreterError, compile_kernel, run
from crtexport.kir.language import (
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
    LoadWord,
    Local,
    Scalar,
    Select,
    Store,
    Var,
)
from tests.kir.strategies import NUMPY, Case, cases
from tests.lowered import meaning

TYPES = {**NUMPY, Scalar.INDEX: np.int32, Scalar.I1: np.bool_}


class Walker:
    """A second interpreter: walks the tree with NumPy's typed scalars and overflow detection."""

    def __init__(self, case: Case) -> None:
        self.memory = case.buffers()
        self.env: dict[str, Any] = {
            p.name: TYPES[p.type](v)
            for p, v in zip(case.kernel.params, case.params, strict=True)
        }
        with np.errstate(all="ignore"):
            self.body(case.kernel.body)

    def body(self, body: Body) -> None:
        for stmt in body:
            match stmt:
                case Let(var=v, value=e) | Local(var=v, value=e) | Assign(var=v, value=e):
                    self.env[v.name] = self.value(e)
                case Store(buffer=b, index=i, value=e):
                    self.memory[b.name][self.position(b, i)] = self.value(e)
                case For(var=v, extent=n, body=inner):
                    for i in range(int(self.value(n))):
                        self.env[v.name] = np.int32(i)
                        self.body(inner)
                case If(condition=c, then=then, other=other):
                    self.body(then if self.value(c) else other)
                case Comment():
                    pass

    def position(self, buffer: Buffer, index: Expr) -> int:
        position = int(self.value(index))
        assert 0 <= position < buffer.size
        return position

    def value(self, e: Expr) -> Any:
        match e:
            case Const(value=v, type=t):
                return TYPES[t](v)
            case Var(name=n):
                return self.env[n]
            case Load(buffer=b, index=i):
                return self.memory[b.name][self.position(b, i)]
            case LoadWord(buffer=b, index=i):
                first = self.position(b, i)
                last = first + 4 // b.dtype.itemsize
                assert last <= b.size
                return np.frombuffer(self.memory[b.name][first:last].tobytes(), np.int32)[0]
            case Binary(op=op, a=a, b=b):
                return self.binary(op, self.value(a), self.value(b), TYPES[e.type])
            case Compare(op=op, a=a, b=b):
                ufunc = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
                         "gt": np.greater, "ge": np.greater_equal}[op.value]
                return ufunc(self.value(a), self.value(b))
            case Select(condition=c, then=a, other=b):
                return np.where(self.value(c), self.value(a), self.value(b))[()]
            case Cast(value=v, type=t):
                return self.cast(self.value(v), t)
            case Call(name=n, args=args):
                return TYPES[e.type](meaning(n)(*(self.value(a).item() for a in args)))

    def binary(self, op: BinaryOp, a: Any, b: Any, numpy: Any) -> Any:
        name = op.value.removeprefix("wrap_")
        if op is BinaryOp.DIV and numpy not in (np.float32, np.float64):
            return numpy(int(Fraction(int(a), int(b))))
        ufunc = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
            "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
            "shl": np.left_shift, "shr": np.right_shift,
            "min": lambda x, y: np.where(y < x, y, x)[()],
            "max": lambda x, y: np.where(x < y, y, x)[()],
        }[name]
        promises = op.value == name and numpy in (np.int32, np.int64)
        with np.errstate(over="raise" if promises else "ignore"):
            result = ufunc(a, b)
        assert result.dtype == np.dtype(numpy)
        return result

    def cast(self, value: Any, type_: Scalar) -> Any:
        if value.dtype.kind == "f" and not type_.is_float:
            assert np.iinfo(TYPES[type_]).min <= int(value) <= np.iinfo(TYPES[type_]).max
        return value.astype(TYPES[type_])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(half=True))
def test_interpreter_agrees_with_an_independent_evaluation(case: Case) -> None:
    expected = Walker(case).memory
    for use_intervals in (True, False):
        buffers = case.buffers()
        run(case.kernel, buffers, case.params, use_intervals=use_intervals)
        for name, array in buffers.items():
            np.testing.assert_array_equal(array, expected[name], strict=True)
            if array.dtype.kind == "f":
                number = ~np.isnan(array)
                np.testing.assert_array_equal(
                    np.signbit(array[number]), np.signbit(expected[name][number])
                )


def evaluate(expr: Expr, *arrays: np.ndarray, params: tuple[tuple[Var, int | float], ...] = (),
             index_bits: int = 32) -> Any:
    """The value of one expression; its loads name buffers ``b0``, ``b1``, …"""
    inputs = tuple(
        Buffer(f"b{i}", next(s for s, t in NUMPY.items() if a.dtype == t), a.size, align=8)
        for i, a in enumerate(arrays)
    )
    type_ = Scalar.I64 if expr.type in (Scalar.INDEX, Scalar.I1) else expr.type
    value = expr if expr.type is type_ else Cast(expr, type_)
    out = Buffer("out", type_, 1, writable=True)
    kernel = Kernel(
        "k", (*inputs, out), (Store(out, const(0), value),), tuple(p for p, _ in params)
    )
    result = np.zeros(1, NUMPY[type_])
    run(kernel, [*arrays, result], [v for _, v in params], index_bits=index_bits)
    return result[0]


def binary(op: BinaryOp, a: int | float, b: int | float, type_: Scalar) -> Any:
    x, y = Var("x", type_), Var("y", type_)
    return evaluate(Binary(op, x, y), params=((x, a), (y, b)))


@pytest.mark.parametrize(("op", "a", "b", "type_", "expected"), [
    (BinaryOp.WRAP_ADD, 2**31 - 1, 1, Scalar.I32, -(2**31)),
    (BinaryOp.WRAP_MUL, 2**32, 2**32, Scalar.I64, 0),
    (BinaryOp.ADD, 2**32 - 1, 2, Scalar.U32, 1),
    (BinaryOp.SUB, 0, 1, Scalar.U32, 2**32 - 1),
    (BinaryOp.DIV, -7, 2, Scalar.I32, -3),
    (BinaryOp.DIV, 7, -2, Scalar.I64, -3),
    (BinaryOp.SHL, 1, 31, Scalar.I32, -(2**31)),
    (BinaryOp.SHR, -5, 1, Scalar.I32, -3),
    (BinaryOp.SHR, 2**32 - 1, 31, Scalar.U32, 1),
    (BinaryOp.XOR, -1, 5, Scalar.I32, -6),
])
def test_integer_operations(
    op: BinaryOp, a: int, b: int, type_: Scalar, expected: int
) -> None:
    assert binary(op, a, b, type_) == expected


def test_float_operations_round_to_float32_at_each_step() -> None:
    x = Var("x", Scalar.F32)
    tree = add(mul(x, f32(3.0)), f32(1e-3))
    assert evaluate(tree, params=((x, 0.1),)) == np.float32(np.float32(0.1) * np.float32(3)) + (
        np.float32(1e-3)
    )


def test_float_division_by_zero_is_ieee() -> None:
    assert binary(BinaryOp.DIV, -1.0, 0.0, Scalar.F32) == -np.inf
    assert np.isnan(binary(BinaryOp.DIV, 0.0, 0.0, Scalar.F64))


def test_min_and_max_keep_the_first_operand_when_they_cannot_decide() -> None:
    nan = float("nan")
    assert np.isnan(binary(BinaryOp.MIN, nan, 1.0, Scalar.F32))
    assert binary(BinaryOp.MAX, 1.0, nan, Scalar.F32) == 1.0
    assert np.signbit(binary(BinaryOp.MIN, -0.0, 0.0, Scalar.F32))
    assert not np.signbit(binary(BinaryOp.MIN, 0.0, -0.0, Scalar.F32))


@pytest.mark.parametrize(("value", "source", "target", "expected"), [
    (300, Scalar.I32, Scalar.I8, 44),
    (-1, Scalar.I32, Scalar.U16, 65535),
    (-1, Scalar.I32, Scalar.U32, 2**32 - 1),
    (2**31, Scalar.I64, Scalar.INDEX, -(2**31)),
    (-3.99, Scalar.F32, Scalar.I32, -3),
    (16777217, Scalar.I32, Scalar.F32, 16777216.0),
    # One rounding gives the next float up; rounding by way of float64 would lose the last bit.
    (2**60 + 2**36 + 1, Scalar.I64, Scalar.F32, float(2**60 + 2**37)),
    (1e39, Scalar.F64, Scalar.F32, float("inf")),
])
def test_casts(value: int | float, source: Scalar, target: Scalar, expected: int | float) -> None:
    x = Var("x", source)
    assert evaluate(Cast(x, target), params=((x, value),)) == expected


def test_index_can_have_64_bits() -> None:
    x = Var("x", Scalar.I64)
    assert evaluate(Cast(x, Scalar.INDEX), params=((x, 2**31),), index_bits=64) == 2**31


def test_select_evaluates_both_sides() -> None:
    source = Buffer("b0", Scalar.I32, 2, align=4)
    i = Var("i", Scalar.INDEX)
    guarded = Select(
        Compare(CompareOp.LT, i, const(2)), Load(source, i), i32(0)
    )
    data = np.array([5, 6], np.int32)
    assert evaluate(guarded, data, params=((i, 1),)) == 6
    with pytest.raises(InterpreterError, match=r"index outside b0\[2\]: 2"):
        evaluate(guarded, data, params=((i, 2),))


def test_conditions_evaluate_both_sides() -> None:
    i = Var("i", Scalar.INDEX)
    both = Binary(
        BinaryOp.AND, Compare(CompareOp.LT, i, const(2)),
        Compare(CompareOp.EQ, Load(Buffer("b0", Scalar.I32, 2, align=4), i), i32(6)),
    )
    with pytest.raises(InterpreterError, match="index outside"):
        evaluate(both, np.array([5, 6], np.int32), params=((i, 2),))


@pytest.mark.parametrize(("op", "a", "b", "type_", "message"), [
    (BinaryOp.ADD, 2**31 - 1, 1, Scalar.I32, "add overflows i32: 2147483648"),
    (BinaryOp.SUB, -(2**63), 1, Scalar.I64, "sub overflows i64"),
    (BinaryOp.MUL, 2**16, 2**16, Scalar.I32, "mul overflows i32"),
    (BinaryOp.MUL, 2**16, 2**16, Scalar.INDEX, "mul overflows index"),
    (BinaryOp.DIV, 1, 0, Scalar.I32, "division by zero"),
    (BinaryOp.DIV, -(2**31), -1, Scalar.I32, "overflows"),
    (BinaryOp.SHL, 1, 32, Scalar.I32, "shl by more than the width: 32"),
    (BinaryOp.SHR, 1, -1, Scalar.I64, "shr by more than the width: -1"),
])
def test_broken_promises_of_arithmetic(
    op: BinaryOp, a: int, b: int, type_: Scalar, message: str
) -> None:
    with pytest.raises(InterpreterError, match=message):
        binary(op, a, b, type_)


@pytest.mark.parametrize("step", [-1, 1])
def test_locals_keep_to_the_bits_that_they_are_known_to_have(step: int) -> None:
    most = 127 if step > 0 else 128

    def kernel(count: int) -> Kernel:
        b = KernelBuilder("counts")
        y = b.buffer("y", Scalar.I32, 1, writable=True)
        total = b.local("total", i32(0), 8)
        with b.loop("i", count):
            b.assign(total, add(total, i32(step)))
        b.store(y, const(0), total)
        return b.finish()

    y = np.zeros(1, np.int32)
    run(kernel(most), [y])
    assert y[0] == step * most
    with pytest.raises(InterpreterError, match=f"total in 8 bits: {step * (most + 1)}"):
        run(kernel(most + 1), [y])


@pytest.mark.parametrize("value", [2.0**31, -3e9, float("nan"), float("inf")])
def test_floats_out_of_range_of_an_integer(value: float) -> None:
    x = Var("x", Scalar.F32)
    with pytest.raises(InterpreterError, match="cast to i32"):
        evaluate(Cast(x, Scalar.I32), params=((x, value),))


def copy_kernel(*, noalias: bool, shift: int = 0, writable: bool = True) -> Kernel:
    """out[i] = in[i] + shift over four elements"""
    b = KernelBuilder("copy")
    source = b.buffer("source", Scalar.I32, 4, noalias=noalias)
    target = b.buffer("target", Scalar.I32, 4, writable=writable, noalias=noalias)
    with b.loop("i", 4) as i:
        b.store(target, i, add(load(source, i), i32(shift)))
    return b.finish()


def test_overlapping_arrays_see_each_others_writes() -> None:
    memory = np.array([1, 2, 3, 4, 0], np.int32)
    run(copy_kernel(noalias=False), [memory[:4], memory[1:]])
    assert memory.tolist() == [1, 1, 1, 1, 1]


def test_in_place_by_name() -> None:
    memory = np.array([1, 2, 3, 4], np.int32)
    run(copy_kernel(noalias=False, shift=7), {"target": memory, "source": memory})
    assert memory.tolist() == [8, 9, 10, 11]


def test_noalias_is_a_promise() -> None:
    memory = np.zeros(4, np.int32)
    with pytest.raises(InterpreterError, match="source and target overlap"):
        run(copy_kernel(noalias=True), [memory, memory])


def test_a_store_to_a_read_only_buffer() -> None:
    with pytest.raises(InterpreterError, match="target is read-only"):
        compile_kernel(copy_kernel(noalias=True, writable=False))


def test_wrong_buffers_are_refused() -> None:
    kernel = copy_kernel(noalias=True)
    good = np.zeros(4, np.int32)
    wrong: list[tuple[Any, str]] = [
        ([good], "takes 2 buffers, got 1"),
        ({"source": good, "into": good}, "takes buffers"),
        ([good.astype(np.int64), good.copy()], "source is i32, the array is int64"),
        ([np.zeros(5, np.int32), good], "has 4 elements, the array 5"),
        ([np.zeros(8, np.int32)[::2], good], "not contiguous"),
        ([good, np.frombuffer(bytes(16), np.int32)], "target is written"),
    ]
    for buffers, message in wrong:
        with pytest.raises(InterpreterError, match=message):
            run(kernel, buffers)
    with pytest.raises(InterpreterError, match="takes 0 parameters, got 1"):
        run(kernel, [good, good.copy()], [3])


def test_parameters_must_fit_their_type() -> None:
    x = Var("x", Scalar.U32)
    with pytest.raises(InterpreterError, match="x = -1 is no u32"):
        evaluate(x, params=((x, -1),))


def test_names_cannot_smuggle_code() -> None:
    out = Buffer("out", Scalar.I32, 1, writable=True, align=4)
    evil = Var("x = 0\nimport os", Scalar.I32)
    kernel = Kernel("k", (out,), (Let(evil, i32(1)), Store(out, const(0), evil)))
    with pytest.raises(InterpreterError, match="is no identifier"):
        compile_kernel(kernel)


def test_shapes_are_kept_and_loops_run_as_often_as_a_parameter_says() -> None:
    b = KernelBuilder("fill")
    target = b.buffer("target", Scalar.F32, 6, writable=True)
    n = b.param("n", Scalar.INDEX)
    with b.loop("i", n) as i:
        b.store(target, i, f32(2.5))
    array = np.zeros((2, 3), np.float32)
    run(b.finish(), [array], [4])
    assert array.tolist() == [[2.5, 2.5, 2.5], [2.5, 0.0, 0.0]]
