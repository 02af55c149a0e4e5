"""Writes relocatable ELF objects of data, of any size, without holding the data in memory.

Everything but the data is computed from sizes alone and comes first in the file: headers, symbols,
relocations and the section table. So the size of the object and everything that tools read of it
are known before a byte of data is read. Source: System V ABI, chapters "Object Files" and
"Sections"; the processor supplements for relocations and flags (:mod:`crtexport.backends.elf.abi`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from crtexport.artifact.byte_sources import WINDOW, Streamed
from crtexport.backends.elf.abi import ElfTarget
from crtexport.support.errors import CrtExportError

SHF_WRITE, SHF_ALLOC = 1, 2
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_RELA, _SHT_REL = 1, 2, 3, 4, 9
_SHF_INFO_LINK = 0x40
_ET_REL, _EV_CURRENT = 1, 1
_GLOBAL_OBJECT, _HIDDEN = 1 << 4 | 1, 2
MAX_SECTIONS = 0xFE00
"""The most sections. More need extended section numbers, which not every linker reads."""


class Data(Struct, frozen=True):
    """``size`` bytes that ``chunks`` yields, under a hidden global ``symbol``."""

    symbol: str
    size: int
    align: int
    chunks: Callable[[], Iterator[bytes]]


class Section(Struct, frozen=True):
    """Allocated data, each piece at the next multiple of its alignment.

    ``addresses``, for a section of one piece: symbols whose addresses it holds, one after the
    other, filled in by the linker; such a section's own bytes are zeros and stay in memory.
    """

    name: str
    flags: int
    data: tuple[Data, ...]
    addresses: tuple[str, ...] = ()

    @property
    def align(self) -> int:
        return max((d.align for d in self.data), default=1)

    def offsets(self) -> list[int]:
        """Returns the offset of each piece, and the size of the section."""
        offsets, at = [], 0
        for data in self.data:
            at = _aligned(at, data.align)
            offsets.append(at)
            at += data.size
        return [*offsets, at]


class _Header(Struct):
    """A row of the section table."""

    name: str
    kind: int
    flags: int = 0
    offset: int = 0
    size: int = 0
    link: int = 0
    info: int = 0
    align: int = 1
    entry: int = 0
    content: bytes | None = None
    source: Section | None = None

    def __post_init__(self) -> None:
        if self.content is not None:
            self.size = len(self.content)


class _Strings(Struct):
    data: bytearray = field(default_factory=lambda: bytearray(1))

    def add(self, text: str) -> int:
        offset = len(self.data)
        self.data += text.encode("ascii") + b"\0"
        return offset


def relocatable(abi: ElfTarget, sections: Sequence[Section]) -> Streamed:
    """Returns the object of ``sections``, its symbols sorted by name.

    Raises CrtExportError for more sections than the format can number, and for more bytes than an
    object of 32 bits can hold.
    """
    if len(sections) > MAX_SECTIONS:
        raise CrtExportError(f"{len(sections)} sections are more than an object can hold")
    return _Object(abi, sections).streamed()


class _Object:
    def __init__(self, abi: ElfTarget, sections: Sequence[Section]) -> None:
        self._abi = abi
        self._order = "<" if abi.little_endian else ">"
        self._word = abi.bits // 8
        self._headers = [_Header("", 0, align=0)]
        self._headers += [
            _Header(s.name, _SHT_PROGBITS, s.flags, size=s.offsets()[-1], align=s.align, source=s)
            for s in sections
        ]
        if abi.stack_note:
            self._headers.append(_Header(".note.GNU-stack", _SHT_PROGBITS, content=b""))
        numbers = self._add_symbols()
        for index, header in enumerate(self._headers[1 : len(sections) + 1], 1):
            if header.source is not None and header.source.addresses:
                self._add_relocations(index, header.source, numbers)
        names = _Strings()
        self._names = [names.add(h.name) if h.name else 0 for h in self._headers]
        self._names.append(names.add(".shstrtab"))
        self._headers.append(_Header(".shstrtab", _SHT_STRTAB, content=bytes(names.data)))

    def _add_symbols(self) -> dict[str, int]:
        """Adds symbol and string tables; returns the numbers of the symbols."""
        symbols: list[tuple[str, int, int, int]] = []
        for index, header in enumerate(self._headers):
            if header.source is not None:
                places = zip(header.source.data, header.source.offsets(), strict=False)
                symbols += [(d.symbol, index, offset, d.size) for d, offset in places]
        symbols.sort()
        strings = _Strings()
        table = bytearray(24 if self._word == 8 else 16)
        for name, section, value, size in symbols:
            text = strings.add(name)
            if self._word == 8:
                row = (text, _GLOBAL_OBJECT, _HIDDEN, section, value, size)
                table += struct.pack(self._order + "IBBHQQ", *row)
            else:
                self._check_small(value + size)
                row = (text, value, size, _GLOBAL_OBJECT, _HIDDEN, section)
                table += struct.pack(self._order + "IIIBBH", *row)
        self._symtab = len(self._headers)
        self._headers += [
            _Header(
                ".symtab", _SHT_SYMTAB, link=self._symtab + 1, info=1, align=self._word,
                entry=24 if self._word == 8 else 16, content=bytes(table),
            ),
            _Header(".strtab", _SHT_STRTAB, content=bytes(strings.data)),
        ]
        return {name: number for number, (name, *_) in enumerate(symbols, 1)}

    def _add_relocations(self, target: int, section: Section, numbers: dict[str, int]) -> None:
        """Fills a section's zeros with the addresses of symbols."""
        rows = bytearray()
        shift, letter = (32, "Q") if self._word == 8 else (8, "I")
        for position, symbol in enumerate(section.addresses):
            info = numbers[symbol] << shift | self._abi.address
            rows += struct.pack(f"{self._order}2{letter}", position * self._word, info)
            rows += bytes(self._word) if self._abi.rela else b""
        kind, prefix = (_SHT_RELA, ".rela") if self._abi.rela else (_SHT_REL, ".rel")
        self._headers.append(_Header(
            prefix + section.name, kind, _SHF_INFO_LINK, link=self._symtab, info=target,
            align=self._word, entry=self._word * (3 if self._abi.rela else 2), content=bytes(rows),
        ))
        self._headers[target].content = bytes(self._headers[target].size)

    def streamed(self) -> Streamed:
        """Places everything: first what is in memory, then the data."""
        wide = self._word == 8
        header_size, row_size = (64, 64) if wide else (52, 40)
        table = header_size
        at = table + row_size * len(self._headers)
        for header in self._headers[1:]:
            if header.content is not None:
                header.offset = _aligned(at, header.align)
                at = header.offset + header.size
        head_size = at
        for header in self._headers[1:]:
            if header.content is None:
                header.offset = _aligned(at, header.align)
                at = header.offset + header.size
        if not wide:
            self._check_small(at)
        head = bytearray(head_size)
        head[:header_size] = self._file_header(table)
        layout = self._order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII")
        for index, header in enumerate(self._headers):
            start = table + index * row_size
            head[start : start + row_size] = struct.pack(
                layout, self._names[index], header.kind, header.flags, 0, header.offset,
                header.size, header.link, header.info, header.align, header.entry,
            )
            if header.content is not None:
                head[header.offset : header.offset + header.size] = header.content
        streamed = [h for h in self._headers if h.source is not None and h.content is None]
        return Streamed(bytes(head), at, lambda: _body(streamed, head_size))

    def _file_header(self, table: int) -> bytes:
        abi, count = self._abi, len(self._headers)
        wide = self._word == 8
        ident = bytes((0x7F, *b"ELF", 2 if wide else 1, 1 if abi.little_endian else 2, _EV_CURRENT))
        return ident.ljust(16, b"\0") + struct.pack(
            self._order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"),
            _ET_REL, abi.machine, _EV_CURRENT, 0, 0, table, abi.flags,
            64 if wide else 52, 0, 0, 64 if wide else 40, count, count - 1,
        )

    def _check_small(self, end: int) -> None:
        if end >= 1 << 32:
            raise CrtExportError(
                f"{end} bytes of constants are more than an object of a 32-bit processor can hold"
            )


def _body(headers: Sequence[_Header], at: int) -> Iterator[bytes]:
    """Yields the data of ``headers`` from file position ``at`` on, with zeros in the gaps."""
    for header in headers:
        if header.source is None:
            continue
        places = zip(header.source.data, header.source.offsets(), strict=False)
        for data, offset in places:
            yield from _zeros(header.offset + offset - at)
            at = header.offset + offset
            for piece in data.chunks():
                at += len(piece)
                yield piece
            if at != header.offset + offset + data.size:
                raise CrtExportError(
                    f"a constant of {data.size} bytes has {at - header.offset - offset}",
                    location=data.symbol,
                )


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield bytes(min(count, WINDOW))
        count -= WINDOW


def _aligned(offset: int, align: int) -> int:
    return -(-offset // align) * align if align else offset
