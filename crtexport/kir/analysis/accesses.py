"""The loads and stores of a kernel, and the part of the kernel that decides their addresses."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir import language as kir
from crtexport.kir.language import Body, Buffer, Expr, Kernel, Stmt
from crtexport.kir.walk import expressions, variables


class Access(Struct, frozen=True):
    """A load or store, numbered in the order of the text. ``loops`` are the loops around it,
    outermost first; ``width`` is the number of elements that it accesses. ``copies``: for a store
    of an unchanged loaded element, the number of that load."""

    number: int
    buffer: Buffer
    stores: bool
    loops: tuple[tuple[str, int | None], ...]
    conditional: bool
    copies: int | None = None
    width: int = 1


def accesses(kernel: Kernel) -> tuple[Access, ...]:
    """Returns every load and store of a kernel in the order of its text."""
    return tuple(_AccessListing().body(kernel.body, (), conditional=False))


class _AccessListing:
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
            match stmt:
                case kir.Store():
                    plain = isinstance(stmt.value, kir.Load) and last is not None
                    yield Access(
                        self._number(), stmt.buffer, True, loops, conditional,
                        copies=last.number if plain and last else None,
                    )
                case kir.StoreVector():
                    yield Access(
                        self._number(), stmt.buffer, True, loops, conditional, width=stmt.count
                    )
                case kir.For():
                    extent = stmt.extent.value if isinstance(stmt.extent, kir.Const) else None
                    inner = (*loops, (stmt.var.name, None if extent is None else int(extent)))
                    yield from self.body(stmt.body, inner, conditional=conditional)
                case kir.If():
                    yield from self.body(stmt.then, loops, conditional=True)
                    yield from self.body(stmt.other, loops, conditional=True)

    def _number(self) -> int:
        self.count += 1
        return self.count - 1


def width_of(load: kir.Reading) -> int:
    """Returns the number of elements that a load reads."""
    match load:
        case kir.Load():
            return 1
        case kir.LoadWord(buffer=buffer):
            return 4 // buffer.dtype.itemsize
        case kir.LoadVector(count=count):
            return count


def loads(expr: Expr) -> list[kir.Reading]:
    """Returns the loads in an expression, inner ones first."""
    found: list[kir.Reading] = []
    _gather(expr, found)
    return found


def _gather(expr: Expr, readings: list[kir.Reading]) -> None:
    for part in kir.operands(expr):
        if not isinstance(part, kir.LEAVES):
            _gather(part, readings)
    if isinstance(expr, kir.Reading):
        readings.append(expr)


def touching(kernel: Kernel, names: Collection[str]) -> Kernel:
    """Returns the part of a kernel that decides the addresses of its accesses to the buffers
    ``names``: these accesses, and the statements that their indices depend on. It is for analyses,
    not to be run."""
    return replace(kernel, body=_AccessSlice(names).body(kernel.body))


class _AccessSlice:
    """Goes through a kernel from its end, so that uses of a name come before its definition."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.needed: set[str] = set()

    def body(self, body: Body) -> Body:
        kept = [part for stmt in reversed(body) if (part := self._stmt(stmt)) is not None]
        return tuple(reversed(kept))

    def _stmt(self, stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, kir.For):
            inner = self.body(stmt.body)
            kept = self._touches(stmt) or inner
            return self._needs(kir.For(stmt.var, stmt.extent, inner)) if kept else None
        if isinstance(stmt, kir.If):
            other, then = self.body(stmt.other), self.body(stmt.then)
            kept = self._touches(stmt) or then or other
            return self._needs(kir.If(stmt.condition, then, other)) if kept else None
        if isinstance(stmt, kir.Let) and stmt.var.name in self.needed:
            self._touches(stmt)
            return self._needs(stmt)
        return stmt if self._touches(stmt) else None

    def _touches(self, stmt: Stmt) -> bool:
        """Notes the indices that a statement itself touches the buffers at; returns whether it
        does."""
        found: list[kir.Reading] = []
        for expr in expressions(stmt):
            if not isinstance(expr, kir.LEAVES):
                _gather(expr, found)
        indices = [load.index for load in found if load.buffer.name in self.names]
        if isinstance(stmt, (kir.Store, kir.StoreVector)) and stmt.buffer.name in self.names:
            indices.append(stmt.index)
        for index in indices:
            self.needed |= variables(index)
        return bool(indices)

    def _needs(self, stmt: kir.For | kir.If | kir.Let) -> Stmt:
        for expr in expressions(stmt):
            self.needed |= variables(expr)
        return stmt
