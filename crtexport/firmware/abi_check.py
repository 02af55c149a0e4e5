"""Checks that a package's code can be linked into a firmware build, by the ABI of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crtexport.firmware.elf_abi import ElfAbi, read_abi
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

if TYPE_CHECKING:  # exports, which only compare objects here, read no packages
    from crtexport.firmware.board_schema import Board
    from crtexport.mlf.reader import Package

# The architectures whose code each of Arm's M-profile architectures can run.
_ARM_RUNS = {
    "ARMv6-M": ("ARMv6-M",),
    "ARMv7-M": ("ARMv7-M", "ARMv6-M"),
    "ARMv7E-M": ("ARMv7E-M", "ARMv7-M", "ARMv6-M"),
    "ARMv8-M Baseline": ("ARMv8-M Baseline", "ARMv6-M"),
    "ARMv8-M Mainline": (
        "ARMv8-M Mainline", "ARMv8-M Baseline", "ARMv7E-M", "ARMv7-M", "ARMv6-M",
    ),
    "ARMv8.1-M Mainline": (
        "ARMv8.1-M Mainline", "ARMv8-M Mainline", "ARMv8-M Baseline", "ARMv7E-M", "ARMv7-M",
        "ARMv6-M",
    ),
}


def check_linkable(package: Package, board: Board, abi: ElfAbi) -> None:
    """Raises CrtExportError if ``package``'s code can't be linked into a build; the error has both
    values of the first property that differs.

    ``abi`` is read from an object of the firmware's own compiler; ``board`` is derived from the
    same build. The package's objects are compared by the attributes in their ELF files and, for
    properties that these don't have, by its metadata.
    """
    where = str(package.path)
    for name, content in package.objects.items():
        for what, theirs, ours in conflicts(read_abi(content, f"{where} → {name}"), abi):
            raise _refusal(what, theirs, ours, where, name)
    if package.section is not None:
        stated = package.section.abi
        if package.objects and stated.stack_align > board.target.stack_align:
            raise _refusal(
                "stack aligned by callers", f"{stated.stack_align} bytes",
                f"{board.target.stack_align} bytes", where, "metadata.json",
            )
        for what, theirs, ours in _stated_conflicts(stated.features, stated.reloc, board.target):
            if package.objects or what != "position":
                raise _refusal(what, theirs, ours, where, "metadata.json")
        width, order = stated.pointer_bits, "little" if stated.little_endian else "big"
        mine = "little" if board.target.little_endian else "big"
        if width != board.target.pointer_bits:
            raise _refusal("pointers", f"{width} bits", f"{board.target.pointer_bits} bits",
                           where, "metadata.json")
        if order != mine:
            raise _refusal("byte order", order, mine, where, "metadata.json")


def _refusal(property_name: str, theirs: str, ours: str, *where: str) -> CrtExportError:
    return CrtExportError(
        f"the package was made for another {property_name}: {theirs}; this build has {ours}",
        location=where,
        hint=(
            "export the model for this build: name the model instead of the package, or export "
            "for the board that was derived from the build"
        ),
    )


def conflicts(theirs: ElfAbi, ours: ElfAbi) -> Iterator[tuple[str, str, str]]:
    """Yields (property, the package's value, the build's value) for each difference because of
    which code can't be linked or can't run."""
    if theirs.machine != ours.machine:
        yield "processor", theirs.machine, ours.machine
        return
    if theirs.bits != ours.bits:
        yield "word size", f"{theirs.bits} bits", f"{ours.bits} bits"
    if theirs.little_endian != ours.little_endian:
        names = {True: "little", False: "big"}
        yield "byte order", names[theirs.little_endian], names[ours.little_endian]
    if not theirs.architecture:
        return
    if theirs.float_abi != ours.float_abi:
        yield "float ABI", theirs.float_abi, ours.float_abi
    runs = _ARM_RUNS.get(ours.architecture, (ours.architecture,))
    if theirs.architecture not in runs:
        yield "CPU architecture", theirs.architecture, ours.architecture
    missing = sorted(theirs.instructions - ours.instructions)
    if missing:
        yield "CPU", f"{theirs.architecture} with {', '.join(missing)}", _plain(ours, missing)


def _plain(abi: ElfAbi, missing: list[str]) -> str:
    return f"{abi.architecture} without {', '.join(missing)}"


def _stated_conflicts(
    features: tuple[str, ...], reloc: str, target: Target
) -> Iterator[tuple[str, str, str]]:
    """Yields conflicts, as :func:`conflicts`, that only the metadata shows: features that this
    build lacks, and position-independent code."""
    for feature in features:
        if feature[0] == "+" and f"-{feature[1:]}" in target.features:
            yield "CPU", f"{feature[1:]}", f"no {feature[1:]}"
    # On 32-bit x86 position independent code needs a global offset table, which firmware has not.
    if reloc == "pic" != target.reloc and target.pointer_bits == 32:
        yield "position", "position independent code", "code at fixed addresses"
