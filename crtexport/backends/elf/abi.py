"""The fields of ELF headers, by processor, that linkers compare between objects."""

from __future__ import annotations

from msgspec import Struct

from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

_EM_386, _EM_ARM, EM_X86_64, _EM_AARCH64, _EM_RISCV = 3, 40, 62, 183, 243
_ARM_EABI5 = 0x05000000
_RISCV_COMPRESSED = 1
_RISCV_FLOATS = {"f": 2, "d": 4, "q": 6, "e": 8}
"""Flags by the last letter of the ABI's name: floats in registers, or the small register file."""

NEAR = 1 << 31
"""Bytes that 64-bit code reaches with its usual addressing."""


class ElfTarget(Struct, frozen=True):
    """The properties of a processor's ELF objects.

    ``address`` is the type of the relocation for the address of a symbol. ``rela``: relocations
    contain their addend; else it is in the place that they change. ``stack_note``: objects have the
    section that says that they need no executable stack. Those of Arm's bare-metal GCC never have
    it, and its linker warns if only some objects do. ``large`` is the flag of sections that may be
    any distance from code, 0 if the processor has none."""

    machine: int
    bits: int
    address: int
    rela: bool = True
    flags: int = 0
    stack_note: bool = True
    large: int = 0
    little_endian: bool = True


def elf_abi(target: Target) -> ElfTarget:
    """Returns the headers of objects for ``target``. Raises CrtExportError for an unknown
    processor."""
    arch = target.triple.split("-")[0]
    order = target.little_endian
    if arch == "x86_64":
        return ElfTarget(EM_X86_64, 64, address=1, large=0x10000000)
    if target.is_i386:
        return ElfTarget(_EM_386, 32, address=1, rela=False)
    if arch.startswith("aarch64"):
        return ElfTarget(_EM_AARCH64, 64, address=257, little_endian=order)
    if arch.startswith(("arm", "thumb")):
        return ElfTarget(
            _EM_ARM, 32, address=2, rela=False, flags=_ARM_EABI5, little_endian=order,
            stack_note="linux" in target.triple,
        )
    if arch in ("riscv32", "riscv64"):
        compressed = _RISCV_COMPRESSED if "+c" in target.features else 0
        flags = compressed | _RISCV_FLOATS.get(target.abi[-1:], 0)
        wide = arch == "riscv64"
        return ElfTarget(_EM_RISCV, 64 if wide else 32, address=2 if wide else 1, flags=flags)
    if not arch:
        raise CrtExportError(
            "constants that are too many for C text go into an object, and there are none for this "
            "processor", location=target.cpu, hint="choose a smaller network",
        )
    raise CrtExportError(
        f"objects with constants can't be written for {arch}", location=target.triple,
        hint="export C sources: --emit c",
    )
