"""Patches ELF objects where LLVM can't write them as needed."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence

from crtexport.support.errors import CrtExportError

_FILE_HEADER = {1: ("HHIIIIIHHHHHH", 16), 2: ("HHIQQQIHHHHHH", 16)}
_SECTION_HEADER = {1: "IIIIIIIIII", 2: "IIQQQQIIQQ"}
_SHT_SYMTAB, _SYMBOL32 = 2, struct.Struct("<IIIBBH")
_SHT_RELA, _RELA = 4, struct.Struct("<QQq")
_SYMBOL = 24  # bytes of a symbol
_PC32, _BY_TABLE = 2, (9, 41, 42)  # R_X86_64_GOTPCREL, _GOTPCRELX and _REX_GOTPCRELX


def deactivate_sections(data: bytes, prefixes: Sequence[str]) -> bytes:
    """Returns ``data`` with the headers of all sections whose names begin so turned into
    ``SHT_NULL``.

    That is how ELF spells an inactive section; linkers ignore it, and no number changes.
    """
    result = bytearray(data)
    for at, size, fields, names in _sections(data):
        start = names + fields[0]
        name = data[start : data.index(b"\0", start)].decode("ascii", "replace")
        if name.startswith(tuple(prefixes)):
            result[at : at + size] = bytes(size)
    return bytes(result)


def begin_with_code(data: bytes) -> bytes:
    """Returns ``data``, an object for 32-bit Arm, in which functions that begin with bytes of
    machine code are marked as instructions.

    The symbols ``$d`` and ``$t`` mark where data and instructions begin; LLVM takes given bytes for
    data. A ``$d`` at the beginning of a section that also has instructions becomes a ``$t``.
    """
    result = bytearray(data)
    sections = list(_sections(data))
    for _, _, fields, _ in sections:
        kind, offset, size, strings = fields[1], fields[4], fields[5], fields[6]
        if kind != _SHT_SYMTAB:
            continue
        names = sections[strings - 1][2][4]
        instructions: dict[int, int] = {}  # a name of that kind by the number of the section
        begins: dict[int, int] = {}
        for at in range(offset, offset + size, _SYMBOL32.size):
            name, value, _, _, _, section = _SYMBOL32.unpack_from(data, at)
            match data[names + name : names + name + 3]:
                case b"$t\0":
                    instructions[section] = name
                case b"$d\0" if value == 0:
                    begins[section] = at
        for section in begins.keys() & instructions.keys():
            _, *rest = _SYMBOL32.unpack_from(data, begins[section])
            _SYMBOL32.pack_into(result, begins[section], instructions[section], *rest)
    return bytes(result)


def reach_through_slots(data: bytes, symbols: Collection[str]) -> bytes:
    """Returns ``data``, an object for x86-64 that reaches ``symbols`` through slots.

    LLVM's code loads their addresses from the linker's table (GOT). In the result, it loads them
    from the symbols themselves, which are pointers near the code (``ConstantPlacement``). The GOT
    can't be used: linkers replace such loads by distances from the code without checking that these
    fit 32 bits (gold always, mold 1.10 if relocations allow it).
    """
    result = bytearray(data)
    sections = list(_sections(data))
    for _, _, fields, _ in sections:
        kind, offset, size, symtab = fields[1], fields[4], fields[5], fields[6]
        if kind != _SHT_RELA:
            continue
        table = sections[symtab - 1][2]
        names = sections[table[6] - 1][2][4]
        for at in range(offset, offset + size, _RELA.size):
            place, info, addend = _RELA.unpack_from(data, at)
            start = names + struct.unpack_from("<I", data, table[4] + (info >> 32) * _SYMBOL)[0]
            name = data[start : data.index(b"\0", start)].decode("ascii", "replace")
            if info & 0xFFFFFFFF in _BY_TABLE and name in symbols:
                _RELA.pack_into(result, at, place, info >> 32 << 32 | _PC32, addend)
    return bytes(result)


def _sections(data: bytes) -> Iterator[tuple[int, int, tuple[int, ...], int]]:
    """Yields the position, size and fields of each section's header, and the offset of the names.
    """
    if data[:4] != b"\x7fELF" or data[4] not in _FILE_HEADER or data[5] not in (1, 2):
        raise CrtExportError("LLVM made something that is not an ELF object")
    order = "<" if data[5] == 1 else ">"
    layout, start = _FILE_HEADER[data[4]]
    header = struct.unpack_from(order + layout, data, start)
    table, size, count, names_index = header[5], header[10], header[11], header[12]
    section = struct.Struct(order + _SECTION_HEADER[data[4]])
    names = section.unpack_from(data, table + names_index * size)[4]
    for index in range(1, count):
        at = table + index * size
        yield at, size, section.unpack_from(data, at), names
