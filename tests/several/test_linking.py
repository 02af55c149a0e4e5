"""Two packages in one firmware: linkers refuse two registries, and take one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

import crtexport
from crtexport.mlf.reader import open_package
from tests.helpers import require
from tests.several.networks import OTHERS, WEIGHTS, network

BACKENDS = ("c", "llvm")
LINKERS = ("bfd", "lld")
CPU = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")

_BY_HEADERS = """
#include "tvmgen_first.h"
#include "tvmgen_second.h"
#include <tvm/runtime/crt/module.h>
const TVMModule *TVMSystemLibEntryPoint(void);
int8_t in[24], out[32];
int start(void);
int start(void)
{
    struct tvmgen_first_inputs i = {in};
    struct tvmgen_first_outputs o = {out};
    struct tvmgen_second_inputs j = {in};
    struct tvmgen_second_outputs p = {out};
    @EXTRA@
    return tvmgen_first_run(&i, &o) + tvmgen_second_run(&j, &p);
}
"""
_WITH_REGISTRY = "if (TVMSystemLibEntryPoint() == 0) return 1;"


def objects(folder: Path, name: str, emit: str, **options: bool) -> list[Path]:
    """The objects of a package of one model for a Cortex-M4, whatever it was exported as."""
    weights = WEIGHTS if name == "first" else OTHERS
    path = crtexport.export(
        network(folder, name, weights), board="mps2_an386", emit=emit,  # type: ignore[arg-type]
        output=folder / f"{name}.tar", **options,  # type: ignore[arg-type]
    ).path
    package, root = open_package(path), folder / "packages" / name
    package.extract(root)
    made = [root / "codegen/host/lib" / file for file in package.objects]
    for file in package.sources:
        made.append(folder / f"{file}.o")
        compiled(root / "codegen/host/src" / file, made[-1], [root])
    return made


def compiled(source: Path, result: Path, packages: Iterable[Path]) -> None:
    subprocess.run(
        [
            require("arm-none-eabi-gcc"), *CPU, "-std=c99", "-pedantic", "-Wall", "-Wextra",
            "-Werror", "-O1", "-ffunction-sections", "-fdata-sections", "-ffreestanding",
            *(
                f"-I{root / part}"
                for root in packages for part in ("codegen/host/include", "runtime/include")
            ),
            "-c", str(source), "-o", str(result),
        ],
        check=True,
    )


def library(path: Path, members: list[Path]) -> Path:
    subprocess.run([require("arm-none-eabi-ar"), "rcs", str(path), *map(str, members)], check=True)
    return path


def link(folder: Path, linker: str, application: str, code: list[Path]) -> tuple[int, str, Path]:
    """Exit code, words and program of a linker."""
    packages = [*(folder / "packages").iterdir()]
    (folder / "main.c").write_text(application)
    compiled(folder / "main.c", folder / "main.o", packages)
    (folder / "mem.c").write_text(
        "#include <stddef.h>\nvoid *memcpy(void *a, const void *b, size_t n);\n"
        "void *memcpy(void *a, const void *b, size_t n)\n"
        "{ char *c = a; const char *d = b; while (n--) { *c++ = *d++; } return a; }\n"
        "void *memset(void *a, int b, size_t n);\nvoid *memset(void *a, int b, size_t n)\n"
        "{ char *c = a; while (n--) { *c++ = (char)b; } return a; }\n"
    )
    compiled(folder / "mem.c", folder / "mem.o", packages)
    libgcc = subprocess.run(
        [require("arm-none-eabi-gcc"), *CPU, "-print-libgcc-file-name"], check=True,
        capture_output=True, text=True,
    ).stdout.strip()
    program = require("arm-none-eabi-ld.bfd" if linker == "bfd" else "ld.lld")
    done = subprocess.run(
        [
            program, "-e", "start", "--gc-sections", str(folder / "main.o"),
            str(folder / "mem.o"), *map(str, code), libgcc, "-o", str(folder / "program"),
        ],
        capture_output=True, text=True, check=False,
    )
    return done.returncode, done.stderr, folder / "program"


def symbols(program: Path) -> str:
    return subprocess.run(
        [require("arm-none-eabi-nm"), str(program)], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("emit", BACKENDS)
def test_two_registries_do_not_link(emit: str, linker: str, tmp_path: Path) -> None:
    """Neither as objects nor in libraries, where a second definition usually goes unnoticed."""
    first, second = (objects(tmp_path, name, emit) for name in ("first", "second"))
    libraries = [library(tmp_path / "first.a", first), library(tmp_path / "second.a", second)]
    one_library = [library(tmp_path / "both.a", [*first, *second])]
    plain = _BY_HEADERS.replace("@EXTRA@", "")
    by_name = _BY_HEADERS.replace("@EXTRA@", _WITH_REGISTRY)
    for code, application in (
        ([*first, *second], plain), (libraries, plain), (libraries, by_name), (one_library, plain),
    ):
        status, words, _ = link(tmp_path, linker, application, code)
        assert status != 0
        assert "TVMSystemLibEntryPoint" in words
        assert "multiple definition" in words or "duplicate symbol" in words


@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("emit", BACKENDS)
def test_one_registry_links_and_is_dropped_where_it_is_unused(
    emit: str, linker: str, tmp_path: Path
) -> None:
    first = objects(tmp_path, "first", emit)
    second = objects(tmp_path, "second", emit, system_lib=False)
    libraries = [library(tmp_path / "first.a", first), library(tmp_path / "second.a", second)]
    status, words, program = link(
        tmp_path, linker, _BY_HEADERS.replace("@EXTRA@", ""), libraries
    )
    assert (status, words) == (0, "")
    found = symbols(program)
    assert "tvmgen_second_run" in found
    assert "tvmgen_first_run_packed" not in found
    assert "TVMSystemLibEntryPoint" not in found
    status, _, program = link(
        tmp_path, linker, _BY_HEADERS.replace("@EXTRA@", _WITH_REGISTRY), libraries
    )
    assert status == 0
    found = symbols(program)
    assert "tvmgen_first_run_packed" in found
    # Looking up takes no memory that can change, and nothing before the first call.
    table = [line for line in found.splitlines() if "registry" in line or "system_lib" in line]
    assert all(line.split()[1] in "rRtT" for line in table)
    assert ".init_array" not in found
