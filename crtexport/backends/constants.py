"""The object that holds a model's constants: one symbol and one section for each.

Both backends can leave the constants to it. Code made by LLVM names the constants; C sources, whose
compiler's options nobody knows here, find them through a table of their addresses, so that they may
be any distance away. No constant is in memory as a whole while the object is written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crtexport.artifact.blobs import Streamed
from crtexport.artifact.model import Artifact, Constant
from crtexport.backends.elf_abi import NEAR, ElfAbi, elf_abi
from crtexport.backends.elf_writer import (
    MAX_SECTIONS,
    SHF_ALLOC,
    SHF_WRITE,
    Data,
    Section,
    relocatable,
)
from crtexport.backends.modules import Module
from crtexport.errors import CrtExportError
from crtexport.target import Target

LargeData = Literal["auto", "always", "never"]

LARGE_THRESHOLD = 1 << 30
"""Bytes of constants above which they go where the distance from code doesn't count."""


@dataclass(frozen=True)
class Placement:
    """``large``: in ``.lrodata``, which linkers may put any distance from code. ``table``: with the
    table of addresses."""

    large: bool = False
    table: bool = False


_NEAR = Placement()


def constants_module(artifact: Artifact) -> Module:
    """What the object is called, and that it is one of constants."""
    return Module(f"{artifact.module}_constants", "constants")


def table_symbol(artifact: Artifact) -> str:
    """The table of the addresses of :attr:`Artifact.reached_constants`, in their order."""
    return f"{artifact.prefix}_constant_table"


def is_large(
    artifact: Artifact, target: Target, mode: LargeData, threshold: int | None = None
) -> bool:
    """Whether the constants go to ``.lrodata``: on x86-64, by ``mode``; with "auto" when they
    have more than ``threshold`` bytes together (default: :data:`LARGE_THRESHOLD`).

    Raises CrtExportError where that is asked for and the processor has no such section, and where
    a 64-bit processor without it couldn't reach them.
    """
    size = sum(constant.data.nbytes for constant in artifact.reached_constants)
    large = target.triple.startswith("x86_64-")
    if large:
        limit = LARGE_THRESHOLD if threshold is None else threshold
        return mode == "always" or (mode == "auto" and size > limit)
    if mode == "always":
        raise CrtExportError(
            "there is no section for large data on this processor, only on x86-64",
            location=target.triple, hint="leave out --large-data always",
        )
    if target.pointer_bits == 64 and size > NEAR:
        raise CrtExportError(
            f"{size:,} bytes of constants are {size - NEAR:,} more than code can reach",
            location=target.triple, hint="x86-64 has sections for data of any size",
        )
    return False


def constants_object(
    artifact: Artifact, target: Target, placement: Placement = _NEAR
) -> Streamed | None:
    """The object with the constants that the model's calls read; None where there are none.

    Raises CrtExportError for a processor whose objects aren't known, and for constants whose bytes
    aren't as many as they say.
    """
    constants = artifact.reached_constants
    if not constants:
        return None
    abi = elf_abi(target)
    name, flags = (
        (".lrodata", SHF_ALLOC | abi.large) if placement.large else (".rodata", SHF_ALLOC)
    )
    data = [_data(c, abi) for c in sorted(constants, key=lambda c: c.symbol)]
    sections = [Section(f"{name}.{d.symbol}", flags, (d,)) for d in data]
    if len(sections) >= MAX_SECTIONS:
        sections = [Section(f"{name}.{artifact.prefix}", flags, tuple(data))]
    if placement.table:
        sections.append(_table(artifact, constants, abi, target))
    return relocatable(abi, sections)


def stored_chunks(constant: Constant, little_endian: bool) -> Iterator[bytes]:
    """The bytes of a constant in a target's memory, in pieces."""
    for piece in constant.data.chunks():
        if little_endian or constant.dtype.itemsize == 1:
            yield piece
        else:
            yield np.frombuffer(piece, f"<u{constant.dtype.itemsize}").byteswap().tobytes()


def _data(constant: Constant, abi: ElfAbi) -> Data:
    size = constant.count * constant.dtype.itemsize
    if constant.data.nbytes != size:
        raise CrtExportError(
            f"a constant of {constant.count} elements has {constant.data.nbytes} bytes",
            location=constant.symbol,
        )
    align = max(constant.align, constant.dtype.itemsize)
    chunks = functools.partial(stored_chunks, constant, abi.little_endian)
    return Data(constant.symbol, size, align, chunks)


def _table(
    artifact: Artifact, constants: Sequence[Constant], abi: ElfAbi, target: Target
) -> Section:
    """Near code whatever the size of the constants; the loader may have to relocate it."""
    symbol, word = table_symbol(artifact), abi.bits // 8
    moved = target.reloc == "pic"
    return Section(
        f"{'.data.rel.ro' if moved else '.rodata'}.{symbol}",
        SHF_ALLOC | (SHF_WRITE if moved else 0),
        (Data(symbol, word * len(constants), word, lambda: iter(())),),
        tuple(constant.symbol for constant in constants),
    )
