"""A chip as vendors describe it, and the family of boards that its processor belongs to."""

from __future__ import annotations

import re

from msgspec import Struct

from crtexport.firmware.board_schema import Memory

_CORES = {
    "m0": "cortex_m0", "m0+": "cortex_m0plus", "m0plus": "cortex_m0plus", "m1": "cortex_m0",
    "m23": "cortex_m23", "m3": "cortex_m3",
}


class Chip(Struct, frozen=True):
    """A chip: ``processor`` is named as in the description, ``family`` is the family of boards for
    it, "" if there is none. ``memories`` are by name; if the description says which ones programs
    and data are in, these are called ``flash`` and ``ram``."""

    name: str
    processor: str
    family: str
    memories: dict[str, Memory]


def arm_family(core: str, *, fpu: str, dsp: bool) -> str:
    """Returns the family of boards for a Cortex-M: ``core`` as in "m4" or "m0+"; ``fpu`` is "none",
    "single" or "double". A core without FPU or DSP instructions belongs to the family of a smaller
    core, whose code it runs."""
    if core in _CORES:
        return _CORES[core]
    if core == "m4":
        return "cortex_m4f" if fpu != "none" else "cortex_m3"
    if core == "m7":
        return {"none": "cortex_m3", "single": "cortex_m7f_sp", "double": "cortex_m7f_dp"}[fpu]
    if core in ("m33", "m35p"):
        return "cortex_m33f" if fpu != "none" and dsp else "cortex_m33_nodsp"
    if core in ("m55", "m85") and fpu != "none":
        return "cortex_m55"
    return ""


def riscv_family(isa: str) -> str:
    """Returns the family of boards for a RISC-V with the instructions ``isa``, as in
    "rv32imac_zicsr"; "" if it has fewer than every family."""
    base = re.fullmatch(r"rv32([a-z]+).*", isa.lower())
    letters = set(base[1]) if base else set()
    letters |= set("imafd") if "g" in letters else set()
    if {*"imac"} <= letters:
        return "riscv32imac"
    return "riscv32imc" if {*"imc"} <= letters else ""


def plain_name(text: str, existing: dict[str, Memory]) -> str:
    """Returns a key for a memory called ``text`` that isn't among ``existing``."""
    name = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")
    if not re.match(r"[a-z]", name):
        name = f"memory_{name}".rstrip("_")
    number, found = 2, name
    while found in existing:
        found, number = f"{name}_{number}", number + 1
    return found
