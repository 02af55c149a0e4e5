"""Puts the instructions of a loop's iteration in an order in which iterations overlap.

A modulo schedule: every so many cycles, the interval, another iteration begins, in the same order.
The last instructions of an iteration, its tail, run between the first ones of the next; they are
given their places first, as early as may be, then the others as early as what is left lets them.
Loads get a place just before what wants their value.

Times are bits of numbers: all that are free are found at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from crtexport.kir.assembly.mve.instructions import Access, Bank, Pipe
from crtexport.kir.assembly.mve.lags import Lag
from crtexport.kir.assembly.mve.lives import Crowd, roots_of
from crtexport.kir.assembly.mve.selection import NONE, Body, Op

VECTORS = 8
"""Registers for vectors."""
AHEAD = 18
"""Cycles that a load may be before what wants its value."""


class Manner(Struct, frozen=True):
    """A way to choose times. ``keep``: cycles after which a value is rather loaded again than kept.
    ``early``: loads come as soon as may be, up to so many cycles before what wants their value, not
    as late. ``lattice``: loads and stores begin at even times, products at odd ones, so that
    a pipe is never free for a single cycle."""

    keep: int
    early: int = 0
    lattice: bool = True
    delay: int = 0
    backwards: bool = False


MANNERS = (
    *(Manner(keep, early) for keep, early in ((24, 0), (12, 0), (24, 4), (24, 8))),
    *(Manner(keep, early, lattice=False) for keep, early in ((24, 0), (12, 0), (24, 8), (24, 2))),
)
"""To try in turn."""


class Slot(Struct):
    """An instruction at a time (cycles, less than the interval). ``tail``: it belongs to the
    iteration before. Without an ``op``, it is what gives ``value``, the ``part`` of what moves
    the pointer ``lag``, or what gives the register ``temporary`` its value."""

    time: int
    op: Op | None
    tail: bool
    value: int = NONE
    until: int = 0  # when a loaded value is used last
    lag: int = NONE
    part: int = 0
    temporary: int = NONE


class Schedule(Struct):
    """``slots`` repeat after ``interval`` cycles."""

    interval: int
    slots: list[Slot]


_MEMORY, _INTEGER, _MULTIPLY, _SCALAR = range(4)
_NUMBERS = {
    Pipe.MEMORY: _MEMORY, Pipe.INTEGER: _INTEGER, Pipe.MULTIPLY: _MULTIPLY, Pipe.SCALAR: _SCALAR,
}


def is_partial(op: Op) -> bool:
    """Returns whether an instruction stores some lanes only: one before it says so."""
    return isinstance(op.form, Access) and op.number > 0


def tail_of(body: Body, moving: Mapping[int, bool]) -> int:
    """Returns the number of the first instruction behind all that take nothing but values that are
    loaded; ``moving``: by loaded values, whether iterations load different ones."""
    last = 0
    for number, op in enumerate(body.ops):
        vectors = [arg for arg in op.args if arg in body.loads or arg in body.dups]
        others = [arg for arg in op.args if arg != NONE and arg not in vectors]
        fresh = any(moving.get(arg) for arg in vectors)
        if fresh and all(body.banks[arg] is not Bank.VECTOR for arg in others):
            last = number + 1
    return last


class Scheduler:
    """``first``: the number of the first instruction of the tail; ``kept``: values that registers
    hold all the time; ``lags``: the tail's pointers. ``late``: the tail's stores come behind all
    loads of the other iteration."""

    def __init__(
        self, body: Body, first: int, kept: Iterable[int] = (), lags: Sequence[Lag] = (), *,
        late: bool = False,
    ) -> None:
        self.body, self.kept, self.lags, self.late = body, frozenset(kept), lags, late
        tail, head = body.ops[first:], body.ops[:first]
        last = [op for op in tail if late and op.place is not None]
        early = [op for op in tail if not (late and op.place is not None)]
        self.order = [*early, *head, *last]
        first, behind = len(early), len(early) + len(head)
        self.forwards = [*range(len(self.order))]
        self.backwards = [
            *range(first), *range(behind - 1, first - 1, -1), *range(behind, len(self.order))
        ]
        self.tail = [True] * len(early) + [False] * len(head) + [True] * len(last)
        self.pipes = [
            _MEMORY if isinstance(op.form, Access) else _NUMBERS[op.form.pipe] for op in self.order
        ]
        self.partial = [is_partial(op) for op in self.order]
        made = {op.dest: number for number, op in enumerate(self.order) if op.dest != NONE}
        self.before: list[list[tuple[int, int]]] = []
        self.after: list[list[tuple[int, int]]] = [[] for _ in self.order]
        self.wanted: list[list[int]] = []
        for number, op in enumerate(self.order):
            used = [*op.args, op.value]
            before = []
            for place, arg in enumerate(used):
                if arg in made:
                    latency = _latency(self.order[made[arg]], op, place)
                    before.append((made[arg], latency))
                    self.after[made[arg]].append((number, latency))
            self.before.append(before)
            self.wanted.append(list(dict.fromkeys(
                arg for arg in used
                if (arg in body.loads or arg in body.dups) and arg not in self.kept
            )))
        self.roots = {
            value: root for value, root in roots_of(body).items()
            if body.banks[root] is Bank.VECTOR
        }
        self.begins_in_tail = {
            self.roots[op.dest]: tail for op, tail in zip(self.order, self.tail, strict=True)
            if op.dest in self.roots and self.roots[op.dest] == op.dest
        }
        self.bound, self.tight = self._bound()

    def _bound(self) -> tuple[int, int]:
        """An interval that is surely needed, and the parity of times that most instructions want.
        """
        counts = [0] * 4
        for pipe, partial in zip(self.pipes, self.partial, strict=True):
            counts[pipe] += 1
            counts[_SCALAR] += partial
        counts[_SCALAR] += sum(lag.instructions for lag in self.lags)
        counts[_SCALAR] += len({lag.temporary for lag in self.lags if not lag.follows})
        for value in {value for wanted in self.wanted for value in wanted}:
            counts[_MEMORY if value in self.body.loads else _INTEGER] += 1
        bound = max(2 * max(counts[:_SCALAR]), sum(counts), 4)
        return bound, int(counts[_MULTIPLY] > counts[_MEMORY])

    def attempt(self, interval: int, manner: Manner) -> Schedule | float:
        """Returns a schedule with this interval; where none is found, which part of all
        instructions has a time."""
        run = _Attempt(self, interval, manner)
        for count, number in enumerate(self.backwards if manner.backwards else self.forwards):
            if not run.place(number):
                return count / len(self.order)
        return Schedule(interval, run.finished()) if run.advance() else 1.0


def _latency(source: Op, user: Op, place: int) -> int:
    """Cycles from an instruction to one that takes its result as the operand at a place."""
    if isinstance(source.form, Access):
        raise TypeError("a store has no result")
    chained = (
        place == 0 and not isinstance(user.form, Access) and user.form.tied
        and source.form.pipe is user.form.pipe is Pipe.MULTIPLY
    )
    return 2 if chained else source.form.latency


class _Attempt:
    """Bits of ``begun`` are the times at which an instruction begins, of ``starts`` those at which
    a pipe is given one, which keeps it for two cycles."""

    def __init__(self, scheduler: Scheduler, interval: int, manner: Manner) -> None:
        self.s, self.interval, self.manner = scheduler, interval, manner
        self.everything = everything = (1 << interval) - 1
        even = everything // 3 if interval % 2 == 0 else everything
        self.allowed = [everything] * 4
        if manner.lattice:
            self.allowed[_MEMORY], self.allowed[_MULTIPLY] = even, everything ^ even
        self.liked = even if scheduler.tight else everything ^ even
        self.begun = 0
        self.starts = [0] * 3
        self.times: list[int | None] = [None] * len(scheduler.order)
        self.fetched: list[Slot] = []
        self.latest: dict[int, list[Slot]] = {}
        self.crowd = Crowd(interval, VECTORS - len(scheduler.kept))
        self.lives: dict[int, tuple[int, int]] = {}  # by root: from and until when, as far as known

    def _take(self, time: int, pipe: int) -> None:
        self.begun |= 1 << time
        if pipe != _SCALAR:
            self.starts[pipe] |= 1 << time

    def _free(self, pipe: int) -> int:
        """The times that are free for a pipe."""
        taken = self.begun
        if pipe != _SCALAR:
            starts, last = self.starts[pipe], self.interval - 1
            taken |= starts << 1 | starts >> last | starts >> 1 | (starts & 1) << last
        return self.allowed[pipe] & ~taken

    def place(self, number: int) -> bool:
        """Finds a time for an instruction and for the loads that it wants; returns whether there is
        one."""
        s = self.s
        earliest, end = self._limits(number)
        pipe, partial, tail = s.pipes[number], s.partial[number], s.tail[number]
        if earliest >= end:
            return False
        free = self._free(pipe) & ((1 << end) - (1 << earliest))
        if partial:
            free &= ~self.begun << 1
        both = self.manner.lattice and pipe in (_INTEGER, _SCALAR)
        backwards = self.manner.backwards and not tail
        for times in (free & self.liked, free & ~self.liked) if both else (free,):
            some = times
            while some:
                time = some.bit_length() - 1 if backwards else (some & -some).bit_length() - 1
                if self._fetch(number, time, pipe, tail):
                    if partial:
                        self.begun |= 1 << time - 1
                    self.times[number] = time
                    return True
                some ^= 1 << time
        return False

    def _limits(self, number: int) -> tuple[int, int]:
        """The first time that an instruction may have, and the first that it may not."""
        s, times, interval = self.s, self.times, self.interval
        earliest, end = int(s.partial[number]), interval
        tail = s.tail[number]
        if tail:
            earliest += self.manner.delay
            if s.late and s.order[number].place is not None:
                earliest = max((slot.time + 1 for slot in self.fetched if not slot.tail), default=1)
        for source, latency in s.before[number]:
            time = times[source]
            if time is not None:
                between = 0 if s.tail[source] == tail else interval
                earliest = max(earliest, time + latency - between)
        for user, latency in s.after[number]:
            time = times[user]
            if time is not None:
                between = 0 if s.tail[user] == tail else interval
                end = min(end, time + between - latency + 1)
        return earliest, end

    def _fetch(self, number: int, time: int, pipe: int, tail: bool) -> bool:
        """Takes a time for an instruction, and for loads of what it wants; returns whether that was
        possible, else leaves all as it was."""
        begun, starts, levels = self.begun, self.starts[:], self.crowd.levels[:]
        lives = self.lives.copy()
        self._take(time, pipe)
        new, changed = list[Slot](), list[tuple[Slot, int, int]]()
        if self._live(number, time, tail) and all(
            self._reuse(value, time, tail, changed) or self._load(value, time, tail, new)
            for value in self.s.wanted[number]
        ):
            for slot in new:
                self.fetched.append(slot)
                self.latest.setdefault(slot.value, []).append(slot)
            return True
        self.begun, self.starts, self.crowd.levels, self.lives = begun, starts, levels, lives
        for slot, at, until in reversed(changed):
            slot.time, slot.until = at, until
        return False

    def _live(self, number: int, time: int, tail: bool) -> bool:
        """Notes that what an instruction uses and makes is alive; returns whether there is room."""
        op, roots = self.s.order[number], self.s.roots
        for arg in (*op.args, op.value):
            root = roots.get(arg)
            if root is not None:
                later = self.interval if tail and not self.s.begins_in_tail.get(root, tail) else 0
                if not self._known(root, time + later):
                    return False
        root = roots.get(op.dest)
        return root != op.dest or root is None or (
            self._known(root, time) and self._known(root, time + 1)
        )

    def _known(self, root: int, time: int) -> bool:
        """Notes a time at which the first instruction that makes a value or the last that uses it
        begins, as far as is known; returns whether there is room."""
        begin, end = self.lives.get(root, (time, time))
        self.lives[root] = first, last = min(begin, time), max(end, time)
        return last - first <= self.interval and (
            self.crowd.add(first, begin) and self.crowd.add(end, last)
        )

    def _reuse(
        self, value: int, time: int, tail: bool, changed: list[tuple[Slot, int, int]]
    ) -> bool:
        """Keeps a value that is loaded already; returns whether that is possible."""
        if value in self.s.roots:
            return False
        known = [slot for slot in self.latest.get(value, ()) if slot.tail == tail]
        before = [slot for slot in known if time - self.manner.keep <= slot.time < time]
        levels = self.crowd.levels[:]
        if before:
            slot = max(before, key=lambda slot: slot.time)
            if self.crowd.add(slot.until, time):
                changed.append((slot, slot.time, slot.until))
                slot.until = max(slot.until, time)
                return True
            self.crowd.levels = levels
            return False
        keep = self.manner.keep
        behind = [slot for slot in known if time <= slot.time and slot.until - keep < time]
        if not behind:
            return False
        slot = min(behind, key=lambda slot: slot.time)
        source = _MEMORY if value in self.s.body.loads else _INTEGER
        at = self._before(time, source)
        if at < 0 or not self.crowd.add(at, slot.time):
            self.crowd.levels = levels
            return False
        self.begun ^= 1 << slot.time
        self.starts[source] ^= 1 << slot.time
        self._take(at, source)
        changed.append((slot, slot.time, slot.until))
        slot.time = at
        return True

    def _load(self, value: int, time: int, tail: bool, new: list[Slot]) -> bool:
        """Loads a value that is wanted at a time; returns whether that is possible."""
        source = _MEMORY if value in self.s.body.loads else _INTEGER
        at = self._before(time, source)
        if at < 0:
            return False
        self._take(at, source)
        new.append(Slot(at, None, tail, value, time))
        root = self.s.roots.get(value)
        return self.crowd.add(at, time) if root is None else self._known(root, at)

    def _before(self, time: int, pipe: int) -> int:
        """A free time for a load that is wanted at ``time``; -1 if there is none."""
        first = max(time - (self.manner.early or AHEAD), 0)
        free = self._free(pipe) & ((1 << time) - (1 << first))
        if self.manner.early:
            return (free & -free).bit_length() - 1
        return free.bit_length() - 1

    def advance(self) -> bool:
        """Finds times for what moves the pointers of the tail, behind its accesses; returns whether
        there are."""
        ready: dict[int, int] = {}
        for number, lag in enumerate(self.s.lags):
            times = [
                time for op, time in zip(self.s.order, self.times, strict=True)
                if time is not None and op.place in lag.places
            ]
            loads = self.s.body.loads
            times += [
                slot.time for slot in self.fetched
                if slot.tail and slot.value in loads and loads[slot.value].place in lag.places
            ]
            after = max(times) + 1
            for part in range(lag.instructions):
                at = self._scalar(after)
                if at < 0:
                    return False
                self.fetched.append(Slot(at, None, True, lag=number, part=part))
                after = at + 1
            if not lag.follows:
                ready[lag.temporary] = max(ready.get(lag.temporary, 0), after)
        for temporary, time in ready.items():
            at = self._scalar(time)
            if at < 0:
                return False
            self.fetched.append(Slot(at, None, True, temporary=temporary))
        return True

    def _scalar(self, earliest: int) -> int:
        """Takes the next free time for a scalar instruction; -1 if there is none."""
        free = self._free(_SCALAR) & -(1 << earliest)
        if not free:
            return -1
        time = (free & -free).bit_length() - 1
        self._take(time, _SCALAR)
        return time

    def finished(self) -> list[Slot]:
        """Returns all instructions with their times."""
        slots = [
            Slot(time, op, self.s.tail[number])
            for number, (op, time) in enumerate(zip(self.s.order, self.times, strict=True))
            if time is not None
        ]
        return [*slots, *self.fetched]
