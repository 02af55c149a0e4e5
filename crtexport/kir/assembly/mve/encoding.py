"""Lines of machine code as bytes, in the order of the processor's memory (little endian)."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.kir.assembly.mve.instructions import ADVANCE_SCALED, Bank, VectorAccess
from crtexport.kir.assembly.mve.lines import Adding, AnyLine, BankRegister, Copying, Line, Setting
from crtexport.kir.assembly.mve.pointers import FAR

Number = Callable[[BankRegister], int]
"""Gives the numbers of general registers."""
LINK = 14
"""The register that counts passes of a loop, and holds the address to return to before."""

_WIDTHS = {Bank.VECTOR: 3, Bank.GENERAL: 4, Bank.LOW: 4, Bank.EVEN: 3}
_PRE_INDEXED, _DOWN = 1 << 21, 1 << 23


def encode(line: AnyLine, number: Number) -> bytes:
    """Returns the bytes of a line."""
    match line:
        case Setting(register=register, value=value):
            return setting(number(register), value)
        case Adding(register=register, value=value, short=short):
            return adding(number(register), value, short=short)
        case Copying(register=register, source=source):
            return move(number(register), number(source))
        case Line(form=VectorAccess(word=word, size=size), address=address) if address is not None:
            distance = address.distance // size
            pointer = number(BankRegister("p", address.pointer))
            word |= line.registers[0].number << 13 | pointer << 16
            word |= abs(distance) | (_PRE_INDEXED if address.moves else 0)
            return _wide(word ^ _DOWN if distance < 0 else word)
    form = line.instruction
    if form is ADVANCE_SCALED:
        pointer, step = (number(register) for register in line.registers)
        shift = (line.number & 28) << 10 | (line.number & 3) << 6
        return _wide(form.word | pointer << 16 | pointer << 8 | step | shift)
    if form.halfword:
        low, high = (number(register) for register in line.registers)
        return _half(form.word | low & 7 | (low & 8) << 4 | high << 3)
    word = form.word
    for (_, bank, bit), register in zip(form.fields, line.registers, strict=True):
        value = register.number if register.bank == "q" else number(register)
        word |= (value >> 1 if bank is Bank.EVEN else value) << bit
    if form.shift:
        word |= (line.number if form.shift > 0 else 32 - line.number) << 16
    return _wide(word)


def adding(register: int, value: int, *, short: bool) -> bytes:
    """Returns what adds a number; a large one is in the register that counts passes first."""
    if short:
        return _half(0x3000 | register << 8 | value)
    if abs(value) > FAR:
        large = _half(0x4400 | register & 7 | (register & 8) << 4 | LINK << 3)
        return setting(LINK, value) + large
    word, amount = 0xF2000000 if value >= 0 else 0xF2A00000, abs(value)
    return _wide(
        word | register << 16 | register << 8 | (amount & 0x800) << 15 | (amount & 0x700) << 4
        | amount & 0xFF
    )


def setting(register: int, value: int) -> bytes:
    """Returns what puts a number of 32 bits into a register."""
    if 0 <= ~value <= 255:
        return _wide(0xF06F0000 | register << 8 | ~value)
    low, high = value & 0xFFFF, value >> 16 & 0xFFFF
    return _moved(0xF2400000, register, low) + (_moved(0xF2C00000, register, high) if high else b"")


def move(target: int, source: int) -> bytes:
    """Returns what copies a register."""
    return _half(0x4600 | target & 7 | (target & 8) << 4 | source << 3)


def repeat(register: int) -> bytes:
    """Returns what begins a loop of as many passes as a register says (DLS)."""
    return _wide(0xF040E001 | register << 16)


def again(distance: int) -> bytes:
    """Returns what ends a loop whose body has ``distance`` bytes (LE)."""
    offset = distance + 4
    return _wide(0xF00FC001 | (offset >> 2) << 1 | (offset >> 1 & 1) << 11)


def count_down(register: int) -> bytes:
    """Returns what takes 1 from a register and compares it with 0."""
    return _wide(0xF1B00001 | register << 16 | register << 8)


def back_if_more(distance: int) -> bytes:
    """Returns what goes ``distance`` bytes back, from its own beginning, unless that was 0."""
    offset = -distance - 4
    sign, bits = int(offset < 0), offset >> 1
    word = 0xF0408000 | sign << 26 | (bits >> 11 & 63) << 16 | bits & 0x7FF
    return _wide(word | (bits >> 17 & 1) << 13 | (bits >> 18 & 1) << 11)


def push_vectors(count: int) -> bytes:
    """Returns what saves so many vectors on the stack, q4 the first."""
    return _wide(0xED2D8B00 | 4 * count)


def pop_vectors(count: int) -> bytes:
    """Returns what gets them back."""
    return _wide(0xECBD8B00 | 4 * count)


NOTHING = b"\x00\xbf"


def _moved(word: int, register: int, value: int) -> bytes:
    return _wide(
        word | register << 8 | value & 0xFF | (value & 0x700) << 4 | (value & 0x800) << 15
        | (value & 0xF000) << 4
    )


def _wide(word: int) -> bytes:
    return _half(word >> 16) + _half(word & 0xFFFF)


def _half(word: int) -> bytes:
    return word.to_bytes(2, "little")
