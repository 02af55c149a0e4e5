"""Rules for a board's ``cpu``: names must exist in LLVM, and keys must not contradict each other.

``llvm_names.json`` has LLVM's lists for each family of processors, and the architecture of each of
Arm's; a test compares it with LLVM itself.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec

from crtexport.firmware.architectures import M_PROFILE, rules_of
from crtexport.firmware.board_schema import Board, Cpu
from crtexport.firmware.cflag_rules import check_flags
from crtexport.support.schema import ContradictionError, nearest
from crtexport.support.target import X86_32

NAMES = Path(__file__).with_name("llvm_names.json")

_OTHER_SYSTEMS = re.compile(r"linux|windows|darwin|macos|ios|android|freebsd|wasi|uefi")

_MAINLINE = ("v7em", "v8m.main", "v8.1m.main")
_NEEDS_MVE_ARCHITECTURE = re.compile(r"mve.*|lob|pacbti|fullfp16")
_NEEDS_MAINLINE = re.compile(r"dsp|vfp.*|fp.*|d32")
_NOT_OF_M = re.compile(r"neon.*|crypto|aes|sha2|crc|dotprod|i8mm|bf16|mp|virtualization|hwdiv-arm")
_SAID_BY_TRIPLE = re.compile(
    r"armv.*|v\d.*|[amr]class|thumb-mode|32bit|64bit|(16|32|64)bit-mode|soft-float"
)
_PARTS = {
    "mve.fp": ("mve", "dsp", "fullfp16"), "mve": ("dsp",), "d": ("f",), "zve32f": ("f", "zve32x"),
    "v": ("f", "d"), "sse2": ("sse",), "sse3": ("sse2", "sse"), "ssse3": ("sse3", "sse2", "sse"),
    "avx": ("sse4.2", "sse4.1", "sse2", "sse"), "avx2": ("avx", "sse4.2", "sse2", "sse"),
    "avxvnni": ("avx2", "avx", "sse2", "sse"), "fma": ("avx", "sse2", "sse"),
}
"""Features, and the features that they consist of."""


class CpuFamily(msgspec.Struct, frozen=True):
    """LLVM's lists for a family: ``processors`` with the architecture of each, and ``features``."""

    processors: dict[str, str]
    features: tuple[str, ...]


@functools.cache
def families() -> dict[str, CpuFamily]:
    """Returns LLVM's families that boards can belong to, by name."""
    return msgspec.json.decode(NAMES.read_bytes(), type=dict[str, CpuFamily])


def family_of(arch: str) -> str:
    """Returns the family of LLVM's lists for ``arch``, the first part of a triple."""
    if arch.startswith(("thumb", "arm")):
        return "arm"
    return "i386" if arch in X86_32 else arch


def check_cpu(board: Board) -> None:
    """Raises ContradictionError for a processor that doesn't exist: unknown names, or keys that
    contradict each other."""
    cpu = board.cpu
    if board.c_only:
        _check_unknown(cpu)
        return
    arch = _check_triple(board)
    if cpu.stack_align < 4:
        raise ContradictionError(
            ("cpu", "stack_align"), f"callers align the stack of {arch} to 4 bytes or more"
        )
    if family_of(arch) == "arm":
        _check_arm(cpu, arch)
    elif cpu.float_abi:
        raise ContradictionError(
            ("cpu", "float_abi"), "this key is for Arm's processors", "leave it out"
        )
    if arch.startswith("riscv"):
        _check_riscv(cpu)
    elif cpu.abi:
        raise ContradictionError(("cpu", "abi"), "this key is for RISC-V", "leave it out")
    _check_name(cpu, arch)
    _check_features(cpu, arch)
    check_flags(board, arch)


def _check_unknown(cpu: Cpu) -> None:
    """Checks processors that LLVM doesn't have."""
    for key in ("triple", "features", "float_abi", "abi"):
        if getattr(cpu, key):
            raise ContradictionError(
                ("cpu", key), "this key is LLVM's, which has no code for other processors",
                "leave it out",
            )


def _check_triple(board: Board) -> str:
    """Returns the triple's first part, if the triple is of the architecture and agrees with width
    and order."""
    cpu, key = board.cpu, ("cpu", "triple")
    if not cpu.triple:
        raise ContradictionError(key, "this key is missing")
    arch, *rest = cpu.triple.split("-")
    triples = rules_of(board.architecture).triples
    if (family_of(arch) not in families()) if triples is None else (arch not in triples):
        raise ContradictionError(
            key, f"{arch!r} is no processor of the architecture {board.architecture}",
            nearest(arch, families() if triples is None else triples),
        )
    if not 2 <= len(rest) <= 3:
        raise ContradictionError(key, "a triple has three or four parts, with - between them")
    system = "-".join(rest)
    if board.hosted and "linux" not in rest:
        raise ContradictionError(key, "programs of the architecture host are for Linux",
                            f"write {arch}-unknown-linux-gnu")
    if not board.hosted and (found := _OTHER_SYSTEMS.search(system)):
        raise ContradictionError(key, f"bare-metal code is not for {found[0]}")
    bits = 64 if arch in ("x86_64", "aarch64", "riscv64") else 32
    if cpu.pointer_bits != bits:
        raise ContradictionError(
            ("cpu", "pointer_bits"), f"{arch} has pointers of {bits} bits, not {cpu.pointer_bits}"
        )
    endian = "big" if arch.startswith("thumbeb") else "little"
    if cpu.endian != endian:
        raise ContradictionError(
            ("cpu", "endian"), f"the triple's {arch} is {endian}-endian, not {cpu.endian}"
        )
    return arch


def _check_arm(cpu: Cpu, arch: str) -> None:
    version = re.sub("^thumb(eb)?", "", arch)
    environment = cpu.triple.split("-")[-1]
    if environment not in ("eabi", "eabihf"):
        raise ContradictionError(
            ("cpu", "triple"), f"there is no ABI {environment!r}",
            nearest(environment, ("eabi", "eabihf")),
        )
    if environment == "eabihf" and len(cpu.triple.split("-")) != 4:
        raise ContradictionError(
            ("cpu", "triple"), "LLVM reads eabihf only in the fourth place",
            f"write {arch}-none-none-eabihf",
        )
    told = "hard" if environment == "eabihf" else "soft"
    if cpu.float_abi not in ("", told):
        raise ContradictionError(
            ("cpu", "float_abi"),
            f"the float ABI is {cpu.float_abi}, that of the triple's {environment} is {told}",
            f"write {arch}-none-none-eabi{'hf' if cpu.float_abi == 'hard' else ''} or {told}",
        )
    if told == "hard" and (version not in _MAINLINE or "-fpregs" in cpu.features):
        raise ContradictionError(
            ("cpu", "float_abi"),
            "a processor without floating point passes no floats in its registers",
            "write soft, and a triple that ends in eabi",
        )


def _check_riscv(cpu: Cpu) -> None:
    if not cpu.abi:
        return
    wide = cpu.abi.startswith("lp64")
    if wide != (cpu.pointer_bits == 64):
        raise ContradictionError(
            ("cpu", "abi"), f"{cpu.abi} is not for pointers of {cpu.pointer_bits} bits"
        )
    needed = cpu.abi.removeprefix("lp64" if wide else "ilp32")
    has = {"f", *cpu.features} if "+d" in cpu.features else set(cpu.features)
    if needed and cpu.name.startswith("generic") and not {needed, f"+{needed}"} & has:
        raise ContradictionError(
            ("cpu", "abi"), f"{cpu.abi} needs a processor with +{needed} among its features"
        )


def _check_name(cpu: Cpu, arch: str) -> None:
    known = families()[family_of(arch)].processors
    version = M_PROFILE.get(re.sub("^thumb(eb)?", "", arch))
    fitting = [name for name, own in known.items() if version in (None, own)]
    if cpu.name not in known:
        raise ContradictionError(
            ("cpu", "name"), f"LLVM has no processor {cpu.name!r}", nearest(cpu.name, fitting)
        )
    if version is not None and cpu.name not in ("generic", *fitting):
        raise ContradictionError(
            ("cpu", "name"), f"{cpu.name} is no {version}, which the triple says ({arch})",
            nearest(cpu.name, fitting),
        )


def _check_features(cpu: Cpu, arch: str) -> None:
    key, known = ("cpu", "features"), families()[family_of(arch)].features
    on = {feature[1:] for feature in cpu.features if feature[0] == "+"}
    off = {feature[1:] for feature in cpu.features if feature[0] == "-"}
    for feature in cpu.features:
        name = feature[1:]
        if name not in known:
            raise ContradictionError(
                key, f"LLVM has no feature {name!r} of {arch}", nearest(name, known)
            )
        if _SAID_BY_TRIPLE.fullmatch(name) and not (feature[0] == "-" and name == "soft-float"):
            raise ContradictionError(key, f"{feature} is what the triple says", "leave it out")
        if name in on & off:
            raise ContradictionError(key, f"there are both +{name} and -{name}")
    for whole in sorted(on):
        for part in _PARTS.get(whole, ()):
            if part in off:
                raise ContradictionError(key, f"+{whole} needs {part}, and there is -{part}")
    if arch.startswith("thumb"):
        _check_m_features(cpu, re.sub("^thumb(eb)?", "", arch), sorted(on))


def _check_m_features(cpu: Cpu, version: str, on: list[str]) -> None:
    for name in on:
        lacks = (
            _NOT_OF_M.fullmatch(name)
            or (_NEEDS_MVE_ARCHITECTURE.fullmatch(name) and version != "v8.1m.main")
            or (_NEEDS_MAINLINE.fullmatch(name) and version not in _MAINLINE)
        )
        if lacks:
            raise ContradictionError(
                ("cpu", "features"),
                f"no {M_PROFILE[version]} processor, as {cpu.name} with this triple, has +{name}",
            )
