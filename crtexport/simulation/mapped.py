"""Objects of constants only, mapped into this process from their files."""

from __future__ import annotations

import functools
import struct
import sys

import numpy as np
import numpy.typing as npt
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section as ElfSection
from elftools.elf.sections import SymbolTableSection
from msgspec import Struct

from crtexport.artifact.byte_sources import Blob, FileRange, opened
from crtexport.backends.elf.abi import EM_X86_64, ElfTarget
from crtexport.backends.elf.writer import SHF_ALLOC, Data, Section, relocatable

_ALIGN = 64
_SPECIAL = 0xFF00


class Mapped(Struct, frozen=True):
    """``addresses`` of the symbols in this process; ``tables`` of them: the symbols whose addresses
    a table holds, in order. ``memory`` must stay alive as long as they are used."""

    addresses: dict[str, int]
    tables: dict[str, tuple[str, ...]]
    memory: npt.NDArray[np.uint8]


def map_constants(blob: Blob) -> Mapped | None:
    """Returns the constants of an object that has nothing else, None for any other object.

    Nothing is read before it is used; the byte order must be this computer's.
    """
    if not isinstance(blob, FileRange) or blob.offset % _ALIGN:
        return None
    with opened(blob) as stream:
        elf = ELFFile(stream)
        if elf["e_type"] != "ET_REL" or elf.little_endian != (sys.byteorder == "little"):
            return None
        sections = list(elf.iter_sections())
        tables = {s["sh_info"]: s for s in sections if isinstance(s, RelocationSection)}
        if any(_is_more(s, number in tables) for number, s in enumerate(sections)):
            return None
        symtab = next((s for s in sections if isinstance(s, SymbolTableSection)), None)
        if symtab is None:
            return None
        memory = np.memmap(blob.path, np.uint8, "r", blob.offset, (blob.size,))
        addresses: dict[str, int] = {}
        found: dict[str, tuple[str, ...]] = {}
        for symbol in symtab.iter_symbols():
            number = symbol["st_shndx"]
            if not isinstance(number, int) or not 0 < number < _SPECIAL:
                continue
            if number in tables:
                found[symbol.name] = tuple(
                    symtab.get_symbol(entry["r_info_sym"]).name
                    for entry in tables[number].iter_relocations()
                )
            else:
                start = int(sections[number]["sh_offset"]) + int(symbol["st_value"])
                addresses[symbol.name] = memory.ctypes.data + start
    return Mapped(addresses, found, memory)


def pointers_object(mapped: Mapped) -> bytes:
    """Returns an object for this x86-64 computer with the tables of ``mapped``, filled in."""

    def filled(symbols: tuple[str, ...]) -> bytes:
        return struct.pack(f"<{len(symbols)}Q", *(mapped.addresses[name] for name in symbols))

    tables = {name: filled(symbols) for name, symbols in mapped.tables.items()}
    data = [
        Data(name, len(content), 8, functools.partial(iter, (content,)))
        for name, content in tables.items()
    ]
    return relocatable(
        ElfTarget(EM_X86_64, 64, address=1), [Section(".rodata", SHF_ALLOC, tuple(data))]
    ).read()


def _is_more(section: ElfSection, relocated: bool) -> bool:
    """Returns whether a section has content of a program other than constants and tables of their
    addresses."""
    flags = section["sh_flags"]
    if not flags & SH_FLAGS.SHF_ALLOC or not section["sh_size"]:
        return False
    writable = flags & SH_FLAGS.SHF_WRITE and not relocated
    code = flags & SH_FLAGS.SHF_EXECINSTR
    return bool(code or writable or section["sh_type"] != "SHT_PROGBITS")
