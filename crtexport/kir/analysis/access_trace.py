"""Proof that a kernel's input and output may share bytes: a replay of every access, with a clock.

Independent of :mod:`crtexport.kir.analysis.address_intervals`: here each load and store of each
iteration has its exact address and time, and a byte may be overwritten when no later access loads
it. Where something can't be evaluated, the worst case is assumed: an index that is made of loaded
numbers takes every value that these numbers may have, and a condition on data counts as true.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir import language as kir
from crtexport.kir.analysis.integer_values import Choices, Ints, NamedValues
from crtexport.kir.language import Body, Buffer, CompareOp, Expr, Kernel, Scalar, Stmt

CHUNK = 1 << 16
"""Most iterations that are evaluated at once."""
COPIED = 1 << 22
"""Most elements of an output that may be copies of other elements."""
WINDOW = 1 << 22
"""Most pieces of a tensor whose last reads are remembered at once; each takes eight bytes."""
CHOICES = 1 << 24
"""Most elements that are told apart where loaded numbers choose one."""


class _Loop(Struct, frozen=True):
    """A loop around a statement: each of its iterations takes ``period`` ticks of the clock."""

    name: str
    extent: int
    period: int


class Event(Struct, frozen=True):
    """A load or store of ``width`` neighbouring elements: its time within the innermost loop, and
    the conditions under which it happens. ``names`` are the names in its expressions."""

    buffer: Buffer
    index: Expr
    stores: bool
    value: Expr | None
    loops: tuple[_Loop, ...]
    tick: int
    conditions: tuple[Expr, ...]
    names: NamedValues
    width: int = 1

    @property
    def followed(self) -> bool:
        """Returns True where its address is known in every iteration."""
        return self.known(self.index)

    @property
    def reach(self) -> tuple[frozenset[str], Choices] | None:
        """Returns the loops whose variables decide the address, and the bounded names that decide
        it, too; None where the address may be any."""
        found = self.names.reach(self.index)
        known = found is not None and found[0] <= {loop.name for loop in self.loops}
        return found if known else None

    @property
    def certain(self) -> bool:
        """Returns True where the iterations in which it happens are known, too."""
        return self.followed and all(map(self.known, self.conditions))

    def known(self, expr: Expr) -> bool:
        """Returns whether an expression has known values."""
        names = self.names.variables(expr)
        return names is not None and names <= {loop.name for loop in self.loops}


class UnknownLengthError(Exception):
    """A loop whose extent is no constant: time can't be counted."""


def _length(body: Body) -> int:
    """Returns the ticks that a body takes; each of the two branches of an If has its own."""
    total = 0
    for stmt in body:
        total += 1
        match stmt:
            case kir.For(extent=kir.Const(value=extent), body=inner):
                total += int(extent) * _length(inner)
            case kir.For():
                raise UnknownLengthError
            case kir.If(then=then, other=other):
                total += _length(then) + _length(other)
            case _:
                pass
    return total


class _Events:
    """Walks a kernel once, for the accesses to ``buffers``."""

    def __init__(self, buffers: frozenset[str]) -> None:
        self.names = NamedValues()
        self.buffers = buffers

    def of(
        self, body: Body, loops: tuple[_Loop, ...], tick: int, conditions: tuple[Expr, ...]
    ) -> Iterator[Event]:
        for stmt in body:
            for load in _loads(stmt):
                if load.buffer.name in self.buffers:
                    yield Event(
                        load.buffer, load.index, False, None, loops, tick, conditions, self.names,
                        _count(load),
                    )
            match stmt:
                case kir.Let():
                    self.names.add(stmt.var.name, stmt.value)
                case kir.Local():
                    self.names.local(stmt.var.name)
                case kir.Store() | kir.StoreVector() if stmt.buffer.name not in self.buffers:
                    pass
                case kir.Store():
                    value = self.names.meant(stmt.value)
                    yield Event(
                        stmt.buffer, stmt.index, True, value, loops, tick, conditions, self.names
                    )
                case kir.StoreVector():
                    # Its value is in no single element.
                    yield Event(
                        stmt.buffer, stmt.index, True, stmt.value, loops, tick, conditions,
                        self.names, stmt.count,
                    )
                case kir.For(var=var, extent=kir.Const(value=extent), body=inner):
                    period = _length(inner)
                    loop = _Loop(var.name, int(extent), period)
                    if extent > 0:
                        yield from self.of(inner, (*loops, loop), tick + 1, conditions)
                    tick += int(extent) * period
                case kir.For():
                    raise UnknownLengthError
                case kir.If(condition=test, then=then, other=other):
                    yield from self.of(then, loops, tick + 1, (*conditions, test))
                    refuted = kir.Compare(CompareOp.EQ, test, kir.Const(0, Scalar.I1))
                    between = tick + 1 + _length(then)
                    yield from self.of(other, loops, between, (*conditions, refuted))
                    tick += _length(then) + _length(other)
                case _:
                    pass
            tick += 1


def _parts(stmt: Stmt) -> tuple[Expr, ...]:
    """Returns what a statement itself evaluates, the last first."""
    match stmt:
        case kir.Let() | kir.Local() | kir.Assign():
            return (stmt.value,)
        case kir.Store() | kir.StoreVector():
            return stmt.value, stmt.index
        case kir.For():
            return (stmt.extent,)
        case kir.If():
            return (stmt.condition,)
        case kir.Comment():
            return ()


def _count(load: kir.Reading) -> int:
    """Returns how many elements are loaded."""
    match load:
        case kir.Load():
            return 1
        case kir.LoadWord(buffer=buffer):
            return 4 // buffer.dtype.itemsize
        case kir.LoadVector(count=count):
            return count


def _loads(stmt: Stmt) -> list[kir.Reading]:
    found: list[kir.Reading] = []
    waiting = list(_parts(stmt))
    while waiting:
        expr = waiting.pop()
        match expr:
            case kir.Binary() | kir.Compare():
                waiting += (expr.b, expr.a)
            case kir.Load() | kir.LoadWord() | kir.LoadVector():
                found.append(expr)
                waiting.append(expr.index)
            case kir.Select():
                waiting += (expr.other, expr.then, expr.condition)
            case kir.Cast():
                waiting.append(expr.value)
            case kir.Call():
                waiting += reversed(expr.args)
    return found


class Replay:
    """The accesses of one kernel to some of its buffers, by default all."""

    def __init__(self, kernel: Kernel, buffers: Iterable[str] | None = None) -> None:
        if buffers is None:
            buffers = (buffer.name for buffer in kernel.buffers)
        try:
            self.events: tuple[Event, ...] | None = tuple(
                _Events(frozenset(buffers)).of(kernel.body, (), 0, ())
            )
        except UnknownLengthError:
            self.events = None

    def harmless(
        self, outputs: Iterable[str], inputs: Iterable[str], nbytes: int, distance: int
    ) -> bool:
        """Returns whether no byte of the input is overwritten before it has been read for the last
        time.

        ``outputs`` and ``inputs`` name the buffers bound to the two tensors; the input has
        ``nbytes`` and the output begins ``distance`` bytes after it.
        """
        if self.events is None:
            return False
        names, sources = frozenset(outputs), frozenset(inputs)
        reads = [e for e in self.events if not e.stores and e.buffer.name in sources]
        stores = [e for e in self.events if e.stores and e.buffer.name in names]
        if any(event.stores and event.buffer.name in sources for event in self.events):
            return False
        # All accesses are to whole pieces of so many bytes, which have one time each.
        items = [event.buffer.dtype.itemsize for event in (*reads, *stores)]
        piece = math.gcd(distance, nbytes, *items) or 1
        end = nbytes // piece
        return all(
            _window_harmless(
                reads, stores, range(start, min(start + WINDOW, end)), piece, distance // piece
            )
            for start in range(0, end, WINDOW)
        )

    def copied(
        self, output: Iterable[str], size: int
    ) -> tuple[tuple[str, int, int, int], ...] | None:
        """Returns an output of ``size`` bytes as copied stretches (buffer, target, source, bytes).

        None unless every byte is written exactly once, by a copy, whatever the data are.
        """
        names = frozenset(output)
        stores = [e for e in self.events or () if e.stores and e.buffer.name in names]
        sizes = {event.buffer.dtype.itemsize for event in stores}
        if len(sizes) != 1 or size > COPIED * min(sizes):
            return None if size else ()
        (item,) = sizes
        origin = np.full(size // item, -1, np.int64)
        owner = np.full(size // item, -1, np.int32)
        buffers: list[str] = []
        for event in stores:
            load = event.value
            if not isinstance(load, kir.Load) or load.buffer.dtype is not event.buffer.dtype:
                return None
            source = replace(event, buffer=load.buffer, index=load.index)
            if _unknown(event) or _unknown(source):
                return None
            pairs = zip(
                happenings(event, latest=True, every_loop=True),
                happenings(source, latest=True, every_loop=True), strict=True,
            )
            for (to, _, _), (at, _, _) in pairs:
                if (origin[to] >= 0).any() or len(np.unique(to)) < len(to):
                    return None
                origin[to] = at
                owner[to] = len(buffers)
            buffers.append(load.buffer.name)
        return None if (origin < 0).any() else _stretches(buffers, origin, owner, item)


def _window_harmless(
    reads: list[Event], stores: list[Event], window: range, piece: int, distance: int
) -> bool:
    """Returns whether no piece of the input in ``window`` is overwritten before its last read;
    ``distance`` in pieces of so many bytes."""
    last = np.full(len(window), -1, np.int64)
    for event in reads:
        item = event.buffer.dtype.itemsize // piece
        for address, time, _ in happenings(event, latest=True):
            at, when = _pieces(address * item - window.start, item, len(window), time)
            np.maximum.at(last, at, when)
    for event in stores:
        item = event.buffer.dtype.itemsize // piece
        for address, time, _ in happenings(event, latest=False):
            at, when = _pieces(address * item + distance - window.start, item, len(window), time)
            if (last[at] > when).any():
                return False
    return True


def _stretches(
    buffers: list[str], origin: Ints, owner: npt.NDArray[np.int32], item: int
) -> tuple[tuple[str, int, int, int], ...]:
    """Merges elements that are neighbours in both source and target into stretches of bytes;
    elements have ``item`` bytes."""
    breaks = (np.diff(origin) != 1) | (np.diff(owner) != 0)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(origin)]))
    return tuple(
        (
            buffers[int(owner[start])], int(start) * item, int(origin[start]) * item,
            int(end - start) * item,
        )
        for start, end in itertools.pairwise(starts) if start < end
    )


def _unknown(event: Event) -> bool:
    return any(event.names.variables(e) is None for e in (event.index, *event.conditions))


def happenings(
    event: Event, *, latest: bool, every_loop: bool = False, keep: Iterable[str] = (),
) -> Iterator[tuple[Ints, Ints, dict[str, Ints]]]:
    """Yields the element numbers and times of an access, and the values of the loop variables, in
    chunks.

    Loops that change nothing but the time are represented by their last iteration, or their first,
    unless ``every_loop`` is set or ``keep`` names them. Only the values of the loops in ``keep``
    are returned. An access whose address depends on loaded numbers touches all elements that they
    may select; one that may have any address touches everything, at its last or first time.
    """
    reach = event.reach
    moving: list[_Loop] = []
    if reach is not None:
        conditions = [c for c in event.conditions if event.known(c)]
        used = reach[0].union(keep, *(event.names.variables(c) or () for c in conditions))
        moving = [loop for loop in event.loops if every_loop or loop.name in used]
        # Choices take no time: all of them may happen in the same iteration.
        moving += [_Loop(name, extent, 0) for name, extent in reach[1].items()]
    chosen_from = math.prod(loop.extent for loop in moving)
    if reach is None or (reach[1] and chosen_from > CHOICES):
        edge = event.tick + sum(
            loop.period * (loop.extent - 1) for loop in event.loops if latest
        )
        for first in range(0, event.buffer.size, CHUNK):
            everything = np.arange(first, min(first + CHUNK, event.buffer.size), dtype=np.int64)
            yield everything, np.full(len(everything), edge, np.int64), {}
        return
    names = event.names
    start = event.tick + sum(
        loop.period * (loop.extent - 1) for loop in event.loops
        if latest and loop not in moving
    )
    for at, time in _iterations(moving, start):
        shape = np.broadcast_shapes(time.shape, *(a.shape for a in at.values()))
        told = {name: at[name] for name in keep}
        chosen: npt.NDArray[np.bool_] | None = None
        if conditions:
            holds = np.ones(shape, np.bool_)
            for condition in conditions:
                holds = holds & (names.value(condition, at) != 0)
            chosen = holds.reshape(-1)

        def spread(
            values: Ints, shape: tuple[int, ...] = shape,
            chosen: npt.NDArray[np.bool_] | None = chosen,
        ) -> Ints:
            flat = np.broadcast_to(values, shape).reshape(-1)
            flat = flat if chosen is None else flat[chosen]
            return flat if event.width == 1 else np.repeat(flat, event.width)

        address = spread(names.value(event.index, at))
        if event.width > 1:
            address = address + np.arange(len(address)) % event.width
        yield address, spread(time), {name: spread(values) for name, values in told.items()}


def _iterations(loops: list[_Loop], start: int) -> Iterator[tuple[dict[str, Ints], Ints]]:
    """Returns all iterations of ``loops`` in the order of execution: the variables' values, and the
    times."""
    points = 1
    for loop in loops:
        points *= loop.extent
    if points > CHUNK:
        first, *rest = loops
        inside = points // first.extent
        if inside > CHUNK:
            for step in range(first.extent):
                for at, time in _iterations(rest, start + step * first.period):
                    yield {first.name: np.asarray(step, np.int64), **at}, time
            return
        few = CHUNK // inside
        for step in range(0, first.extent, few):
            part = replace(first, extent=min(few, first.extent - step))
            for at, time in _iterations([part, *rest], start + step * first.period):
                yield {**at, first.name: at[first.name] + step}, time
        return
    at = {}
    time = np.asarray(start, np.int64)
    for axis, loop in enumerate(loops):
        shape = [1] * len(loops)
        shape[axis] = loop.extent
        at[loop.name] = np.arange(loop.extent, dtype=np.int64).reshape(shape)
        time = time + at[loop.name] * loop.period
    yield at, time


def _pieces(address: Ints, item: int, end: int, time: Ints) -> tuple[Ints, Ints]:
    """Returns the pieces, up to ``end``, of elements of ``item`` pieces each, and the times at
    which they are accessed."""
    if item > 1:
        address = (address[:, None] + np.arange(item)).reshape(-1)
        time = np.repeat(time, item)
    inside = (address >= 0) & (address < end)
    return (address, time) if inside.all() else (address[inside], time[inside])
