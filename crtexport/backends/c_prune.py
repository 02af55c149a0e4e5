"""Leaves out of a kernel what nothing reads, so that no C compiler has to warn about it."""

from __future__ import annotations

from typing import assert_never

from crtexport.kernels.ir import (
    Assign,
    Binary,
    Body,
    Comment,
    Expr,
    For,
    If,
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
    operands,
)


class Uses:
    """What a body uses: variables and parameters whose value it reads, not merely to update them,
    buffers that it touches, and types of values."""

    def __init__(self, body: Body) -> None:
        self.variables: set[str] = set()
        self.buffers: set[str] = set()
        self.types: set[Scalar] = set()
        self._body(body)

    def _body(self, body: Body) -> None:
        for stmt in body:
            match stmt:
                case Let(value=value) | Local(value=value):
                    self._expr(value)
                case Assign(var, value):
                    self.types.add(var.type)
                    self._expr(value, but=var.name)
                case Store(buffer, index, value) | StoreVector(buffer, index, value):
                    self.buffers.add(buffer.name)
                    self._expr(index)
                    self._expr(value)
                case For(extent=extent, body=inner):
                    self._expr(extent)
                    self._body(inner)
                case If(condition, then, other):
                    self._expr(condition)
                    self._body(then)
                    self._body(other)
                case Comment():
                    pass
                case _:
                    assert_never(stmt)

    def _expr(self, expr: Expr, but: str = "") -> None:
        """``but``: a variable that is updated."""
        waiting = [expr]
        while waiting:
            part = waiting.pop()
            if type(part) is Var:
                if part.name != but:
                    self.variables.add(part.name)
                    self.types.add(part.type)
                continue
            if type(part) is Load or type(part) is LoadWord or type(part) is LoadVector:
                self.buffers.add(part.buffer.name)
            if type(part) is not Binary and type(part) is not Select:  # whose parts have their type
                self.types.add(part.type)
            waiting += operands(part)


def prune(body: Body) -> tuple[Body, Uses]:
    """``body`` without variables that nothing reads and without blocks that do nothing, and what is
    used then."""
    while True:
        uses = Uses(body)
        smaller = _drop(body, uses.variables)
        if smaller == body:
            return body, uses
        body = smaller


def _drop(body: Body, read: set[str]) -> Body:
    kept = (_kept(stmt, read) for stmt in body)
    return tuple(stmt for stmt in kept if stmt is not None)


def _kept(stmt: Stmt, read: set[str]) -> Stmt | None:
    match stmt:
        case Let(var) | Local(var) | Assign(var):
            return stmt if var.name in read else None
        case For(var, extent, inner, unroll, vectorize):
            inner = _drop(inner, read)
            return For(var, extent, inner, unroll, vectorize) if _acts(inner) else None
        case If(condition, then, other):
            then, other = _drop(then, read), _drop(other, read)
            return If(condition, then, other) if _acts(then) or _acts(other) else None
        case Store() | StoreVector() | Comment():
            return stmt
        case _:
            assert_never(stmt)


def _acts(body: Body) -> bool:
    return any(not isinstance(stmt, Comment) for stmt in body)
