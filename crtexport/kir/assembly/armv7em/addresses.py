"""Addresses as pointers that move with loops, and what is added to them for one access.

Accesses of a buffer whose indices differ by constants share a pointer. It is set where what it
depends on is known: before all loops, as an argument, or in the body of one; loops within move it
by the same number of bytes in each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from crtexport.kir import language as kir
from crtexport.kir.assembly.armv7em.instructions import (
    COPY,
    Argument,
    Block,
    ConstantRegister,
    Instruction,
    Loop,
    MemoryOperand,
    Node,
    Register,
    UnsupportedError,
    added,
    instructions,
    parts,
)
from crtexport.kir.builder import add, const, mul
from crtexport.kir.language import Buffer, Expr
from crtexport.kir.text import expression

LEAST_OFFSET, MOST_OFFSET = -255, 4095
"""Of an access of a byte, half word or word."""

Outside = kir.Var | kir.Binary
"""A variable or a quotient from outside."""
Symbol = Loop | Outside | Register
"""The number of a loop's iteration, what is from outside, or a value that is computed inside."""


class Linear(Struct, frozen=True):
    """A sum of symbols with factors, in an order of their own, and a constant."""

    terms: tuple[tuple[Symbol, int], ...] = ()
    constant: int = 0

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Returns the sum of this and ``factor`` times the other."""
        terms = dict(self.terms)
        for symbol, times in other.terms:
            terms[symbol] = terms.get(symbol, 0) + factor * times
        kept = ((symbol, times) for symbol, times in terms.items() if times)
        return Linear(tuple(sorted(kept, key=_order)), self.constant + factor * other.constant)

    def times(self, factor: int) -> Linear:
        """Returns the product with a number."""
        return Linear().plus(self, factor)


def _order(term: tuple[Symbol, int]) -> tuple[str, int]:
    match term[0]:
        case kir.Var(name=name):
            return name, 0
        case kir.Binary() as quotient:
            return expression(quotient), 0
        case inside:
            return "", inside.number


class Pointer(Struct, eq=False):
    """``register`` holds the address of a buffer's element in the current iteration of each
    loop, or ``origin`` bytes behind; ``steps``: bytes by which an iteration of each loop moves it.
    It is set in the body of ``home``; ``first``: the index with which it begins, where that is
    known outside."""

    buffer: Buffer
    register: Register
    home: Loop
    steps: dict[Loop, int]
    origin: int = 0
    first: Expr | None = None

    def serves(self, steps: dict[Loop, int], offset: int, around: Sequence[Loop]) -> bool:
        """Returns whether an access in the loops ``around``, which moves by ``steps`` with their
        iterations, is near, and the pointer moves so, too."""
        return LEAST_OFFSET <= offset - self.origin <= MOST_OFFSET and all(
            self.steps.get(loop, steps.get(loop, 0)) == steps.get(loop, 0)
            for loop in around if loop.depth > self.home.depth
        )


class Addresses:
    """Finds pointers for accesses, and moves them."""

    def __init__(self) -> None:
        self.root = Loop(0, const(1), repeated=False)
        self.arguments: list[Argument] = []
        self.home_of: dict[Register, Loop] = {}  # where a value is computed
        self.owners: dict[Register, Pointer] = {}
        self.element_sizes: dict[str, int] = {}  # bytes, by buffer
        self._pointers: dict[object, list[Pointer]] = {}
        self._outside: dict[object, Register] = {}

    # ---- while instructions are selected

    def memory(
        self, buffer: Buffer, index: Linear, size: int, around: Sequence[Loop]
    ) -> MemoryOperand:
        """Returns the place of an access of ``size`` bytes in the loops ``around``."""
        each = self.element_sizes[buffer.name] = buffer.dtype.itemsize
        offset = index.constant * each
        steps = {one: times * each for one, times in index.terms if isinstance(one, Loop)}
        home = self._home(index.terms)
        # What a pointer begins with: all but the iterations of loops in which it moves.
        key = buffer.name, tuple(
            (one, times) for one, times in index.terms
            if not isinstance(one, Loop) or one.depth <= home.depth
        )
        known = self._pointers.setdefault(key, [])
        pointer = next((one for one in known if one.serves(steps, offset, around)), None)
        if pointer is None:
            origin = 0 if LEAST_OFFSET <= offset <= MOST_OFFSET else offset
            pointer = self._pointer(buffer, index.terms, origin, home)
            known.append(pointer)
            self.owners[pointer.register] = pointer
        for loop in around:
            if loop.depth > pointer.home.depth:
                pointer.steps[loop] = steps.get(loop, 0)
        return MemoryOperand(
            buffer.name, (buffer.name, index.terms), offset, pointer.register,
            offset - pointer.origin, size,
        )

    def _home(self, terms: tuple[tuple[Symbol, int], ...]) -> Loop:
        """Returns the innermost loop in which a value among ``terms`` is computed."""
        found = (self.home_of[one] for one, _ in terms if isinstance(one, Register))
        return max(found, key=lambda loop: loop.depth, default=self.root)

    def _pointer(
        self, buffer: Buffer, terms: tuple[tuple[Symbol, int], ...], origin: int, home: Loop
    ) -> Pointer:
        each = buffer.dtype.itemsize
        first = add(self.outside(terms), const(origin // each))
        inside = [(one, times * each) for one, times in terms if isinstance(one, Register)]
        if not inside:
            base = Register(buffer.name)
            self.arguments.append(Argument(base, buffer.name, first))
            return Pointer(buffer, base, self.root, {}, origin, first)
        values = inside + [
            (self.iteration(loop), times * each) for loop, times in terms
            if isinstance(loop, Loop) and loop.depth <= home.depth
        ]
        register = self.argument(buffer.name, first)
        for value, times in values:
            register = self._sum(home, register, value, times)
        return Pointer(buffer, register, home, {}, origin)

    def _sum(self, home: Loop, base: Register, value: Register, times: int) -> Register:
        """Emits ``base`` plus so many times ``value``."""
        result = Register(base.name)
        self.home_of[result] = home
        shift = times.bit_length() - 1
        if times == 1:
            made = Instruction("add {w}, {0}, {1}", (result,), (base, value))
        elif times == 1 << shift:
            made = Instruction(f"add {{w}}, {{0}}, {{1}}, lsl #{shift}", (result,), (base, value))
        else:
            factor = ConstantRegister("factor", value=times)
            made = Instruction(
                "mla {w}, {1}, {2}, {0}", (result,), (base, value, factor), adds=base
            )
        home.block.body.append(made)
        return result

    def iteration(self, loop: Loop) -> Register:
        """Returns the register that counts a loop's iterations."""
        if loop.iteration is None:
            loop.iteration = Register("iteration")
            self.home_of[loop.iteration] = loop
        return loop.iteration

    def argument(self, buffer: str, index: Expr) -> Register:
        """Returns what is given from outside."""
        key = buffer, index
        if key not in self._outside:
            name = buffer or (index.name if isinstance(index, kir.Var) else "value")
            register = self._outside[key] = Register(name)
            self.home_of[register] = self.root
            self.arguments.append(Argument(register, buffer, index))
        return self._outside[key]

    @staticmethod
    def outside(terms: tuple[tuple[Symbol, int], ...]) -> Expr:
        """Returns the sum of those ``terms`` that are from outside, as Kernel IR."""
        found = [(one, times) for one, times in terms if isinstance(one, Outside)]
        result: Expr = const(0)
        for symbol, times in found:
            result = add(result, mul(symbol, const(times)))
        return result

    # ---- when all are

    def place(self) -> None:
        """Lets loops move their pointers, and end by them where that saves a counter."""
        self._inside(self.root, [])

    def _inside(self, loop: Loop, around: list[Loop]) -> list[Pointer]:
        """Goes through a loop's body; ``around`` are those around it, it among them. Returns the
        pointers that its iterations move although only copies are used."""
        ahead: dict[Pointer, int] = {}  # bytes by which pointers are further than accesses need
        kept: list[Pointer] = []  # of which loops within move copies
        tail: list[Instruction] = []
        body, loop.body = loop.body, []
        for node in body:
            for part in parts(node):
                kept += self._enter(part, loop, around, ahead)
            if tail:  # pointers are set before what is compared for a branch
                loop.block.tail, tail = tail, []
            for part in parts(node):
                kept += self._inside(part, [*around, part])
            if not isinstance(node, Block):
                loop.body.append(node)
                continue
            block = loop.block.body
            for one in node.body:
                if one.memory is not None and (own := self.owners.get(one.memory.base)):
                    offset = one.memory.offset - ahead.get(own, 0)
                    if not LEAST_OFFSET <= offset <= MOST_OFFSET:
                        block.append(added(own.register, -ahead.pop(own)))
                        offset = one.memory.offset
                    one.memory.offset = offset
                block.append(one)
            tail = node.tail
        if loop is not self.root:
            for pointer in dict.fromkeys((*self._used(loop.body), *kept)):
                missing = pointer.steps.get(loop, 0) - ahead.get(pointer, 0)
                if missing and pointer.home.depth < loop.depth:
                    loop.block.body.append(added(pointer.register, missing))
        return kept

    def _used(self, nodes: list[Node]) -> list[Pointer]:
        """Returns the pointers of accesses, in their order."""
        bases = (one.memory.base for one in instructions(nodes) if one.memory is not None)
        return list(dict.fromkeys(self.owners[base] for base in bases if base in self.owners))

    def _enter(
        self, inner: Loop, loop: Loop, around: list[Loop], ahead: dict[Pointer, int]
    ) -> list[Pointer]:
        """Prepares pointers for a loop in the body of ``loop``; returns those that are copied."""
        kept = []
        times = int(inner.extent.value) if isinstance(inner.extent, kir.Const) else None
        for pointer in self._used(inner.body):
            if behind := ahead.pop(pointer, 0):
                loop.block.body.append(added(pointer.register, -behind))
            step = pointer.steps.get(inner, 0)
            if not step:
                continue
            again = pointer.home.depth < loop.depth
            if times is None or (again and not pointer.steps.get(loop, 0)):
                kept.append(pointer)
                pointer = self._copied(pointer, inner, loop, around)  # noqa: PLW2901
            elif again or pointer.home is loop:
                ahead[pointer] = step * times
            if inner.end is None and pointer.first is not None and inner.iteration is None:
                fixed = not any(pointer.steps.get(one, 0) for one in around)
                if fixed:
                    self._end_by(pointer, inner, step)
        return kept

    def _copied(
        self, pointer: Pointer, inner: Loop, loop: Loop, around: list[Loop]
    ) -> Pointer:
        """Lets a loop move a copy, so that the pointer stays where it is."""
        register = Register(pointer.register.name)
        loop.block.body.append(Instruction(COPY, (register,), (pointer.register,)))
        for one in instructions(inner.body):
            if one.memory is not None and one.memory.base is pointer.register:
                one.memory.base = register
        steps = {one: step for one, step in pointer.steps.items() if one not in around}
        fixed = not any(pointer.steps.get(one, 0) for one in around)
        copied = Pointer(
            pointer.buffer, register, loop, steps, 0, pointer.first if fixed else None
        )
        self.owners[register] = copied
        return copied

    def _end_by(self, pointer: Pointer, inner: Loop, step: int) -> None:
        """Lets a loop end where a pointer has gone through all of its iterations."""
        each = pointer.buffer.dtype.itemsize
        if step % each or pointer.first is None:
            raise UnsupportedError("a pointer moves by parts of elements")
        last = add(pointer.first, mul(inner.extent, const(step // each)))
        inner.counter = pointer.register
        inner.end = self.argument(pointer.buffer.name, last)
