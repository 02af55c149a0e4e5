"""The object that holds the constants of a package's models: one symbol and one section for each.

Both backends can leave the constants to it. LLVM's code refers to the constants or, if these may be
any distance away, to pointers to them (slots). C sources find them through a table of their
addresses, since the options of their compiler aren't known. No constant is in memory as a whole
while the object is written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from crtexport.artifact.byte_sources import Streamed
from crtexport.artifact.model import Artifact, Constant
from crtexport.backends.elf.abi import NEAR, ElfTarget, elf_abi
from crtexport.backends.elf.writer import (
    MAX_SECTIONS,
    SHF_ALLOC,
    SHF_WRITE,
    Data,
    Section,
    relocatable,
)
from crtexport.backends.modules import Module
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

LargeData = Literal["auto", "always", "never"]

LARGE_THRESHOLD = 1 << 30
"""Bytes of constants above which they are placed in ``.lrodata``."""


class ConstantPlacement(Struct, frozen=True):
    """``large``: constants are in ``.lrodata``, which linkers may put any distance from code.
    ``table``: there is a table of their addresses. ``slots``: the symbol of each constant is a
    pointer near the code; the constant itself has the symbol :func:`stored_symbol`."""

    large: bool = False
    table: bool = False
    slots: bool = False


_NEAR = ConstantPlacement()


def constants_module(artifact: Artifact) -> Module:
    """Returns the object of the constants as a module with the role ``constants``."""
    return Module(f"{artifact.module}_constants", "constants")


def table_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the table with the addresses of :attr:`Artifact.reached_constants`, in
    their order."""
    return f"{artifact.prefix}_constant_table"


def stored_symbol(symbol: str) -> str:
    """Returns the symbol of a constant whose own symbol is that of its slot."""
    return f"{symbol}.stored"


def all_constants(artifacts: Sequence[Artifact]) -> tuple[Constant, ...]:
    """Returns the constants that the calls of any of these models read, each once."""
    found = {c.symbol: c for artifact in artifacts for c in artifact.reached_constants}
    return tuple(found.values())


def _programs(artifacts: Sequence[Artifact]) -> tuple[Constant, ...]:
    """Returns the constants that hold device programs. Only tables refer to them, by their own
    addresses, however far away they are."""
    return tuple(c for artifact in artifacts for c in artifact.image_constants)


def is_large(
    artifact: Artifact, target: Target, mode: LargeData, threshold: int | None = None,
    other_models: Sequence[Artifact] = (),
) -> bool:
    """Returns whether the constants are placed in ``.lrodata``, which only x86-64 has: always with
    mode "always"; with "auto" if they have more than ``threshold`` bytes together (default:
    :data:`LARGE_THRESHOLD`). ``other_models`` are the further models of the package.

    Raises CrtExportError for "always" on other processors, and if the constants are too large for
    the code of another 64-bit processor to reach.
    """
    models = (artifact, *other_models)
    held = (*all_constants(models), *_programs(models))
    size = sum(constant.data.nbytes for constant in held)
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
    artifact: Artifact, target: Target, placement: ConstantPlacement = _NEAR,
    other_models: Sequence[Artifact] = (),
) -> Streamed | None:
    """Returns the object with the constants that the calls of the model, and of ``other_models``,
    the further models of the package, read; None if they read none.

    Raises CrtExportError for a processor whose ELF objects aren't known, and for a constant with
    another number of bytes than its elements have.
    """
    models = (artifact, *other_models)
    constants, images = all_constants(models), _programs(models)
    if not constants and not images:
        return None
    abi = elf_abi(target)
    name, flags = (
        (".lrodata", SHF_ALLOC | abi.large) if placement.large else (".rodata", SHF_ALLOC)
    )
    data = [_data(c, abi, placement) for c in sorted(constants, key=lambda c: c.symbol)]
    data += [_data(image, abi, _NEAR) for image in images]
    sections = [Section(f"{name}.{d.symbol}", flags, (d,)) for d in data]
    if len(sections) * (3 if placement.slots else 1) >= MAX_SECTIONS:
        sections = [Section(f"{name}.{artifact.prefix}", flags, tuple(data))]
    if placement.table:
        sections += [
            _pointers(table_symbol(model), [_name(c, placement) for c in read], abi, target)
            for model in models if (read := model.reached_constants)
        ]
    if placement.slots:
        sections += [_pointers(c.symbol, [_name(c, placement)], abi, target) for c in constants]
    return relocatable(abi, sections)


def stored_chunks(constant: Constant, little_endian: bool) -> Iterator[bytes]:
    """Yields the bytes of a constant in a target's byte order, in pieces."""
    for piece in constant.data.chunks():
        if little_endian or constant.dtype.itemsize == 1:
            yield piece
        else:
            yield np.frombuffer(piece, f"<u{constant.dtype.itemsize}").byteswap().tobytes()


def _name(constant: Constant, placement: ConstantPlacement) -> str:
    return stored_symbol(constant.symbol) if placement.slots else constant.symbol


def _data(constant: Constant, abi: ElfTarget, placement: ConstantPlacement) -> Data:
    size = constant.count * constant.dtype.itemsize
    if constant.data.nbytes != size:
        raise CrtExportError(
            f"a constant of {constant.count} elements has {constant.data.nbytes} bytes",
            location=constant.symbol,
        )
    align = max(constant.align, constant.dtype.itemsize)
    chunks = functools.partial(stored_chunks, constant, abi.little_endian)
    return Data(_name(constant, placement), size, align, chunks)


def _pointers(symbol: str, names: Sequence[str], abi: ElfTarget, target: Target) -> Section:
    """Returns a section with the addresses of constants, near the code; if a loader has to relocate
    them, it is writable until then (``.data.rel.ro``)."""
    word, moved = abi.bits // 8, target.reloc == "pic"
    return Section(
        f"{'.data.rel.ro' if moved else '.rodata'}.{symbol}",
        SHF_ALLOC | (SHF_WRITE if moved else 0),
        (Data(symbol, word * len(names), word, lambda: iter(())),),
        tuple(names),
    )
