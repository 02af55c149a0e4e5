"""Gives the instructions of a schedule their registers and addresses."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.kir.assembly.mve.addresses import Place
from crtexport.kir.assembly.mve.attempt import VECTORS, Slot
from crtexport.kir.assembly.mve.body import NONE, Body, MveOp
from crtexport.kir.assembly.mve.instructions import (
    ADVANCE,
    ADVANCE_SCALED,
    LANES_LEFT,
    PREDICATE,
    Bank,
    VectorAccess,
)
from crtexport.kir.assembly.mve.lags import Lag
from crtexport.kir.assembly.mve.lines import (
    Adding,
    AnyLine,
    BankRegister,
    Code,
    Copying,
    Line,
    Lines,
    LoopPointer,
    Setting,
)
from crtexport.kir.assembly.mve.lives import roots_of
from crtexport.kir.assembly.mve.outline import is_partial
from crtexport.kir.assembly.mve.pointers import Address, Visit, follow, walks
from crtexport.kir.assembly.mve.registers import Arc, assign, live_counts
from crtexport.kir.assembly.mve.schedule import Schedule

UNSAVED = 4
"""Vectors, the first ones, that a function may change."""
EVENS = 7
GENERAL = 13
"""General registers that a loop may have, besides its counter."""


class TooManyError(Exception):
    """More general registers are needed than there are."""


class TooFarError(Exception):
    """Places are too far from each other for the pointers that there are."""


class Assembly:
    """``kept``: values that registers hold all the time; ``lags``: pointers of the tail;
    ``passes``: those of a loop in another one, else 0."""

    def __init__(
        self, body: Body, schedule: Schedule, kept: Sequence[int], lags: Sequence[Lag],
        passes: int = 0,
    ) -> None:
        self.body, self.interval, self.kept, self.lags = body, schedule.interval, kept, lags
        self.passes = passes
        self.slots = sorted(schedule.slots, key=lambda slot: slot.time)
        self._loads: dict[int, list[int]] = {}  # positions of the loads of a value
        for number, slot in enumerate(self.slots):
            if slot.value != NONE:
                self._loads.setdefault(slot.value, []).append(number)
        self.pointers: list[LoopPointer] = []
        self._scalars: dict[int, BankRegister] = {}
        self._addresses: dict[int, Address] = {}  # by the slot's position
        self._after: dict[int, Address] = {}  # of the tail behind the last pass
        self._moving: dict[int, tuple[int, int, int]] = {}  # how a pointer moves
        self._added: list[Adding] = []
        self._end: list[Adding] = []  # of an iteration of the loop around

    def code(self) -> Code | None:
        """Returns the code; None if vectors' registers or offsets don't suffice. Raises
        TooManyError and TooFarError."""
        if not (self._name_vectors() and self._name_sums()):
            return None
        if not self._address():
            raise TooFarError
        numbers, constants = self._name_scalars()
        if self.body.some is not None and not (self.sums or constants):
            return None
        holding = self._holding()
        if holding is None:
            return None
        always, again = holding
        made = Code(
            tuple(self.pointers), numbers, len(constants), self.sums,
            len({lag.temporary for lag in self.lags if not lag.follows}),
            (*self._setup(constants, numbers), *always),
            (
                *(line for i in range(len(self.slots)) for line in self._lines(i, self._addresses)),
                *self._added,
            ),
            tuple(
                line for i, slot in enumerate(self.slots)
                if slot.tail and slot.lag == slot.temporary == NONE
                for line in self._lines(i, self._after)
            ),
            self.interval + len(self._added), self.passes, again, tuple(self._end),
        )
        if made.general > GENERAL:
            raise TooManyError
        return made

    # ---- registers

    def _lives(self) -> tuple[list[Arc], list[Arc]]:
        """Returns the lives of vectors and of sums. Keys of loads are their slots' positions, from
        the number of values on."""
        roots = roots_of(self.body)
        begins: dict[int, tuple[int, bool]] = {}
        for slot in self.slots:
            made = slot.value if slot.op is None else slot.op.dest
            if made in roots and roots[made] == made:
                begins[made] = slot.time, slot.tail
        ends = {root: time for root, (time, _) in begins.items()}
        for slot in self.slots:
            if slot.op is None:
                continue
            for arg in (*slot.op.args, slot.op.value):
                if arg in roots:
                    root = roots[arg]
                    later = self.interval if slot.tail and not begins[root][1] else 0
                    ends[root] = max(ends[root], slot.time + later)
        vectors, sums = list[Arc](), list[Arc]()
        for root, (time, _) in begins.items():
            lives = vectors if self.body.banks[root] is Bank.VECTOR else sums
            lives.append(Arc(time, max(ends[root], time + 1), root))
        for number, slot in enumerate(self.slots):
            if slot.value != NONE and slot.value not in roots:
                vectors.append(Arc(slot.time, slot.until, len(self.body.banks) + number))
        return vectors, sums

    def _name_vectors(self) -> bool:
        """Names vectors: the first for values that registers hold all the time, then as few as
        are found to suffice, for what others hold has to be saved."""
        self._vectors_alive, self._sums_alive = self._lives()
        kept = len(self.kept)
        least = max([UNSAVED - kept, *live_counts(self._vectors_alive, self.interval)])
        for count in range(least, VECTORS - kept + 1):
            found = assign(self._vectors_alive, self.interval, count)
            if found is not None:
                self._vectors = {key: kept + number for key, number in found.items()}
                return True
        return False

    def _name_sums(self) -> bool:
        for count in range(EVENS + 1):
            found = assign(self._sums_alive, self.interval, count)
            if found is not None:
                self.sums, self._sums = count, found
                self._root = roots_of(self.body)
                return True
        return False

    def _name_scalars(self) -> tuple[int, tuple[int, ...]]:
        """Names numbers that the loop is given, then constants. Returns how many the former are,
        and the latter."""
        scalars = self.body.scalars
        used = {arg for op in self.body.ops for arg in op.args}
        used |= {scalar for value, (_, scalar) in self.body.dups.items() if value in used}
        given = [value for value, number in scalars.items() if number is None]
        known: dict[int, list[int]] = {}
        for value, number in scalars.items():
            if value in used and number is not None:
                known.setdefault(number, []).append(value)
        for position, value in enumerate(given):
            self._scalars[value] = BankRegister("s", position)
        for position, values in enumerate(known.values(), len(given)):
            self._scalars |= dict.fromkeys(values, BankRegister("s", position))
        return len(given), tuple(known)

    def _register(self, value: int, at: int) -> BankRegister:
        """Returns the register of a value that the instruction at a position uses or makes."""
        if value in self._scalars:
            return self._scalars[value]
        if value in self.kept:
            return BankRegister("q", self.kept.index(value))
        if value in self._root:
            root = self._root[value]
            if root in self._sums:
                return BankRegister("a", self._sums[root])
            return BankRegister("q", self._vectors[root])
        return BankRegister("q", self._vectors[len(self.body.banks) + self._source(value, at)])

    def _source(self, value: int, at: int) -> int:
        """Returns the position of the load whose value an instruction uses."""
        user = self.slots[at]
        return max(
            number for number in self._loads[value]
            if self.slots[number].tail == user.tail
            and self.slots[number].time < user.time <= self.slots[number].until
        )

    # ---- addresses

    def _address(self) -> bool:
        """Finds pointers for all accesses."""
        lagging = {place: number for number, lag in enumerate(self.lags) for place in lag.places}
        self._lag_pointers()
        groups: dict[object, list[tuple[int, Place, VectorAccess]]] = {}
        for number, slot in enumerate(self.slots):
            found = self._access(slot)
            if found is None:
                continue
            place, access = found
            if slot.tail and place in lagging:
                lag = self.lags[lagging[place]]
                address = Address(self._behind[lagging[place]], place.offset - lag.start)
                if abs(address.distance) > access.reach:
                    return False
                self._addresses[number] = self._after[number] = address
            else:
                groups.setdefault(place.group, []).append((number, place, access))
        return all(self._walk(visits) for visits in groups.values())

    def _lag_pointers(self) -> None:
        """Names the pointers of the tail, and those that some of them follow."""
        self._behind: list[int] = []
        for lag in self.lags:
            number = len(self.pointers)
            self._behind.append(number + lag.follows)
            # A short instruction adds to low registers.
            low = lag.short and bool(lag.place.step) if lag.follows else lag.low
            self.pointers.append(LoopPointer(lag.place.base, lag.start, True, low))
            if lag.follows:
                self.pointers.append(LoopPointer(lag.place.base, lag.start, True, lag.low, number))
            self._ends(number, lag.place)

    def _ends(self, pointer: int, place: Place) -> None:
        """Adds what moves a pointer between iterations of the loop around."""
        missing = place.outer - self.passes * place.step
        if self.passes and missing:
            self._end.append(Adding(BankRegister("p", pointer), missing))

    def _access(self, slot: Slot) -> tuple[Place, VectorAccess] | None:
        if slot.op is not None:
            if isinstance(slot.op.form, VectorAccess) and slot.op.place is not None:
                return slot.op.place, slot.op.form
            return None
        load = self.body.loads.get(slot.value)
        return None if load is None else (load.place, load.access)

    def _walk(self, visits: Sequence[tuple[int, Place, VectorAccess]]) -> bool:
        """Pointers for the places of one base."""
        place = visits[0][1]
        order = [Visit(p.offset, access, number) for number, p, access in visits]
        found = walks(order, place.step)
        if found is None:
            return False
        for walk in found:
            number = len(self.pointers)
            mine = [visit for visit in order if visit.key in walk.addresses]
            moves = any(address.moves for address in walk.addresses.values())
            self.pointers.append(LoopPointer(
                place.base, walk.start, moves or bool(walk.added or (self.passes and place.outer)),
                any(visit.access.low for visit in mine),
            ))
            self._moving[number] = place.group
            for key, address in walk.addresses.items():
                self._addresses[key] = Address(number, address.distance, address.moves)
            if walk.added:
                self._added.append(Adding(BankRegister("p", number), walk.added))
            self._ends(number, place)
            tail = [visit for visit in mine if self.slots[visit.key].tail]
            last = follow(tail, walk.start, number)  # a tail's places stay where they are
            if last is None:
                return False
            self._after |= last.addresses
        return True

    # ---- code

    def _lines(self, at: int, addresses: dict[int, Address]) -> list[AnyLine]:
        slot = self.slots[at]
        if slot.lag != NONE:
            return self._advance(slot.lag, slot.part)
        line = self._line(at, addresses)
        if slot.op is not None and is_partial(slot.op):
            return [Line(PREDICATE, ()), line]
        return [line]

    def _advance(self, number: int, part: int) -> list[AnyLine]:
        """Returns one of the instructions that move a pointer of the tail."""
        lag, behind = self.lags[number], BankRegister("p", self._behind[number])
        if not lag.follows:
            registers, shift = (behind, BankRegister("t", lag.temporary)), lag.shifts[part]
            return [Line(ADVANCE_SCALED, registers, shift) if shift else Line(ADVANCE, registers)]
        ahead, step = BankRegister("p", self._behind[number] - 1), lag.place.step
        copy = Copying(behind, ahead)
        if lag.short:
            return [copy, Adding(ahead, step, short=True)] if step else [copy]
        return [Adding(ahead, step) if part else copy]

    def _line(self, at: int, addresses: dict[int, Address]) -> Line | Setting:
        slot = self.slots[at]
        if slot.temporary != NONE:
            unit = next(lag.unit for lag in self.lags if lag.temporary == slot.temporary)
            return Setting(BankRegister("t", slot.temporary), unit)
        if slot.op is None:
            consumed = slot.value in self.body.consumed
            key = slot.value if consumed else len(self.body.banks) + at
            own = BankRegister("q", self._vectors[key])
            if slot.value in self.body.loads:
                return Line(self.body.loads[slot.value].access, (own,), address=addresses[at])
            form, scalar = self.body.dups[slot.value]
            return Line(form, (own, self._scalars[scalar]))
        return self._instruction(slot.op, at, addresses)

    def _instruction(self, op: MveOp, at: int, addresses: dict[int, Address]) -> Line:
        if isinstance(op.form, VectorAccess):
            return Line(op.form, (self._register(op.value, at),), op.number, addresses[at])
        names = {"d": op.dest} | dict(zip("abc", op.args, strict=False))
        registers = tuple(self._register(names[letter], at) for letter, _, _ in op.form.fields)
        return Line(op.form, registers, op.number)

    def _setup(self, constants: Sequence[int], numbers: int) -> list[AnyLine]:
        """Returns what is done before the first pass: among others, ``constants`` are put into the
        registers behind those of ``numbers`` that the loop is given."""
        lines: list[AnyLine] = []
        if self.body.some is not None:
            count, size = self.body.some
            last = BankRegister("s", numbers + len(constants) - 1)
            spare = BankRegister("a", 0) if self.sums else last
            lines += [Setting(spare, count), Line(LANES_LEFT[size], (spare,))]
        lines += [
            Setting(BankRegister("s", number), value)
            for number, value in enumerate(constants, numbers)
        ]
        lines += [
            Copying(BankRegister("p", number), BankRegister("p", pointer.follows))
            for number, pointer in enumerate(self.pointers) if pointer.follows is not None
        ]
        temporaries = {lag.temporary for lag in self.lags if not lag.follows}
        return [*lines, *(Setting(BankRegister("t", number), 0) for number in sorted(temporaries))]

    def _holding(self) -> tuple[Lines, Lines] | None:
        """Returns what gets values that registers hold: for good, and in each iteration of the loop
        around; None where an address is too far."""
        always, again = list[AnyLine](), list[AnyLine]()
        for number, value in enumerate(self.kept):
            own = BankRegister("q", number)
            load = self.body.loads.get(value)
            if load is None:
                form, scalar = self.body.dups[value]
                always.append(Line(form, (own, self._scalars[scalar])))
                continue
            address = self._reach(load.place, load.access)
            if address is None:
                return None
            line = Line(load.access, (own,), address=address)
            (again if self.passes and load.place.outer else always).append(line)
        return tuple(always), tuple(again)

    def _reach(self, place: Place, access: VectorAccess) -> Address | None:
        """Returns the address of a place that stays where it is, before the first pass: from a
        pointer that moves as it does, or one that there is for it."""
        for number, pointer in enumerate(self.pointers):
            distance = place.offset - pointer.start
            if self._moving.get(number) == place.group and distance % access.size == 0 and (
                abs(distance) <= access.reach and (pointer.low or not access.low)
            ):
                return Address(number, distance)
        number = len(self.pointers)
        outer = bool(self.passes and place.outer)
        self.pointers.append(LoopPointer(place.base, place.offset, outer, access.low))
        self._ends(number, place)
        self._moving[number] = place.group
        return Address(number, 0)
