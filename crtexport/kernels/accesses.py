"""The loads and stores of a kernel, and what of it decides where they go."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kernels.ir import (
    LEAVES,
    Assign,
    Binary,
    BinaryOp,
    Body,
    Buffer,
    Call,
    Cast,
    Compare,
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
    Select,
    Stmt,
    Store,
    StoreVector,
)
from crtexport.kernels.later import names as variables

_SUMS = (BinaryOp.ADD, BinaryOp.SUB)


class Access(Struct, frozen=True):
    """A load or store, numbered in the order of the text; ``loops`` encloses it, outermost first.

    ``copies``: a store of nothing but a loaded element, by the number of that load. ``width``: how
    many elements are touched at once.
    """

    number: int
    buffer: Buffer
    stores: bool
    loops: tuple[tuple[str, int | None], ...]
    conditional: bool
    copies: int | None = None
    width: int = 1


def accesses(kernel: Kernel) -> tuple[Access, ...]:
    """Every load and store of a kernel in the order of its text."""
    return tuple(_Listing().body(kernel.body, (), conditional=False))


class _Listing:
    def __init__(self) -> None:
        self.count = 0

    def body(
        self, body: Body, loops: tuple[tuple[str, int | None], ...], *, conditional: bool
    ) -> Iterator[Access]:
        for stmt in body:
            last: Access | None = None
            for expr in expressions(stmt):
                for load in loads(expr):
                    last = Access(
                        self._number(), load.buffer, False, loops, conditional,
                        width=width_of(load),
                    )
                    yield last
            if type(stmt) is Store:
                plain = type(stmt.value) is Load and last is not None
                yield Access(
                    self._number(), stmt.buffer, True, loops, conditional,
                    copies=last.number if plain and last else None,
                )
            elif type(stmt) is StoreVector:
                yield Access(
                    self._number(), stmt.buffer, True, loops, conditional, width=stmt.count
                )
            elif type(stmt) is For:
                extent = stmt.extent.value if type(stmt.extent) is Const else None
                inner = (*loops, (stmt.var.name, None if extent is None else int(extent)))
                yield from self.body(stmt.body, inner, conditional=conditional)
            elif type(stmt) is If:
                yield from self.body(stmt.then, loops, conditional=True)
                yield from self.body(stmt.other, loops, conditional=True)

    def _number(self) -> int:
        self.count += 1
        return self.count - 1


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """What a statement itself evaluates, in order; a stored value comes last."""
    if type(stmt) is Let or type(stmt) is Local or type(stmt) is Assign:
        return (stmt.value,)
    if type(stmt) is Store or type(stmt) is StoreVector:
        return stmt.index, stmt.value
    if type(stmt) is For:
        return (stmt.extent,)
    return (stmt.condition,) if type(stmt) is If else ()


def split(index: Expr) -> tuple[Expr, int]:
    """An index as a sum of something and a constant."""
    added = 0
    while type(index) is Binary and type(index.b) is Const and index.op in _SUMS:
        value = int(index.b.value)
        added += value if index.op is BinaryOp.ADD else -value
        index = index.a
    return index, added


Reading = Load | LoadWord | LoadVector


def width_of(load: Reading) -> int:
    """The elements that one load touches."""
    match load:
        case Load():
            return 1
        case LoadWord(buffer=buffer):
            return 4 // buffer.dtype.itemsize
        case LoadVector(count=count):
            return count


def loads(expr: Expr) -> list[Reading]:
    """The loads in an expression, inner ones first."""
    found: list[Reading] = []
    _gather(expr, found)
    return found


def _gather(expr: Expr, found: list[Reading]) -> None:
    if type(expr) is Binary or type(expr) is Compare:
        # Most expressions are sums of products of leaves.
        if type(expr.a) not in LEAVES:
            _gather(expr.a, found)
        if type(expr.b) not in LEAVES:
            _gather(expr.b, found)
    elif type(expr) is Load or type(expr) is LoadWord or type(expr) is LoadVector:
        if type(expr.index) not in LEAVES:
            _gather(expr.index, found)
        found.append(expr)
    elif type(expr) is Call:
        for part in expr.args:
            if type(part) not in LEAVES:
                _gather(part, found)
    elif type(expr) is Cast:
        _gather(expr.value, found)
    elif type(expr) is Select:
        for part in (expr.condition, expr.then, expr.other):
            _gather(part, found)


def touching(kernel: Kernel, names: Collection[str]) -> Kernel:
    """The part of a kernel that decides where it touches the buffers ``names``: its accesses to
    them, and what these need to be found. It is nothing to run."""
    return replace(kernel, body=_Part(names).body(kernel.body))


class _Part:
    """Goes through a kernel from its end: what is needed is known before it is named."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.needed: set[str] = set()

    def body(self, body: Body) -> Body:
        kept = [part for stmt in reversed(body) if (part := self._stmt(stmt)) is not None]
        return tuple(reversed(kept))

    def _stmt(self, stmt: Stmt) -> Stmt | None:
        if type(stmt) is For:
            inner = self.body(stmt.body)
            kept = self._touches(stmt) or inner
            return self._needs(For(stmt.var, stmt.extent, inner)) if kept else None
        if type(stmt) is If:
            other, then = self.body(stmt.other), self.body(stmt.then)
            kept = self._touches(stmt) or then or other
            return self._needs(If(stmt.condition, then, other)) if kept else None
        if type(stmt) is Let and stmt.var.name in self.needed:
            self._touches(stmt)
            return self._needs(stmt)
        return stmt if self._touches(stmt) else None

    def _touches(self, stmt: Stmt) -> bool:
        """Whether a statement itself does; then its indices are needed."""
        found: list[Reading] = []
        for expr in expressions(stmt):
            if type(expr) not in LEAVES:
                _gather(expr, found)
        indices = [load.index for load in found if load.buffer.name in self.names]
        if (type(stmt) is Store or type(stmt) is StoreVector) and stmt.buffer.name in self.names:
            indices.append(stmt.index)
        for index in indices:
            self.needed |= variables(index)
        return bool(indices)

    def _needs(self, stmt: For | If | Let) -> Stmt:
        for expr in expressions(stmt):
            self.needed |= variables(expr)
        return stmt
