"""Compiles the C sources of a package that was extracted, for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from crtexport.mlf.reader import Package
from tests.helpers import require, target_of

STRICT = (
    "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef",
    "-Wmissing-prototypes", "-Wcast-qual", "-Werror",
)


def includes(folder: Path) -> list[str]:
    return [f"-I{folder / 'codegen/host/include'}", f"-I{folder / 'runtime/include'}"]


def compile_strictly(package: Package, folder: Path, compiler: str) -> None:
    """Every C source of ``package``, extracted to ``folder``, with the flags of the Cortex-M4's
    board where ``compiler`` is Arm's; fails at the first warning."""
    cpu = target_of("mps2_an386").cflags if compiler.startswith("arm") else ()
    for source in package.sources:
        subprocess.run(
            [
                require(compiler), *STRICT, *cpu, "-O1", *includes(folder), "-c",
                str(folder / "codegen/host/src" / source), "-o", str(folder / "out.o"),
            ],
            check=True,
        )
