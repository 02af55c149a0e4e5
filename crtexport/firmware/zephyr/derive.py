"""Derives boards from builds of Zephyr, so that code fits any configuration.

There is no table of boards or processors. The instructions that code may use, and how floats are
passed, are read from an object that the build's compiler makes; memories are those of Kconfig and
the devicetree.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from crtexport.firmware.board import load_board
from crtexport.firmware.board_schema import Board
from crtexport.firmware.cpu_rules import families
from crtexport.firmware.zephyr.build import CCompiler, ZephyrBuild, model_flags
from crtexport.firmware.zephyr.devicetree import WORKSPACE, Region
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.single import replacing

Data = dict[str, Any]

_RUNNER = {"kind": "none", "reason": "Zephyr's build of the application runs it"}
_KIB = 1024
# The board file doesn't contain a stack size: the application decides which thread runs a model,
# and the file would change, and cause new exports, though code doesn't depend on it.
_STACK = 256

_ARM_TRIPLES = {
    "ARMv6-M": "thumbv6m", "ARMv7-M": "thumbv7m", "ARMv7E-M": "thumbv7em",
    "ARMv8-M Baseline": "thumbv8m.base", "ARMv8-M Mainline": "thumbv8m.main",
    "ARMv8.1-M Mainline": "thumbv8.1m.main",
}
# LLVM's name of a processor of each architecture, for builds that name none.
_ARM_PROCESSORS = {
    "ARMv6-M": "cortex-m0", "ARMv7-M": "cortex-m3", "ARMv7E-M": "cortex-m4",
    "ARMv8-M Baseline": "cortex-m23", "ARMv8-M Mainline": "cortex-m33",
    "ARMv8.1-M Mainline": "cortex-m55",
}
# Extensions that LLVM has under the names of the RISC-V manuals. Others, such as those of CSR
# instructions, aren't features of LLVM.
_RISCV_LLVM = ("m", "a", "f", "d", "c", "v", "zba", "zbb", "zbc", "zbs")
_X86_FEATURES = {
    "__MMX__": "mmx", "__SSE__": "sse", "__SSE2__": "sse2", "__SSE3__": "sse3",
    "__SSSE3__": "ssse3", "__SSE4_1__": "sse4.1", "__SSE4_2__": "sse4.2", "__AVX__": "avx",
    "__AVX2__": "avx2",
}


def derive_board(build: ZephyrBuild) -> Data:
    """Returns the keys of a board file for ``build``: processor, ABI and memories as they are
    configured.

    Raises CrtExportError for a processor that no backend generates code for.
    """
    compiler = build.compiler
    posix = build.on("ARCH_POSIX")
    family, cpu = _cpu(compiler, posix=posix)
    zephyr = build.board
    data: Data = {
        "name": re.sub(r"[^a-z0-9_]+", "_", f"zephyr_{zephyr.lower()}"),
        "description": f"Zephyr's board {zephyr}, as this application configures it",
        "extends": family,
        "cpu": cpu,
    }
    if not posix:
        data |= {
            **_memories(build),
            "stack_size": _STACK,
            "counter": {"kind": "none"},
        }
    data |= {
        "runner": dict(_RUNNER),
        "zephyr": {"board": zephyr},
    }
    return data


def board_text(data: Data, origin: str) -> str:
    """Returns the text of the board file; its first line names ``origin``, from which it was
    derived."""
    return f"# Derived from {origin}; changed by the next build.\n" + yaml.safe_dump(
        data, sort_keys=False, width=99
    )


def write_board(data: Data, path: Path, origin: str) -> Board:
    """Writes the board file, unless it exists unchanged, and reads it back.

    A file that would not change keeps its time, so that build systems don't rebuild for it.
    """
    text = board_text(data, origin)
    try:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as stream:
                stream.write(text.encode())
    except OSError as error:
        raise CrtExportError(f"the board file can't be written: {error.strerror}",
                             location=str(path)) from error
    return load_board(path.resolve())


def _cpu(compiler: CCompiler, *, posix: bool) -> tuple[str, Data]:
    """Returns the name of the family to extend (for toolchain and console), and the keys of
    ``cpu``."""
    machine = compiler.abi.machine
    make = {"Arm": _arm, "RISC-V": _riscv, "i386": _x86, "x86-64": _x86}.get(machine)
    if make is None or (posix and machine not in ("i386", "x86-64")):
        raise CrtExportError(
            f"no code is generated for {machine}{' computers' if posix else ''}",
            location=(compiler.command[0], " ".join(compiler.flags)),
            hint="there are Arm Cortex-M, RISC-V and x86",
        )
    family, cpu = make(compiler)
    cpu |= {
        "pointer_bits": compiler.abi.bits,
        "endian": "little" if compiler.abi.little_endian else "big",
        "reloc": "pic" if "__PIC__" in compiler.macros else "static",
        "cflags": list(model_flags(compiler.flags)),
    }
    if posix:
        return "host", cpu | {"triple": cpu["triple"].replace("none-elf", "unknown-linux-gnu")}
    return family, cpu


def _arm(compiler: CCompiler) -> tuple[str, Data]:
    abi = compiler.abi
    if abi.architecture not in _ARM_TRIPLES or not abi.little_endian:
        order = "" if abi.little_endian else ", big-endian"
        raise CrtExportError(
            f"no code is generated for {abi.architecture}{order}",
            location=(compiler.command[0], " ".join(compiler.flags)),
            hint="of Arm's processors there are little-endian Cortex-M",
        )
    uses = abi.instructions
    features = ["+dsp"] if "DSP" in uses else []
    if abi.architecture.startswith("ARMv8") and "DSP" not in uses:
        features.append("-dsp")
    if "FPU" in uses:
        # The other version of single precision must not stay on from the processor's own.
        kind = "fp-armv8d16" if "FPv5" in uses else "vfp4d16"
        features += [f"+{kind}"] if "FP64" in uses else [f"+{kind}sp", "-fp64", "-d32"]
        if abi.architecture.startswith("ARMv8.1"):
            features.append("+fullfp16")
    elif abi.architecture not in ("ARMv6-M", "ARMv7-M", "ARMv8-M Baseline"):
        features.append("-fpregs")
    if abi.architecture.startswith("ARMv8.1"):
        features += ["+lob"]
        if "MVE" in uses:
            features.append("+mve.fp" if "MVE.fp" in uses else "+mve")
        elif "FPU" in uses:
            features.append("-mve")
    return "cortex_m", {
        "triple": f"{_ARM_TRIPLES[abi.architecture]}-none-none-eabi"
                  f"{'hf' if abi.float_abi == 'hard' else ''}",
        "name": _known(_named(compiler, "-mcpu=")) or _ARM_PROCESSORS[abi.architecture],
        "features": features,
        "float_abi": abi.float_abi,
        "abi": "",
        "stack_align": 8,
    }


def _riscv(compiler: CCompiler) -> tuple[str, Data]:
    abi = compiler.abi
    suffix = {"soft": "", "single": "f", "double": "d"}.get(abi.float_abi, "?")
    base = "ilp32" if abi.bits == 32 else "lp64"
    if suffix == "?" or abi.architecture.endswith("E"):
        raise CrtExportError(
            f"no code is generated for {abi.architecture} with floats passed as {abi.float_abi}",
            location=(compiler.command[0], " ".join(compiler.flags)),
        )
    return "riscv32imac", {
        "triple": f"riscv{abi.bits}-none-elf",
        "name": f"generic-rv{abi.bits}",
        "features": [f"+{name}" for name in _RISCV_LLVM if name in abi.instructions],
        "float_abi": "",
        "abi": base + suffix,
        "stack_align": 16,
    }


def _x86(compiler: CCompiler) -> tuple[str, Data]:
    macros = compiler.macros
    wide = compiler.abi.bits == 64
    features = [
        f"{'+' if macro in macros else '-'}{name}" for macro, name in _X86_FEATURES.items()
        if macro in macros or name in ("mmx", "sse", "sse2")
    ]
    if "_SOFT_FLOAT" in macros:
        features.append("-x87")
    boundary = _named(compiler, "-mpreferred-stack-boundary=")
    align = 1 << int(boundary) if boundary and boundary.isdigit() else 16
    old = next((f"i{n}86" for n in (6, 5, 4) if f"__i{n}86__" in macros), "i386")
    return "i386_freestanding", {
        "triple": "x86_64-none-elf" if wide else "i686-none-elf",
        "name": "x86-64" if wide else old,
        "features": features,
        "float_abi": "",
        "abi": "",
        "stack_align": min(max(align, 4), 16),
    }


def _known(name: str | None) -> str | None:
    """Returns LLVM's name of a processor, without GCC's suffixes for variants, as in
    ``cortex-m0.small-multiply``."""
    plain = (name or "").split(".")[0]
    return plain if plain in families()["arm"].processors else None


def _named(compiler: CCompiler, prefix: str) -> str | None:
    """Returns the value of the last flag that starts with ``prefix``, without ``+extensions``."""
    values = [flag.removeprefix(prefix) for flag in compiler.flags if flag.startswith(prefix)]
    return values[-1].split("+")[0] if values else None


def _memories(build: ZephyrBuild) -> Data:
    """Returns the memories: the part of flash that belongs to this image, RAM, and further memories
    of the devicetree."""
    ram = build.number("SRAM_SIZE") * _KIB
    if not ram:
        raise CrtExportError("the configuration has no size of RAM",
                             location=("zephyr/.config", "CONFIG_SRAM_SIZE"))
    memory: Data = {
        "ram": {"origin": f"0x{build.number('SRAM_BASE_ADDRESS'):08x}", "size": ram},
    }
    placement: Data = {}
    if build.on("XIP"):
        offset, size = build.number("FLASH_LOAD_OFFSET"), build.number("FLASH_LOAD_SIZE")
        size = size or build.number("FLASH_SIZE") * _KIB - offset
        origin = build.number("FLASH_BASE_ADDRESS") + offset
        memory = {"flash": {"origin": f"0x{origin:08x}", "size": size}, **memory}
    else:
        placement = dict.fromkeys(("vectors", "code", "constants"), "ram")
    for region in build.regions:
        name = _free_name(region, memory)
        if name is not None:
            memory[name] = {"origin": f"0x{region.origin:08x}", "size": region.size}
            if WORKSPACE in region.chosen:
                placement["workspace"] = name
    return {"memory": memory, **({"placement": placement} if placement else {})}


def _free_name(region: Region, memory: Data) -> str | None:
    """Returns a key for ``region``; None if it is (part of) one of the memories in ``memory``."""
    if not region.size:
        return None
    for known in memory.values():
        start, size = int(known["origin"], 16), known["size"]
        if start < region.origin + region.size and region.origin < start + size:
            return None
    name = re.sub(r"[^a-z0-9_]+", "_", region.name.lower()).strip("_") or "memory"
    name = name if name[0].isalpha() else f"memory_{name}"
    while name in memory:
        name += "_"
    return name
