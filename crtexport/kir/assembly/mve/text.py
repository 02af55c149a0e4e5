"""Lines of machine code as text of the unified assembly language."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.kir.assembly.mve.instructions import VectorAccess
from crtexport.kir.assembly.mve.lines import Adding, AnyLine, BankRegister, Copying, Line, Setting
from crtexport.kir.assembly.mve.pointers import FAR

Name = Callable[[BankRegister], str]
"""Gives registers names, but for vectors, which have theirs."""


def text(line: AnyLine, name: Name) -> list[str]:
    """Returns the instructions of a line, one or a few."""
    match line:
        case Setting(register=register, value=value):
            return setting(name(register), value)
        case Adding(register=register, value=value, short=short):
            return adding(name(register), value, short=short)
        case Copying(register=register, source=source):
            return [f"mov {name(register)}, {name(source)}"]
        case Line(form=VectorAccess(mnemonic=mnemonic), address=address) if address is not None:
            pointer = name(BankRegister("p", address.pointer))
            offset = f", #{address.distance}" if address.distance else ""
            after = "!" if address.moves else ""
            if line.number:  # behind VPST
                mnemonic = mnemonic.replace(".", "t.")
            return [f"{mnemonic} q{line.registers[0].number}, [{pointer}{offset}]{after}"]
    form = line.instruction
    names = {
        letter: f"q{register.number}" if register.bank == "q" else name(register)
        for (letter, _, _), register in zip(form.fields, line.registers, strict=True)
    }
    names.setdefault("d", next(iter(names.values()), ""))
    return [form.text.format(**names, i=line.number)]


def adding(register: str, value: int, *, short: bool) -> list[str]:
    """Returns what adds a number; a large one is in the register that counts passes first."""
    if short:
        return [f"adds {register}, #{value}"]
    if abs(value) > FAR:
        return [*setting("lr", value), f"add {register}, lr"]
    return [f"{'add' if value >= 0 else 'sub'}w {register}, {register}, #{abs(value)}"]


def setting(register: str, value: int) -> list[str]:
    """Returns what puts a number of 32 bits into a register."""
    if 0 <= ~value <= 255:
        return [f"mvn {register}, #{~value}"]
    low, high = value & 0xFFFF, value >> 16 & 0xFFFF
    return [f"movw {register}, #{low}", *([f"movt {register}, #{high}"] if high else [])]
