"""Leaves out of a kernel what nothing reads, so that no C compiler has to warn about it."""

from __future__ import annotations

from functools import partial

from crtexport.kir import language as kir
from crtexport.kir.language import Body, Expr, Scalar, Stmt
from crtexport.kir.walk import bodies, expressions, rewrite, walk, walk_expr


class Uses:
    """The uses of a body: variables and parameters whose value it reads, not merely to update them,
    buffers that it touches, and types of values."""

    def __init__(self, body: Body) -> None:
        self.variables: set[str] = set()
        self.buffers: set[str] = set()
        self.types: set[Scalar] = set()
        for stmt in walk(body):
            if isinstance(stmt, (kir.Store, kir.StoreVector)):
                self.buffers.add(stmt.buffer.name)
            updated = stmt.var if isinstance(stmt, kir.Assign) else None
            if updated is not None:
                self.types.add(updated.type)
            for expr in expressions(stmt):
                self._expr(expr, updated)

    def _expr(self, expr: Expr, updated: kir.Var | None) -> None:
        for part in walk_expr(expr):
            if isinstance(part, kir.Var):
                if part != updated:
                    self.variables.add(part.name)
                    self.types.add(part.type)
                continue
            if isinstance(part, (kir.Load, kir.LoadWord, kir.LoadVector)):
                self.buffers.add(part.buffer.name)
            if not isinstance(part, (kir.Binary, kir.Select)):  # whose parts have their type
                self.types.add(part.type)


def prune(body: Body) -> tuple[Body, Uses]:
    """Returns ``body`` without variables that nothing reads and without blocks that do nothing, and
    what is used then."""
    while True:
        uses = Uses(body)
        smaller = rewrite(body, partial(_kept, read=uses.variables))
        if smaller == body:
            return body, uses
        body = smaller


def _kept(stmt: Stmt, read: set[str]) -> Body:
    match stmt:
        case kir.Let(var) | kir.Local(var) | kir.Assign(var):
            return (stmt,) if var.name in read else ()
        case kir.For() | kir.If():
            return (stmt,) if any(map(_acts, bodies(stmt))) else ()
        case _:
            return (stmt,)


def _acts(body: Body) -> bool:
    return any(not isinstance(stmt, kir.Comment) for stmt in body)
