"""Loops of MVE as functions: registers of the procedure call standard, text and bytes."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from crtexport.kir.assembly.encode import encode
from crtexport.kir.assembly.frame import (
    CALLED,
    IN_REGISTERS,
    Given,
    arranged,
    moves_between,
    name_of,
)
from crtexport.kir.assembly.mve import encoding
from crtexport.kir.assembly.mve.lines import BankRegister, Line, Lines, MachineLoop
from crtexport.kir.assembly.mve.text import setting, text

_GENERAL = (3, 2, 1, 0, 12, *range(4, 12))
"""Registers, those first that needn't be saved."""
_SUMS = (12, 10, 8, 6, 4, 2, 0)
"""Registers for sums, which leave the low ones to pointers that must be in one."""
_SAVED_VECTORS = 4
"""From this vector on, functions leave to their callers what is in them."""
_COUNTER = BankRegister("n", 0)


class LoopFunction(Struct, frozen=True):
    """``lines`` of assembler, their bytes, and the arguments in their order."""

    lines: tuple[str, ...]
    code: bytes
    arguments: tuple[Given, ...]


def function_of(loop: MachineLoop) -> LoopFunction:
    """Returns a function that runs a loop."""
    return _FunctionBuilder(loop).made()


class _FunctionBuilder:
    def __init__(self, loop: MachineLoop) -> None:
        self.loop, self.code = loop, loop.code
        self.lines: list[str] = []
        self.bytes = b""
        self.numbers = self._numbers()
        given = self._given()
        self.order = arranged(list(given), self.numbers.__getitem__)
        self.arguments = tuple(given[register] for register in self.order)

    def _given(self) -> dict[BankRegister, Given]:
        loop, code = self.loop, self.code
        given = {}
        for i in code.given:
            base, start = loop.bases[i], code.pointers[i].start
            index = base.index(start // base.size)
            given[BankRegister("p", i)] = Given(base.buffer, base.buffer, index)
        given |= {
            BankRegister("s", i): Given("number", "", number)
            for i, number in enumerate(loop.numbers)
        }
        if loop.known is None:
            given[_COUNTER] = Given("count", "", loop.count)
        return given

    def _numbers(self) -> dict[BankRegister, int]:
        """Returns the numbers of all general registers."""
        code = self.code
        numbers = {BankRegister("a", i): _SUMS[i] for i in range(code.sums)}
        names = [BankRegister("s", i) for i in range(code.numbers + code.constants)]
        names += [BankRegister("t", i) for i in range(code.temporaries)]
        if code.passes:
            names.append(_COUNTER)
        elif self.loop.known is None:
            numbers[_COUNTER] = encoding.LINK
        pointers = {BankRegister("p", i): pointer.low for i, pointer in enumerate(code.pointers)}
        low = [name for name, must in pointers.items() if must]
        for name in (*low, *(name for name in pointers if name not in low), *names):
            numbers[name] = next(
                number for number in _GENERAL
                if number not in numbers.values() and (number < 8 or name not in low)
            )
        return numbers

    def made(self) -> LoopFunction:
        code = self.code
        saved = [*sorted(n for n in self.numbers.values() if CALLED <= n < 12), 14]
        vectors = 1 + max(self._vectors(), default=0) - _SAVED_VECTORS
        self._plain(f"push {{{', '.join(map(name_of, saved))}}}")
        if vectors > 0:
            self._add([f"vpush {{d8-d{7 + 2 * vectors}}}"], encoding.push_vectors(vectors))
        self._enter(4 * len(saved) + 16 * max(vectors, 0))
        if code.passes:
            self._nested()
        else:
            self._once_or_looped()
        self._encoded(code.after)
        if vectors > 0:
            self._add([f"vpop {{d8-d{7 + 2 * vectors}}}"], encoding.pop_vectors(vectors))
        self._plain(f"pop {{{', '.join(map(name_of, (*saved[:-1], 15)))}}}")
        return LoopFunction(tuple(self.lines), self.bytes, self.arguments)

    def _vectors(self) -> Iterable[int]:
        return (
            register.number for line in self.code.lines if isinstance(line, Line)
            for register in line.registers if register.bank == "q"
        )

    def _enter(self, above: int) -> None:
        """Brings arguments to their registers; ``above``: bytes on the stack before they begin."""
        moves = {
            self.numbers[register]: at for at, register in enumerate(self.order[:IN_REGISTERS])
            if self.numbers[register] != at
        }
        for target, source in moves_between(moves, 14):
            self._plain(f"mov {name_of(target)}, {name_of(source)}")
        for at, register in enumerate(self.order[IN_REGISTERS:]):
            self._plain(f"ldr {name_of(self.numbers[register])}, [sp, #{above + 4 * at}]")

    def _once_or_looped(self) -> None:
        loop, code = self.loop, self.code
        if loop.once:
            self._encoded(code.setup)
            self._encoded(code.loop)
            return
        if loop.known is not None:
            self._set(encoding.LINK, loop.known)
        self._add(["dls lr, lr"], encoding.repeat(encoding.LINK))
        self._encoded(code.setup)
        self._looped()

    def _nested(self) -> None:
        """Emits a loop in another one."""
        code, counter = self.code, self.numbers[_COUNTER]
        self._encoded(code.setup)
        if self.loop.known is not None:
            self._set(counter, self.loop.known)
        self.lines.append("2:")
        begin = len(self.bytes)
        self._encoded(code.begin)
        self._set(encoding.LINK, code.passes)
        self._add(["dls lr, lr"], encoding.repeat(encoding.LINK))
        self._looped()
        self._encoded(code.end)
        name = name_of(counter)
        self._add([f"subs.w {name}, {name}, #1"], encoding.count_down(counter))
        self._add(["bne.w 2b"], encoding.back_if_more(len(self.bytes) - begin))

    def _looped(self) -> None:
        """Emits the loop that the processor counts."""
        self._add([".p2align 2", "1:"], encoding.NOTHING if len(self.bytes) % 4 else b"")
        begin = len(self.bytes)
        self._encoded(self.code.loop)
        self._add(["le lr, 1b"], encoding.again(len(self.bytes) - begin))

    def _set(self, register: int, value: int) -> None:
        self._add(setting(name_of(register), value), encoding.setting(register, value))

    def _encoded(self, lines: Lines) -> None:
        for line in lines:
            self._add(
                text(line, lambda register: name_of(self.numbers[register])),
                encoding.encode(line, self.numbers.__getitem__),
            )

    def _plain(self, line: str) -> None:
        self._add([line], encode([line]))

    def _add(self, lines: list[str], code: bytes) -> None:
        self.lines += lines
        self.bytes += code
