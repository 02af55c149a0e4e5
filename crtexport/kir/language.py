"""The Kernel IR: a closed loop language. This page is all of it.

A kernel takes pointers to flat buffers and scalar parameters. Storage types (i8 u8 i16 u16 f16)
are only loaded, stored and cast; arithmetic happens in i32, u32, i64, index, f32, f64 and logic
in i1, so no printer meets integer promotion. ``index`` is a signed integer of pointer width.

Overflow: ADD, SUB, MUL of signed integers promise not to overflow (the interpreter checks);
the WRAP_ operations wrap in two's complement. DIV truncates toward zero. SHL wraps; SHR is
arithmetic for signed types. MIN/MAX on floats are ``b < a ? b : a`` and ``a < b ? b : a``. CAST
between integers wraps; float to integer truncates toward zero and promises to be in range. Floats
are IEEE, never contracted or reassociated.

Vectors of 128 to 1024 bits are loaded, stored, named, and computed with by intrinsics alone: a
schedule writes them for machines that have them.
"""

from __future__ import annotations

import enum
from typing import assert_never, final

from msgspec import Struct


class Scalar(enum.Enum):
    """Types of values; the value is the name in dumps."""

    I1 = "i1"
    I8 = "i8"
    U8 = "u8"
    I16 = "i16"
    U16 = "u16"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    F16 = "f16"
    F32 = "f32"
    F64 = "f64"
    INDEX = "index"
    I8X16 = "i8x16"
    I16X8 = "i16x8"
    I32X4 = "i32x4"
    F32X4 = "f32x4"
    I16X16 = "i16x16"
    I32X8 = "i32x8"
    F32X8 = "f32x8"
    I8X32 = "i8x32"
    I32X16 = "i32x16"
    F32X16 = "f32x16"
    I16X32 = "i16x32"
    I32X32 = "i32x32"
    F32X32 = "f32x32"

    __hash__ = object.__hash__  # Enum's own asks for the name's, in Python, at each look-up

    # Facts that are read of each expression of each kernel: attributes, not properties.
    text: str
    """The value, which Enum finds slowly."""
    is_float: bool
    is_vector: bool
    is_signed: bool
    itemsize: int
    """Bytes in a buffer. ``index`` has no storage."""

    @property
    def lane(self) -> Scalar:
        """Returns the type of one lane of a vector."""
        return _LANES[self][0]

    @property
    def lanes(self) -> int:
        """Returns how many lanes a vector has."""
        return _LANES[self][1]


_LANES: dict[Scalar, tuple[Scalar, int]] = {}

for _type in Scalar:
    _type.text = _type.value
    _type.is_float = _type.text.startswith("f")
    _type.is_signed = not _type.text.startswith("u") and _type is not Scalar.I1
    _lane, _, _count = _type.text.partition("x")
    _type.is_vector = _count.isdigit()
    if _type.is_vector:
        _LANES[_type] = Scalar(_lane), int(_count)
        _type.itemsize = _type.lane.itemsize * _type.lanes
    elif _type is not Scalar.INDEX:
        _type.itemsize = -(-int(_type.text[1:]) // 8)

# Enum finds its members slowly, too.
_I1, _I32 = Scalar.I1, Scalar.I32

ARITHMETIC = frozenset(
    {Scalar.I32, Scalar.U32, Scalar.I64, Scalar.INDEX, Scalar.F32, Scalar.F64}
)


LANE_SOURCES = {
    Scalar.I8X16: (Scalar.I8,), Scalar.I16X8: (Scalar.I8, Scalar.U8, Scalar.I16),
    Scalar.I32X4: (Scalar.I8, Scalar.U8, Scalar.I16, Scalar.U16, Scalar.I32),
    Scalar.F32X4: (Scalar.F32,), Scalar.I16X16: (Scalar.I8, Scalar.I16),
    Scalar.I32X8: (Scalar.I8, Scalar.I16, Scalar.I32), Scalar.F32X8: (Scalar.F32,),
    Scalar.I8X32: (Scalar.I8,), Scalar.I32X16: (Scalar.I8, Scalar.I16, Scalar.I32),
    Scalar.F32X16: (Scalar.F32,), Scalar.I16X32: (Scalar.I8, Scalar.I16),
    Scalar.I32X32: (Scalar.I8, Scalar.I16, Scalar.I32), Scalar.F32X32: (Scalar.F32,),
}
"""Element types that the lanes of a vector can be loaded from and stored to."""

WORD_PARTS = frozenset({Scalar.I8, Scalar.U8, Scalar.I16, Scalar.U16})
"""Element types that a word can be loaded from."""


class BinaryOp(enum.Enum):
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    WRAP_ADD = "wrap_add"
    WRAP_SUB = "wrap_sub"
    WRAP_MUL = "wrap_mul"
    DIV = "div"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"
    MIN = "min"
    MAX = "max"

    __hash__ = object.__hash__


class CompareOp(enum.Enum):
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"

    __hash__ = object.__hash__


NEGATED = {
    CompareOp.EQ: CompareOp.NE, CompareOp.NE: CompareOp.EQ, CompareOp.LT: CompareOp.GE,
    CompareOp.GE: CompareOp.LT, CompareOp.LE: CompareOp.GT, CompareOp.GT: CompareOp.LE,
}
"""The comparison that holds of two integers where another one doesn't."""

MIRRORED = {
    CompareOp.EQ: CompareOp.EQ, CompareOp.NE: CompareOp.NE, CompareOp.LT: CompareOp.GT,
    CompareOp.GT: CompareOp.LT, CompareOp.LE: CompareOp.GE, CompareOp.GE: CompareOp.LE,
}
"""The comparison that holds of b and a where another one holds of a and b."""


class Buffer(Struct, frozen=True, array_like=True):
    """A pointer parameter to ``size`` elements. ``align``: bytes, at least the element's."""

    name: str
    dtype: Scalar
    size: int
    writable: bool = False
    align: int = 1


class _Part(
    Struct, frozen=True, cache_hash=True, tag=True, tag_field="part", array_like=True
):
    """An expression or a statement, whose encoding names its class."""


# ---- expressions: each has a ``type`` -------------------------------------------------------


@final
class Const(_Part, frozen=True):
    value: int | float
    type: Scalar


@final
class Var(_Part, frozen=True):
    """A Let, a Local, a loop variable or a scalar parameter."""

    name: str
    type: Scalar


@final
class Load(_Part, frozen=True):
    buffer: Buffer
    index: Expr

    @property
    def type(self) -> Scalar:
        return self.buffer.dtype


@final
class LoadWord(_Part, frozen=True):
    """The four bytes that begin at element ``index`` of a buffer of 8- or 16-bit integers, as i32
    in the machine's byte order; any element may be the first."""

    buffer: Buffer
    index: Expr

    @property
    def type(self) -> Scalar:
        return _I32


@final
class LoadVector(_Part, frozen=True):
    """``count`` neighbouring elements of a buffer, from ``index`` on, each extended to a lane of
    ``type``; the other lanes are 0."""

    buffer: Buffer
    index: Expr
    type: Scalar
    count: int


@final
class Binary(_Part, frozen=True):
    """Both operands have the type of the result (for shifts too)."""

    op: BinaryOp
    a: Expr
    b: Expr

    @property
    def type(self) -> Scalar:
        return self.a.type


@final
class Compare(_Part, frozen=True):
    op: CompareOp
    a: Expr
    b: Expr

    @property
    def type(self) -> Scalar:
        return _I1


@final
class Select(_Part, frozen=True):
    """``then`` if ``condition`` else ``other``; both are evaluated."""

    condition: Expr
    then: Expr
    other: Expr

    @property
    def type(self) -> Scalar:
        return self.then.type


@final
class Cast(_Part, frozen=True):
    value: Expr
    type: Scalar


@final
class Call(_Part, frozen=True):
    """A call of a named intrinsic of :mod:`crtexport.kir.intrinsics.registry`."""

    name: str
    args: tuple[Expr, ...]
    type: Scalar


Expr = Const | Var | Load | LoadWord | LoadVector | Binary | Compare | Select | Cast | Call

Reading = Load | LoadWord | LoadVector
"""Expressions that read a buffer."""

LEAVES = (Const, Var)
"""Expressions that are made of no others."""


def operands(expr: Expr) -> tuple[Expr, ...]:
    """Returns the expressions that ``expr`` is made of, in the order of the text."""
    match expr:
        case Const() | Var():
            return ()
        case Binary() | Compare():
            return expr.a, expr.b
        case Load() | LoadWord() | LoadVector():
            return (expr.index,)
        case Select():
            return expr.condition, expr.then, expr.other
        case Cast():
            return (expr.value,)
        case Call():
            return expr.args
        case _:
            assert_never(expr)


# ---- statements --------------------------------------------------------------------------------


@final
class Let(_Part, frozen=True):
    """An immutable name for a value."""

    var: Var
    value: Expr


@final
class Local(_Part, frozen=True):
    """A mutable value (accumulator), always initialised.

    ``bits``: whoever emits it knows that all its values are signed integers of so many bits, fewer
    than its type has.
    """

    var: Var
    value: Expr
    bits: int | None = None


@final
class Assign(_Part, frozen=True):
    """A new value for a Local."""

    var: Var
    value: Expr


@final
class Store(_Part, frozen=True):
    buffer: Buffer
    index: Expr
    value: Expr


@final
class StoreVector(_Part, frozen=True):
    """The first ``count`` lanes of ``value`` to neighbouring elements from ``index`` on; lanes that
    are wider than an element wrap."""

    buffer: Buffer
    index: Expr
    value: Expr
    count: int


@final
class For(_Part, frozen=True):
    """``var`` counts from 0 to ``extent`` - 1; ``extent`` (index) is a constant or a parameter.

    ``unroll``: None leaves it to the compiler, 1 forbids, n asks for n copies.
    ``vectorize``: None leaves it to the compiler, 1 forbids, n asks for n lanes.
    ``assembled``: the code of the loop isn't left to the compiler where
    :mod:`crtexport.kir.assembly` has instructions for it. Of vectors, what an iteration stores is
    no part of what others load.
    """

    var: Var
    extent: Expr
    body: Body
    unroll: int | None = None
    vectorize: int | None = None
    assembled: bool = False


@final
class If(_Part, frozen=True):
    condition: Expr
    then: Body
    other: Body = ()


@final
class Comment(_Part, frozen=True):
    """One line for the reader of the generated C."""

    text: str


Stmt = Let | Local | Assign | Store | StoreVector | For | If | Comment
Body = tuple[Stmt, ...]
Touching = Reading | Store | StoreVector
"""Parts of a kernel that read or write a buffer."""


class Kernel(Struct, frozen=True):
    """A void function: pointers to ``buffers`` first, then ``params``.

    ``name`` is a plain identifier that says what it does (``conv2d``); symbols are given later.
    ``doc``: lines that say which layers it implements. Names of buffers, variables and parameters
    are identifiers ``[a-z][a-z0-9_]*``, unique in the kernel. ``overlapping``: names of buffers, in
    their order, that may overlap others of them; compilers are promised that the rest doesn't.
    """

    name: str
    buffers: tuple[Buffer, ...]
    body: Body
    params: tuple[Var, ...] = ()
    doc: tuple[str, ...] = ()
    overlapping: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self._meaning == other._meaning

    def __hash__(self) -> int:
        return hash(self._meaning)

    @property
    def _meaning(self) -> tuple[object, ...]:
        """Returns all fields but comments."""
        return self.name, self.buffers, self.overlapping, self.body, self.params
