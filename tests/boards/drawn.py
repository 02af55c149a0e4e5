"""Boards drawn at random that can be, and what makes each of them one that can't."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from crtexport.firmware.board_rules import ETHOS_U
from crtexport.firmware.cpu_rules import families

Json = dict[str, Any]
Spoil = tuple[tuple[str, ...], Callable[[Json], None]]
"""The key that an error tells, and what makes the contradiction."""

_FPUS = {"+vfp4d16sp": "fpv4-sp-d16", "+fp-armv8d16sp": "fpv5-sp-d16", "+fp-armv8d16": "fpv5-d16"}
_M = {
    "thumbv6m": ("ARMv6-M", "armv6s-m"), "thumbv7m": ("ARMv7-M", "armv7-m"),
    "thumbv7em": ("ARMv7E-M", "armv7e-m"), "thumbv8m.base": ("ARMv8-M Baseline", "armv8-m.base"),
    "thumbv8m.main": ("ARMv8-M Mainline", "armv8-m.main"),
    "thumbv8.1m.main": ("ARMv8.1-M Mainline", "armv8.1-m.main"),
}
_LARGER = ("thumbv7em", "thumbv8m.main", "thumbv8.1m.main")


@st.composite
def boards(draw: st.DrawFn) -> Json:
    """A board's keys."""
    architecture = draw(st.sampled_from(["cortex_m", "riscv", "i386", "host", "other"]))
    cpu = draw({"cortex_m": _arm, "riscv": _riscv, "i386": _i386, "host": _host,
                "other": _other}[architecture]())
    board: Json = {
        "name": "drawn", "description": "drawn", "architecture": architecture, "cpu": cpu,
        "stack_size": cpu["stack_align"] * draw(st.integers(64, 512)),
        "toolchain": {"kind": draw(st.sampled_from(["gcc", "clang"])), "compiler": ["cc"],
                      "package": "gcc"},
        "runner": {"kind": "none", "reason": "drawn"},
        "console": {"cortex_m": {"kind": "semihosting"}, "riscv": {"kind": "semihosting"},
                    "i386": {"kind": "uart16550", "address": "0x3f8"}, "host": {"kind": "stdio"},
                    "other": {"kind": "none"}}[architecture],
        "counter": draw(st.sampled_from([{"kind": "none"}, *{
            "cortex_m": [{"kind": "systick", "hz": 10**8}], "riscv": [{"kind": "minstret"}],
            "i386": [{"kind": "tsc"}],
        }.get(architecture, [])])),
    }
    if architecture == "host":
        return board
    names = draw(st.lists(st.sampled_from(["dtcm", "itcm", "sram", "psram"]), unique=True))
    at = 4 * draw(st.integers(0, 1 << 20))
    board["memory"] = {}
    for name in ["flash", *names, "ram"]:
        size = draw(st.integers(1 << 20, 1 << 24))
        board["memory"][name] = {"origin": at, "size": size}
        at += -(-size // 4) * 4 + 4 * draw(st.integers(0, 1 << 16))
    board["placement"] = {
        "workspace": draw(st.sampled_from(["ram", *names])), "code": draw(st.sampled_from(
            ["flash", *names])),
    }
    if architecture == "cortex_m" and draw(st.booleans()):
        board["npu"] = {"accelerator": draw(st.sampled_from(ETHOS_U))}
    return board


@st.composite
def _arm(draw: st.DrawFn) -> Json:
    arch = draw(st.sampled_from(sorted(_M)))
    own, march = _M[arch]
    names = [name for name, of in families()["arm"].processors.items() if of == own]
    name = draw(st.sampled_from([*names, "generic"]))
    fpu = draw(st.sampled_from([None, *_FPUS])) if arch in _LARGER else None
    features = [fpu] if fpu else []
    if arch in _LARGER and draw(st.booleans()):
        features.append("+dsp")
    if arch == "thumbv8.1m.main":
        features += draw(st.sampled_from([[], ["+lob"], ["+dsp", "+mve"], ["+dsp", "+mve.fp"]]))
    hard = fpu is not None and draw(st.booleans())
    processor = f"-march={march}" if name == "generic" else f"-mcpu={name}"
    flags = [processor, "-mthumb", f"-mfloat-abi={'hard' if hard else 'soft'}"]
    return {
        "triple": f"{arch}-none-none-eabi{'hf' if hard else ''}", "name": name,
        "features": list(dict.fromkeys(features)), "float_abi": "hard" if hard else "soft",
        "cflags": [*flags, *([f"-mfpu={_FPUS[fpu]}"] if fpu else [])], "pointer_bits": 32,
        "endian": "little", "stack_align": 8,
    }


@st.composite
def _riscv(draw: st.DrawFn) -> Json:
    bits = draw(st.sampled_from([32, 64]))
    letters = draw(st.sampled_from(["", "m", "mc", "ma", "mac", "maf", "mafc", "mafd", "mafdc"]))
    floats = draw(st.sampled_from([s for s in ("", "f", "d") if s in letters]))
    base = "ilp32" if bits == 32 else "lp64"
    return {
        "triple": f"riscv{bits}-none-elf", "name": f"generic-rv{bits}",
        "features": [f"+{letter}" for letter in letters], "abi": f"{base}{floats}",
        "cflags": [f"-march=rv{bits}i{letters}", f"-mabi={base}{floats}"], "pointer_bits": bits,
        "endian": "little", "stack_align": 16,
    }


@st.composite
def _i386(draw: st.DrawFn) -> Json:
    name = draw(st.sampled_from(sorted(families()["i386"].processors)))
    features = draw(st.sampled_from([[], ["-sse", "-sse2"], ["+sse", "+sse2"], ["+avx2"]]))
    return {"triple": "i686-none-elf", "name": name, "features": features, "cflags": ["-m32"],
            "pointer_bits": 32, "endian": "little", "stack_align": draw(st.sampled_from([4, 16]))}


@st.composite
def _host(draw: st.DrawFn) -> Json:
    arch = draw(st.sampled_from(["x86_64", "aarch64"]))
    name = draw(st.sampled_from(sorted(families()[arch].processors)))
    return {"triple": f"{arch}-unknown-linux-gnu", "name": name, "features": [],
            "cflags": ["-m64"] if arch == "x86_64" else [], "pointer_bits": 64,
            "endian": "little", "stack_align": 16, "reloc": "pic"}


@st.composite
def _other(draw: st.DrawFn) -> Json:
    return {"name": draw(st.sampled_from(["esp32", "lx106", "hc32"])), "cflags": ["-mlongcalls"],
            "pointer_bits": 32, "endian": draw(st.sampled_from(["little", "big"])),
            "stack_align": draw(st.sampled_from([4, 8, 16]))}


def _set(*path: str, to: object) -> Callable[[Json], None]:
    def spoil(board: Json) -> None:
        for key in path[:-1]:
            board = board.setdefault(key, {})
        board[path[-1]] = to

    return spoil


def _add(*path: str, word: str) -> Callable[[Json], None]:
    def spoil(board: Json) -> None:
        _set(*path, to=[*board[path[0]].get(path[1], []), word])(board)

    return spoil


def spoiled(board: Json, how: Callable[[Json], None]) -> Json:
    """A copy of the board with a contradiction."""
    made = copy.deepcopy(board)
    how(made)
    return made


def contradictions(board: Json) -> list[Spoil]:
    """Each a single one."""
    architecture, cpu = board["architecture"], board["cpu"]
    found: list[Spoil] = [
        (("stack_size",), _set("stack_size", to=3)),
        (("stack_size",), _set("stack_size", to=board["stack_size"] + 1)),
        (("stack_size",), _set("stack_size", to=16)),
        (("npu", "accelerator"), _set("npu", "accelerator", to="ethos-u55-129")),
        (("npu", "system_config"), _set(
            "npu", to={"accelerator": "ethos-u55-128", "system_config": "Ethos_U65_Embedded"})),
        (("console", "kind"), _set(
            "console", to={"kind": "semihosting" if architecture == "i386" else "uart16550",
                           **({} if architecture == "i386" else {"address": 1})})),
        (("counter", "kind"), _set(
            "counter", to={"kind": "minstret" if architecture == "i386" else "tsc"})),
        (("runner", "kind"), _set("runner", to={
            "kind": "qemu" if architecture in ("host", "other") else "native",
            **({"command": ["qemu"], "package": "q"} if architecture in ("host", "other") else {}),
        })),
        (("cpu", "pointer_bits"), _set("cpu", "pointer_bits", to=96 - cpu["pointer_bits"]))
        if architecture != "other" else (("backend",), _set("backend", to="llvm")),
    ]
    if architecture == "other":
        return [
            *found, (("cpu", "triple"), _set("cpu", "triple", to="xtensa-none-elf")),
            (("cpu", "features"), _set("cpu", "features", to=["+windowed"])),
            (("llvm_options",), _set("llvm_options", to=["-x"])),
            *((("cpu", key), lambda b, key=key: b["cpu"].pop(key))
              for key in ("pointer_bits", "endian", "stack_align")),
        ]
    found += [
        (("cpu", "endian"), _set("cpu", "endian", to="big")),
        (("cpu", "name"), _set("cpu", "name", to="cortex-m99")),
        (("cpu", "stack_align"), _set("cpu", "stack_align", to=2)),
        (("cpu", "features"), _add("cpu", "features", word="+dps")),
        (("cpu", "cflags"), _add("cpu", "cflags", word="--target=hexagon-none-elf")),
        (("toolchain", "compiler"), _add("toolchain", "compiler", word="--target=hexagon")),
        (("cpu", "triple"), _set("cpu", "triple", to="hexagon-none-elf")),
    ]
    if architecture == "cortex_m":
        found += _of_arm(cpu)
    else:
        found.append((("cpu", "float_abi"), _set("cpu", "float_abi", to="hard")))
    if architecture == "riscv":
        found += [
            (("cpu", "abi"), _set(
                "cpu", "abi", to="lp64" if cpu["pointer_bits"] == 32 else "ilp32")),
            (("cpu", "cflags"), _add("cpu", "cflags", word="-mabi=ilp32e")),
            (("cpu", "cflags"), _add(
                "cpu", "cflags", word=f"-march=rv{96 - cpu['pointer_bits']}i")),
        ]
    else:
        found.append((("cpu", "abi"), _set("cpu", "abi", to="ilp32")))
    if architecture == "i386":
        found.append((("cpu", "cflags"), _add("cpu", "cflags", word="-m64")))
    if architecture != "host":
        ram = board["memory"]["ram"]
        found += [
            (("memory", "ram", "origin"), _set("memory", "ram", "origin", to=ram["origin"] + 1)),
            (("placement", "io"), _set("placement", "io", to="nowhere")),
            (("stack_size",), _set("stack_size", to=ram["size"] // 16 * 16 + 16)),
        ]
    return found


def _of_arm(cpu: Json) -> list[Spoil]:
    arch, hard = cpu["triple"].split("-")[0], cpu["float_abi"] == "hard"
    other = "cortex-m3" if arch != "thumbv7m" else "cortex-m0"
    found: list[Spoil] = [
        (("cpu", "float_abi"), _set("cpu", "float_abi", to="soft" if hard else "hard")),
        (("cpu", "name"), _set("cpu", "name", to=other)),
        (("cpu", "features"), _add("cpu", "features", word="+neon")),
        (("cpu", "cflags"), _add(
            "cpu", "cflags", word=f"-mfloat-abi={'soft' if hard else 'hard'}")),
        (("cpu", "cflags"), _add("cpu", "cflags", word="-march=armv7-a")),
        (("cpu", "cflags"), _add("cpu", "cflags", word="-mbig-endian")),
        (("cpu", "triple"), _set("cpu", "triple", to=f"{arch}-none-eabihf")),
    ]
    if cpu["name"] != "generic":
        found.append((("cpu", "cflags"), _add("cpu", "cflags", word=f"-mcpu={other}")))
    if arch != "thumbv8.1m.main":
        found.append((("cpu", "features"), _add("cpu", "features", word="+mve")))
    if "+dsp" in cpu["features"]:
        found.append((("cpu", "features"), _add("cpu", "features", word="-dsp")))
    return found
