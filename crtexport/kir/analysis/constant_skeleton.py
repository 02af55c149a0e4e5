"""Skeletons: what kernels that differ in constants alone have in common."""

from __future__ import annotations

import enum
from typing import assert_never

from crtexport.kir import language as kir
from crtexport.kir.language import BinaryOp, Body, Expr, Kernel, Stmt
from crtexport.kir.walk import bodies, expressions, has_loop, walk


class ConstantPosition(enum.Enum):
    """The position of a constant, which decides what a variable in its place would cost."""

    EXTENT = "extent"  # of a loop around others
    INNER_EXTENT = "inner extent"  # of an innermost loop
    DIVISOR = "divisor"
    INSIDE = "inside"  # of an innermost loop
    ASSEMBLED = "assembled"  # inside of a loop of vectors that has instructions of its own
    OUTSIDE = "outside"


Skeleton = tuple[object, ...]
"""Equal for kernels that are equal but for the values of constants, and for what is promised of
their buffers."""

Numbers = tuple[tuple[kir.Const, ConstantPosition], ...]
"""The constants of a kernel and where they stand, in the order of the text, which is that of
:func:`crtexport.kir.rewrite.substitute`."""


def skeleton(kernel: Kernel) -> tuple[Skeleton, Numbers]:
    """Returns a kernel without the values of its constants, and these constants."""
    found = _SkeletonWalk()
    for buffer in kernel.buffers:
        found.parts += (buffer.name, buffer.dtype, buffer.writable)
    found.parts += (kernel.name, kernel.params)
    found.body(kernel.body, ConstantPosition.OUTSIDE)
    return tuple(found.parts), tuple(found.numbers)


def _stores_vectors(body: Body) -> bool:
    return any(isinstance(stmt, kir.StoreVector) for stmt in walk(body))


class _SkeletonWalk:
    """Lists the parts of a kernel, each before its own parts."""

    def __init__(self) -> None:
        self.parts: list[object] = []
        self.numbers: list[tuple[kir.Const, ConstantPosition]] = []

    def body(self, body: Body, place: ConstantPosition) -> None:
        self.parts.append(len(body))
        for stmt in body:
            self.stmt(stmt, place)

    def stmt(self, stmt: Stmt, place: ConstantPosition) -> None:
        inside = at = place
        match stmt:
            case kir.Let():
                self.parts += (kir.Let, stmt.var.name, stmt.var.type)
            case kir.Local():
                self.parts += (kir.Local, stmt.var.name, stmt.var.type, stmt.bits)
            case kir.Assign():
                self.parts += (kir.Assign, stmt.var.name)
            case kir.Store():
                self.parts += (kir.Store, stmt.buffer.name)
            case kir.StoreVector():
                self.parts += (kir.StoreVector, stmt.buffer.name, stmt.count)
            case kir.For():
                vectors = stmt.assembled and _stores_vectors(stmt.body)
                innermost = not has_loop(stmt.body) and not vectors
                self.parts += (kir.For, stmt.var.name, stmt.unroll, stmt.vectorize, stmt.assembled)
                at = ConstantPosition.INNER_EXTENT if innermost else ConstantPosition.EXTENT
                inside = ConstantPosition.INSIDE if innermost else place
                if place is ConstantPosition.ASSEMBLED:
                    at = place
                elif vectors:
                    inside = ConstantPosition.ASSEMBLED
            case kir.If():
                self.parts.append(kir.If)
            case kir.Comment():
                self.parts += (kir.Comment, stmt.text)
            case _:
                assert_never(stmt)
        for expr in expressions(stmt):
            self.expr(expr, at)
        for body in bodies(stmt):
            self.body(body, inside)

    def expr(self, expr: Expr, place: ConstantPosition) -> None:
        parts = self.parts
        match expr:
            case kir.Var():
                parts.append(expr.name)
            case kir.Const():
                self.numbers.append((expr, place))
                parts += (kir.Const, expr.type)
            case kir.Binary(op=BinaryOp.DIV):
                parts.append(expr.op)
                self.expr(expr.a, place)
                self.expr(expr.b, ConstantPosition.DIVISOR)
                return
            case kir.Binary() | kir.Compare():
                parts.append(expr.op)
            case kir.Load() | kir.LoadWord():
                parts += (type(expr), expr.buffer.name)
            case kir.LoadVector():
                parts += (kir.LoadVector, expr.buffer.name, expr.type, expr.count)
            case kir.Select():
                parts.append(kir.Select)
            case kir.Cast():
                parts += (kir.Cast, expr.type)
            case kir.Call():
                parts += (kir.Call, expr.name, expr.type, len(expr.args))
            case _:
                assert_never(expr)
        for part in kir.operands(expr):
            self.expr(part, place)
