"""The bytes of functions in a package's objects."""

from __future__ import annotations

from typing import BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtexport.artifact.byte_sources import opened
from crtexport.artifact.symbols import with_loops
from crtexport.mlf.reader import Package
from crtexport.support.errors import CrtExportError


def function_sizes(package: Package) -> dict[str, int]:
    """Returns the bytes of all functions in a package's objects, by symbol; loops that are
    functions of their own count to their kernel. Raises CrtExportError for a damaged object."""
    found: dict[str, int] = {}
    for name, content in package.objects.items():
        try:
            with opened(content) as stream:
                found |= _functions(stream)
        except (ELFError, ValueError, LookupError, ArithmeticError, AssertionError) as error:
            raise CrtExportError(
                f"this is no ELF object ({error})", location=(str(package.path), name)
            ) from error
    return with_loops(found)


def _functions(stream: BinaryIO) -> dict[str, int]:
    return {
        symbol.name: int(symbol["st_size"])
        for section in ELFFile(stream).iter_sections() if isinstance(section, SymbolTableSection)
        for symbol in section.iter_symbols() if symbol["st_info"]["type"] == "STT_FUNC"
    }
