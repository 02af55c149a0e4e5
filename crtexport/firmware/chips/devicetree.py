"""Chips in devicetrees of Zephyr: preprocessed sources, and the zephyr.dts of a build."""

from __future__ import annotations

import re
from pathlib import Path

from crtexport.firmware.board_schema import Memory
from crtexport.firmware.chips.chip import Chip, arm_family, plain_name, riscv_family
from crtexport.firmware.zephyr.devicetree import Region, read_processor, read_regions

_ROLES = {
    "zephyr,flash": "flash", "zephyr,sram": "ram", "zephyr,dtcm": "dtcm", "zephyr,itcm": "itcm",
}
_ARM = re.compile(r"arm,cortex-(m\d+\+?p?)(f?)")


def read_tree(path: Path) -> Chip:
    """Returns the chip of a devicetree: its first processor, the memories that ``/chosen`` names,
    and those with a linker's region. Raises CrtExportError and ToolMissingError as
    :func:`read_regions`."""
    memories: dict[str, Memory] = {}
    regions = read_regions(path)
    for region in sorted(regions, key=lambda one: _role(one) == ""):
        memory = Memory(region.origin, region.size)
        if region.size and memory not in memories.values():
            memories[plain_name(_role(region) or region.name, memories)] = memory
    model, compatible, isa = read_processor(path)
    return Chip(model, compatible or isa, _family(compatible, isa), memories)


def _role(region: Region) -> str:
    return next((_ROLES[role] for role in region.chosen if role in _ROLES), "")


def _family(compatible: str, isa: str) -> str:
    found = _ARM.fullmatch(compatible)
    if found is None:
        return riscv_family(isa)
    # Devicetrees don't say whether an M7 has double precision: the single-precision family fits
    # both. All M33s with floating point that are sold have DSP instructions.
    fpu = "single" if found[2] or found[1] == "m7" else "none"
    return arm_family(found[1], fpu=fpu, dsp=fpu != "none")
