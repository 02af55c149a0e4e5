"""The bytes of functions in a package's objects."""

from __future__ import annotations

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtexport.artifact.byte_sources import opened
from crtexport.mlf.reader import Package


def function_sizes(package: Package) -> dict[str, int]:
    """Returns the bytes of all functions in a package's objects, by symbol."""
    found: dict[str, int] = {}
    for content in package.objects.values():
        with opened(content) as stream:
            for section in ELFFile(stream).iter_sections():
                if isinstance(section, SymbolTableSection):
                    found |= {
                        symbol.name: int(symbol["st_size"]) for symbol in section.iter_symbols()
                        if symbol["st_info"]["type"] == "STT_FUNC"
                    }
    return found
