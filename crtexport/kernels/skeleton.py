"""What kernels have in common that differ in numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from crtexport.kernels.ir import (
    Assign,
    Binary,
    BinaryOp,
    Body,
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
from crtexport.kernels.rebuild import Place, has_loop

Skeleton = tuple[object, ...]
"""Equal for kernels that are equal but for numbers that may differ, and for what is promised of
their buffers."""


def skeleton(
    kernel: Kernel, differs: Callable[[Const, Place], bool]
) -> tuple[Skeleton, tuple[Const, ...]]:
    """What stays of a kernel without the constants that may differ, and these, in the order of the
    text, which is that of :func:`crtexport.kernels.rebuild.rebuild`."""
    walk = _Walk(differs)
    for buffer in kernel.buffers:
        walk.parts += (buffer.name, buffer.dtype, buffer.writable)
    walk.parts += (kernel.name, kernel.params)
    walk.body(kernel.body, Place.OUTSIDE)
    return tuple(walk.parts), tuple(walk.numbers)


class _Walk:
    """Lists the parts of a kernel, each before what it is made of."""

    def __init__(self, differs: Callable[[Const, Place], bool]) -> None:
        self.differs = differs
        self.parts: list[object] = []
        self.numbers: list[Const] = []

    def body(self, body: Body, place: Place) -> None:
        self.parts.append(len(body))
        for stmt in body:
            self.stmt(stmt, place)

    def stmt(self, stmt: Stmt, place: Place) -> None:
        match stmt:
            case Let() | Local():
                self.parts += (type(stmt), stmt.var.name, stmt.var.type)
                self.expr(stmt.value, place)
            case Assign():
                self.parts += (Assign, stmt.var.name)
                self.expr(stmt.value, place)
            case Store():
                self.parts += (Store, stmt.buffer.name)
                self.expr(stmt.index, place)
                self.expr(stmt.value, place)
            case StoreVector():
                self.parts += (StoreVector, stmt.buffer.name, stmt.count)
                self.expr(stmt.index, place)
                self.expr(stmt.value, place)
            case For():
                inner = not has_loop(stmt.body)
                self.parts += (For, stmt.var.name, stmt.unroll, stmt.vectorize)
                self.expr(stmt.extent, Place.INNER_EXTENT if inner else Place.EXTENT)
                self.body(stmt.body, Place.INSIDE if inner else place)
            case If():
                self.parts.append(If)
                self.expr(stmt.condition, place)
                self.body(stmt.then, place)
                self.body(stmt.other, place)
            case Comment():
                self.parts += (Comment, stmt.text)
            case _:
                assert_never(stmt)

    def expr(self, expr: Expr, place: Place) -> None:
        parts = self.parts
        match expr:
            case Var():
                parts.append(expr.name)
            case Const():
                if self.differs(expr, place):
                    self.numbers.append(expr)
                    parts += (Const, expr.type)
                else:  # as text, in which 0.0 isn't -0.0
                    parts += (repr(expr.value), expr.type)
            case Binary():
                parts.append(expr.op)
                self.expr(expr.a, place)
                self.expr(expr.b, Place.DIVISOR if expr.op is BinaryOp.DIV else place)
            case Load() | LoadWord():
                parts += (type(expr), expr.buffer.name)
                self.expr(expr.index, place)
            case LoadVector():
                parts += (LoadVector, expr.buffer.name, expr.type, expr.count)
                self.expr(expr.index, place)
            case Compare():
                parts.append(expr.op)
                self.expr(expr.a, place)
                self.expr(expr.b, place)
            case Select():
                parts.append(Select)
                for part in (expr.condition, expr.then, expr.other):
                    self.expr(part, place)
            case Cast():
                parts += (Cast, expr.type)
                self.expr(expr.value, place)
            case Call():
                parts += (Call, expr.name, expr.type, len(expr.args))
                for part in expr.args:
                    self.expr(part, place)
            case _:
                assert_never(expr)
