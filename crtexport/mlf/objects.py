"""The defined and undefined symbols, sections and machine of a relocatable ELF object."""

from __future__ import annotations

from typing import BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from msgspec import Struct

from crtexport.artifact.byte_sources import Blob, opened
from crtexport.support.errors import CrtExportError

_DATA_OF_EVERY_OBJECT = (".text", ".rodata", ".data", ".bss")


class ObjectFacts(Struct, frozen=True):
    """``defined`` and ``undefined`` are sorted global symbols, ``hidden`` those that only other
    objects of the same program see; ``sections`` holds bytes by section.

    Only sections that take up memory on the device count; ``.text``, ``.rodata``, ``.data`` and
    ``.bss`` are always there, and ``.rodata.name`` counts as ``.rodata``.
    """

    machine: str
    bits: int
    defined: tuple[str, ...]
    hidden: tuple[str, ...]
    undefined: tuple[str, ...]
    sections: dict[str, int]


def object_facts(name: str, content: Blob) -> ObjectFacts:
    """Returns the facts of the object ``content``; ``name`` is for errors.

    Raises CrtExportError when it isn't a relocatable ELF object.
    """
    try:
        with opened(content) as stream:
            return _facts(stream, name)
    except ELFError as error:
        raise CrtExportError(f"this is no ELF object ({error})", location=name) from error


def _facts(stream: BinaryIO, name: str) -> ObjectFacts:
    elf = ELFFile(stream)
    if elf.header["e_type"] != "ET_REL":
        raise CrtExportError("this is no relocatable ELF object", location=name)
    defined: set[str] = set()
    hidden: set[str] = set()
    undefined: set[str] = set()
    sections = dict.fromkeys(_DATA_OF_EVERY_OBJECT, 0)
    for section in elf.iter_sections():
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC:
            kind = _kind(section.name)
            sections[kind] = sections.get(kind, 0) + int(section["sh_size"])
        if isinstance(section, SymbolTableSection):
            # Local symbols come first, and there are many.
            for number in range(section["sh_info"], section.num_symbols()):
                symbol = section.get_symbol(number)
                if symbol["st_info"]["bind"] == "STB_LOCAL":
                    continue
                inner = symbol["st_other"]["visibility"] in ("STV_HIDDEN", "STV_INTERNAL")
                place = hidden if inner else defined
                (undefined if symbol["st_shndx"] == "SHN_UNDEF" else place).add(symbol.name)
    return ObjectFacts(
        machine=str(elf.header["e_machine"]),
        bits=int(elf.elfclass),
        defined=tuple(sorted(defined)),
        hidden=tuple(sorted(hidden)),
        undefined=tuple(sorted(undefined)),
        sections=dict(sorted(sections.items())),
    )


def _kind(section: str) -> str:
    for known in (*_DATA_OF_EVERY_OBJECT, ".lrodata", ".lbss", ".ARM.exidx"):
        if section == known or section.startswith(known + "."):
            return known
    return section
