"""One iteration of a loop: its instructions and their values."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from crtexport.kir.assembly.mve.addresses import Base, Place
from crtexport.kir.assembly.mve.instructions import Bank, Form, VectorAccess
from crtexport.kir.language import Expr

MOST = 420
"""Instructions of an iteration: more aren't put in order here."""
NONE = -1
"""No value: what a destination holds doesn't matter, or there is none."""


class UnsupportedLoopError(Exception):
    """The loop has something that isn't made into machine code here."""


class MveOp(Struct, frozen=True):
    """One instruction. ``args`` are values, in the order of the letters of its text; the first is
    NONE where a tied destination may hold anything. ``number``: that in its text, or of the lanes
    that are stored where not all are."""

    form: Form | VectorAccess
    dest: int
    args: tuple[int, ...]
    number: int = 0
    place: Place | None = None
    value: int = NONE  # that a store puts there


class VectorLoad(Struct, frozen=True):
    """A value that is in memory."""

    access: VectorAccess
    place: Place


class Body(Struct):
    """``ops`` of one iteration, without what ``loads``, ``dups`` (vectors of a scalar) and
    ``scalars`` (numbers that no iteration changes; None where they aren't known) say about values.
    ``otherwise``: the same in another order, if there are two to try. ``consumed``: loaded values
    whose register an instruction changes. ``some``: how many lanes are stored of a vector where not
    all are, and their bytes. ``bases`` are the addresses, ``numbers`` the scalars that aren't
    known."""

    ops: list[MveOp] = field(default_factory=list)
    otherwise: list[MveOp] | None = None
    banks: list[Bank] = field(default_factory=list)
    loads: dict[int, VectorLoad] = field(default_factory=dict)
    dups: dict[int, tuple[Form, int]] = field(default_factory=dict)
    scalars: dict[int, int | None] = field(default_factory=dict)
    consumed: set[int] = field(default_factory=set)
    some: tuple[int, int] | None = None
    bases: list[Base] = field(default_factory=list)
    numbers: list[Expr] = field(default_factory=list)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for bodies whose code is the same."""
        return (
            tuple(self.ops), tuple(self.otherwise or ()), tuple(self.banks),
            tuple(self.loads.items()), tuple(self.dups.items()), tuple(self.scalars.items()),
            self.some,
        )

    def fresh(self, bank: Bank) -> int:
        """Returns a new value."""
        self.banks.append(bank)
        return len(self.banks) - 1

    def emit(self, form: Form, args: Sequence[int], number: int = 0) -> int:
        """Adds an instruction; returns its result."""
        if len(self.ops) >= MOST:
            raise UnsupportedLoopError("too long")
        dest = self.fresh(form.fields[0][1])
        self.ops.append(MveOp(form, dest, tuple(args), number))
        return dest
