"""The values of a kernel's integers in its iterations, for
:mod:`crtexport.kir.analysis.access_trace`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crtexport.kir import language as kir
from crtexport.kir.language import BinaryOp, CompareOp, Expr, Scalar
from crtexport.kir.lazy_facts import LazyFact

Ints = npt.NDArray[np.int64]
Choices = dict[str, int]
"""Names whose values are only known while running, and how many values, from 0, they may have."""
_Variables = frozenset[str] | None
_NOTHING: frozenset[str] = frozenset()

_SIMPLE: dict[BinaryOp, np.ufunc] = {
    BinaryOp.ADD: np.add, BinaryOp.SUB: np.subtract, BinaryOp.MUL: np.multiply,
}
_RELATIONS: dict[CompareOp, np.ufunc] = {
    CompareOp.EQ: np.equal, CompareOp.NE: np.not_equal, CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal, CompareOp.GT: np.greater, CompareOp.GE: np.greater_equal,
}


_WIDE = frozenset({Scalar.INDEX, Scalar.I32, Scalar.I64})
_BOUNDED = (kir.Binary, kir.Cast)
"""Expressions that may have only one value, whatever was loaded."""
_FITS = 1 << 31
"""Magnitudes up to this fit into all of these."""
_SHORT = {
    Scalar.I8: (-128, 127), Scalar.U8: (0, 255), Scalar.I16: (-32768, 32767), Scalar.U16: (0, 65535)
}
_EXACT = frozenset({
    BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MIN, BinaryOp.MAX,
    BinaryOp.AND, BinaryOp.OR,
})



class NamedValues:
    """The values of a kernel's names, the expressions that they stand for, and the variables that
    these depend on."""

    def __init__(self) -> None:
        self._values: dict[str, Expr] = {}
        self._variables: dict[str, _Variables | LazyFact[_Variables]] = {}
        self._locals: set[str] = set()

    def add(self, name: str, value: Expr) -> None:
        low, high = self._range(value) if isinstance(value, _BOUNDED) else (None, None)
        if low is not None and low == high and value.type in _WIDE:
            value = kir.Const(low, value.type)  # as an index into an axis of one
        self._values[name] = value
        self._variables[name] = LazyFact(value, self._variables, self.variables)

    def local(self, name: str) -> None:
        """Notes a name that is assigned to: its values are known only at run time."""
        self._locals.add(name)

    def meant(self, expr: Expr) -> Expr:
        """Returns the expression that a name stands for; any other expression unchanged."""
        while isinstance(expr, kir.Var) and expr.name in self._values:
            expr = self._values[expr.name]
        return expr

    def variables(self, expr: Expr) -> _Variables:
        """Returns the loop variables in ``expr``; None if its value is known only at run time."""
        match expr:
            case kir.Var():
                if expr.name in self._locals:
                    return None
                found = self._variables.get(expr.name)
                if found is None:
                    return frozenset((expr.name,))
                return found.found() if isinstance(found, LazyFact) else found
            case kir.Const():
                return _NOTHING if not expr.type.is_float else None
            case kir.Binary():
                if expr.op not in _EXACT or expr.a.type.is_float:
                    return None
                return self._all(expr.a, expr.b)
            case kir.Compare():
                return self._all(expr.a, expr.b)
            case kir.Select():
                return self._all(expr.condition, expr.then, expr.other)
            case kir.Cast(value=value):
                wide = expr.type in _WIDE and value.type in _WIDE
                return self.variables(value) if wide else None
            case kir.Load() | kir.LoadWord() | kir.LoadVector() | kir.Call():
                return None

    def reach(self, expr: Expr) -> tuple[frozenset[str], Choices] | None:
        """Returns the loop variables in an index, and the names in it that depend on loaded
        numbers; None if it contains anything else, or if these numbers aren't bounded."""
        known = self.variables(expr)
        if known is not None:
            return known, {}
        match expr:
            case kir.Binary(a=a, b=b) if expr.op in _EXACT and not a.type.is_float:
                return self._reach_of(a, b)
            case kir.Compare(a=a, b=b):
                return self._reach_of(a, b)
            case kir.Select():
                return self._reach_of(expr.condition, expr.then, expr.other)
        if not isinstance(expr, kir.Var) or expr.name in self._locals:
            return None
        low, high = self._range(expr)
        if low is not None and high is not None and low >= 0:
            return _NOTHING, {expr.name: high + 1}
        return self.reach(self._values[expr.name])

    def _reach_of(self, *parts: Expr) -> tuple[frozenset[str], Choices] | None:
        """Returns the union of :meth:`reach` of several expressions; None if one of them has none.
        """
        loops, choices = _NOTHING, Choices()
        for part in parts:
            found = self.reach(part)
            if found is None:
                return None
            loops, choices = loops | found[0], {**choices, **found[1]}
        return loops, choices

    def _range(self, expr: Expr) -> tuple[int | None, int | None]:
        """Returns the smallest and the largest value of an integer, where they are known."""
        match self.meant(expr):
            case kir.Const(value=value, type=type_) if not type_.is_float:
                return int(value), int(value)
            case kir.Load(buffer=buffer) if buffer.dtype in _SHORT:
                return _SHORT[buffer.dtype]
            case kir.Cast(value=value, type=type_) if type_ in _WIDE and not value.type.is_float:
                low, high = self._range(value)
                fits = low is not None and high is not None and -_FITS <= low <= high < _FITS
                return (low, high) if fits else (None, None)
            case kir.Binary(op=BinaryOp.MIN | BinaryOp.MAX as op, a=a, b=b):
                (a_low, a_high), (b_low, b_high) = self._range(a), self._range(b)
                lows = [low for low in (a_low, b_low) if low is not None]
                highs = [high for high in (a_high, b_high) if high is not None]
                if op is BinaryOp.MIN:
                    return min(lows) if len(lows) == 2 else None, min(highs, default=None)
                return max(lows, default=None), max(highs) if len(highs) == 2 else None
            case _:
                return None, None

    def _all(self, *parts: Expr) -> _Variables:
        whole = _NOTHING
        for part in parts:
            found = self.variables(part)
            if found is None:
                return None
            whole |= found
        return whole

    def value(self, expr: Expr, at: dict[str, Ints]) -> Ints:
        """Returns the value of an expression in every iteration. ``at``: the values of loop
        variables, to which those of further names are added."""
        match expr:
            case kir.Var():
                if expr.name not in at:
                    at[expr.name] = self.value(self._values[expr.name], at)
                return at[expr.name]
            case kir.Const():
                return np.asarray(int(expr.value), np.int64)
            case kir.Binary():
                return _combined(expr.op, self.value(expr.a, at), self.value(expr.b, at))
            case kir.Compare():
                holds: npt.NDArray[np.bool_] = _RELATIONS[expr.op](
                    self.value(expr.a, at), self.value(expr.b, at)
                )
                return holds.astype(np.int64)
            case kir.Select():
                then, other = self.value(expr.then, at), self.value(expr.other, at)
                return np.where(self.value(expr.condition, at) != 0, then, other)
            case kir.Cast():
                return self.value(expr.value, at)
        raise TypeError(expr)


def _combined(op: BinaryOp, a: Ints, b: Ints) -> Ints:
    simple = _SIMPLE.get(op)
    if simple is not None:
        sums: Ints = simple(a, b)
        return sums
    match op:
        case BinaryOp.MIN:
            return np.minimum(a, b)
        case BinaryOp.MAX:
            return np.maximum(a, b)
        case BinaryOp.AND:
            return a & b
        case BinaryOp.OR:
            return a | b
        case BinaryOp.DIV:
            quotient: Ints = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
            return quotient
        case _:
            raise TypeError(op)
