"""Kernels made anew with other numbers and buffers in the places of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from msgspec.structs import replace

from crtexport.kernels.ir import (
    Assign,
    Binary,
    Body,
    Buffer,
    Call,
    Cast,
    Comment,
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
    Var,
)


def rebuild(kernel: Kernel, numbers: Iterable[Expr], buffers: Mapping[str, Buffer]) -> Kernel:
    """``kernel`` with ``numbers`` for its constants, in the order of the text, which is that of
    :func:`crtexport.kernels.skeleton.skeleton`, and with ``buffers`` by name."""
    return replace(
        kernel, buffers=tuple(buffers[b.name] for b in kernel.buffers),
        body=_Rebuilder(iter(numbers), buffers).body(kernel.body),
    )


class _Rebuilder:
    def __init__(self, numbers: Iterator[Expr], buffers: Mapping[str, Buffer]) -> None:
        self.numbers, self.buffers = numbers, buffers

    def body(self, body: Body) -> Body:
        return tuple(map(self.stmt, body))

    def stmt(self, stmt: Stmt) -> Stmt:
        if type(stmt) is Let or type(stmt) is Local or type(stmt) is Assign:
            return type(stmt)(stmt.var, self.expr(stmt.value))
        if type(stmt) is Store:
            index = self.expr(stmt.index)
            return Store(self.buffers[stmt.buffer.name], index, self.expr(stmt.value))
        if type(stmt) is StoreVector:
            index = self.expr(stmt.index)
            value = self.expr(stmt.value)
            return StoreVector(self.buffers[stmt.buffer.name], index, value, stmt.count)
        if type(stmt) is For:
            extent = self.expr(stmt.extent)
            return For(stmt.var, extent, self.body(stmt.body), stmt.unroll, stmt.vectorize)
        if type(stmt) is If:
            condition = self.expr(stmt.condition)
            then = self.body(stmt.then)
            return If(condition, then, self.body(stmt.other))
        if type(stmt) is Comment:
            return stmt
        assert_never(stmt)

    def expr(self, expr: Expr) -> Expr:
        if type(expr) is Var:
            return expr
        if type(expr) is Const:
            return next(self.numbers)
        if type(expr) is Binary:
            a = self.expr(expr.a)
            return Binary(expr.op, a, self.expr(expr.b))
        if type(expr) is Load or type(expr) is LoadWord:
            return type(expr)(self.buffers[expr.buffer.name], self.expr(expr.index))
        if type(expr) is LoadVector:
            buffer = self.buffers[expr.buffer.name]
            return LoadVector(buffer, self.expr(expr.index), expr.type, expr.count)
        if type(expr) is Compare:
            a = self.expr(expr.a)
            return Compare(expr.op, a, self.expr(expr.b))
        if type(expr) is Select:
            return Select(*map(self.expr, (expr.condition, expr.then, expr.other)))
        if type(expr) is Cast:
            return Cast(self.expr(expr.value), expr.type)
        if type(expr) is Call:
            return Call(expr.name, tuple(map(self.expr, expr.args)), expr.type)
        assert_never(expr)
