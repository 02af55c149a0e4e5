"""Reads a linked program: the bytes of its sections by memory, and its symbols."""

from __future__ import annotations

from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from msgspec import Struct

from crtexport.firmware.board_schema import Board
from crtexport.support.errors import CrtExportError, RunFailedError
from crtexport.support.short import line, sizes

TEST_INPUTS = ".test_inputs"
"""Section with the inputs that the firmware was built with; no part of the model."""

STACK = ".stack"


class Symbol(Struct, frozen=True):
    name: str
    address: int
    size: int


class Sections(Struct, frozen=True):
    """Bytes by section, in the order of the file.

    ``flash`` holds code, constants and initial values of ``.data``; ``ram`` variable data.
    """

    flash: dict[str, int]
    ram: dict[str, int]
    symbols: tuple[Symbol, ...]

    def __repr__(self) -> str:
        return line("Sections", sizes({"flash": self.flash_size, "RAM": self.ram_size}))

    @property
    def flash_size(self) -> int:
        """Returns the bytes in flash but for the test inputs."""
        return sum(size for name, size in self.flash.items() if name != TEST_INPUTS)

    @property
    def ram_size(self) -> int:
        """Returns the bytes in RAM, the stack with its reserved size."""
        return sum(self.ram.values())

    def address(self, name: str) -> int:
        """Returns the address of a symbol. Raises RunFailedError if the program lacks it."""
        for symbol in self.symbols:
            if symbol.name == name:
                return symbol.address
        raise RunFailedError(f"the program has no symbol {name}")

    def describe(self, address: int) -> str:
        """``0x00000124 (tvmgen_default_run+0x12)``"""
        text = f"0x{address:08x}"
        below = [s for s in self.symbols if s.address <= address < s.address + max(s.size, 1)]
        if not below:
            return text
        best = max(below, key=lambda symbol: (symbol.address, symbol.name))
        return f"{text} ({best.name}+0x{address - best.address:x})"


def read_sections(elf: Path, board: Board) -> Sections:
    """Returns sections and symbols of the linked program ``elf``, and the stack that the board
    reserves.

    Raises CrtExportError for other files.
    """
    found = read_program(elf)
    if not board.hosted:
        found.ram.setdefault(STACK, board.stack_size)
    return found


def read_program(elf: Path) -> Sections:
    """Returns sections and symbols of the linked program ``elf``. Raises CrtExportError for other
    files."""
    try:
        with elf.open("rb") as stream:
            file = ELFFile(stream)
            flash: dict[str, int] = {}
            ram: dict[str, int] = {}
            symbols: list[Symbol] = []
            thumb = file["e_machine"] == "EM_ARM"
            for section in file.iter_sections():
                if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_size"]:
                    _add(section, flash, ram)
                if isinstance(section, SymbolTableSection):
                    symbols += _symbols(section, thumb)
    except (OSError, ELFError) as error:
        raise CrtExportError(f"the program can't be read: {error}", location=str(elf)) from error
    return Sections(flash, ram, tuple(sorted(set(symbols), key=lambda s: (s.address, s.name))))


def _add(section: object, flash: dict[str, int], ram: dict[str, int]) -> None:
    name, size = section.name, int(section["sh_size"])  # type: ignore[attr-defined, index]
    writable = bool(section["sh_flags"] & SH_FLAGS.SHF_WRITE)  # type: ignore[index]
    loaded = section["sh_type"] != "SHT_NOBITS"  # type: ignore[index]
    if writable:
        ram[name] = ram.get(name, 0) + size
    if loaded:
        flash[name] = flash.get(name, 0) + size


def _symbols(section: SymbolTableSection, thumb: bool) -> list[Symbol]:
    found = []
    for symbol in section.iter_symbols():
        kind = symbol["st_info"]["type"]
        if symbol.name and symbol["st_shndx"] != "SHN_UNDEF" and kind in ("STT_FUNC", "STT_OBJECT"):
            address = int(symbol["st_value"])
            if thumb and kind == "STT_FUNC":
                address &= ~1
            found.append(Symbol(symbol.name, address, int(symbol["st_size"])))
    return found
