"""Reads the processor and ABI of an ELF object from its header and attributes. Linkers compare
fewer of these properties."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import ARMAttributesSection, RISCVAttributesSection
from msgspec import Struct

from crtexport.artifact.byte_sources import Blob, opened
from crtexport.support.errors import CrtExportError

_MACHINES = {
    "EM_ARM": "Arm", "EM_AARCH64": "AArch64", "EM_RISCV": "RISC-V", "EM_386": "i386",
    "EM_X86_64": "x86-64", "EM_XTENSA": "Xtensa",
}
# Addenda to the ABI for the Arm architecture: Tag_CPU_arch.
_ARM_ARCHITECTURES = {
    1: "ARMv4", 2: "ARMv4T", 3: "ARMv5T", 4: "ARMv5TE", 5: "ARMv5TEJ", 6: "ARMv6", 7: "ARMv6KZ",
    8: "ARMv6T2", 9: "ARMv6K", 10: "ARMv7", 11: "ARMv6-M", 12: "ARMv6-M", 13: "ARMv7E-M",
    14: "ARMv8-A", 15: "ARMv8-R", 16: "ARMv8-M Baseline", 17: "ARMv8-M Mainline",
    21: "ARMv8.1-M Mainline", 22: "ARMv9-A",
}
_RISCV_WHOLE = {
    "zmmul": "m", "zaamo": "a", "zalrsc": "a", "zca": "c", "zcf": "c", "zcd": "c",
}
_RISCV_FLOAT_ABI = 0x6
_RISCV_EMBEDDED = 0x8


class ElfAbi(Struct, frozen=True):
    """The processor and ABI of an object.

    ``architecture`` is the base instruction set: ``ARMv7E-M``, ``RV32I``, ``i386``; empty for Arm
    objects with data only, which fit all of them. ``instructions`` are the names of extensions that
    the code may use. ``float_abi`` is how floats are passed: ``soft`` (integer registers),
    ``hard``, ``single`` or ``double`` (registers of that width); empty if the machine has only one
    way.
    """

    machine: str
    bits: int
    little_endian: bool
    architecture: str
    float_abi: str = ""
    instructions: frozenset[str] = frozenset()


def read_abi(content: Blob, name: str) -> ElfAbi:
    """Returns the facts of the object ``content``; ``name`` is for errors.

    Raises CrtExportError when it is no ELF file.
    """
    try:
        with opened(content) as stream:
            return _read(stream)
    except OSError as error:
        raise CrtExportError(
            f"the object can't be read: {error.strerror}", location=name
        ) from error
    except ELFError as error:
        raise CrtExportError(f"this is no ELF object ({error})", location=name) from error


def _read(stream: BinaryIO) -> ElfAbi:
    elf = ELFFile(stream)
    kind = str(elf["e_machine"])
    machine = _MACHINES.get(kind, kind.removeprefix("EM_"))
    bits, little = int(elf.elfclass), bool(elf.little_endian)
    attributes = _attributes(elf)
    if kind == "EM_ARM" and not _has_code(elf):
        return ElfAbi(machine, bits, little, "")
    if kind == "EM_ARM":
        return _arm(machine, bits, little, attributes)
    if kind == "EM_RISCV":
        return _riscv(machine, bits, little, int(elf["e_flags"]), attributes)
    return ElfAbi(machine, bits, little, machine)


def _has_code(elf: ELFFile) -> bool:
    return any(
        section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR and section["sh_size"]
        for section in elf.iter_sections()
    )


def _attributes(elf: ELFFile) -> dict[str, object]:
    found: dict[str, object] = {}
    for section in elf.iter_sections():
        if isinstance(section, (ARMAttributesSection, RISCVAttributesSection)):
            for vendor in section.iter_subsections():
                for part in vendor.iter_subsubsections():
                    found |= {str(a.tag): a.value for a in part.iter_attributes()}
    return found


def _arm(machine: str, bits: int, little: bool, attributes: dict[str, object]) -> ElfAbi:
    def number(tag: str) -> int:
        value = attributes.get(tag, 0)
        return value if isinstance(value, int) else 0

    arch = number("TAG_CPU_ARCH")
    name = _ARM_ARCHITECTURES.get(arch, f"Tag_CPU_arch {arch}")
    if name == "ARMv7" and number("TAG_CPU_ARCH_PROFILE") == ord("M"):
        name = "ARMv7-M"
    uses: set[str] = set()
    if name == "ARMv7E-M" or number("TAG_DSP_EXTENSION"):
        uses.add("DSP")
    if number("TAG_FP_ARCH"):
        uses.add("FPU")
        if number("TAG_FP_ARCH") in (7, 8):
            uses.add("FPv5")
        if number("TAG_ABI_HARDFP_USE") != 1:
            uses.add("FP64")
    if number("TAG_MVE_ARCH"):
        uses.add("MVE")
    if number("TAG_MVE_ARCH") == 2:
        uses.add("MVE.fp")
    hard = number("TAG_ABI_VFP_ARGS") == 1
    return ElfAbi(machine, bits, little, name, "hard" if hard else "soft", frozenset(uses))


def _riscv(
    machine: str, bits: int, little: bool, flags: int, attributes: dict[str, object]
) -> ElfAbi:
    text = str(attributes.get("TAG_ARCH", ""))
    floats = {0: "soft", 2: "single", 4: "double", 6: "quad"}[flags & _RISCV_FLOAT_ABI]
    base = f"RV{bits}{'E' if flags & _RISCV_EMBEDDED else 'I'}"
    return ElfAbi(machine, bits, little, base, floats, frozenset(_riscv_extensions(text)))


def _riscv_extensions(text: str) -> Iterable[str]:
    """Returns the extensions of an architecture string, without versions and base: ``m``, ``a``,
    ``zicsr`` … of ``rv32i2p0_m2p0_a2p0_zicsr2p0``. Parts of other extensions, which newer compilers
    list as well, are left out.
    """
    parts = re.sub(r"^rv\d+", "", text).split("_")
    names = {re.sub(r"\d+(p\d+)?$", "", part) for part in parts} - {"", "i", "e"}
    return (name for name in names if _RISCV_WHOLE.get(name) not in names)
