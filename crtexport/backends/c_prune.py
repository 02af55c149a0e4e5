"""Leaves out of a kernel what nothing reads, so that no C compiler has to warn about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from crtexport.kernels.ir import (
    Assign,
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
    Stmt,
    Store,
    StoreVector,
    Var,
    operands,
)


def expressions(body: Body) -> Iterator[Expr]:
    """Every expression in ``body``, operands included, that does not merely update a variable."""
    for stmt in body:
        match stmt:
            case Let(value=value) | Local(value=value):
                yield from _parts(value)
            case Assign(var, value):
                yield from (e for e in _parts(value) if e != var)
            case Store(_, index, value) | StoreVector(_, index, value):
                yield from _parts(index)
                yield from _parts(value)
            case For(extent=extent, body=inner):
                yield from _parts(extent)
                yield from expressions(inner)
            case If(condition, then, other):
                yield from _parts(condition)
                yield from expressions(then)
                yield from expressions(other)
            case Comment():
                pass
            case _:
                assert_never(stmt)


def _parts(e: Expr) -> Iterator[Expr]:
    yield e
    for part in operands(e):
        yield from _parts(part)


def variables_read(body: Body) -> frozenset[str]:
    """Names of the variables and parameters whose value ``body`` uses."""
    return frozenset(e.name for e in expressions(body) if isinstance(e, Var))


def buffers_touched(body: Body) -> frozenset[str]:
    """Names of the buffers that ``body`` loads from or stores to."""
    reads = (e for e in expressions(body) if isinstance(e, Load | LoadWord | LoadVector))
    loaded = {e.buffer.name for e in reads}
    return frozenset(loaded | set(_stored(body)))


def _stored(body: Body) -> Iterator[str]:
    for stmt in body:
        match stmt:
            case Store(buffer) | StoreVector(buffer):
                yield buffer.name
            case For(body=inner):
                yield from _stored(inner)
            case If(_, then, other):
                yield from _stored(then)
                yield from _stored(other)
            case _:
                pass


def prune(body: Body) -> Body:
    """``body`` without variables that nothing reads and without blocks that do nothing."""
    while True:
        smaller = _drop(body, variables_read(body))
        if smaller == body:
            return body
        body = smaller


def _drop(body: Body, read: frozenset[str]) -> Body:
    kept = (_kept(stmt, read) for stmt in body)
    return tuple(stmt for stmt in kept if stmt is not None)


def _kept(stmt: Stmt, read: frozenset[str]) -> Stmt | None:
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
