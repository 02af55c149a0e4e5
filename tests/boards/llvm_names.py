"""Asks LLVM which processors and features it has: ``python llvm_names.py TRIPLE`` prints help, and
as JSON the architectures of those processors that are of the triple's width."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

TRIPLES = {
    "arm": "thumb-none-none-eabi", "aarch64": "aarch64-none-elf", "riscv32": "riscv32-none-elf",
    "riscv64": "riscv64-none-elf", "i386": "i686-none-elf", "x86_64": "x86_64-none-elf",
}
"""Of each family that boards can be of."""

FUNCTION = 'target triple="{}"\ndefine i32 @f(i32 %x) nounwind {{ ret i32 %x }}'


def asked(family: str, *, each: bool = True) -> dict[str, Any]:
    """Returns what LLVM has of a family, asked in a process of its own; without ``each``,
    processors are only listed."""
    done = subprocess.run(
        [sys.executable, __file__, TRIPLES[family], *(["each"] if each else [])],
        capture_output=True, text=True, check=True,
    )
    processors, features = done.stderr.split("Available features")
    own = json.loads(done.stdout) if each else dict.fromkeys(_names(processors), "")
    return {"processors": own, "features": _names(features)}


def _names(text: str) -> list[str]:
    return re.findall(r"^  (\S+)\s+- ", text, re.MULTILINE)


def _architecture(triple: str, name: str) -> str:
    """Returns what an object for a processor says that it is for; empty where LLVM has none such.
    """
    reading, writing = os.pipe()
    if not (child := os.fork()):  # LLVM ends the process where width and processor don't agree
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        import llvmlite.binding as llvm

        from crtexport.firmware.elf_abi import read_abi

        machine = llvm.Target.from_triple(triple).create_target_machine(cpu=name)
        made = machine.emit_object(llvm.parse_assembly(FUNCTION.format(triple)))
        os.write(writing, read_abi(made, name).architecture.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


def main(triple: str, each: str = "") -> None:
    """Prints LLVM's help to stderr, and with ``each`` the architectures to stdout."""
    import llvmlite.binding as llvm

    import crtexport.firmware.elf_abi  # noqa: F401  (once, not in each child)

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    read, write = os.pipe()
    kept = os.dup(2)
    with open(write, "w", closefd=True) as stream:  # noqa: PTH123
        os.dup2(stream.fileno(), 2)
        llvm.Target.from_triple(triple).create_target_machine(features="+help")
        os.dup2(kept, 2)
    with os.fdopen(read) as stream:
        text = stream.read()
    sys.stderr.write(text)
    names = _names(text.split("Available features")[0]) if each else []
    found = {name: _architecture(triple, name) for name in names}
    json.dump({name: own for name, own in found.items() if own}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
