"""What kernels have in common that differ in numbers alone."""

from __future__ import annotations

import enum
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


class Place(enum.Enum):
    """Where a constant stands: what it would cost as a variable depends on it."""

    EXTENT = "extent"  # of a loop around others
    INNER_EXTENT = "inner extent"  # of an innermost loop
    DIVISOR = "divisor"
    INSIDE = "inside"  # of an innermost loop
    OUTSIDE = "outside"


Skeleton = tuple[object, ...]
"""Equal for kernels that are equal but for the values of constants, and for what is promised of
their buffers."""

Numbers = tuple[tuple[Const, Place], ...]
"""The constants of a kernel and where they stand, in the order of the text, which is that of
:func:`crtexport.kernels.rebuild.rebuild`."""


def skeleton(kernel: Kernel) -> tuple[Skeleton, Numbers]:
    """What stays of a kernel without the values of its constants, and these."""
    walk = _Walk()
    for buffer in kernel.buffers:
        walk.parts += (buffer.name, buffer.dtype, buffer.writable)
    walk.parts += (kernel.name, kernel.params)
    walk.body(kernel.body, Place.OUTSIDE)
    return tuple(walk.parts), tuple(walk.numbers)


def has_loop(body: Body) -> bool:
    """Whether a loop is in ``body``."""
    return any(
        type(stmt) is For
        or (type(stmt) is If and (has_loop(stmt.then) or has_loop(stmt.other)))
        for stmt in body
    )


class _Walk:
    """Lists the parts of a kernel, each before what it is made of."""

    def __init__(self) -> None:
        self.parts: list[object] = []
        self.numbers: list[tuple[Const, Place]] = []

    def body(self, body: Body, place: Place) -> None:
        self.parts.append(len(body))
        for stmt in body:
            self.stmt(stmt, place)

    def stmt(self, stmt: Stmt, place: Place) -> None:
        if type(stmt) is Let or type(stmt) is Local:
            self.parts += (type(stmt), stmt.var.name, stmt.var.type)
            self.expr(stmt.value, place)
        elif type(stmt) is Assign:
            self.parts += (Assign, stmt.var.name)
            self.expr(stmt.value, place)
        elif type(stmt) is Store:
            self.parts += (Store, stmt.buffer.name)
            self.expr(stmt.index, place)
            self.expr(stmt.value, place)
        elif type(stmt) is StoreVector:
            self.parts += (StoreVector, stmt.buffer.name, stmt.count)
            self.expr(stmt.index, place)
            self.expr(stmt.value, place)
        elif type(stmt) is For:
            inner = not has_loop(stmt.body)
            self.parts += (For, stmt.var.name, stmt.unroll, stmt.vectorize)
            self.expr(stmt.extent, Place.INNER_EXTENT if inner else Place.EXTENT)
            self.body(stmt.body, Place.INSIDE if inner else place)
        elif type(stmt) is If:
            self.parts.append(If)
            self.expr(stmt.condition, place)
            self.body(stmt.then, place)
            self.body(stmt.other, place)
        elif type(stmt) is Comment:
            self.parts += (Comment, stmt.text)
        else:
            assert_never(stmt)

    def expr(self, expr: Expr, place: Place) -> None:
        parts = self.parts
        if type(expr) is Var:
            parts.append(expr.name)
        elif type(expr) is Const:
            self.numbers.append((expr, place))
            parts += (Const, expr.type)
        elif type(expr) is Binary:
            parts.append(expr.op)
            self.expr(expr.a, place)
            self.expr(expr.b, Place.DIVISOR if expr.op is BinaryOp.DIV else place)
        elif type(expr) is Load or type(expr) is LoadWord:
            parts += (type(expr), expr.buffer.name)
            self.expr(expr.index, place)
        elif type(expr) is LoadVector:
            parts += (LoadVector, expr.buffer.name, expr.type, expr.count)
            self.expr(expr.index, place)
        elif type(expr) is Compare:
            parts.append(expr.op)
            self.expr(expr.a, place)
            self.expr(expr.b, place)
        elif type(expr) is Select:
            parts.append(Select)
            for part in (expr.condition, expr.then, expr.other):
                self.expr(part, place)
        elif type(expr) is Cast:
            parts += (Cast, expr.type)
            self.expr(expr.value, place)
        elif type(expr) is Call:
            parts += (Call, expr.name, expr.type, len(expr.args))
            for part in expr.args:
                self.expr(part, place)
        else:
            assert_never(expr)
