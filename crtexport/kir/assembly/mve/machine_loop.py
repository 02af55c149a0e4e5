"""A loop of a kernel as machine code: what backends print."""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from crtexport.kir import language as kir
from crtexport.kir.assembly.mve.arrange import sums_of
from crtexport.kir.assembly.mve.assembly import (
    GENERAL,
    Assembly,
    TooFarError,
    TooManyError,
)
from crtexport.kir.assembly.mve.attempt import MANNERS
from crtexport.kir.assembly.mve.body import Body, UnsupportedLoopError
from crtexport.kir.assembly.mve.lags import lags_of
from crtexport.kir.assembly.mve.lines import Code, MachineLoop
from crtexport.kir.assembly.mve.schedule import Scheduler, tail_of
from crtexport.kir.assembly.mve.selection import select
from crtexport.kir.language import Expr, Scalar
from crtexport.kir.walk import marked, walk


class Tail(enum.Enum):
    """The end of an iteration, beside the next one's beginning: wherever it fits; with its stores
    behind all loads; or there is none."""

    EARLY = "early"
    LATE = "late"
    NONE = "none"

    __hash__ = object.__hash__


PATIENCE = 8
"""Schedules with too many general registers after which none is expected to have fewer."""
DISTANT = 12
"""Schedules with places too far from each other after which none is expected to do better."""
EFFORT = 20_000
"""Instructions, counted in each schedule that is tried, after which no better one is
looked for."""
MOST_IN_VAIN = 100
"""Schedules that are tried, after which none is expected where none was found: of those that exist,
all were found within 82."""
LOOSE = 1.1
"""An interval of so many times the shortest one possible: others orders are tried."""
MOST_KEPT = 6
"""Values that registers hold for all iterations."""
SLACK = 1.15
"""Intervals up to so many times the shortest one possible are tried."""
MOST_REPEATED_ONCE = 2
"""Fewer passes aren't worth a loop in a loop."""
ARGUMENTS = 8
"""Addresses and numbers that a loop may be given."""
_REMEMBERED = 256
"""Loops whose codes are remembered: choosing a kernel asks whether there is one, and printing it
needs the best."""


def machine_loop(
    loop: kir.For, definitions: Mapping[str, Expr], overlapping: Iterable[str] = ()
) -> MachineLoop | None:
    """Returns ``loop`` as machine code, with one that is all that it does if it does no more; None
    where that can't be, or needs too many registers.

    ``definitions``: the values of Lets around it, by name; ``overlapping``: buffers that may have
    bytes in common with others.
    """
    found = next(iter(_wanted(loop, definitions, (overlapping,))), None)
    code = found.codes.best() if found is not None else None
    if found is None or code is None:
        return None
    bases = tuple(found.body.bases[pointer.base] for pointer in code.pointers)
    return MachineLoop(code, bases, tuple(found.body.numbers), loop.extent)


def _wanted(
    loop: kir.For, definitions: Mapping[str, Expr], overlapping: Sequence[Iterable[str]]
) -> list[_Iteration]:
    """Returns all of a loop that decides its code, for each of several sets of buffers that may
    overlap; none where it can't become machine code."""
    if loop.extent == kir.Const(0, Scalar.INDEX):
        return []
    inner = _inner(loop)
    passes = int(inner.extent.value) if inner and isinstance(inner.extent, kir.Const) else 0
    if inner is not None and passes < MOST_REPEATED_ONCE:
        return []
    try:
        body = select(inner or loop, definitions, loop if inner else None)
    except UnsupportedLoopError:
        return []
    unknown = not isinstance(loop.extent, kir.Const)
    room = ARGUMENTS - len(body.numbers) - unknown
    tails = (_tail(inner or loop, body, set(names)) for names in overlapping)
    return [_Iteration(body, tail, passes, room) for tail in dict.fromkeys(tails)]


def _inner(loop: kir.For) -> kir.For | None:
    """Returns the loop that is all of another one's body, but for names; None where there is
    none."""
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
    everything = [buffer.name for buffer in kernel.buffers]
    return all(
        (found := _wanted(loop, definitions, ((), everything)))
        and all(one.codes.exist() for one in found)
        for loop in marked(kernel.body)
        if loop.extent != kir.Const(0, Scalar.INDEX) and _inner(loop) is None
    )


def _tail(loop: kir.For, body: Body, overlapping: set[str]) -> Tail:
    """Returns where the end of an iteration may be. A first pass stores in vain, where the first
    iteration does. That may come before its loads if they are of no memory that is stored to, or
    are the same in all iterations."""
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


class _Iteration:
    """``body`` of an iteration and its ``tail``; ``passes``: as many of a loop in another one, or
    0; ``room``: pointers that it may be given. Equal where the code is the same."""

    def __init__(self, body: Body, tail: Tail, passes: int, room: int) -> None:
        self.body, self.tail, self.passes, self.room = body, tail, passes, room
        self._key = *body.key, tail, passes, room

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Iteration) and self._key == other._key

    @property
    def codes(self) -> _Codes:
        """Returns the codes of an iteration."""
        return _codes(self)


class _Codes:
    """Codes of an iteration, which are searched for on demand."""

    def __init__(self, iteration: _Iteration) -> None:
        self._found = self._all(iteration)
        self._best: Code | None = None

    def exist(self) -> bool:
        """Returns whether there is one: the first is enough."""
        if self._best is None:
            self._best = next(self._found, None)
        return self._best is not None

    def best(self) -> Code | None:
        """Returns the one with the shortest interval that is found; None if there is none."""
        for code in self._found:
            self._best = code
        return self._best

    def _all(self, iteration: _Iteration) -> Iterator[Code]:
        """Yields codes, each better than those before."""
        none = True
        try:
            search = _Search(iteration, follow=True)
            for code in search.codes():
                none = False
                yield code
            if none and search.crowded and not iteration.passes:
                yield from _Search(iteration, follow=False).codes()
                return
            if search.loose and iteration.body.otherwise is not None:
                body = replace(iteration.body, ops=iteration.body.otherwise, otherwise=None)
                other = _Iteration(body, iteration.tail, iteration.passes, iteration.room)
                yield from _Search(other, follow=True, shortest=search.found).codes()
        except UnsupportedLoopError:
            return


@functools.lru_cache(_REMEMBERED)
def _codes(iteration: _Iteration) -> _Codes:
    return _Codes(iteration)


class _Search:
    """Tries how many values are kept, and intervals, the shortest first."""

    def __init__(
        self, iteration: _Iteration, *, follow: bool, shortest: Code | None = None
    ) -> None:
        """``shortest``: a code than which others have to be better."""
        self.body, self.kind, self.passes = iteration.body, iteration.tail, iteration.passes
        self.room = iteration.room
        body = self.body
        moving = {value: load.place.moves for value, load in body.loads.items()}
        self.first = len(body.ops) if self.kind is Tail.NONE else tail_of(body, moving)
        tail = body.ops[self.first :]
        used = dict.fromkeys(arg for op in tail for arg in op.args)
        loads = [body.loads[arg] for arg in used if arg in body.loads]
        self.lags = lags_of(tail, [(load.place, load.access) for load in loads], follow=follow)
        self.found = shortest
        self._refused = 0
        self._distant = 0
        self._spent = 0
        self._bound = 1 << 31

    @property
    def crowded(self) -> bool:
        """Returns whether there were too few general registers."""
        return self._refused > 0 or self._general() > GENERAL

    @property
    def loose(self) -> bool:
        """Returns whether there may be a noticeably shorter interval than that which was found."""
        return self.found is None or self.found.interval > self._bound * LOOSE

    def codes(self) -> Iterator[Code]:
        """Returns codes, each with a shorter interval than those before."""
        if self._general() > GENERAL:
            return
        fixed = self._fixed()
        for count in range(min(MOST_KEPT, len(fixed)) + 1):
            scheduler = Scheduler(
                self.body, self.first, fixed[:count], self.lags, late=self.kind is Tail.LATE
            )
            least, found = scheduler.bound, self.found
            self._bound = min(self._bound, least)
            most = round(least * SLACK) + 8 if found is None else found.interval
            for code in self._shorter(scheduler, range(least, most), fixed[:count]):
                self.found = code
                yield code

    def _shorter(
        self, scheduler: Scheduler, intervals: range, kept: Sequence[int]
    ) -> Iterator[Code]:
        """Yields the code with the first of some intervals for which there is one, then with the
        shortest: some are left out where instructions that find no place show that there is far too
        little."""
        interval = untried = intervals.start
        while interval < intervals.stop:
            found, part = self._with(scheduler, interval, kept)
            if found is not None:
                yield found
                shorter = (self._with(scheduler, i, kept)[0] for i in range(untried, interval))
                yield from itertools.islice(filter(None, shorter), 1)
                return
            untried = interval + 1
            interval += max(1, int((1 - part) * interval / 2))

    def _general(self) -> int:
        """Returns the number of general registers that are surely needed."""
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
        """Returns the values that are the same in all iterations, those used most first."""
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
        """Returns the code with an interval, if it is found, and which part of all instructions had
        a time."""
        most = 0.0
        for manner in MANNERS:
            if self._hopeless:
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
            except TooFarError:
                self._distant += 1
                continue
            if code is not None and len(code.given) > self.room:
                self._refused += 1
            elif code is not None:
                return code, 1.0
        return None, most

    @property
    def _hopeless(self) -> bool:
        """Returns whether no code, or no better one, is expected any more."""
        in_vain = self._distant > DISTANT or self._spent > MOST_IN_VAIN * len(self.body.ops)
        if self.found is None and in_vain:
            return True
        return self._refused > PATIENCE or self._spent > EFFORT
