"""Machine code of a loop as lines, whatever registers and text backends make of them."""

from __future__ import annotations

from msgspec import Struct

from crtexport.kir.assembly.mve.addresses import Base
from crtexport.kir.assembly.mve.instructions import Form, VectorAccess
from crtexport.kir.assembly.mve.pointers import Address
from crtexport.kir.language import Const, Expr


class BankRegister(Struct, frozen=True):
    """A register. ``bank``: q (a vector, by its number), p (a pointer), s (a number), a (a sum, in
    an even register) or t (temporary)."""

    bank: str
    number: int


class Line(Struct, frozen=True):
    """An instruction: its registers in the order of the letters of its text; of loads and stores,
    the vector's, and the ``address``."""

    form: Form | VectorAccess
    registers: tuple[BankRegister, ...]
    number: int = 0
    address: Address | None = None

    @property
    def instruction(self) -> Form:
        """Returns ``form`` of what is no load or store. Raises TypeError for one."""
        if isinstance(self.form, VectorAccess):
            raise TypeError("an access has an address")
        return self.form


class Setting(Struct, frozen=True):
    """A number that is put into a register."""

    register: BankRegister
    value: int


class Adding(Struct, frozen=True):
    """A number that is added to a pointer; ``short``: by a short instruction, which has a byte for
    it."""

    register: BankRegister
    value: int
    short: bool = False


class Copying(Struct, frozen=True):
    """A general register that becomes what another one is."""

    register: BankRegister
    source: BankRegister


AnyLine = Line | Setting | Adding | Copying
Lines = tuple[AnyLine, ...]


class LoopPointer(Struct, frozen=True):
    """An address that the loop is given: ``start`` bytes from the one with the number ``base``.
    ``moves``: the loop changes it; ``low``: it must be in a low register. ``follows``: the number
    of the pointer that it is a copy of at first; then it isn't given."""

    base: int
    start: int
    moves: bool
    low: bool
    follows: int | None = None


class Code(Struct, frozen=True):
    """``setup``, then so many times as there are passes ``loop``, then ``after``: the end of the
    last iteration.

    Registers s are ``numbers`` that the loop is given, then ``constants``, which ``setup`` sets.
    ``passes``: those of a loop in another one, 0 if it is in none; then each iteration of that one
    begins with ``begin``, and ends with ``end``. ``interval``: cycles of a pass.
    """

    pointers: tuple[LoopPointer, ...]
    numbers: int
    constants: int
    sums: int
    temporaries: int
    setup: Lines
    loop: Lines
    after: Lines
    interval: int
    passes: int = 0
    begin: Lines = ()
    end: Lines = ()

    @property
    def general(self) -> int:
        """Returns how many general registers it has, besides the counter of passes."""
        numbers = self.numbers + self.constants + (self.passes > 0)
        return len(self.pointers) + numbers + self.sums + self.temporaries

    @property
    def given(self) -> list[int]:
        """Returns the numbers of the pointers that the loop is given."""
        return [i for i, pointer in enumerate(self.pointers) if pointer.follows is None]

    @property
    def lines(self) -> Lines:
        """Returns all lines, each once."""
        return (*self.setup, *self.begin, *self.loop, *self.end, *self.after)


class MachineLoop(Struct, frozen=True):
    """``code`` for ``count`` passes, or of the loop around; ``bases`` for its pointers, and
    ``numbers``."""

    code: Code
    bases: tuple[Base, ...]
    numbers: tuple[Expr, ...]
    count: Expr

    @property
    def once(self) -> bool:
        """Returns whether there is one pass: then it is no loop."""
        return not self.code.passes and self.known == 1

    @property
    def known(self) -> int | None:
        """Returns ``count`` where it is known."""
        return int(self.count.value) if isinstance(self.count, Const) else None

    @property
    def arguments(self) -> int:
        """Returns how many numbers and addresses are given: ``count`` too, unless it is known."""
        return len(self.code.given) + len(self.numbers) + (self.known is None)
