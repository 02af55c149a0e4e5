"""Packages of real networks, as a firmware engineer meets them: files, compilers, objects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

import crtexport
from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.mlf.reader import open_package
from tests.exports import exported_network, unpacked_network
from tests.helpers import FLOAT_NETWORKS, INT8_NETWORKS, require, shared_model
from tests.packages import compile_strictly, includes

pytestmark = pytest.mark.models

NETWORKS = INT8_NETWORKS + FLOAT_NETWORKS
BOARDS = ("host", "qemu_x86", "mps2_an386", "mps3_an547", "qemu_riscv32", "mps2_an385")
APPLICATION = Path(__file__).with_name("application.c")
WITHOUT_LLVMLITE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "llvmlite":
            raise ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite")
sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
@pytest.mark.parametrize("name", NETWORKS)
def test_generated_c_compiles_without_a_warning(name: str, compiler: str) -> None:
    compile_strictly(*unpacked_network(name, "mps2_an386", "c"), compiler)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_header_is_cxx(name: str, tmp_path: Path) -> None:
    package, folder = unpacked_network(name, "host", "c", module_name="default")
    (tmp_path / "main.cc").write_text(f'#include "tvmgen_{package.module}.h"\n')
    subprocess.run(
        [
            require("g++"), "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror",
            *includes(folder), "-c", str(tmp_path / "main.cc"), "-o", str(tmp_path / "main.o"),
        ],
        check=True,
    )


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_microtvm_application_runs_it_directly_and_by_name(
    name: str, emit: str, tmp_path: Path
) -> None:
    """With C sources, under the address and undefined-behaviour sanitizers, which see most of what
    isn't optimized. Both backends give the same bits."""
    package, folder = unpacked_network(name, "host", emit, module_name="default")
    (given,), (result,) = package.inputs, package.outputs
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    parts = [folder / "codegen/host/src" / s for s in package.sources]
    parts += [folder / "codegen/host/lib" / o for o in package.objects]
    program = tmp_path / "application"
    subprocess.run(
        [
            require("gcc"), "-std=c99", "-O0", "-Wall", "-Wextra", "-Werror",
            "-ffp-contract=off", *(sanitizers if emit == "c" else []), *includes(folder),
            f"-DINPUT_FIELD={given.field}", f"-DINPUT_SIZE={given.nbytes}",
            f"-DOUTPUT_FIELD={result.field}", f"-DOUTPUT_SIZE={result.nbytes}",
            str(APPLICATION), *map(str, parts), "-o", str(program),
        ],
        check=True,
    )
    rng = np.random.default_rng(0)
    array = (
        rng.integers(-128, 128, given.shape).astype(np.int8) if given.dtype == "int8"
        else rng.standard_normal(given.shape).astype(np.float32)
    )
    done = subprocess.run([str(program)], input=array.tobytes(), capture_output=True, check=True)
    other = exported_network(name, "host", "llvm", module_name="default")
    (row,) = crtexport.simulate(other.path, {given.field: array})
    expected = row[result.field].tobytes()
    assert done.stdout == expected + expected


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("name", ["kws_int8", "kws_fp32"])
def test_objects_hold_nothing_that_must_be_started(name: str, board: str) -> None:
    package, folder = unpacked_network(name, board, "llvm")
    defined: set[str] = set()
    undefined: set[str] = set()
    for name_ in package.objects:
        with (folder / "codegen/host/lib" / name_).open("rb") as stream:
            elf = ELFFile(stream)
            for section in elf.iter_sections():
                writable = section["sh_flags"] & SH_FLAGS.SHF_WRITE and section["sh_size"]
                # Pointer tables of position-independent code are written by the loader only.
                allowed = section.name.startswith((".bss", ".data.rel.ro"))
                assert not writable or allowed, section.name
                assert not section.name.startswith((".init", ".ctors", ".preinit"))
                if isinstance(section, SymbolTableSection):
                    for symbol in section.iter_symbols():
                        if symbol["st_info"]["bind"] != "STB_LOCAL":
                            kind = undefined if symbol["st_shndx"] == "SHN_UNDEF" else defined
                            kind.add(symbol.name)
    needed = undefined - defined
    assert needed <= set(UNDEFINED_ALLOWED)
    section = package.section
    assert section is not None
    assert tuple(sorted(needed)) == section.undefined.used
    prefix = f"tvmgen_{package.module}_"
    assert all(s.startswith(prefix) or s == "TVMSystemLibEntryPoint" for s in defined)


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("board", ["host", "mps3_an547"])
def test_exports_of_two_processes_are_the_same_bytes(
    board: str, emit: str, tmp_path: Path
) -> None:
    packages = []
    for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo")):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [
                sys.executable, "-m", "crtexport", str(shared_model("kws_int8")), "--board", board,
                "--emit", emit, "-o", "package.tar", "-q",
            ],
            cwd=folder, check=True, env=environment(PYTHONHASHSEED=seed, TZ=zone),
        )
        packages.append((folder / "package.tar").read_bytes())
    assert packages[0] == packages[1]


def environment(**changes: str) -> dict[str, str]:
    """This process's, with the package importable from any folder."""
    root = str(Path(crtexport.__file__).resolve().parents[1])
    return {**os.environ, "PYTHONPATH": root, **changes}


def test_c_is_exported_without_llvmlite(tmp_path: Path) -> None:
    program = WITHOUT_LLVMLITE + (
        "from crtexport.cli.main import main\n"
        f"sys.exit(main([{str(shared_model('ad01_int8'))!r}, '--board', 'mps2_an386',"
        f" '--emit', 'c', '-o', {str(tmp_path / 'p.tar')!r}, '-q']))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=environment())
    assert open_package(tmp_path / "p.tar").sources
