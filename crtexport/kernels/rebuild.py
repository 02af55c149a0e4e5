"""Kernels made anew with other constants and buffers in the places of theirs."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import assert_never

from msgspec.structs import replace

from crtexport.kernels.ir import (
    Assign,
    Binary,
    BinaryOp,
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


class Place(enum.Enum):
    """Where a constant stands: what it would cost as a variable depends on it."""

    EXTENT = "extent"  # of a loop around others
    INNER_EXTENT = "inner extent"  # of an innermost loop
    DIVISOR = "divisor"
    INSIDE = "inside"  # of an innermost loop
    OUTSIDE = "outside"


Constants = Callable[[Const, Place], Expr]


def rebuild(kernel: Kernel, constants: Constants, buffers: Mapping[str, Buffer]) -> Kernel:
    """``kernel`` with what ``constants`` gives for each constant, in the order of the text, and
    with ``buffers`` by name."""
    rebuilder = _Rebuilder(constants, buffers)
    return replace(
        kernel, buffers=tuple(buffers[b.name] for b in kernel.buffers),
        body=rebuilder.body(kernel.body, Place.OUTSIDE),
    )


def has_loop(body: Body) -> bool:
    """Whether a loop is in ``body``."""
    return any(
        type(stmt) is For
        or (type(stmt) is If and (has_loop(stmt.then) or has_loop(stmt.other)))
        for stmt in body
    )


class _Rebuilder:
    def __init__(self, constants: Constants, buffers: Mapping[str, Buffer]) -> None:
        self.constants, self.buffers = constants, buffers

    def body(self, body: Body, place: Place) -> Body:
        return tuple(self.stmt(stmt, place) for stmt in body)

    def stmt(self, stmt: Stmt, place: Place) -> Stmt:
        match stmt:
            case Let() | Local() | Assign():
                return replace(stmt, value=self.expr(stmt.value, place))
            case Store() | StoreVector():
                index = self.expr(stmt.index, place)
                return replace(
                    stmt, buffer=self.buffers[stmt.buffer.name], index=index,
                    value=self.expr(stmt.value, place),
                )
            case For():
                inner = not has_loop(stmt.body)
                extent = self.expr(stmt.extent, Place.INNER_EXTENT if inner else Place.EXTENT)
                body = self.body(stmt.body, Place.INSIDE if inner else place)
                return replace(stmt, extent=extent, body=body)
            case If(condition, then, other):
                condition = self.expr(condition, place)
                return If(condition, self.body(then, place), self.body(other, place))
            case Comment():
                return stmt
            case _:
                assert_never(stmt)

    def expr(self, expr: Expr, place: Place) -> Expr:
        match expr:
            case Const():
                return self.constants(expr, place)
            case Var():
                return expr
            case Load() | LoadWord() | LoadVector():
                return replace(
                    expr, buffer=self.buffers[expr.buffer.name], index=self.expr(expr.index, place)
                )
            case Binary(op, a, b):
                a = self.expr(a, place)
                divides = op is BinaryOp.DIV
                return Binary(op, a, self.expr(b, Place.DIVISOR if divides else place))
            case Compare(op, a, b):
                a = self.expr(a, place)
                return Compare(op, a, self.expr(b, place))
            case Select(condition, then, other):
                condition, then = self.expr(condition, place), self.expr(then, place)
                return Select(condition, then, self.expr(other, place))
            case Cast(value, type_):
                return Cast(self.expr(value, place), type_)
            case Call():
                return replace(expr, args=tuple(self.expr(arg, place) for arg in expr.args))
            case _:
                assert_never(expr)
