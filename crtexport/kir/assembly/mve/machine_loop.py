"""A loop of a kernel as machine code: what backends print."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

from crtexport.kir import language as kir
from crtexport.kir.assembly.mve.assembly import GENERAL, Assembly, TooManyError
from crtexport.kir.assembly.mve.lags import lags_of
from crtexport.kir.assembly.mve.lines import Code, MachineLoop
from crtexport.kir.assembly.mve.schedule import MANNERS, Scheduler, tail_of
from crtexport.kir.assembly.mve.selection import Body, UnsupportedError, select, sums_of
from crtexport.kir.language import Expr, Scalar
from crtexport.kir.walk import walk


class Tail(enum.Enum):
    """The end of an iteration, beside the next one's beginning: wherever it fits; with its stores
    behind all loads; or there is none."""

    EARLY = "early"
    LATE = "late"
    NONE = "none"

    __hash__ = object.__hash__


PATIENCE = 8
"""Schedules with too many general registers after which none is expected to have fewer."""
EFFORT = 40_000
"""Instructions, counted in each schedule that is tried, after which no better one is
looked for."""
MOST_KEPT = 6
"""Values that registers hold for all iterations."""
SLACK = 1.15
"""Intervals up to so many times the shortest one possible are tried."""
MOST_REPEATED_ONCE = 2
"""Fewer passes aren't worth a loop in a loop."""
ARGUMENTS = 8
"""Addresses and numbers that a loop may be given."""


def machine_loop(
    loop: kir.For, definitions: Mapping[str, Expr], overlapping: Iterable[str] = ()
) -> MachineLoop | None:
    """Returns ``loop`` as machine code, with one that is all that it does if it does no more; None
    where that can't be, or wants too many registers.

    ``definitions``: the values of Lets around it, by name; ``overlapping``: buffers that may have
    bytes in common with others.
    """
    if loop.extent == kir.Const(0, Scalar.INDEX):
        return None
    inner = _inner(loop)
    passes = int(inner.extent.value) if inner and isinstance(inner.extent, kir.Const) else 0
    if inner is not None and passes < MOST_REPEATED_ONCE:
        return None
    try:
        body = select(inner or loop, definitions, loop if inner else None)
        code = _code(body, _tail(inner or loop, body, set(overlapping)), passes)
    except UnsupportedError:
        return None
    if code is None:
        return None
    bases = tuple(body.bases[pointer.base] for pointer in code.pointers)
    found = MachineLoop(code, bases, tuple(body.numbers), loop.extent)
    return found if found.arguments <= ARGUMENTS else None


def _inner(loop: kir.For) -> kir.For | None:
    """The loop that is all that another one does, but for names."""
    *lets, last = loop.body
    if isinstance(last, kir.For) and last.assembled and all(isinstance(s, kir.Let) for s in lets):
        return last
    return None


def definitions_in(kernel: kir.Kernel) -> dict[str, Expr]:
    """Returns the values of all Lets of a kernel by their names."""
    lets = (stmt for stmt in walk(kernel.body) if isinstance(stmt, kir.Let))
    return {stmt.var.name: stmt.value for stmt in lets}


def becomes_machine_code(kernel: kir.Kernel) -> bool:
    """Returns whether all loops of a kernel that ask for it become machine code, whichever of its
    buffers overlap."""
    definitions = definitions_in(kernel)
    loops = [stmt for stmt in walk(kernel.body) if isinstance(stmt, kir.For) and stmt.assembled]
    everything = [buffer.name for buffer in kernel.buffers]
    return all(
        machine_loop(loop, definitions, overlapping) is not None
        for loop in loops if loop.extent != kir.Const(0, Scalar.INDEX) and _inner(loop) is None
        for overlapping in ((), everything)
    )


def _tail(loop: kir.For, body: Body, overlapping: set[str]) -> Tail:
    """A first pass stores in vain, where the first iteration does. That may come before its loads
    if they are of no memory that is stored to, or are the same in all iterations."""
    if isinstance(loop.extent, kir.Const) and loop.extent.value == 1:
        return Tail.NONE
    stored = {body.bases[op.place.base].buffer for op in body.ops if op.place is not None}
    if not stored & overlapping:
        return Tail.EARLY
    moving = any(
        load.place.step and body.bases[load.place.base].buffer in overlapping
        for load in body.loads.values()
    )
    return Tail.LATE if moving or not isinstance(loop.extent, kir.Const) else Tail.EARLY


_KNOWN: dict[tuple[object, ...], Code | None] = {}
"""Codes that were found: choosing a kernel looks at them, and printing it wants them again."""


def _code(body: Body, tail: Tail, passes: int = 0) -> Code | None:
    """The code of an iteration; ``passes``: as many of a loop in another one, or 0."""
    key = *body.key, tail, passes
    if key not in _KNOWN:
        search = _Search(body, tail, passes, follow=True)
        found = search.best()
        if found is None and search.crowded and not passes:
            found = _Search(body, tail, passes, follow=False).best()
        _KNOWN[key] = found
    return _KNOWN[key]


class _Search:
    """Tries how many values are kept, and intervals, the shortest first."""

    def __init__(self, body: Body, kind: Tail, passes: int, *, follow: bool) -> None:
        self.body, self.kind, self.passes = body, kind, passes
        moving = {value: load.place.moves for value, load in body.loads.items()}
        self.first = len(body.ops) if kind is Tail.NONE else tail_of(body, moving)
        tail = body.ops[self.first :]
        used = dict.fromkeys(arg for op in tail for arg in op.args)
        wanted = {arg: body.loads[arg] for arg in used if arg in body.loads}
        loads = [(load.place, load.access) for load in wanted.values()]
        self.lags = lags_of(tail, loads, follow=follow)
        self._refused = 0
        self._spent = 0

    @property
    def crowded(self) -> bool:
        """Returns whether there were too few general registers."""
        return self._refused > 0 or self._general() > GENERAL

    def best(self) -> Code | None:
        if self._general() > GENERAL:
            return None
        found: Code | None = None
        fixed = self._fixed()
        for count in range(min(MOST_KEPT, len(fixed)) + 1):
            scheduler = Scheduler(
                self.body, self.first, fixed[:count], self.lags, late=self.kind is Tail.LATE
            )
            least = scheduler.bound
            most = round(least * SLACK) + 8 if found is None else found.interval
            found = self._shortest(scheduler, range(least, most), fixed[:count]) or found
        return found

    def _shortest(
        self, scheduler: Scheduler, intervals: range, kept: Sequence[int]
    ) -> Code | None:
        """The code with the shortest of some intervals, which are left out where instructions that
        find no place show that there is far too little."""
        interval = untried = intervals.start
        while interval < intervals.stop:
            found, part = self._with(scheduler, interval, kept)
            if found is not None:
                shorter = (self._with(scheduler, i, kept)[0] for i in range(untried, interval))
                return next(filter(None, shorter), found)
            untried = interval + 1
            interval += max(1, int((1 - part) * interval / 2))
        return None

    def _general(self) -> int:
        """General registers that are surely needed."""
        body = self.body
        groups = {load.place.group for load in body.loads.values()}
        groups |= {op.place.group for op in body.ops if op.place is not None}
        lagging = {lag.place.group for lag in self.lags}
        numbers = {number for number in body.scalars.values() if number is not None}
        unknown = sum(number is None for number in body.scalars.values())
        temporaries = len({lag.temporary for lag in self.lags if not lag.follows})
        pointers = sum(1 + lag.follows for lag in self.lags) + len(groups - lagging)
        counter = int(self.passes > 0)
        return pointers + len(numbers) + unknown + temporaries + sums_of(body) + counter

    def _fixed(self) -> list[int]:
        """Values that are the same in all iterations, those that are wanted most first."""
        body, uses = self.body, dict[int, int]()
        late = {arg for op in body.ops[self.first :] for arg in op.args}
        for op in body.ops:
            for arg in op.args:
                place = body.loads[arg].place if arg in body.loads else None
                stays = place is not None and not place.step and not (place.outer and arg in late)
                if arg in body.dups or (stays and arg not in body.consumed):
                    uses[arg] = uses.get(arg, 0) + 1
        return sorted(uses, key=lambda value: (-uses[value], value))

    def _with(
        self, scheduler: Scheduler, interval: int, kept: Sequence[int]
    ) -> tuple[Code | None, float]:
        """The code with an interval, if it is found, and which part of all instructions had a
        time."""
        most = 0.0
        for manner in MANNERS:
            if self._refused > PATIENCE or self._spent > EFFORT:
                break
            if manner.lattice and interval % 2:
                continue
            self._spent += len(self.body.ops)
            schedule = scheduler.attempt(interval, manner)
            if isinstance(schedule, float):
                most = max(most, schedule)
                continue
            most = 1.0
            try:
                code = Assembly(
                    self.body, schedule, kept, self.lags, self.passes
                ).code()
            except TooManyError:
                self._refused += 1
                continue
            if code is not None:
                return code, 1.0
        return None, most
