"""Loops of drawn kernels that have instructions of their own, and what both make of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from crtexport.kir import interpreter
from crtexport.kir import language as kir
from crtexport.kir.assembly.armv7em.dependences import BlockFacts, Dependences, dependences
from crtexport.kir.assembly.armv7em.instructions import Block, blocks
from crtexport.kir.assembly.armv7em.issue import CORTEX_M7, CORTEX_M33
from crtexport.kir.assembly.armv7em.select import select as select_instructions
from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.assemble import Assembled, assemble
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    call,
    cast,
    clamp,
    const,
    div,
    eq,
    ge,
    i32,
    load,
    load_word,
    lt,
    max_,
    min_,
    mul,
    select,
    shl,
    shr,
    sub,
    wrap_add,
    wrap_mul,
    wrap_sub,
)
from crtexport.kir.language import BinaryOp, Buffer, Expr, Kernel, Scalar, Var
from tests.kir.assembly.machine import Machine

Array = npt.NDArray[Any]
M7 = Features(dsp=True, rules=CORTEX_M7)
M33 = Features(dsp=True, rules=CORTEX_M33)
SIZE = 3000
"""Elements of each buffer: indices stay below."""
NUMPY = {Scalar.I8: np.int8, Scalar.U8: np.uint8, Scalar.I16: np.int16, Scalar.I32: np.int32}
_DSP = ("arm_sxtb16", "arm_sxtb16_ror8", "arm_pkhbt", "arm_smlad", "arm_smlabt", "arm_smlatt",
        "arm_smmulr", "arm_smmlar", "arm_sadd16", "arm_ssub16")
_OF_TWO = ("arm_pkhbt", "arm_smmulr", "arm_sadd16", "arm_ssub16")


def value_of(expr: Expr, params: dict[str, int]) -> int:
    """An index that is made of parameters."""
    match expr:
        case kir.Const():
            return int(expr.value)
        case Var():
            return params[expr.name]
        case kir.Binary():
            a, b = value_of(expr.a, params), value_of(expr.b, params)
            if expr.op is BinaryOp.DIV:
                return int(a / b)
            return {"add": a + b, "sub": a - b, "mul": a * b}[expr.op.value]
    raise AssertionError(expr)


def assembled(kernel: Kernel, features: Features) -> Assembled:
    """The instructions of a kernel whose body is one loop."""
    (loop,) = kernel.body
    assert isinstance(loop, kir.For)
    return assemble(loop, kernel, features)


def assert_same(
    kernel: Kernel, arrays: dict[str, Array], features: Features, **params: int
) -> None:
    """Runs a kernel whose body is one loop, interpreted and as instructions."""
    made = assembled(kernel, features)
    memory: dict[int, int] = {}
    places: dict[str, int] = {}
    at = 0x1000
    for buffer in kernel.buffers:
        places[buffer.name] = at
        memory.update(enumerate(arrays[buffer.name].tobytes(), at))
        at += 1 << 16
    run(made, kernel, memory, places, params)
    interpreter.run(kernel, arrays, [params[param.name] for param in kernel.params])
    for buffer in kernel.buffers:
        expected, begin = arrays[buffer.name], places[buffer.name]
        found = bytes(memory[begin + i] for i in range(expected.nbytes))
        np.testing.assert_array_equal(np.frombuffer(found, expected.dtype), expected)


def run(
    made: Assembled, kernel: Kernel, memory: dict[int, int], places: dict[str, int],
    params: dict[str, int],
) -> Machine:
    """Calls a function of instructions."""
    sizes = {buffer.name: buffer.dtype.itemsize for buffer in kernel.buffers}
    arguments = [
        value_of(one.index, params) if not one.buffer
        else places[one.buffer] + sizes[one.buffer] * value_of(one.index, params)
        for one in made.arguments
    ]
    machine = Machine(memory)
    machine.call(made.lines, arguments)
    return machine


class Drawn:
    """Draws a kernel of loops."""

    def __init__(self, data: st.DataObject, dsp: bool) -> None:
        self.data, self.dsp = data, dsp
        self.b = KernelBuilder("drawn")
        self.read = [
            self.b.buffer("bytes", Scalar.I8, SIZE), self.b.buffer("more", Scalar.U8, SIZE),
            self.b.buffer("halves", Scalar.I16, SIZE),
            self.b.buffer("words", Scalar.I32, SIZE, align=4),
        ]
        self.written = [
            self.b.buffer("out", Scalar.I32, SIZE, writable=True, align=4),
            self.b.buffer("small", Scalar.I8, SIZE, writable=True),
        ]
        self.n = self.b.param("n", Scalar.INDEX)
        self.indices: list[tuple[Expr, int]] = [(self.n, 3)]  # and what they are less than
        self.values: list[Expr] = []
        self.locals: list[Var] = []
        self.depth = 0

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def one(self, options: list[Any]) -> Any:
        return options[self.number(0, len(options) - 1)]

    def index(self) -> Expr:
        """A sum that is at most SIZE - 4."""
        most, result = SIZE - 4, const(0)
        for _ in range(self.number(0, 3)):
            value, limit = self.one(self.indices)
            factor = self.one([1, 1, 2, 3, 4, 16, 60, 320])
            if factor * limit <= most:
                most -= factor * limit
                result = add(result, mul(value, const(factor)))
        return add(result, const(self.number(0, most)))

    def value(self, depth: int = 2) -> Expr:
        """A word."""
        kind = self.number(0, 9) if depth else self.number(0, 2)
        if kind == 0 or (kind == 1 and not self.values + self.locals):
            return i32(self.one([0, 1, 2, 5, -1, 255, 256, 4095, 4096, 70000, -(1 << 31), 1 << 30]))
        if kind == 1:
            return self.one([*self.values, *self.locals])
        if kind == 2:
            return self.loaded()
        a = self.value(depth - 1)
        if kind == 3 and self.dsp:
            return self.instruction(a, depth)
        b = self.value(depth - 1)
        match kind:
            case 4:
                return self.one([wrap_add, wrap_sub, wrap_mul])(a, b)
            case 5:
                return wrap_add(a, wrap_mul(b, self.value(depth - 1)))
            case 6:
                return self.one([min_, max_])(a, b)
            case 7:
                return self.one([shl, shr])(a, i32(self.number(0, 31)))
            case 8:
                low = self.one([-128, 0, -5, 3])
                return clamp(a, low, self.one([127, 255, 63]))
            case _:
                return select(lt(a, b), a, self.value(depth - 1))

    def loaded(self) -> Expr:
        buffer: Buffer = self.one(self.read)
        if buffer.dtype is not Scalar.I32 and self.number(0, 3) == 0:
            return load_word(buffer, mul(self.index_of_words(), const(4)))
        value = load(buffer, self.index())
        return value if value.type is Scalar.I32 else cast(value, Scalar.I32)

    def index_of_words(self) -> Expr:
        value, _ = self.one(self.indices)
        return add(value, const(self.number(0, 50)))

    def instruction(self, a: Expr, depth: int) -> Expr:
        name = self.one(list(_DSP))
        count = 1 if "sxtb16" in name else 2 if name in _OF_TWO else 3
        args = [a, *(self.value(depth - 1) for _ in range(count - 1))]
        if count == 3 and self.number(0, 2) == 0:
            args[2] = i32(0)
        return call(name, *args, type_=Scalar.I32)

    def statements(self) -> None:
        inner = len(self.indices), len(self.values), len(self.locals)
        for _ in range(self.number(1, 5)):
            self.statement()
        del self.indices[inner[0] :], self.values[inner[1] :], self.locals[inner[2] :]

    def statement(self) -> None:
        b = self.b
        match self.number(0, 7 if self.depth < 3 else 4):
            case 0 | 1:
                buffer = self.one(self.written)
                value = self.value()
                narrow = value if buffer.dtype is Scalar.I32 else cast(value, Scalar.I8)
                b.store(buffer, self.index(), narrow)
            case 2:
                self.values.append(b.let("value", self.value()))
            case 3:
                if self.locals and self.number(0, 1):
                    b.assign(self.one(self.locals), self.value())
                else:
                    self.locals.append(b.local("total", self.one([i32(0), self.value()])))
            case 4:
                value, limit = self.one(self.indices)
                made = self.one([
                    min_(value, const(limit - 1)), div(value, const(2)),
                    sub(const(limit), value), add(value, value),
                ])
                self.indices.append((b.let("index", made), 2 * limit))
            case 5:
                self.branch()
            case _:
                self.loop()

    def branch(self) -> None:
        value, limit = self.one(self.indices)
        condition = self.one([ge, lt, eq])(value, const(self.number(0, limit)))
        if self.number(0, 1):
            condition = and_(condition, lt(self.value(1), self.value(1)))
        self.depth += 1
        with self.b.if_(condition):
            self.statements()
        if self.number(0, 1):
            with self.b.else_():
                self.statements()
        self.depth -= 1

    def loop(self) -> None:
        extent: int | Expr = self.number(1, 5)
        limit = int(extent)
        unroll = self.one([None, 1, 2, 3])
        if self.number(0, 5) == 0:
            extent, limit, unroll = self.n, 3, None
        self.depth += 1
        with self.b.loop("turn", extent, unroll=unroll) as turn:
            if isinstance(turn, Var):
                self.indices.append((turn, limit))
            self.statements()
            if isinstance(turn, Var):
                self.indices.remove((turn, limit))
        self.depth -= 1

    def kernel(self) -> Kernel:
        with self.b.loop("all", self.number(1, 4), assembled=True) as turn:
            self.indices.append((turn, 4))
            self.depth = 1
            self.statements()
        return self.b.finish()

    def arrays(self) -> dict[str, Array]:
        """Contents of the buffers."""
        rng = np.random.default_rng(self.number(0, 1000))
        return {
            buffer.name: rng.integers(
                np.iinfo(NUMPY[buffer.dtype]).min, np.iinfo(NUMPY[buffer.dtype]).max,
                SIZE, NUMPY[buffer.dtype], endpoint=True,
            ) for buffer in (*self.read, *self.written)
        }


def drawn_blocks(
    data: st.DataObject, features: Features
) -> Iterator[tuple[Block, Dependences]]:
    """The blocks of a drawn kernel's loops, some of whose results are wanted behind them."""
    for loop in Drawn(data, features.dsp).kernel().body:
        if isinstance(loop, kir.For):
            for block in blocks(select_instructions(loop, features).body):
                written = {r for one in block.body for r in one.writes}
                needed = sorted(written, key=lambda one: one.number)[::3]
                yield block, dependences(block.body, BlockFacts((), needed), features)[0]
