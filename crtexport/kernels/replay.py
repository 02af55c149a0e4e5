"""Proof that a kernel may share bytes: every access replayed, with a clock.

Independent of :mod:`crtexport.kernels.accesses`: here each load and store of each iteration has its
exact address and its exact time, and a byte may be overwritten when no load of it comes later.
What can't be evaluated (a loaded index, a condition on data) counts as whatever is worst.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct
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

Ints = npt.NDArray[np.int64]
CHUNK = 1 << 21
"""Most iterations that are evaluated at once."""

_RELATIONS: dict[CompareOp, np.ufunc] = {
    CompareOp.EQ: np.equal, CompareOp.NE: np.not_equal, CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal, CompareOp.GT: np.greater, CompareOp.GE: np.greater_equal,
}


class _Loop(Struct, frozen=True):
    """A loop around a statement: each of its iterations takes ``period`` ticks of the clock."""

    name: str
    extent: int
    period: int


class Event(Struct, frozen=True):
    """A load or store: when it happens in its innermost loop, and what has to hold for it."""

    buffer: Buffer
    index: Expr
    stores: bool
    value: Expr | None
    loops: tuple[_Loop, ...]
    tick: int
    conditions: tuple[Expr, ...]

    @property
    def followed(self) -> bool:
        """Whether its address is known in every iteration."""
        return self.known(self.index)

    @property
    def certain(self) -> bool:
        """Whether it is known, too, in which iterations it happens."""
        return self.followed and all(map(self.known, self.conditions))

    def known(self, expr: Expr) -> bool:
        """Whether an expression has known values."""
        names = _variables(expr)
        return names is not None and names <= {loop.name for loop in self.loops}


class UnknownLengthError(Exception):
    """A loop whose extent is no constant: time can't be counted."""


def _length(body: Body) -> int:
    """Ticks that a body takes; both branches of an If have their own."""
    total = 0
    for stmt in body:
        total += 1
        match stmt:
            case For(extent=Const(value=extent), body=inner):
                total += int(extent) * _length(inner)
            case For():
                raise UnknownLengthError
            case If(then=then, other=other):
                total += _length(then) + _length(other)
            case _:
                pass
    return total


class _Events:
    """Walks a kernel once; Lets are put in place of their names."""

    def __init__(self) -> None:
        self.lets: dict[str, Expr] = {}

    def of(
        self, body: Body, loops: tuple[_Loop, ...], tick: int, conditions: tuple[Expr, ...]
    ) -> Iterator[Event]:
        for stmt in body:
            for expr in _parts(stmt):
                for load in _loads(expr):
                    for at in self._elements(load.index, _count(load)):
                        yield Event(load.buffer, at, False, None, loops, tick, conditions)
            match stmt:
                case Let(var=var, value=value):
                    self.lets[var.name] = self.resolved(value)
                case Store(buffer=buffer, index=index, value=value):
                    yield Event(
                        buffer, self.resolved(index), True, self.resolved(value), loops, tick,
                        conditions,
                    )
                case StoreVector(buffer=buffer, index=index, count=count):
                    for at in self._elements(index, count):
                        # Its value is in no single element.
                        yield Event(buffer, at, True, stmt.value, loops, tick, conditions)
                case For(var=var, extent=Const(value=extent), body=inner):
                    period = _length(inner)
                    loop = _Loop(var.name, int(extent), period)
                    if extent > 0:
                        yield from self.of(inner, (*loops, loop), tick + 1, conditions)
                    tick += int(extent) * period
                case For():
                    raise UnknownLengthError
                case If(condition=condition, then=then, other=other):
                    test = self.resolved(condition)
                    yield from self.of(then, loops, tick + 1, (*conditions, test))
                    refuted = Compare(CompareOp.EQ, test, Const(0, Scalar.I1))
                    between = tick + 1 + _length(then)
                    yield from self.of(other, loops, between, (*conditions, refuted))
                    tick += _length(then) + _length(other)
                case _:
                    pass
            tick += 1

    def _elements(self, index: Expr, count: int) -> Iterator[Expr]:
        """The indices of the elements that a word or vector is made of."""
        for part in range(count):
            yield self.resolved(Binary(BinaryOp.ADD, index, Const(part, Scalar.INDEX)))

    def resolved(self, expr: Expr) -> Expr:
        """``expr`` in terms of loop variables."""
        match expr:
            case Var(name=name):
                return self.lets.get(name, expr)
            case Binary(op=op, a=a, b=b):
                return Binary(op, self.resolved(a), self.resolved(b))
            case Compare(op=op, a=a, b=b):
                return Compare(op, self.resolved(a), self.resolved(b))
            case Select(condition=condition, then=then, other=other):
                return Select(*map(self.resolved, (condition, then, other)))
            case Cast(value=value, type=type_):
                return Cast(self.resolved(value), type_)
            case Load(buffer=buffer, index=index):
                return Load(buffer, self.resolved(index))
            case LoadWord(buffer=buffer, index=index):
                return LoadWord(buffer, self.resolved(index))
            case LoadVector(buffer=buffer, index=index, type=type_, count=count):
                return LoadVector(buffer, self.resolved(index), type_, count)
            case Call() | Const():
                return expr


def _parts(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Let(value=value) | Local(value=value) | Assign(value=value):
            return (value,)
        case Store(index=index, value=value) | StoreVector(index=index, value=value):
            return index, value
        case For(extent=extent):
            return (extent,)
        case If(condition=condition):
            return (condition,)
        case Comment():
            return ()


def _count(load: Load | LoadWord | LoadVector) -> int:
    """How many elements are loaded."""
    match load:
        case Load():
            return 1
        case LoadWord(buffer=buffer):
            return 4 // buffer.dtype.itemsize
        case LoadVector(count=count):
            return count


def _loads(expr: Expr) -> Iterator[Load | LoadWord | LoadVector]:
    match expr:
        case Load(index=index) | LoadWord(index=index) | LoadVector(index=index):
            yield expr
            yield from _loads(index)
        case Binary(a=a, b=b) | Compare(a=a, b=b):
            yield from _loads(a)
            yield from _loads(b)
        case Select(condition=condition, then=then, other=other):
            for part in (condition, then, other):
                yield from _loads(part)
        case Cast(value=value):
            yield from _loads(value)
        case Call(args=args):
            for arg in args:
                yield from _loads(arg)
        case Const() | Var():
            pass


def _variables(expr: Expr) -> frozenset[str] | None:
    """The loop variables in ``expr``; None if its value isn't known before running."""
    match expr:
        case Const():
            return frozenset() if not expr.type.is_float else None
        case Var(name=name):
            return frozenset({name})
        case Binary(op=op, a=a, b=b):
            if op not in _EXACT or a.type.is_float:
                return None
            return _both(a, b)
        case Compare(a=a, b=b):
            return _both(a, b)
        case Select(condition=condition, then=then, other=other):
            first, second = _variables(condition), _both(then, other)
            return None if first is None or second is None else first | second
        case Cast(value=value, type=type_):
            return _variables(value) if type_ in _WIDE and value.type in _WIDE else None
        case Load() | LoadWord() | LoadVector() | Call():
            return None


_WIDE = frozenset({Scalar.INDEX, Scalar.I32, Scalar.I64})
_EXACT = frozenset({
    BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MIN, BinaryOp.MAX,
    BinaryOp.AND, BinaryOp.OR,
})


def _both(a: Expr, b: Expr) -> frozenset[str] | None:
    first, second = _variables(a), _variables(b)
    return None if first is None or second is None else first | second


def _value(expr: Expr, at: dict[str, Ints]) -> Ints:
    """The value in every iteration."""
    match expr:
        case Const(value=value):
            return np.asarray(int(value), np.int64)
        case Var(name=name):
            return at[name]
        case Compare(op=op, a=a, b=b):
            holds: npt.NDArray[np.bool_] = _RELATIONS[op](_value(a, at), _value(b, at))
            return holds.astype(np.int64)
        case Select(condition=condition, then=then, other=other):
            return np.where(_value(condition, at) != 0, _value(then, at), _value(other, at))
        case Cast(value=value):
            return _value(value, at)
        case Binary(op=op, a=a, b=b):
            return _combined(op, _value(a, at), _value(b, at))
        case _:
            raise TypeError(expr)


def _combined(op: BinaryOp, a: Ints, b: Ints) -> Ints:
    match op:
        case BinaryOp.ADD:
            return a + b
        case BinaryOp.SUB:
            return a - b
        case BinaryOp.MUL:
            return a * b
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


class Replay:
    """The accesses of one kernel, ready to be asked."""

    def __init__(self, kernel: Kernel) -> None:
        try:
            self.events: tuple[Event, ...] | None = tuple(
                _Events().of(kernel.body, (), 0, ())
            )
        except UnknownLengthError:
            self.events = None

    def harmless(
        self, outputs: Iterable[str], inputs: Iterable[str], nbytes: int, distance: int
    ) -> bool:
        """Whether no byte of the input is overwritten before it has been read for the last time.

        ``outputs`` and ``inputs`` name the buffers bound to the two tensors; the input has
        ``nbytes`` and the output begins ``distance`` bytes after it.
        """
        if self.events is None:
            return False
        names, sources = frozenset(outputs), frozenset(inputs)
        last = np.full(nbytes, -1, np.int64)
        for event in self.events:
            if not event.stores and event.buffer.name in sources:
                for address, time, _ in happenings(event, latest=True):
                    _note(last, address, event.buffer.dtype.itemsize, time)
        for event in self.events:
            if event.stores and event.buffer.name in sources:
                return False
            if not event.stores or event.buffer.name not in names:
                continue
            for address, time, _ in happenings(event, latest=False):
                if not _after(last, address, event.buffer.dtype.itemsize, time, distance):
                    return False
        return True

    def copied(
        self, output: Iterable[str], size: int
    ) -> tuple[tuple[str, int, int, int], ...] | None:
        """An output of ``size`` bytes as stretches (buffer, target, source, bytes) that are copies.

        None if not every byte is written once, with a copy, whatever the data.
        """
        names = frozenset(output)
        origin = np.full(size, -1, np.int64)
        owner = np.full(size, -1, np.int64)
        buffers: list[str] = []
        for event in self.events or ():
            if not event.stores or event.buffer.name not in names:
                continue
            load = event.value
            if not isinstance(load, Load) or load.buffer.dtype is not event.buffer.dtype:
                return None
            source = replace(event, buffer=load.buffer, index=load.index)
            if _unknown(event) or _unknown(source):
                return None
            pairs = zip(
                happenings(event, latest=True, whole=True),
                happenings(source, latest=True, whole=True), strict=True,
            )
            item = event.buffer.dtype.itemsize
            for (to, _, _), (at, _, _) in pairs:
                for byte in range(item):
                    target = to * item + byte
                    if (origin[target] >= 0).any() or len(np.unique(target)) < len(target):
                        return None
                    origin[target] = at * item + byte
                    owner[target] = len(buffers)
            buffers.append(load.buffer.name)
        return None if (origin < 0).any() else _stretches(buffers, origin, owner)


def _stretches(
    buffers: list[str], origin: Ints, owner: Ints
) -> tuple[tuple[str, int, int, int], ...]:
    """Neighbours that come from neighbours as one."""
    breaks = (np.diff(origin) != 1) | (np.diff(owner) != 0)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(origin)]))
    return tuple(
        (buffers[int(owner[start])], int(start), int(origin[start]), int(end - start))
        for start, end in itertools.pairwise(starts) if start < end
    )


def _unknown(event: Event) -> bool:
    return any(_variables(e) is None for e in (event.index, *event.conditions))


def happenings(
    event: Event, *, latest: bool, whole: bool = False, keep: Iterable[str] = (),
) -> Iterator[tuple[Ints, Ints, dict[str, Ints]]]:
    """Element numbers and times of an access, and the values of loops, in chunks.

    Loops that change nothing but the time stay at their last iteration, or first, unless
    ``whole`` or named in ``keep``, which is whose values are told. An access that isn't known
    touches everything, at its last or first time.
    """
    if not event.followed:
        edge = event.tick + sum(
            loop.period * (loop.extent - 1) for loop in event.loops if latest
        )
        everything = np.arange(event.buffer.size, dtype=np.int64)
        yield everything, np.full(event.buffer.size, edge, np.int64), {}
        return
    conditions = [c for c in event.conditions if event.known(c)]
    used = frozenset(keep).union(*(_variables(e) or () for e in (event.index, *conditions)))
    moving = [loop for loop in event.loops if whole or loop.name in used]
    start = event.tick + sum(
        loop.period * (loop.extent - 1) for loop in event.loops
        if latest and loop not in moving
    )
    for at, time in _iterations(moving, start):
        shape = np.broadcast_shapes(time.shape, *(a.shape for a in at.values()))
        holds = np.ones(shape, bool)
        for condition in conditions:
            holds = holds & (_value(condition, at) != 0)
        chosen = holds.reshape(-1)

        def spread(
            values: Ints, shape: tuple[int, ...] = shape, chosen: npt.NDArray[np.bool_] = chosen
        ) -> Ints:
            return np.broadcast_to(values, shape).reshape(-1)[chosen]

        yield spread(_value(event.index, at)), spread(time), {n: spread(at[n]) for n in keep}


def _iterations(loops: list[_Loop], start: int) -> Iterator[tuple[dict[str, Ints], Ints]]:
    """All iterations of ``loops`` in the order of time: values of the variables, and times."""
    points = 1
    for loop in loops:
        points *= loop.extent
    if points > CHUNK and len(loops) > 1:
        first, *rest = loops
        for step in range(first.extent):
            for at, time in _iterations(rest, start + step * first.period):
                yield {first.name: np.asarray(step, np.int64), **at}, time
        return
    at = {}
    time = np.asarray(start, np.int64)
    for axis, loop in enumerate(loops):
        shape = [1] * len(loops)
        shape[axis] = loop.extent
        at[loop.name] = np.arange(loop.extent, dtype=np.int64).reshape(shape)
        time = time + at[loop.name] * loop.period
    yield at, time


def _note(last: Ints, address: Ints, item: int, time: Ints) -> None:
    """Remembers when bytes were read, if that is later than what is known."""
    for byte in range(item):
        at = address * item + byte
        inside = (at >= 0) & (at < len(last))
        np.maximum.at(last, at[inside], time[inside])


def _after(last: Ints, address: Ints, item: int, time: Ints, distance: int) -> bool:
    """Whether all writes come no earlier than the last read of what they overwrite."""
    for byte in range(item):
        at = address * item + byte + distance
        inside = (at >= 0) & (at < len(last))
        if (last[at[inside]] > time[inside]).any():
            return False
    return True
