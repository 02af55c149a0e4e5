"""Random kernels that keep every promise of the Kernel IR, for comparing its implementations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from crtexport.kir.builder import KernelBuilder
from crtexport.kir.intervals import Ranges, contains, exact
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
    Load,
    LoadWord,
    Scalar,
    Select,
    Var,
)

Array = npt.NDArray[Any]

NUMPY: dict[Scalar, Any] = {
    Scalar.I8: np.int8, Scalar.U8: np.uint8, Scalar.I16: np.int16, Scalar.U16: np.uint16,
    Scalar.I32: np.int32, Scalar.U32: np.uint32, Scalar.I64: np.int64, Scalar.F16: np.float16,
    Scalar.F32: np.float32, Scalar.F64: np.float64,
}
WHOLE = (Scalar.I32, Scalar.U32, Scalar.I64)
FLOATS = (Scalar.F32, Scalar.F64)
RING = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)
WRAPPING = {
    BinaryOp.ADD: BinaryOp.WRAP_ADD, BinaryOp.SUB: BinaryOp.WRAP_SUB,
    BinaryOp.MUL: BinaryOp.WRAP_MUL,
}
FLOAT_POOL = (
    0.0, -0.0, 1.0, -1.0, 0.1, 0.5, 1.5, 3.0e7, 16777217.0, 1e-40, -1e-45, 3.4e38, 1e-7, 65504.0,
    float("inf"), float("-inf"), float("nan"),
)


@dataclass(frozen=True)
class Case:
    """A kernel with data that it may be run on. NaNs in results are equal whatever their bits."""

    kernel: Kernel
    arrays: dict[str, Array]
    params: tuple[int | float, ...]

    def buffers(self) -> dict[str, Array]:
        """Fresh copies of the data, by name of buffer."""
        return {name: array.copy() for name, array in self.arrays.items()}

    @property
    def bounds(self) -> dict[str, int | tuple[int, int]]:
        """The integer parameters, as ``verify`` takes them."""
        return {
            p.name: int(v) for p, v in zip(self.kernel.params, self.params, strict=True)
            if not p.type.is_float
        }


def integers_of(type_: Scalar) -> tuple[int, int]:
    return Ranges({}, index_bits=32).top(type_)


class _Generator:
    """Draws one kernel; ``ranges`` and ``scope`` follow the place where the builder is."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], half: bool) -> None:
        self.draw = draw
        self.half = half
        self.b = KernelBuilder("random")
        self.ranges = Ranges({}, index_bits=32)
        self.scope: list[Var] = []
        self.locals: list[Var] = []
        self.params: list[tuple[Var, int | float]] = []
        self.buffers: list[Buffer] = []
        self.arrays: dict[str, Array] = {}

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    # -- signature

    def case(self) -> Case:
        storage = [Scalar.F16] if self.half else []
        types = [t for t in NUMPY if t is not Scalar.F16] + storage
        for i in range(self.number(1, 3)):
            self.add_buffer(f"in{i}", self.pick(*types), writable=False)
        for i in range(self.number(1, 2)):
            self.add_buffer(f"out{i}", self.pick(*types), writable=True)
        if self.number(0, 2) == 0:
            self.add_param("n", Scalar.INDEX, self.number(0, 4))
        if self.number(0, 2) == 0:
            self.add_param("scale", Scalar.F32, float(np.float32(self.pick(0.1, -2.5, 3e9))))
        if self.number(0, 2) == 0:
            self.add_param("offset", Scalar.I32, self.number(-1000, 1000))
        self.body(depth=0)
        self.store()
        return Case(self.b.finish(), self.arrays, tuple(v for _, v in self.params))

    def add_buffer(self, name: str, dtype: Scalar, *, writable: bool) -> None:
        size = self.number(1, 12)
        buffer = self.b.buffer(name, dtype, size, writable=writable)
        self.buffers.append(buffer)
        if dtype.is_float:
            with np.errstate(all="ignore"):
                self.arrays[name] = np.array(
                    [self.pick(*FLOAT_POOL) for _ in range(size)], NUMPY[dtype]
                )
            return
        low, high = integers_of(dtype)
        values = st.integers(low, high) | st.sampled_from((low, high, 0, 1))
        self.arrays[name] = np.array([self.draw(values) for _ in range(size)], NUMPY[dtype])

    def add_param(self, name: str, type_: Scalar, value: int | float) -> None:
        var = self.b.param(name, type_)
        self.params.append((var, value))
        self.scope.append(var)
        if isinstance(value, int):
            self.ranges = self.ranges.bind(var, (value, value))

    # -- statements

    def body(self, depth: int) -> None:
        scope, mutable, ranges = list(self.scope), list(self.locals), self.ranges
        for _ in range(self.number(1, 3)):
            kinds = [self.let, self.local, self.store, self.store, self.assign]
            if depth < 3:
                kinds += [lambda: self.loop(depth), lambda: self.branch(depth)]
            self.pick(*kinds)()
        self.scope, self.locals, self.ranges = scope, mutable, ranges

    def let(self) -> None:
        self.name("x", self.expr(self.pick(*WHOLE, *FLOATS, Scalar.INDEX), 3))

    def name(self, name: str, value: Expr) -> Expr:
        """A Let, known to what follows."""
        var = self.b.let(name, value)
        if isinstance(var, Var) and var not in self.scope:
            self.ranges = self.ranges.bind(var, self.ranges.of(value))
            self.scope.append(var)
        return var

    def local(self) -> None:
        var = self.b.local("acc", self.expr(self.pick(*WHOLE, *FLOATS), 2))
        self.scope.append(var)
        self.locals.append(var)

    def assign(self) -> None:
        if self.locals:
            var = self.pick(*self.locals)
            op = WRAPPING[self.pick(*RING)] if not var.type.is_float else self.pick(*RING)
            self.b.assign(var, Binary(op, var, self.expr(var.type, 2)))

    def store(self) -> None:
        buffer = self.pick(*(b for b in self.buffers if b.writable))
        self.b.store(buffer, self.index(buffer.size), self.storable(buffer.dtype))

    def storable(self, dtype: Scalar) -> Expr:
        """A value of any type that a buffer can hold."""
        if dtype is Scalar.F16:
            return Cast(self.expr(Scalar.F32, 2), dtype)
        if dtype in (*WHOLE, *FLOATS):
            return self.expr(dtype, 3)
        return Cast(self.expr(self.pick(*WHOLE), 3), dtype)

    def loop(self, depth: int) -> None:
        extents = [Const(self.number(0, 4), Scalar.INDEX)]
        extents += [v for v, _ in self.params if v.type is Scalar.INDEX]
        extent = self.pick(*extents)
        bound = self.ranges.of(extent) or (0, 0)
        hints = {"unroll": self.pick(None, None, 1, 2), "vectorize": self.pick(None, None, 1, 4)}
        outside = self.ranges, list(self.scope)
        with self.b.loop("i", extent, **hints) as var:
            if isinstance(var, Var):
                self.ranges = self.ranges.bind(var, (0, max(bound[1] - 1, 0)))
                self.scope.append(var)
            self.body(depth + 1)
        self.ranges, self.scope = outside

    def branch(self, depth: int) -> None:
        condition = self.condition()
        before = self.ranges
        with self.b.if_(condition):
            self.ranges = before.assuming(condition, True) or before
            self.guarded_access(condition)
            self.body(depth + 1)
        self.ranges = before
        if self.pick(True, False):
            with self.b.else_():
                self.ranges = before.assuming(condition, False) or before
                self.body(depth + 1)
            self.ranges = before

    def guarded_access(self, condition: Expr) -> None:
        """A store at an index that only the condition keeps inside."""
        match condition:
            case Binary(op=BinaryOp.AND, b=Compare(a=Var() as var)):
                found = self.ranges.of(var)
                for buffer in self.buffers:
                    if found and buffer.writable and contains((0, buffer.size - 1), found):
                        self.b.store(buffer, var, self.storable(buffer.dtype))
            case _:
                pass

    # -- expressions

    def condition(self) -> Expr:
        kind = self.number(0, 3)
        if kind == 0:
            var = self.name("at", Binary(
                BinaryOp.SUB, self.index(8), Const(self.number(1, 3), Scalar.INDEX)
            ))
            size = self.pick(*self.buffers).size
            return Binary(
                BinaryOp.AND, Compare(CompareOp.GE, var, Const(0, Scalar.INDEX)),
                Compare(CompareOp.LT, var, Const(size, Scalar.INDEX)),
            )
        if kind == 1:
            op = self.pick(BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR)
            return Binary(op, self.compare(1), self.compare(1))
        return self.compare(2)

    def compare(self, depth: int) -> Expr:
        type_ = self.pick(*WHOLE, *FLOATS)
        return Compare(
            self.pick(*CompareOp), self.expr(type_, depth - 1), self.expr(type_, depth - 1)
        )

    def index(self, size: int) -> Expr:
        """An index expression inside [0, size)."""
        kind = self.number(0, 3)
        if kind < 2:
            return self.plain_index(size)
        raw = self.expr(Scalar.INDEX, 2)
        if kind == 2:
            low = Binary(BinaryOp.MAX, raw, Const(0, Scalar.INDEX))
            return Binary(BinaryOp.MIN, low, Const(size - 1, Scalar.INDEX))
        mask = (1 << (size.bit_length() - 1)) - 1
        return Binary(BinaryOp.AND, raw, Const(mask, Scalar.INDEX))

    def plain_index(self, size: int) -> Expr:
        """A variable or constant inside [0, size)."""
        inside = [
            v for v in self.scope if v.type is Scalar.INDEX
            and contains((0, size - 1), self.ranges.of(v) or (-1, -1))
        ]
        if inside and self.number(0, 3):
            return self.pick(*inside)
        return Const(self.number(0, size - 1), Scalar.INDEX)

    def expr(self, type_: Scalar, depth: int) -> Expr:
        """An arithmetic expression that keeps its promises."""
        if depth <= 0:
            return self.leaf(type_)
        kinds: list[Callable[[], Expr]] = [
            lambda: self.leaf(type_), lambda: self.arithmetic(type_, depth),
            lambda: self.arithmetic(type_, depth), lambda: self.converted(type_, depth),
            lambda: Select(self.compare(1), self.expr(type_, depth - 1), self.leaf(type_)),
        ]
        if not type_.is_float:
            kinds.append(lambda: self.shift(type_, depth))
            kinds.append(lambda: self.quotient(type_, depth))
        if type_ is Scalar.F32:
            kinds.append(lambda: Call(
                "f32_from_bits", (self.expr(Scalar.I32, depth - 1),), Scalar.F32
            ))
        result: Expr = self.pick(*kinds)()
        return result

    def leaf(self, type_: Scalar) -> Expr:
        variables = [v for v in self.scope if v.type is type_]
        sources = [b for b in self.buffers if b.dtype is type_]
        kind = self.number(0, 4)
        if kind in (0, 1) and variables:
            return self.pick(*variables)
        if kind in (2, 3) and sources:
            buffer = self.pick(*sources)
            return Load(buffer, self.plain_index(buffer.size))
        if kind == 4 and type_ is Scalar.I32 and (words := self.words()):
            buffer, first = self.pick(*words)
            return LoadWord(buffer, self.plain_index(first + 1))
        if type_.is_float:
            with np.errstate(all="ignore"):
                return Const(float(NUMPY[type_](self.pick(*FLOAT_POOL[:-1]))), type_)
        low, high = integers_of(type_)
        small = st.integers(max(low, -9), 9)
        extremes = st.sampled_from((low, high))
        whole = small if type_ is Scalar.INDEX else small | st.integers(low, high) | extremes
        return Const(int(self.draw(whole)), type_)

    def words(self) -> list[tuple[Buffer, int]]:
        """Buffers of small integers with the last index at which a word begins."""
        found = [
            (b, b.size - 4 // b.dtype.itemsize) for b in self.buffers
            if not b.dtype.is_float and b.dtype.itemsize < 4
        ]
        return [(buffer, last) for buffer, last in found if last >= 0]

    def arithmetic(self, type_: Scalar, depth: int) -> Expr:
        a, b = self.expr(type_, depth - 1), self.expr(type_, depth - 1)
        if type_.is_float:
            return Binary(self.pick(*RING, BinaryOp.DIV, BinaryOp.MIN, BinaryOp.MAX), a, b)
        op = self.pick(
            *RING, BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR, BinaryOp.MIN, BinaryOp.MAX
        )
        x, y = self.ranges.of(a), self.ranges.of(b)
        if op in RING and x and y and not contains(self.ranges.top(type_), exact(op, x, y)):
            # A wrapped index would depend on the width of pointers.
            op = BinaryOp.MIN if type_ is Scalar.INDEX else WRAPPING[op]
        return Binary(op, a, b)

    def shift(self, type_: Scalar, depth: int) -> Expr:
        a = self.expr(type_, depth - 1)
        if type_ is Scalar.INDEX:
            return Binary(BinaryOp.SHR, a, Const(self.number(0, 8), type_))
        width = 63 if type_ is Scalar.I64 else 31
        amount: Expr = Const(self.number(0, width), type_)
        if self.pick(True, False):
            amount = Binary(BinaryOp.AND, self.expr(type_, depth - 1), Const(width, type_))
        return Binary(self.pick(BinaryOp.SHL, BinaryOp.SHR), a, amount)

    def quotient(self, type_: Scalar, depth: int) -> Expr:
        """A division by 1 to 16."""
        masked = Binary(BinaryOp.AND, self.expr(type_, depth - 1), Const(15, type_))
        divisor = Binary(BinaryOp.ADD, masked, Const(1, type_))
        return Binary(BinaryOp.DIV, self.expr(type_, depth - 1), divisor)

    def converted(self, type_: Scalar, depth: int) -> Expr:
        """A cast from some other type, through a storage type where a buffer has it."""
        sources = [b for b in self.buffers if b.dtype is not type_]
        sources = [b for b in sources if b.dtype is not Scalar.F16 or type_ is Scalar.F32]
        if sources and self.pick(True, False):
            buffer = self.pick(*sources)
            value: Expr = Load(buffer, self.index(buffer.size))
        else:
            choices = [t for t in (*WHOLE, *FLOATS, Scalar.INDEX) if t is not type_]
            value = self.expr(self.pick(*choices), depth - 1)
        if value.type.is_float and not type_.is_float:
            # max(limit, value) is the limit for NaN.
            low, high = (0.0 if not type_.is_signed else -1e6), 1e6
            bounded = Binary(BinaryOp.MAX, Const(low, value.type), value)
            value = Binary(BinaryOp.MIN, bounded, Const(high, value.type))
        elif type_ is Scalar.INDEX and not value.type.is_float:
            value = Binary(BinaryOp.AND, value, Const(0xFFFF, value.type)) if value.type in (
                *WHOLE,
            ) else value
        return Cast(value, type_)


@st.composite
def cases(draw: Callable[[st.SearchStrategy[Any]], Any], half: bool = False) -> Case:
    """Verified kernels with data and parameters; ``half``: also with f16 buffers.

    The kernels mean the same for every pointer width of at least 32 bits.
    """
    return _Generator(draw, half).case()
