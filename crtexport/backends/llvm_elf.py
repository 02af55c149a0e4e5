"""Switches sections of an ELF object off, where LLVM has no option not to write them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crtexport.errors import CrtExportError

_FILE_HEADER = {1: ("HHIIIIIHHHHHH", 16), 2: ("HHIQQQIHHHHHH", 16)}
_SECTION_HEADER = {1: "IIIIIIIIII", 2: "IIQQQQIIQQ"}


def deactivate_sections(data: bytes, prefixes: Sequence[str]) -> bytes:
    """``data`` with the headers of all sections whose names begin so turned into ``SHT_NULL``.

    That is how ELF spells an inactive section; linkers ignore it, and no number changes.
    """
    if data[:4] != b"\x7fELF" or data[4] not in _FILE_HEADER or data[5] not in (1, 2):
        raise CrtExportError("LLVM made something that is not an ELF object")
    order = "<" if data[5] == 1 else ">"
    layout, start = _FILE_HEADER[data[4]]
    fields = struct.unpack_from(order + layout, data, start)
    table, size, count, names_index = fields[5], fields[10], fields[11], fields[12]
    section = struct.Struct(order + _SECTION_HEADER[data[4]])
    names = section.unpack_from(data, table + names_index * size)[4]
    result = bytearray(data)
    for index in range(1, count):
        at = table + index * size
        name_start = names + section.unpack_from(data, at)[0]
        name = data[name_start : data.index(b"\0", name_start)].decode("ascii", "replace")
        if name.startswith(tuple(prefixes)):
            result[at : at + size] = bytes(size)
    return bytes(result)
