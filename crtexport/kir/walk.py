"""Walks over the parts of Kernel IR, and rebuilds them.

Analyses and schedules learn here which parts a statement or an expression has, in the order of the
text, so that a new case of the language is added in one place. Two walks are written out on
purpose, because they check the others: the replay in :mod:`crtexport.kir.analysis.access_trace` and
:mod:`crtexport.kir.verifier`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from msgspec.structs import replace

from crtexport.kir import language as kir
from crtexport.kir.language import Body, Expr, Stmt


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """Returns what a statement itself evaluates, without the bodies in it; a stored value is the
    last."""
    match stmt:
        case kir.Let() | kir.Local() | kir.Assign():
            return (stmt.value,)
        case kir.Store() | kir.StoreVector():
            return stmt.index, stmt.value
        case kir.For():
            return (stmt.extent,)
        case kir.If():
            return (stmt.condition,)
        case kir.Comment():
            return ()
        case _:
            assert_never(stmt)


def bodies(stmt: Stmt) -> tuple[Body, ...]:
    """Returns the bodies in a statement: that of a loop, both of a branch."""
    match stmt:
        case kir.For():
            return (stmt.body,)
        case kir.If():
            return stmt.then, stmt.other
        case _:
            return ()


def walk(body: Body) -> Iterator[Stmt]:
    """Yields every statement of ``body``, each before the statements inside of it."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from walk(inner)


def marked(body: Body) -> Iterator[kir.For]:
    """Yields the loops in ``body`` that ask to be instructions."""
    return (stmt for stmt in walk(body) if isinstance(stmt, kir.For) and stmt.assembled)


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """Yields ``expr`` and all its operands, recursively, in no particular order."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, kir.LEAVES):
            waiting += kir.operands(part)


def variables(expr: Expr) -> set[str]:
    """Returns the names of the variables in ``expr``."""
    return {part.name for part in walk_expr(expr) if isinstance(part, kir.Var)}


def map_operands(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Returns ``expr`` with each of its operands changed, in the order of the text."""
    match expr:
        case kir.Const() | kir.Var():
            return expr
        case kir.Binary() | kir.Compare():
            a = change(expr.a)
            return type(expr)(expr.op, a, change(expr.b))  # type: ignore[arg-type]
        case kir.Load() | kir.LoadWord():
            return type(expr)(expr.buffer, change(expr.index))
        case kir.LoadVector():
            return kir.LoadVector(expr.buffer, change(expr.index), expr.type, expr.count)
        case kir.Select():
            return kir.Select(*map(change, (expr.condition, expr.then, expr.other)))
        case kir.Cast():
            return kir.Cast(change(expr.value), expr.type)
        case kir.Call():
            return kir.Call(expr.name, tuple(map(change, expr.args)), expr.type)
        case _:
            assert_never(expr)


def map_expressions(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """Returns a statement with what it evaluates itself changed, in the order of the text."""
    match stmt:
        case kir.Let() | kir.Assign():
            return type(stmt)(stmt.var, change(stmt.value))
        case kir.Local():
            return kir.Local(stmt.var, change(stmt.value), stmt.bits)
        case kir.Store():
            index = change(stmt.index)
            return kir.Store(stmt.buffer, index, change(stmt.value))
        case kir.StoreVector():
            index = change(stmt.index)
            return kir.StoreVector(stmt.buffer, index, change(stmt.value), stmt.count)
        case kir.For():
            return replace(stmt, extent=change(stmt.extent))
        case kir.If():
            return replace(stmt, condition=change(stmt.condition))
        case kir.Comment():
            return stmt
        case _:
            assert_never(stmt)


def map_bodies(stmt: Stmt, change: Callable[[Body], Body]) -> Stmt:
    """Returns a statement with the bodies in it changed, in the order of the text."""
    match stmt:
        case kir.For():
            return replace(stmt, body=change(stmt.body))
        case kir.If():
            then = change(stmt.then)
            return kir.If(stmt.condition, then, change(stmt.other))
        case _:
            return stmt


def rewrite(body: Body, change: Callable[[Stmt], Body]) -> Body:
    """Returns ``body`` with each statement replaced by the statements that ``change`` makes of it,
    inner ones first."""
    return tuple(
        new for stmt in body
        for new in change(map_bodies(stmt, lambda inner: rewrite(inner, change)))
    )


def has_loop(body: Body) -> bool:
    """Returns whether a loop is in ``body``."""
    return any(isinstance(stmt, kir.For) for stmt in walk(body))
