"""Checks that a board's C compiler flags name the same processor as its LLVM keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crtexport.firmware.board_schema import Board, Cpu
from crtexport.support.schema import ContradictionError

_ARM_ARCHITECTURES = {
    "armv6-m": "v6m", "armv6s-m": "v6m", "armv7-m": "v7m", "armv7e-m": "v7em",
    "armv8-m.base": "v8m.base", "armv8-m.main": "v8m.main", "armv8.1-m.main": "v8.1m.main",
}
_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_FLOAT_ABIS = {"soft": "soft", "softfp": "soft", "hard": "hard"}


def check_flags(board: Board, arch: str) -> None:
    """Raises ContradictionError for flags, or words of the compiler's command, that contradict the
    board's ``cpu``. ``arch`` is the first part of its triple."""
    cpu = board.cpu
    for key, words in (
        (("toolchain", "compiler"), board.toolchain.compiler),
        (("toolchain", "cflags"), board.toolchain.cflags), (("cpu", "cflags"), cpu.cflags),
    ):
        for word in words:
            for said, is_ in _contradictions(word, cpu, arch):
                raise ContradictionError(key, f"{word} says {said}, but cpu has {is_}")
            target = word.removeprefix("--target=")
            if target != word and _machine(target) != _machine(arch):
                raise ContradictionError(
                    key, f"{word} is another processor than cpu has: {cpu.triple}"
                )


def _machine(triple: str) -> str:
    arch = triple.split("-", maxsplit=1)[0]
    for machine, names in {
        "arm": r"arm(?!64).*|thumb.*", "riscv": r"riscv.*", "x86": r"i[3-6]86|x86_64|amd64",
        "aarch64": r"aarch64.*|arm64.*",
    }.items():
        if re.fullmatch(names, arch):
            return machine
    return arch


def _contradictions(flag: str, cpu: Cpu, arch: str) -> Iterator[tuple[str, str]]:
    """Returns (value of a flag, value in ``cpu``) where these differ."""
    name, equals, value = flag.partition("=")
    order = {"-mbig-endian": "big", "-EB": "big", "-mlittle-endian": "little", "-EL": "little"}
    if order.get(flag, cpu.endian) != cpu.endian:
        yield f"{order[flag]}-endian", f"endian: {cpu.endian}"
    if flag in ("-m32", "-m64") and int(flag[2:]) != cpu.pointer_bits:
        yield f"{flag[2:]} bits", f"pointer_bits: {cpu.pointer_bits}"
    machine = _machine(arch)
    if machine == "arm" and equals:
        yield from _of_arm(name, value, cpu, arch)
    elif flag == "-marm":
        yield "Arm instructions", "only Thumb's"
    elif machine == "riscv" and equals:
        yield from _of_riscv(name, value, cpu)
    elif machine == "x86":
        yield from _of_x86(flag, cpu)


def _of_arm(name: str, value: str, cpu: Cpu, arch: str) -> Iterator[tuple[str, str]]:
    base, version = value.lower().split("+")[0], re.sub("^thumb(eb)?", "", arch)
    if name == "-mcpu" and cpu.name not in ("generic", base, re.sub(r"\..*", "", base)):
        yield base, f"name: {cpu.name}"
    if name == "-march" and _ARM_ARCHITECTURES.get(base) != version:
        yield base, f"triple: {cpu.triple}"
    told = cpu.float_abi or ("hard" if cpu.triple.endswith("eabihf") else "soft")
    if name == "-mfloat-abi" and _FLOAT_ABIS.get(value) != told:
        yield f"the float ABI {value}", f"float_abi: {told}"
    single = {"+vfp4d16sp", "+fp-armv8d16sp"} & set(cpu.features)
    double = {"+vfp4d16", "+fp-armv8d16"} & set(cpu.features)
    if name == "-mfpu" and value.startswith("neon"):
        yield "vectors of Arm's larger processors", f"name: {cpu.name}"
    if name == "-mfpu" and value in ("fpv4-sp-d16", "fpv5-sp-d16") and double:
        yield "single precision only", f"features: {min(double)}"
    if name == "-mfpu" and value == "fpv5-d16" and single:
        yield "double precision, too", f"features: {min(single)}"


def _of_riscv(name: str, value: str, cpu: Cpu) -> Iterator[tuple[str, str]]:
    if name == "-mabi" and value != cpu.abi and cpu.abi:
        yield f"the ABI {value}", f"abi: {cpu.abi}"
    found = re.match(r"rv(32|64)([a-y]*)", value)
    if name != "-march" or found is None:
        return
    if int(found[1]) != cpu.pointer_bits:
        yield f"{found[1]} bits", f"pointer_bits: {cpu.pointer_bits}"
    if not cpu.name.startswith("generic"):
        return  # the processor has extensions of its own
    letters = set(found[2].replace("g", "imafd"))
    for letter in "mafdcv":
        has = f"+{letter}" in cpu.features
        if has != (letter in letters):
            yield (f"{letter} is there" if not has else f"no {letter}",
                   f"features: {' '.join(cpu.features)}")
    for feature in cpu.features:
        if re.match(r"\+zv(e|l)", feature) and f"_{feature[1:]}" not in value:
            yield f"no {feature[1:]}", f"features: {feature}"


def _of_x86(flag: str, cpu: Cpu) -> Iterator[tuple[str, str]]:
    level = flag.removeprefix("-march=")
    if level in _LEVELS and cpu.name in _LEVELS and level != cpu.name:
        yield level, f"name: {cpu.name}"
    for feature in cpu.features:
        if flag == (f"-mno-{feature[1:]}" if feature[0] == "+" else f"-m{feature[1:]}"):
            yield f"{'no ' if feature[0] == '+' else ''}{feature[1:]}", f"features: {feature}"
