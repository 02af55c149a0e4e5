"""Rows, columns and channels of an index: indices taken apart by structure alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct, field

from crtexport.kir import language as kir
from crtexport.kir.builder import add, const, div, mul, sub
from crtexport.kir.language import BinaryOp, CompareOp, Expr, Scalar, Stmt

Interval = tuple[int, int]


class IndexFacts(Struct):
    """Facts that hold at a statement: the values of names, and the first and last values of loop
    variables."""

    lets: dict[str, Expr] = field(default_factory=dict)
    loops: dict[str, Interval] = field(default_factory=dict)

    def after(self, stmt: Stmt) -> None:
        """Returns the facts after a preceding statement, or inside of a loop."""
        if isinstance(stmt, kir.Let) and stmt.var.type is Scalar.INDEX:
            self.lets[stmt.var.name] = stmt.value
        if isinstance(stmt, kir.For) and isinstance(stmt.extent, kir.Const):
            self.loops[stmt.var.name] = 0, int(stmt.extent.value) - 1

    @contextmanager
    def where(self, condition: Expr) -> Iterator[None]:
        """Returns the facts inside of a branch that is taken where a condition holds."""
        before = self.loops
        match condition:
            case kir.Compare(CompareOp.GE, kir.Var(name), kir.Const(value)) if name in before:
                first, last = before[name]
                self.loops = before | {name: (max(first, int(value)), last)}
        yield
        # What is said of loops inside of the branch is of no use behind it.
        self.loops = before

    def interval(self, expr: Expr) -> Interval | None:
        """Returns the smallest and largest value of an index; None if they aren't known."""
        match expr:
            case kir.Const(value=value):
                return int(value), int(value)
            case kir.Var(name=name) if name in self.lets:
                return self.interval(self.lets[name])
            case kir.Var(name=name) if name in self.loops:
                return self.loops[name]
            case kir.Binary(op, a, b):
                first, second = self.interval(a), self.interval(b)
                return None if first is None or second is None else _combined(op, first, second)
            case _:
                return None

    def inside(self, expr: Expr, size: int) -> bool:
        """Returns whether an index is known to lie from 0 to ``size`` - 1."""
        found = self.interval(expr)
        return found is not None and found[0] >= 0 and found[1] < size

    def divided(self, expr: Expr, size: int) -> tuple[Expr, Expr] | None:
        """Returns quotient and remainder of an index, found without emitting a division; None where
        a division is needed."""
        if size == 1:
            return expr, const(0)
        quotient, rest = _split(expr, size, self.lets)
        return (quotient, rest) if self.inside(rest, size) else None


def _combined(op: BinaryOp, a: Interval, b: Interval) -> Interval | None:
    match op:
        case BinaryOp.ADD:
            return a[0] + b[0], a[1] + b[1]
        case BinaryOp.SUB:
            return a[0] - b[1], a[1] - b[0]
        case BinaryOp.MUL:
            products = [x * y for x in a for y in b]
            return min(products), max(products)
        case BinaryOp.MIN:
            return min(a[0], b[0]), min(a[1], b[1])
        case BinaryOp.MAX:
            return max(a[0], b[0]), max(a[1], b[1])
        case BinaryOp.DIV if b[0] == b[1] > 0 and a[0] >= 0:
            return a[0] // b[0], a[1] // b[0]
        case _:
            return None


def _split(expr: Expr, size: int, lets: Mapping[str, Expr]) -> tuple[Expr, Expr]:
    """Returns (q, r) with expr = q * size + r, where r has what isn't a multiple as it stands."""
    match expr:
        case kir.Const(value=value):
            return const(int(value) // size), const(int(value) % size)
        case kir.Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b):
            (q, r), (p, s) = _split(a, size, lets), _split(b, size, lets)
            join = add if op is BinaryOp.ADD else sub
            return join(q, p), join(r, s)
        case kir.Binary(BinaryOp.MUL, a, kir.Const(value=value)) if int(value) % size == 0:
            return mul(a, const(int(value) // size)), const(0)
        case kir.Binary(BinaryOp.MUL, a, kir.Const(value=value)):
            quotient, rest = _split(a, size, lets)
            return mul(quotient, const(int(value))), mul(rest, const(int(value)))
        case kir.Var(name=name) if name in lets:
            quotient, rest = _split(lets[name], size, lets)
            return (const(0), expr) if quotient == const(0) else (quotient, rest)
        case _:
            return const(0), expr


def divided(index: Expr, size: int) -> tuple[Expr, Expr]:
    """Quotient and remainder of an index that isn't negative, by a division."""
    if size == 1:
        return index, const(0)
    quotient = div(index, const(size))
    return quotient, sub(index, mul(quotient, const(size)))
