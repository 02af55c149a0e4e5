"""Instructions on any number of virtual registers, and the blocks and loops that they form."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator

from msgspec import Struct, field

from crtexport.kir.language import Expr


class UnsupportedError(Exception):
    """Says what can't be made instructions of; compilers do that then."""


_NUMBERS = itertools.count()


class Register(Struct, eq=False):
    """A value of 32 bits for which there will be a register, under the name of what it is.

    ``number``: later ones have larger ones. ``bits``: all its values are signed integers of so few.
    """

    name: str
    number: int = field(default_factory=lambda: next(_NUMBERS))
    bits: int = 32


STACK = Register("sp")
"""Its pointer, which is never anything else."""


class ConstantRegister(Register, eq=False):
    """A value that is the same everywhere, so that any instruction can have it made before it."""

    value: int = 0


class Kind(enum.Enum):
    """Kinds of instructions, by which their times differ."""

    __hash__ = object.__hash__

    SIMPLE = "one cycle"
    MULTIPLY = "a product of 32 bits, or of pairs of 16"
    ACCUMULATE = "a sum with a product of 32 bits"
    LONG = "a product of 64 bits"
    LONG_ACCUMULATE = "a sum with a product of 64 bits"
    DIVIDE = "a division"
    LOAD = "a load"
    STORE = "a store"


class MemoryOperand(Struct):
    """The place that a load or store accesses: ``size`` bytes, ``offset`` behind an address.

    Two accesses of a ``buffer`` whose ``place`` is the same are as far from each other as their
    ``distance`` says. The stack is a buffer, too.
    """

    buffer: str
    place: Register | tuple[object, ...]
    distance: int
    base: Register
    offset: int
    size: int


class Instruction(Struct, eq=False):
    """``text`` spells it, ``count`` of them in lines, over ``{w}`` and ``{v}``, the registers that
    it writes, ``{0}``, ``{1}`` … which it reads, ``{base}`` and ``{at}`` of an access.

    A register that is read and written is the same one. ``adds``: the register to which a product
    is added, which isn't wanted at once and is read last; ``alone``: the text without it.
    """

    text: str
    writes: tuple[Register, ...]
    reads: tuple[Register, ...]
    kind: Kind = Kind.SIMPLE
    memory: MemoryOperand | None = None
    adds: Register | None = None
    alone: str = ""
    count: int = 1

    @property
    def wanted(self) -> tuple[Register, ...]:
        """Returns the registers that it reads, that of an address among them."""
        return self.reads if self.memory is None else (*self.reads, self.memory.base)


class Argument(Struct, frozen=True):
    """Given to a function of instructions in ``register``: the address of element ``index`` of
    ``buffer``, or the value of ``index`` where that is empty."""

    register: Register
    buffer: str
    index: Expr


class Block(Struct, eq=False):
    """Instructions that are executed one after the other, in any order that means the same, and
    behind them those of ``tail``: comparisons, each of which a branch follows."""

    body: list[Instruction] = field(default_factory=list)
    tail: list[Instruction] = field(default_factory=list)


class Loop(Struct, eq=False):
    """``body`` is repeated ``extent`` times, at least once: until ``counter`` is ``end``, or where
    that is None, until a counter that begins with ``extent`` has gone down to 0.

    ``depth``: how many loops are around it; 0 is what is around all. ``iteration``: the register
    with the number of the iteration, if anything reads that. What is around all, and one side of
    a branch, isn't ``repeated``.
    """

    depth: int
    extent: Expr
    body: list[Node] = field(default_factory=list)
    counter: Register = field(default_factory=lambda: Register("left"))
    end: Register | None = None
    iteration: Register | None = None
    repeated: bool = True
    number: int = field(default_factory=lambda: next(_NUMBERS))

    @property
    def block(self) -> Block:
        """Returns the block at the end of the body."""
        last = self.body[-1] if self.body else None
        if not isinstance(last, Block) or last.tail:
            last = Block()
            self.body.append(last)
        return last


class Branch(Struct, eq=False):
    """``then`` is run, or where one of ``codes`` holds of a comparison at the end of the block
    before, ``other``; neither is repeated."""

    codes: list[str]
    then: Loop
    other: Loop


Node = Block | Loop | Branch


def parts(node: Node) -> tuple[Loop, ...]:
    """Returns what is in a node: the loop that it is, both sides of a branch."""
    match node:
        case Loop():
            return (node,)
        case Branch():
            return node.then, node.other
        case _:
            return ()


COPY = "mov {w}, {0}"
ZERO = "mov {w}, #0"
"""The texts of instructions that copy a register, and that clear one."""


def constant(register: Register, value: int) -> Instruction:
    """Returns what makes a register hold a number."""
    if encodable(value) or 0 <= value < 1 << 16:
        return Instruction(f"mov {{w}}, #{value}", (register,), ())
    if encodable(~value):
        return Instruction(f"mvn {{w}}, #{~value & 0xFFFFFFFF}", (register,), ())
    low, high = value & 0xFFFF, value >> 16 & 0xFFFF
    return Instruction(f"movw {{w}}, #{low}\nmovt {{w}}, #{high}", (register,), (), count=2)


def added(register: Register, amount: int) -> Instruction:
    """Returns what adds a number to a register."""
    name = "add" if amount >= 0 else "sub"
    if encodable(abs(amount)) or abs(amount) < 1 << 12:
        return Instruction(f"{name} {{w}}, {{0}}, #{abs(amount)}", (register,), (register,))
    step = ConstantRegister("step", value=amount)
    return Instruction("add {w}, {0}, {1}", (register,), (register, step))


def encodable(value: int) -> bool:
    """Returns whether instructions have a word as an operand: eight bits anywhere, or bytes that
    repeat themselves."""
    value &= 0xFFFFFFFF
    low, high = value & 0xFF, value >> 8 & 0xFF
    if value in (low, low * 0x00010001, low * 0x01010101, high * 0x01000100):
        return True
    return value.bit_length() <= 8 + (value & -value).bit_length() - 1


def blocks(nodes: list[Node]) -> Iterator[Block]:
    """Yields all blocks, in the order of the text."""
    for node in nodes:
        if isinstance(node, Block):
            yield node
        for part in parts(node):
            yield from blocks(part.body)


def instructions(nodes: list[Node]) -> Iterator[Instruction]:
    """Yields all instructions, in the order of the text."""
    for block in blocks(nodes):
        yield from block.body
        yield from block.tail
