"""Ranges of integer expressions: intervals through the operators, narrowed by conditions.

The verifier proves indices with it and the interpreter leaves out checks that can't fire.
Intervals are closed pairs; floats have none. ``index`` counts as 64 bits unless told otherwise.
"""

from __future__ import annotations

import functools

from msgspec import Struct

from crtexport.kir import language as kir
from crtexport.kir.language import BinaryOp, Body, CompareOp, Expr, Scalar
from crtexport.kir.lazy_facts import LazyFact

Interval = tuple[int, int]

_BITS = {
    Scalar.I1: 1, Scalar.I8: 8, Scalar.U8: 8, Scalar.I16: 16, Scalar.U16: 16, Scalar.I32: 32,
    Scalar.U32: 32, Scalar.I64: 64,
}


# Enum finds its members slowly; these are wanted for each expression of each kernel.
_INDEX, _I32 = Scalar.INDEX, Scalar.I32
_SUB, _MUL, _DIV = BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV
_SUMS = (BinaryOp.ADD, BinaryOp.WRAP_ADD)
_DIFFERENCES = (_SUB, BinaryOp.WRAP_SUB)
_PRODUCTS = (_MUL, BinaryOp.WRAP_MUL)
_RING = (BinaryOp.ADD, _SUB, _MUL)


def bits(type_: Scalar, index_bits: int = 64) -> int:
    """Width of an integer type."""
    return index_bits if type_ is _INDEX else _BITS[type_]


@functools.cache
def type_range(type_: Scalar, index_bits: int = 64) -> Interval:
    """Returns the smallest and largest value of an integer type."""
    width = bits(type_, index_bits)
    if type_.is_signed:
        return -(1 << (width - 1)), (1 << (width - 1)) - 1
    return 0, (1 << width) - 1


@functools.cache
def _ranges(index_bits: int) -> dict[Scalar, Interval]:
    return {type_: type_range(type_, index_bits) for type_ in (*_BITS, _INDEX)}


def contains(outer: Interval, inner: Interval) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def hull(a: Interval, b: Interval) -> Interval:
    """Returns the smallest interval around both."""
    return min(a[0], b[0]), max(a[1], b[1])


def meet(a: Interval, b: Interval) -> Interval | None:
    """Returns the intersection of two intervals; None if it is empty."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else None


def exact(op: BinaryOp, a: Interval, b: Interval) -> Interval:
    """Returns the interval of a sum, difference or product in unbounded integers."""
    if op in _SUMS:
        return a[0] + b[0], a[1] + b[1]
    if op in _DIFFERENCES:
        return a[0] - b[1], a[1] - b[0]
    if op in _PRODUCTS:
        if b[0] == b[1] >= 0:
            return a[0] * b[0], a[1] * b[0]
        corners = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
        return min(corners), max(corners)
    raise ValueError(f"{op.value} is no ring operation")


def truncated(a: int, b: int) -> int:
    """a / b, truncated toward zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _divide(a: Interval, b: Interval, top: Interval) -> Interval:
    divisors = [d for d in (*b, -1, 1) if d != 0 and b[0] <= d <= b[1]]
    corners = [truncated(x, d) for x in a for d in divisors]
    if not corners:
        return top
    result = min(corners), max(corners)
    return result if contains(top, result) else top


def _bitwise(op: BinaryOp, a: Interval, b: Interval, top: Interval) -> Interval:
    if op is BinaryOp.AND:
        highs = [x[1] for x in (a, b) if x[0] >= 0]
        return (0, min(highs)) if highs else top
    if a[0] < 0 or b[0] < 0:
        return top
    mask = (1 << max(a[1], b[1]).bit_length()) - 1
    return (max(a[0], b[0]) if op is BinaryOp.OR else 0), mask


def _shift(op: BinaryOp, a: Interval, b: Interval, top: Interval, width: int) -> Interval:
    counts = meet(b, (0, width - 1))
    if counts is None:
        return top
    corners = [x << n if op is BinaryOp.SHL else x >> n for x in a for n in counts]
    result = min(corners), max(corners)
    return result if contains(top, result) else top


def binary(
    op: BinaryOp, a: Interval, b: Interval, type_: Scalar, index_bits: int = 64
) -> Interval:
    """Returns the interval of ``op`` in an integer type, provided that the operation doesn't
    overflow."""
    top = _ranges(index_bits)[type_]
    if op in _RING:
        whole = exact(op, a, b)
        if contains(top, whole):
            return whole
        return (meet(whole, top) or top) if type_.is_signed else top
    match op:
        case BinaryOp.WRAP_ADD | BinaryOp.WRAP_SUB | BinaryOp.WRAP_MUL:
            whole = exact(op, a, b)
            return whole if contains(top, whole) else top
        case BinaryOp.DIV:
            return _divide(a, b, top)
        case BinaryOp.AND | BinaryOp.OR | BinaryOp.XOR:
            return _bitwise(op, a, b, top)
        case BinaryOp.SHL | BinaryOp.SHR:
            return _shift(op, a, b, top, bits(type_, index_bits))
        case BinaryOp.MIN:
            return min(a[0], b[0]), min(a[1], b[1])
        case BinaryOp.MAX:
            return max(a[0], b[0]), max(a[1], b[1])
        case _:  # those above
            raise ValueError(op)


def assigned_names(body: Body) -> frozenset[str]:
    """Returns the names of the Locals that are assigned to."""
    names: set[str] = set()
    for stmt in body:
        match stmt:
            case kir.Assign(var=var):
                names.add(var.name)
            case kir.For(body=inner):
                names |= assigned_names(inner)
            case kir.If(then=then, other=other):
                names |= assigned_names(then) | assigned_names(other)
            case _:
                pass
    return frozenset(names)


def _divisor(dividend: Expr, product: kir.Binary) -> int | None:
    """Returns d if ``whole - product`` has the form ``x - x / d * d``."""
    quotient, factor = product.a, product.b
    if product.op is not _MUL or not isinstance(quotient, kir.Binary) or quotient.op is not _DIV:
        return None
    divisor = quotient.b
    if not (isinstance(divisor, kir.Const) and isinstance(factor, kir.Const)):
        return None
    same = divisor.value == factor.value and divisor.value > 0 and dividend == quotient.a
    return int(divisor.value) if same else None


class Ranges(Struct, frozen=True):
    """Ranges of the variables in scope at one place of a kernel.

    ``mutable``: Locals that are assigned to, of which nothing but the type is known.
    """

    known: dict[str, Interval | LazyFact[Interval]]
    mutable: frozenset[str] = frozenset()
    index_bits: int = 64

    def top(self, type_: Scalar) -> Interval:
        return _ranges(self.index_bits)[type_]

    def bind(self, var: kir.Var, interval: Interval | None) -> Ranges:
        """Returns the ranges with one more variable in scope."""
        if interval is None or var.name in self.mutable:
            return self
        return Ranges({**self.known, var.name: interval}, self.mutable, self.index_bits)

    def inner(self) -> Ranges:
        """Returns a copy to which names can be added."""
        return Ranges(dict(self.known), self.mutable, self.index_bits)

    def name(self, var: kir.Var, value: Expr) -> None:
        """Adds a variable with the range of its value, in place."""
        type_ = var.type
        if not (type_.is_float or type_.is_vector or var.name in self.mutable):
            self.known[var.name] = LazyFact(value, self.known, self.integer)

    def of(self, expr: Expr) -> Interval | None:
        """Returns the interval of an integer or i1 expression; None for a float or a vector."""
        type_ = expr.type
        return None if type_.is_float or type_.is_vector else self.integer(expr)

    def integer(self, expr: Expr) -> Interval:
        """As :meth:`of`, for an expression that is an integer."""
        match expr:
            case kir.Var():
                found = self.known.get(expr.name)
                if found is None:
                    return self.top(expr.type)
                return found.found() if isinstance(found, LazyFact) else found
            case kir.Const():
                return int(expr.value), int(expr.value)
            case kir.Binary():
                return self._binary(expr)
            case kir.Load():
                return self.top(expr.buffer.dtype)
            case kir.LoadWord():
                return self.top(_I32)
            case kir.LoadVector():
                raise ValueError("a vector has no interval")
            case kir.Compare():
                return 0, 1
            case kir.Select(condition=condition, then=then, other=other):
                return self._select(condition, then, other)
            case kir.Cast():
                inner = self.of(expr.value)
                top = self.top(expr.type)
                return inner if inner is not None and contains(top, inner) else top
            case kir.Call():
                return self.top(expr.type)

    def _binary(self, expr: kir.Binary) -> Interval:
        op, a, b = expr.op, expr.a, expr.b
        if op is _SUB and isinstance(b, kir.Binary):
            divisor = _divisor(a, b)
            if divisor is not None:
                # A remainder: the general rule doesn't see that both sides move together.
                low, high = self.integer(a)
                if low >= 0:
                    return 0, min(high, divisor - 1)
        return binary(op, self.integer(a), self.integer(b), expr.type, self.index_bits)

    def _select(self, condition: Expr, then: Expr, other: Expr) -> Interval:
        sides = []
        for expr, truth in ((then, True), (other, False)):
            branch = self.assuming(condition, truth)
            if branch is not None:
                sides.append(branch.integer(expr))
        if not sides:
            return self.top(then.type)
        return hull(sides[0], sides[-1])

    def assuming(self, condition: Expr, truth: bool) -> Ranges | None:
        """Returns the ranges narrowed by a condition that holds, or that doesn't; None where that
        is impossible."""
        match condition:
            case kir.Const(value=value):
                return self if bool(value) is truth else None
            case kir.Binary(op=BinaryOp.AND, a=a, b=b) if truth:
                first = self.assuming(a, truth)
                return first.assuming(b, truth) if first is not None else None
            case kir.Binary(op=BinaryOp.OR, a=a, b=b) if not truth:
                first = self.assuming(a, truth)
                return first.assuming(b, truth) if first is not None else None
            case kir.Compare(op=op, a=a, b=b) if not a.type.is_float:
                op = op if truth else kir.NEGATED[op]
                first = self._compared(op, a, b)
                return first._compared(kir.MIRRORED[op], b, a) if first is not None else None
            case _:
                return self

    def _compared(self, op: CompareOp, a: Expr, b: Expr) -> Ranges | None:
        """Returns the ranges with that of ``a`` narrowed by ``a op b``."""
        low, high = self.integer(b)
        top = self.top(a.type)
        match op:
            case CompareOp.EQ:
                return self._within(a, (low, high))
            case CompareOp.LT:
                return self._within(a, (top[0], high - 1))
            case CompareOp.LE:
                return self._within(a, (top[0], high))
            case CompareOp.GT:
                return self._within(a, (low + 1, top[1]))
            case CompareOp.GE:
                return self._within(a, (low, top[1]))
            case CompareOp.NE:
                found = self.integer(a)
                if low != high or low not in found:
                    return self
                cut = (found[0] + (found[0] == low), found[1] - (found[1] == low))
                return self._within(a, cut)

    def _within(self, expr: Expr, interval: Interval) -> Ranges | None:
        """Returns the ranges narrowed by the fact that ``expr`` lies in ``interval``."""
        found = meet(self.integer(expr), interval) if interval[0] <= interval[1] else None
        if found is None:
            return None
        match expr:
            case kir.Var():
                return self.bind(expr, found)
            case kir.Binary(op=BinaryOp.ADD, a=a, b=kir.Const(value=value)) if expr.type.is_signed:
                return self._within(a, (found[0] - int(value), found[1] - int(value)))
            case kir.Binary(op=BinaryOp.SUB, a=a, b=kir.Const(value=value)) if expr.type.is_signed:
                return self._within(a, (found[0] + int(value), found[1] + int(value)))
            case kir.Cast(value=inner, type=type_) if not inner.type.is_float:
                fits = contains(self.top(type_), self.integer(inner))
                return self._within(inner, found) if fits else self
            case _:
                return self
