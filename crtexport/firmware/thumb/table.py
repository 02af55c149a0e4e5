"""Writes the cycles of a program's instructions as a table, which QEMU's plugin reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtexport.firmware.thumb.decode import decoded
from crtexport.firmware.thumb.instruction import Decoded
from crtexport.firmware.thumb.pipelined import Pipelined
from crtexport.firmware.thumb.timing import Bound, Core, cycles, refill
from crtexport.kir.assembly.armv7em.issue import rules_of


def write_table(elf: Path, core: Core, path: Path) -> None:
    """Writes a line for each instruction of the program ``elf``, by ascending addresses.

    A line has the instruction's address in hexadecimal and, for each of the bounds, its cycles
    after the preceding instruction, then those if a branch leads to it, then the additional cycles
    if it branches."""
    found = sorted(_instructions(elf), key=lambda pair: pair[0])
    lines = []
    for (address, one), numbers in zip(found, _cycles(found, core), strict=True):
        more = [refill(core, bound) if one.may_branch else 0 for bound in Bound]
        lines.append(f"{address:x} {' '.join(map(str, (*numbers, *more)))}\n")
    path.write_text("".join(lines), encoding="ascii")


def _cycles(found: Sequence[tuple[int, Decoded]], core: Core) -> Iterator[list[int]]:
    """Yields for each instruction its cycles after the preceding one in each bound, and those if a
    branch leads to it."""
    before: Decoded | None = None
    end = -1
    rules = rules_of(core.value)
    running: list[Pipelined] = []
    for address, one in found:
        if address != end:
            before = None
            running = [] if rules is None else [Pipelined(rules, bound) for bound in Bound]
        if rules is not None:
            alone = [Pipelined(rules, bound) for bound in Bound]
            yield [each.cycles(one) for each in (*running, *alone)]
        else:
            yield [cycles(one, after, core, bound) for after in (before, None) for bound in Bound]
        before, end = one, address + one.size


def _instructions(elf: Path) -> Iterator[tuple[int, Decoded]]:
    with elf.open("rb") as stream:
        file = ELFFile(stream)
        for number, section in enumerate(file.iter_sections()):
            flags = section["sh_flags"]
            if flags & SH_FLAGS.SHF_EXECINSTR and section["sh_type"] != "SHT_NOBITS":
                begin, data = section["sh_addr"], section.data()
                for start, stop in _code(file, number, begin, begin + len(data)):
                    yield from decoded(data[start - begin : stop - begin], start)


def _code(file: ELFFile, section: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields (begin, end) of each range of code. Between them is data, which begins at a symbol
    ``$d`` and ends at ``$t``."""
    marks = sorted({
        (symbol["st_value"], symbol.name[:2]) for table in file.iter_sections()
        if isinstance(table, SymbolTableSection) for symbol in table.iter_symbols()
        if symbol["st_shndx"] == section and symbol.name[:2] in ("$t", "$d")
    })
    places = [(begin, "$t"), *marks, (end, "$d")]
    for (start, kind), (stop, _) in itertools.pairwise(places):
        if kind == "$t" and stop > start:
            yield start, stop
