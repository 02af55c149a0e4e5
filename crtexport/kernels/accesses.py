"""Which addresses a kernel touches, and when: intervals over the iterations of its outer loops.

The iterations of some outermost loops form a grid, in the order of execution. Every expression of
integers has an interval for each point of the grid: exact in the loops of the grid, hulls over the
loops inside. Conditions narrow the intervals of the variables that they compare. Whatever can't be
followed (loaded values, parameters) may be anything, so that sets of addresses only get larger.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.kernels.ir import (
    LEAVES,
    Assign,
    Binary,
    BinaryOp,
    Body,
    Buffer,
    Call,
    Cast,
    Compare,
    CompareOp,
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
    Scalar,
    Select,
    Stmt,
    Store,
    StoreVector,
    Var,
)
from crtexport.kernels.later import Later

Floats = npt.NDArray[np.float64]
Bounds = tuple[Floats, Floats]
"""Smallest and largest value at each point of the grid; float64 holds every address exactly."""

_ANY: Bounds = (np.array(-np.inf), np.array(np.inf))
_FOLLOWED = frozenset({Scalar.INDEX, Scalar.I32, Scalar.I64})
_NEGATED = {
    CompareOp.LT: CompareOp.GE, CompareOp.GE: CompareOp.LT,
    CompareOp.GT: CompareOp.LE, CompareOp.LE: CompareOp.GT,
    CompareOp.EQ: CompareOp.NE, CompareOp.NE: CompareOp.EQ,
}
_MIRRORED = {
    CompareOp.LT: CompareOp.GT, CompareOp.GT: CompareOp.LT,
    CompareOp.LE: CompareOp.GE, CompareOp.GE: CompareOp.LE,
    CompareOp.EQ: CompareOp.EQ, CompareOp.NE: CompareOp.NE,
}


class Access(Struct, frozen=True):
    """A load or store, numbered in the order of the text; ``loops`` encloses it, outermost first.

    ``copies``: a store of nothing but a loaded element, by the number of that load. ``width``: how
    many elements are touched at once.
    """

    number: int
    buffer: Buffer
    stores: bool
    loops: tuple[tuple[str, int | None], ...]
    conditional: bool
    copies: int | None = None
    width: int = 1


def accesses(kernel: Kernel) -> tuple[Access, ...]:
    """Every load and store of a kernel in the order of its text."""
    return tuple(_Listing().body(kernel.body, (), conditional=False))


class _Listing:
    def __init__(self) -> None:
        self.count = 0

    def body(
        self, body: Body, loops: tuple[tuple[str, int | None], ...], *, conditional: bool
    ) -> Iterator[Access]:
        for stmt in body:
            last: Access | None = None
            for expr in expressions(stmt):
                for load in loads(expr):
                    last = Access(
                        self._number(), load.buffer, False, loops, conditional,
                        width=width_of(load),
                    )
                    yield last
            if type(stmt) is Store:
                plain = type(stmt.value) is Load and last is not None
                yield Access(
                    self._number(), stmt.buffer, True, loops, conditional,
                    copies=last.number if plain and last else None,
                )
            elif type(stmt) is StoreVector:
                yield Access(
                    self._number(), stmt.buffer, True, loops, conditional, width=stmt.count
                )
            elif type(stmt) is For:
                extent = stmt.extent.value if type(stmt.extent) is Const else None
                inner = (*loops, (stmt.var.name, None if extent is None else int(extent)))
                yield from self.body(stmt.body, inner, conditional=conditional)
            elif type(stmt) is If:
                yield from self.body(stmt.then, loops, conditional=True)
                yield from self.body(stmt.other, loops, conditional=True)

    def _number(self) -> int:
        self.count += 1
        return self.count - 1


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """What a statement itself evaluates, in order; a stored value comes last."""
    if type(stmt) is Let or type(stmt) is Local or type(stmt) is Assign:
        return (stmt.value,)
    if type(stmt) is Store or type(stmt) is StoreVector:
        return stmt.index, stmt.value
    if type(stmt) is For:
        return (stmt.extent,)
    return (stmt.condition,) if type(stmt) is If else ()


Reading = Load | LoadWord | LoadVector


def width_of(load: Reading) -> int:
    """The elements that one load touches."""
    match load:
        case Load():
            return 1
        case LoadWord(buffer=buffer):
            return 4 // buffer.dtype.itemsize
        case LoadVector(count=count):
            return count


def loads(expr: Expr) -> list[Reading]:
    """The loads in an expression, inner ones first."""
    found: list[Reading] = []
    _gather(expr, found)
    return found


def _gather(expr: Expr, found: list[Reading]) -> None:
    if type(expr) is Binary or type(expr) is Compare:
        # Most expressions are sums of products of leaves.
        if type(expr.a) not in LEAVES:
            _gather(expr.a, found)
        if type(expr.b) not in LEAVES:
            _gather(expr.b, found)
    elif type(expr) is Load or type(expr) is LoadWord or type(expr) is LoadVector:
        if type(expr.index) not in LEAVES:
            _gather(expr.index, found)
        found.append(expr)
    elif type(expr) is Call:
        for part in expr.args:
            if type(part) not in LEAVES:
                _gather(part, found)
    elif type(expr) is Cast:
        _gather(expr.value, found)
    elif type(expr) is Select:
        for part in (expr.condition, expr.then, expr.other):
            _gather(part, found)


def addresses(
    kernel: Kernel, grid: tuple[tuple[str, int], ...], names: Collection[str] | None = None
) -> dict[int, Bounds]:
    """For each access by number, of the buffers ``names`` or of all: the elements that it may touch
    at each point of ``grid``.

    ``grid``: outermost loops (name, extent); the arrays are flat, in the order of execution. Where
    an access can't happen, its smallest element is infinity.
    """
    wanted = {buffer.name for buffer in kernel.buffers} if names is None else frozenset(names)
    walk = _Walk(grid, wanted)
    walk.body(kernel.body, {}, np.array(True))
    for known in walk.scopes:
        known.clear()  # what is found later refers to it: circles, which would keep the arrays
    return walk.found


_Known = dict[str, Bounds | Later[Bounds]]


class _Walk:
    def __init__(self, grid: tuple[tuple[str, int], ...], names: Collection[str]) -> None:
        self.shape = tuple(extent for _, extent in grid)
        self.axes = {name: axis for axis, (name, _) in enumerate(grid)}
        self.names = names
        self.count = 0
        self.found: dict[int, Bounds] = {}
        self.scopes: list[_Known] = []

    def body(self, body: Body, known: _Known, reached: npt.NDArray[np.bool_]) -> None:
        known = dict(known)
        self.scopes.append(known)
        for stmt in body:
            for expr in expressions(stmt):
                if type(expr) in LEAVES:
                    continue
                for load in loads(expr):
                    self._touch(load.buffer, load.index, known, reached, width_of(load))
            if type(stmt) is Let:
                known[stmt.var.name] = Later(
                    stmt.value, known, partial(self.bounds, known=known)
                )
            elif type(stmt) is Store:
                self._touch(stmt.buffer, stmt.index, known, reached)
            elif type(stmt) is StoreVector:
                self._touch(stmt.buffer, stmt.index, known, reached, stmt.count)
            elif type(stmt) is For:
                name = stmt.var.name
                count = self.bounds(stmt.extent, known)[1] - 1
                inside = self._axis(name) or (np.array(0.0), np.maximum(count, 0.0))
                self.body(stmt.body, {**known, name: inside}, reached & (count >= 0))
            elif type(stmt) is If:
                then = self._assume(stmt.condition, known, reached)
                self.body(stmt.then, *then)
                self.body(stmt.other, *self._refute(stmt.condition, known, reached))
            # A Local may change at any time: it stays unknown

    def _axis(self, name: str) -> Bounds | None:
        axis = self.axes.get(name)
        if axis is None:
            return None
        shape = [1] * len(self.shape)
        shape[axis] = self.shape[axis]
        steps = np.arange(self.shape[axis], dtype=np.float64).reshape(shape)
        return steps, steps

    def _touch(
        self, buffer: Buffer, index: Expr, known: _Known, reached: npt.NDArray[np.bool_],
        width: int = 1,
    ) -> None:
        number, self.count = self.count, self.count + 1
        if buffer.name not in self.names:
            return
        low, high = self.bounds(index, known)
        high = high + (width - 1)
        low, high = np.maximum(low, 0.0), np.minimum(high, buffer.size - 1.0)
        never = ~reached | (low > high)
        if never.any():
            low, high = np.where(never, np.inf, low), np.where(never, -np.inf, high)
        self.found[number] = self._flat(low), self._flat(high)

    def _flat(self, values: Floats) -> Floats:
        """One value for each point of the grid."""
        if values.shape != self.shape:
            whole = np.empty(self.shape)
            whole[...] = values
            values = whole
        return values.reshape(-1)

    # -- expressions: where an interval is a point, both of its ends are one object

    def bounds(self, expr: Expr, known: _Known) -> Bounds:
        if type(expr) is Var:
            found = known.get(expr.name, _ANY)
            return found.found() if isinstance(found, Later) else found
        match expr:
            case Const():
                return _point(expr.value)
            case Binary():
                return self._binary(expr, known) if expr.type in _FOLLOWED else _ANY
            case Select(then=then, other=other):
                one, two = self.bounds(then, known), self.bounds(other, known)
                return np.minimum(one[0], two[0]), np.maximum(one[1], two[1])
            case Cast(value=value, type=type_) if type_ in _FOLLOWED and value.type in _FOLLOWED:
                low, high = self.bounds(value, known)
                half = 2.0 ** (8 * (type_.itemsize if type_ is not Scalar.INDEX else 4) - 1)
                return (low, high) if (low >= -half).all() and (high < half).all() else _ANY
            case _:
                return _ANY

    def _binary(self, expr: Binary, known: _Known) -> Bounds:
        (a, b), (c, d) = self.bounds(expr.a, known), self.bounds(expr.b, known)
        points = a is b and c is d
        match expr.op:
            case BinaryOp.ADD:
                low = a + c
                return low, low if points else b + d
            case BinaryOp.SUB:
                rest = _remainder(expr, a, b)
                if rest is not None:
                    return rest
                low = a - d
                return low, low if points else b - c
            case BinaryOp.MUL:
                if type(expr.b) is Const and expr.b.value >= 0:
                    if not (np.isfinite(a).all() and (points or np.isfinite(b).all())):
                        return _ANY
                    low = a * c
                    return low, low if points else b * c
                if not all(np.isfinite(x).all() for x in (a, b, c, d)):
                    return _ANY
                corners = a * c, a * d, b * c, b * d
                return _hull(corners)
            case BinaryOp.DIV if (c > 0).all():
                corners = tuple(np.trunc(x / y) for x in (a, b) for y in (c, d))
                return _hull(corners) if all(~np.isnan(x).any() for x in corners) else _ANY
            case BinaryOp.MIN:
                return np.minimum(a, c), np.minimum(b, d)
            case BinaryOp.MAX:
                return np.maximum(a, c), np.maximum(b, d)
            case _:
                return _ANY

    # -- conditions

    def _assume(
        self, condition: Expr, known: _Known, reached: npt.NDArray[np.bool_]
    ) -> tuple[_Known, npt.NDArray[np.bool_]]:
        """What is known, and where one gets, when ``condition`` holds."""
        match condition:
            case Binary(op=BinaryOp.AND, a=a, b=b):
                return self._assume(b, *self._assume(a, known, reached))
            case Compare(op=op, a=a, b=b) if a.type in _FOLLOWED:
                known, reached = self._compared(op, a, b, known, reached)
                return self._compared(_MIRRORED[op], b, a, known, reached)
            case _:
                return known, reached

    def _refute(
        self, condition: Expr, known: _Known, reached: npt.NDArray[np.bool_]
    ) -> tuple[_Known, npt.NDArray[np.bool_]]:
        """The same when it doesn't hold."""
        match condition:
            case Binary(op=BinaryOp.OR, a=a, b=b):
                return self._refute(b, *self._refute(a, known, reached))
            case Compare(op=op, a=a, b=b):
                return self._assume(Compare(_NEGATED[op], a, b), known, reached)
            case _:
                return known, reached

    def _compared(
        self, op: CompareOp, a: Expr, b: Expr, known: _Known,
        reached: npt.NDArray[np.bool_],
    ) -> tuple[_Known, npt.NDArray[np.bool_]]:
        low, high = self.bounds(a, known)
        least, most = self.bounds(b, known)
        match op:
            case CompareOp.LT:
                high = np.minimum(high, most - 1)
            case CompareOp.LE:
                high = np.minimum(high, most)
            case CompareOp.GT:
                low = np.maximum(low, least + 1)
            case CompareOp.GE:
                low = np.maximum(low, least)
            case CompareOp.EQ:
                low, high = np.maximum(low, least), np.minimum(high, most)
            case CompareOp.NE:
                pass
        if type(a) is Var and a.name in known:
            known = {**known, a.name: (low, high)}
        return known, reached & (low <= high)


@functools.lru_cache(1024)
def _point(value: float) -> Bounds:
    point = np.array(float(value))
    point.flags.writeable = False
    return point, point


def _hull(corners: tuple[Floats, ...]) -> Bounds:
    low, high = corners[0], corners[0]
    for corner in corners[1:]:
        low, high = np.minimum(low, corner), np.maximum(high, corner)
    return low, high


def _remainder(expr: Binary, low: Floats, high: Floats) -> Bounds | None:
    """Bounds of ``x - x / d * d`` where x is not negative and varies."""
    match expr:
        case Binary(
            a=whole,
            b=Binary(
                op=BinaryOp.MUL, b=Const(value=factor),
                a=Binary(op=BinaryOp.DIV, a=divided, b=Const(value=divisor)),
            ),
        ) if whole == divided and divisor == factor and divisor > 0 and (low >= 0).all():
            same = low == high
            rest = np.where(same, low - np.trunc(low / divisor) * divisor, 0.0)
            return rest, np.where(same, rest, np.minimum(high, divisor - 1.0))
    return None
