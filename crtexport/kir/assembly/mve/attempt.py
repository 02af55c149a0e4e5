"""Gives the instructions of an outline their times, for an interval and in a manner.

Times are bits of numbers: all that are free are found at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from crtexport.kir.assembly.mve.body import NONE, MveOp
from crtexport.kir.assembly.mve.lags import FOLLOWS
from crtexport.kir.assembly.mve.lives import LiveCounts
from crtexport.kir.assembly.mve.outline import (
    INTEGER,
    MEMORY,
    MULTIPLY,
    SCALAR,
    Outline,
    OutlineStep,
)

VECTORS = 8
"""Registers for vectors."""
AHEAD = 18
"""Cycles that a load may be before what reads its value."""


class Manner(Struct, frozen=True):
    """A way to choose times. ``keep``: cycles after which a value is rather loaded again than kept.
    ``early``: loads come as soon as may be, up to so many cycles before what reads their value, not
    as late. ``lattice``: loads and stores begin at even times, products at odd ones, so that
    a pipe is never free for a single cycle."""

    keep: int
    early: int = 0
    lattice: bool = True


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
    op: MveOp | None
    tail: bool
    value: int = NONE
    until: int = 0  # when a loaded value is used last
    lag: int = NONE
    part: int = 0
    temporary: int = NONE


class Times(Struct, frozen=True):
    """The time of each step of an outline, and what else there is."""

    steps: tuple[int, ...]
    others: tuple[Slot, ...]


class OutlineDependences:
    """An outline's dependences, and the times that were found for it."""

    def __init__(self, outline: Outline) -> None:
        self.outline, self.steps = outline, outline.steps
        self.loads, dups = dict(outline.loads), frozenset(outline.dups)
        roots = self.roots = dict(outline.roots)
        made = {step.dest: number for number, step in enumerate(self.steps) if step.dest != NONE}
        self.before: list[list[tuple[int, int, bool]]] = []
        self.after: list[list[tuple[int, int, bool]]] = [[] for _ in self.steps]
        self.wanted: list[list[int]] = []
        for number, step in enumerate(self.steps):
            before = []
            for place, arg in enumerate(step.args):
                if arg in made:
                    source = self.steps[made[arg]]
                    latency, beside = _latency(source, step, place), source.tail == step.tail
                    before.append((made[arg], latency, beside))
                    self.after[made[arg]].append((number, latency, beside))
            self.before.append(before)
            wanted = dict.fromkeys(arg for arg in step.args if arg in self.loads or arg in dups)
            self.wanted.append(list(wanted))
        in_tail = {
            step.dest: step.tail for step in self.steps if roots.get(step.dest) == step.dest
        }
        # The vectors that each step uses, and whether they are of the next interval's beginning.
        self.used = [
            [
                (roots[arg], step.tail and not in_tail.get(roots[arg], step.tail))
                for arg in step.args if arg in roots
            ]
            for step in self.steps
        ]
        self.begins = [step.dest in in_tail for step in self.steps]
        self.bound, self.tight = self._bound()
        self._tried: dict[tuple[int, Manner], Times | float] = {}

    def _bound(self) -> tuple[int, int]:
        """Returns an interval that is surely needed, and the parity of times that most instructions
        want."""
        counts = [0] * 4
        for step in self.steps:
            counts[step.pipe] += 1
            counts[SCALAR] += step.partial
        counts[SCALAR] += sum(instructions for instructions, _ in self.outline.lags)
        counts[SCALAR] += len({temporary for _, temporary in self.outline.lags} - {FOLLOWS})
        for value in {value for wanted in self.wanted for value in wanted}:
            counts[MEMORY if value in self.loads else INTEGER] += 1
        bound = max(2 * max(counts[:SCALAR]), sum(counts), 4)
        return bound, int(counts[MULTIPLY] > counts[MEMORY])

    def attempt(self, interval: int, manner: Manner) -> Times | float:
        """Returns times within this interval; where none are found, which part of all instructions
        has a time."""
        key = interval, manner
        if key not in self._tried:
            self._tried[key] = _Attempt(self, interval, manner).result()
        return self._tried[key]


def _latency(source: OutlineStep, user: OutlineStep, place: int) -> int:
    """Returns the cycles from an instruction to one that takes its result as the operand at a
    place."""
    chained = place == 0 and user.tied and source.pipe == user.pipe == MULTIPLY
    return 2 if chained else source.latency


class _Attempt:
    """Bits of ``begun`` are the times at which an instruction begins, of ``starts`` those at which
    a pipe is given one, which keeps it for two cycles."""

    def __init__(self, plan: OutlineDependences, interval: int, manner: Manner) -> None:
        self.plan, self.interval, self.manner = plan, interval, manner
        everything = (1 << interval) - 1
        even = everything // 3 if interval % 2 == 0 else everything
        self.allowed = [everything] * 4
        if manner.lattice:
            self.allowed[MEMORY], self.allowed[MULTIPLY] = even, everything ^ even
        self.liked = even if plan.tight else everything ^ even
        self.ahead = manner.early or AHEAD
        self.begun = 0
        self.starts = [0] * 3
        self.times: list[int] = [NONE] * len(plan.steps)
        self.fetched: list[Slot] = []
        self.latest: dict[int, list[Slot]] = {}
        self.live_counts = LiveCounts(interval, VECTORS - plan.outline.kept)
        self.lives: dict[int, tuple[int, int]] = {}  # by root: from and until when, as far as known
        self.undone: list[tuple[int, tuple[int, int] | None]] = []  # what ``lives`` had

    def result(self) -> Times | float:
        """Returns what :meth:`OutlineDependences.attempt` does."""
        for number in range(len(self.times)):
            if not self.place(number):
                return number / len(self.times)
        return Times(tuple(self.times), tuple(self.fetched)) if self.advance() else 1.0

    def _take(self, time: int, pipe: int) -> None:
        self.begun |= 1 << time
        if pipe != SCALAR:
            self.starts[pipe] |= 1 << time

    def _free(self, pipe: int) -> int:
        """Returns the times that are free for a pipe."""
        taken = self.begun
        if pipe != SCALAR:
            starts, last = self.starts[pipe], self.interval - 1
            taken |= starts << 1 | starts >> last | starts >> 1 | (starts & 1) << last
        return self.allowed[pipe] & ~taken

    def place(self, number: int) -> bool:
        """Finds a time for an instruction and for the loads that it needs; returns whether there is
        one."""
        step = self.plan.steps[number]
        earliest, end = self._limits(number, step)
        pipe = step.pipe
        if earliest >= end:
            return False
        free = self._free(pipe) & ((1 << end) - (1 << earliest))
        if step.partial:
            free &= ~self.begun << 1
        wanted = self.plan.wanted[number]
        both = self.manner.lattice and pipe in (INTEGER, SCALAR)
        while free:
            liked = free & self.liked if both else 0
            some = liked or free
            lowest = some & -some
            time = lowest.bit_length() - 1
            if self._fetch(number, time, pipe, step.tail):
                if step.partial:
                    self.begun |= 1 << time - 1
                self.times[number] = time
                return True
            free ^= lowest
            if wanted:  # mostly the first one is taken, and then this isn't needed
                free &= self._behind(wanted, step.tail)
                wanted = []
        return False

    def _behind(self, values: Sequence[int], tail: bool) -> int:
        """Returns the times that come soon enough behind those that are free for a load of each of
        ``values``, or behind one at which that is loaded already: at no others all can be had."""
        found, loads, keep = -1, self.plan.loads, self.manner.keep
        memory = integer = 0
        for value in values:
            if value in loads:
                times = memory = memory or self._behind_free(MEMORY)
            else:
                times = integer = integer or self._behind_free(INTEGER)
            if value in self.latest and value not in self.plan.roots:
                for slot in self.latest[value]:
                    if slot.tail == tail:
                        times |= ((1 << keep) - 1) << slot.time + 1
            found &= times
        return found

    def _behind_free(self, pipe: int) -> int:
        """Returns the times behind those that are free for a pipe, at most ``ahead`` cycles."""
        found, reach = self._free(pipe) << 1, 1
        while reach < self.ahead:
            step = min(reach, self.ahead - reach)
            found |= found << step
            reach += step
        return found

    def _limits(self, number: int, step: OutlineStep) -> tuple[int, int]:
        """Returns the first time that an instruction may have, and the first that it may not."""
        plan, times, interval = self.plan, self.times, self.interval
        earliest, end = int(step.partial), interval
        if step.tail and step.access and plan.outline.late:
            earliest = max((slot.time + 1 for slot in self.fetched if not slot.tail), default=1)
        for source, latency, beside in plan.before[number]:
            time = times[source]
            if time >= 0:
                first = time + latency if beside else time + latency - interval
                earliest = max(earliest, first)
        for user, latency, beside in plan.after[number]:
            time = times[user]
            if time >= 0:
                last = time - latency if beside else time + interval - latency
                if last < end:
                    end = last + 1
        return earliest, end

    def _fetch(self, number: int, time: int, pipe: int, tail: bool) -> bool:
        """Takes a time for an instruction, and for loads of what it reads; returns whether that was
        possible, else leaves all as it was."""
        begun, starts, levels = self.begun, self.starts[:], self.live_counts.levels[:]
        self.undone.clear()
        self._take(time, pipe)
        new: list[Slot] = []
        changed: list[tuple[Slot, int, int]] = []
        if self._live(number, time):
            for value in self.plan.wanted[number]:
                if not (
                    self._reuse(value, time, tail, changed) or self._load(value, time, tail, new)
                ):
                    break
            else:
                for slot in new:
                    self.fetched.append(slot)
                    self.latest.setdefault(slot.value, []).append(slot)
                return True
        self.begun, self.starts, self.live_counts.levels = begun, starts, levels
        for root, life in reversed(self.undone):
            if life is None:
                del self.lives[root]
            else:
                self.lives[root] = life
        for slot, at, until in reversed(changed):
            slot.time, slot.until = at, until
        return False

    def _live(self, number: int, time: int) -> bool:
        """Notes that what an instruction uses and makes is alive; returns whether there is room."""
        for root, later in self.plan.used[number]:
            if not self._known(root, time + self.interval if later else time):
                return False
        if not self.plan.begins[number]:
            return True
        root = self.plan.steps[number].dest
        return self._known(root, time) and self._known(root, time + 1)

    def _known(self, root: int, time: int) -> bool:
        """Notes a time at which the first instruction that makes a value or the last that uses it
        begins, as far as is known; returns whether there is room."""
        life = self.lives.get(root)
        if life is None:
            self.undone.append((root, None))
            self.lives[root] = time, time
            return True
        begin, end = life
        if begin <= time <= end:
            return True
        self.undone.append((root, life))
        if time < begin:
            self.lives[root] = time, end
            return end - time <= self.interval and self.live_counts.add(time, begin)
        self.lives[root] = begin, time
        return time - begin <= self.interval and self.live_counts.add(end, time)

    def _reuse(
        self, value: int, time: int, tail: bool, changed: list[tuple[Slot, int, int]]
    ) -> bool:
        """Keeps a value that is loaded already; returns whether that is possible."""
        slots = self.latest.get(value)
        if slots is None or value in self.plan.roots:
            return False
        keep = self.manner.keep
        levels = self.live_counts.levels[:]
        before: Slot | None = None  # the last one before this time, else the first behind it
        behind: Slot | None = None
        for slot in slots:
            if slot.tail == tail:
                if slot.time >= time:
                    if slot.until - keep < time and (behind is None or slot.time < behind.time):
                        behind = slot
                elif slot.time >= time - keep and (before is None or slot.time > before.time):
                    before = slot
        if before is not None:
            if self.live_counts.add(before.until, time):
                changed.append((before, before.time, before.until))
                before.until = max(before.until, time)
                return True
            self.live_counts.levels = levels
            return False
        if behind is None:
            return False
        source = MEMORY if value in self.plan.loads else INTEGER
        at = self._before(time, source)
        if at < 0 or not self.live_counts.add(at, behind.time):
            self.live_counts.levels = levels
            return False
        self.begun ^= 1 << behind.time
        self.starts[source] ^= 1 << behind.time
        self._take(at, source)
        changed.append((behind, behind.time, behind.until))
        behind.time = at
        return True

    def _load(self, value: int, time: int, tail: bool, new: list[Slot]) -> bool:
        """Loads a value that is wanted at a time; returns whether that is possible."""
        source = MEMORY if value in self.plan.loads else INTEGER
        at = self._before(time, source)
        if at < 0:
            return False
        self._take(at, source)
        new.append(Slot(at, None, tail, value, time))
        root = self.plan.roots.get(value)
        return self.live_counts.add(at, time) if root is None else self._known(root, at)

    def _before(self, time: int, pipe: int) -> int:
        """Returns a free time for a load that is wanted at ``time``; -1 if there is none."""
        first = 1 << time - self.ahead if time > self.ahead else 1
        free = self._free(pipe) & ((1 << time) - first)
        if self.manner.early:
            return (free & -free).bit_length() - 1
        return free.bit_length() - 1

    def advance(self) -> bool:
        """Finds times for what moves the pointers of the tail, behind its accesses; returns whether
        there are."""
        ready: dict[int, int] = {}
        steps = list(zip(self.plan.steps, self.times, strict=True))
        for number, (instructions, temporary) in enumerate(self.plan.outline.lags):
            times = [time for step, time in steps if step.lag == number]
            times += [
                slot.time for slot in self.fetched
                if slot.tail and self.plan.loads.get(slot.value, NONE) == number
            ]
            after = max(times) + 1
            for part in range(instructions):
                at = self._scalar(after)
                if at < 0:
                    return False
                self.fetched.append(Slot(at, None, True, lag=number, part=part))
                after = at + 1
            if temporary != FOLLOWS:
                ready[temporary] = max(ready.get(temporary, 0), after)
        for temporary, time in ready.items():
            at = self._scalar(time)
            if at < 0:
                return False
            self.fetched.append(Slot(at, None, True, temporary=temporary))
        return True

    def _scalar(self, earliest: int) -> int:
        """Takes the next free time for a scalar instruction; -1 if there is none."""
        free = self._free(SCALAR) & -(1 << earliest)
        if not free:
            return -1
        time = (free & -free).bit_length() - 1
        self._take(time, SCALAR)
        return time
