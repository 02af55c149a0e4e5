"""Addresses that a kernel accesses, as intervals over the iterations of its outer loops.

The iterations of some outermost loops form a grid, in the order of execution. Every integer
expression has an interval at each point of the grid: exact with respect to the loops of the grid,
and the hull over all iterations of the loops inside of them. Conditions narrow the intervals of the
variables that they compare. Anything that can't be followed (loaded values, parameters) may have
any value, so the resulting sets of addresses can only be too large.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.kir import language as kir
from crtexport.kir.analysis.accesses import accesses, loads, width_of
from crtexport.kir.language import BinaryOp, Body, Buffer, CompareOp, Expr, Kernel, Scalar
from crtexport.kir.lazy_facts import LazyFact
from crtexport.kir.linear_form import split_constant
from crtexport.kir.walk import expressions

Floats = npt.NDArray[np.float64]
Bounds = tuple[Floats, Floats]
"""Smallest and largest value at each point of the grid; float64 holds every address exactly."""

Reached = npt.NDArray[np.bool_]
"""True at the points of the grid at which a place is reached."""

Grid = tuple[tuple[str, int], ...]
"""Outermost loops, as names and extents."""

CHUNK = 1 << 16
"""Most points of a grid that are worth looking at together."""


class GridPart(Struct, frozen=True):
    """A part of a grid: iterations ``start`` to ``end`` (exclusive) of one loop; the loops outside
    of it have one iteration each."""

    loop: str
    start: int
    end: int


_ANY: Bounds = (np.array(-np.inf), np.array(np.inf))
_ZERO = np.array(0.0)
_ALWAYS: Reached = np.array(True)
_FOLLOWED = frozenset({Scalar.INDEX, Scalar.I32, Scalar.I64})


def addresses(
    kernel: Kernel, grid: Grid, names: Collection[str] | None = None, part: GridPart | None = None
) -> dict[int, Bounds]:
    """For each access by number, of the buffers ``names`` or of all: the elements that it may touch
    at each point of ``grid``, or of a part of it.

    ``grid``: outermost loops (name, extent); the arrays are flat, in the order of execution. Where
    an access can't happen, its smallest element is infinity.
    """
    return hulls(kernel, grid, {
        access.number: access.number for access in accesses(kernel)
        if names is None or access.buffer.name in names
    }, part)


def parts(grid: Grid) -> Iterator[GridPart]:
    """Yields a grid in parts that are small enough to be evaluated at once, in the order of
    execution."""
    points = math.prod(extent for _, extent in grid)
    name, extent = next((loop for loop in grid if loop[1] > 1), ("", 1))
    few = max(1, CHUNK * extent // max(points, 1))
    for start in range(0, extent, few):
        yield GridPart(name, start, min(start + few, extent))


def hulls(
    kernel: Kernel, grid: Grid, groups: Mapping[int, int], part: GridPart | None = None
) -> dict[int, Bounds]:
    """Returns for each group of accesses the elements that they may access together at each point
    of ``grid``, or of a part of it, as :func:`addresses` does. ``groups``: the group of each
    access, by its number."""
    walk = _IntervalWalk(grid, groups, part or GridPart("", 0, 1))
    walk.body(kernel.body, {}, _ALWAYS)
    for known in walk.scopes:
        known.clear()  # what is found later refers to it: circles, which would keep the arrays
    return {group: (walk.flat(low), walk.flat(high)) for group, (low, high) in walk.found.items()}


_Known = dict[str, Bounds | LazyFact[Bounds]]
_Touched = dict[tuple[int, Expr, int], tuple[int, int]]
"""By group, index and size of the buffer: what is added to the index, at least and at most."""


class _IntervalWalk:
    def __init__(self, grid: Grid, groups: Mapping[int, int], part: GridPart) -> None:
        self.shape = tuple(
            part.end - part.start if name == part.loop else extent for name, extent in grid
        )
        self.part = part
        self.axes = {name: axis for axis, (name, _) in enumerate(grid)}
        self.groups = groups
        self.count = 0
        self.found: dict[int, Bounds] = {}
        self.scopes: list[_Known] = []

    def body(self, body: Body, intervals: _Known, reached: Reached) -> None:
        intervals = dict(intervals)
        self.scopes.append(intervals)
        touched: _Touched = {}
        for stmt in body:
            for expr in expressions(stmt):
                if isinstance(expr, kir.LEAVES):
                    continue
                for load in loads(expr):
                    self._touch(load.buffer, load.index, touched, width_of(load))
            match stmt:
                case kir.Let():
                    intervals[stmt.var.name] = LazyFact(
                        stmt.value, intervals, partial(self.bounds, intervals=intervals)
                    )
                case kir.Store():
                    self._touch(stmt.buffer, stmt.index, touched)
                case kir.StoreVector():
                    self._touch(stmt.buffer, stmt.index, touched, stmt.count)
                case kir.For():
                    self._loop(stmt, intervals, reached)
                case kir.If():
                    if stmt.then:
                        self.body(stmt.then, *self._assume(stmt.condition, intervals, reached))
                    if stmt.other:
                        self.body(stmt.other, *self._refute(stmt.condition, intervals, reached))
            # A Local may change at any time: it stays unknown
        self._reach(touched, intervals, reached)

    def _loop(self, stmt: kir.For, intervals: _Known, reached: Reached) -> None:
        name = stmt.var.name
        if isinstance(stmt.extent, kir.Const) and stmt.extent.value > 0:
            inside = self._axis(name) or (_ZERO, _point(stmt.extent.value - 1)[1])
        else:
            last = self.bounds(stmt.extent, intervals)[1] - 1
            inside = self._axis(name) or (_ZERO, np.maximum(last, 0.0))
            reached = reached & (last >= 0)
        self.body(stmt.body, {**intervals, name: inside}, reached)

    def _axis(self, name: str) -> Bounds | None:
        axis = self.axes.get(name)
        if axis is None:
            return None
        shape = [1] * len(self.shape)
        shape[axis] = self.shape[axis]
        steps = np.arange(self.shape[axis], dtype=np.float64).reshape(shape)
        if name == self.part.loop:
            steps = steps + self.part.start
        return steps, steps

    def _touch(self, buffer: Buffer, index: Expr, touched: _Touched, width: int = 1) -> None:
        """Notes an access; many differ from their neighbours by constants only."""
        number, self.count = self.count, self.count + 1
        group = self.groups.get(number)
        if group is not None:
            rest, added = split_constant(index)
            key = group, rest, buffer.size
            least, most = touched.get(key, (added, added))
            touched[key] = min(least, added), max(most, added + width - 1)

    def _reach(self, touched: _Touched, intervals: _Known, reached: Reached) -> None:
        """Adds what the accesses of one body touch."""
        for (group, index, size), (least, most) in touched.items():
            low, high = self.bounds(index, intervals)
            low, high = np.maximum(low + least, 0.0), np.minimum(high + most, size - 1.0)
            never = low > high if reached is _ALWAYS else ~reached | (low > high)
            if never.any():
                low, high = np.where(never, np.inf, low), np.where(never, -np.inf, high)
            if group in self.found:
                before = self.found[group]
                low, high = np.minimum(low, before[0]), np.maximum(high, before[1])
            self.found[group] = low, high

    def flat(self, values: Floats) -> Floats:
        """Returns one value for each point of the grid."""
        if values.shape != self.shape:
            whole = np.empty(self.shape)
            whole[...] = values
            values = whole
        return values.reshape(-1)

    # -- expressions: where an interval is a point, both of its ends are one object

    def bounds(self, expr: Expr, intervals: _Known) -> Bounds:
        match expr:
            case kir.Var():
                found = intervals.get(expr.name, _ANY)
                return found.found() if isinstance(found, LazyFact) else found
            case kir.Const():
                return _point(expr.value)
            case kir.Binary():
                return self._binary(expr, intervals) if expr.type in _FOLLOWED else _ANY
            case kir.Select(then=then, other=other):
                one, two = self.bounds(then, intervals), self.bounds(other, intervals)
                return np.minimum(one[0], two[0]), np.maximum(one[1], two[1])
            case kir.Cast(value=value, type=type_) if {type_, value.type} <= _FOLLOWED:
                low, high = self.bounds(value, intervals)
                half = 2.0 ** (8 * (type_.itemsize if type_ is not Scalar.INDEX else 4) - 1)
                return (low, high) if (low >= -half).all() and (high < half).all() else _ANY
            case _:
                return _ANY

    def _binary(self, expr: kir.Binary, intervals: _Known) -> Bounds:
        (a, b), (c, d) = self.bounds(expr.a, intervals), self.bounds(expr.b, intervals)
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
                if isinstance(expr.b, kir.Const) and expr.b.value >= 0:
                    if not (np.isfinite(a).all() and (points or np.isfinite(b).all())):
                        return _ANY
                    low = a * c
                    return low, low if points else b * c
                if not all(np.isfinite(x).all() for x in (a, b, c, d)):
                    return _ANY
                return _hull((a * c, a * d, b * c, b * d))
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
        self, condition: Expr, intervals: _Known, reached: Reached
    ) -> tuple[_Known, Reached]:
        """Returns the known intervals, and the points of the grid that are reached, where
        ``condition`` holds."""
        match condition:
            case kir.Binary(op=BinaryOp.AND, a=a, b=b):
                return self._assume(b, *self._assume(a, intervals, reached))
            case kir.Compare(op=op, a=a, b=b) if a.type in _FOLLOWED:
                intervals, reached = self._compared(op, a, b, intervals, reached)
                if isinstance(b, kir.Const):
                    return intervals, reached
                return self._compared(kir.MIRRORED[op], b, a, intervals, reached)
            case _:
                return intervals, reached

    def _refute(
        self, condition: Expr, intervals: _Known, reached: Reached
    ) -> tuple[_Known, Reached]:
        """As :meth:`_assume`, where the condition doesn't hold."""
        match condition:
            case kir.Binary(op=BinaryOp.OR, a=a, b=b):
                return self._refute(b, *self._refute(a, intervals, reached))
            case kir.Compare(op=op, a=a, b=b):
                return self._assume(kir.Compare(kir.NEGATED[op], a, b), intervals, reached)
            case _:
                return intervals, reached

    def _compared(
        self, op: CompareOp, a: Expr, b: Expr, intervals: _Known, reached: Reached
    ) -> tuple[_Known, Reached]:
        low, high = self.bounds(a, intervals)
        least, most = self.bounds(b, intervals)
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
        if isinstance(a, kir.Var) and a.name in intervals:
            intervals = {**intervals, a.name: (low, high)}
        return intervals, reached & (low <= high)


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


def _remainder(expr: kir.Binary, low: Floats, high: Floats) -> Bounds | None:
    """Bounds of ``x - x / d * d`` where x is not negative and varies."""
    match expr:
        case kir.Binary(
            a=whole,
            b=kir.Binary(
                op=BinaryOp.MUL, b=kir.Const(value=factor),
                a=kir.Binary(op=BinaryOp.DIV, a=divided, b=kir.Const(value=divisor)),
            ),
        ) if whole == divided and divisor == factor and divisor > 0 and (low >= 0).all():
            same = low == high
            rest = np.where(same, low - np.trunc(low / divisor) * divisor, 0.0)
            return rest, np.where(same, rest, np.minimum(high, divisor - 1.0))
    return None
