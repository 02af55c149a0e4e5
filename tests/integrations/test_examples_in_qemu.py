"""Examples run on a Cortex-M4 in QEMU and say that the outputs are the recorded ones, or differ."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import crtexport
from crtexport import recordings, write_library
from crtexport.firmware.board import list_boards, load_board
from crtexport.mlf.reader import open_package
from crtexport.pipeline.driver import Emit, export, load
from crtexport.recordings import emulated
from tests.cli.support import DIGITS
from tests.devices.test_modules import document, write
from tests.helpers import require
from tests.integrations.bare_metal import BOARD, done, in_qemu, linked, need_tools, surroundings
from tests.integrations.test_libraries import KINDS, main_of, package, sources_in

pytestmark = pytest.mark.qemu
EVERY = [(kind, emit) for kind in KINDS for emit in ("c", "llvm")]


def made(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    crtexport.build(path, folder)
    return again(folder)


def again(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("make", "-s", "run"), cwd=folder, capture_output=True, text=True,
                          check=False, timeout=300)


@pytest.mark.parametrize(("kind", "emit"), EVERY)
def test_make(kind: str, emit: Emit, tmp_path: Path) -> None:
    need_tools()
    path = package(kind, emit=emit)
    ran = made(path, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    *models, last = ran.stdout.splitlines()
    assert models == [
        f"{name}: the outputs are those that were recorded" for name in open_package(path).modules
    ]
    assert last == "PASS"


@pytest.mark.parametrize(("board", "tool"), [
    ("host", "gcc"), ("qemu_x86", "qemu-system-i386"), ("qemu_riscv32", "qemu-system-riscv32"),
    ("mps3_an547", "qemu-system-arm"),
])
def test_make_for_other_architectures(board: str, tool: str, tmp_path: Path) -> None:
    require(tool)
    require(load_board(board).toolchain.compiler[0])
    ran = made(package("floats", board=board), tmp_path)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "PASS"), ran.stdout + ran.stderr


@pytest.mark.parametrize("board", [BOARD, "qemu_x86"])
def test_firmware_sees_that_outputs_differ(board: str, tmp_path: Path) -> None:
    """As its exit status says, too."""
    need_tools()
    require(load_board(board).runner.command[0])  # type: ignore[union-attr]
    expected = np.full((1, 10), 5, np.int8)
    built = crtexport.build(package("digits", board=board), tmp_path,
                            outputs={"probabilities": expected})
    assert not built.unrecorded
    ran = again(tmp_path)
    assert ran.returncode != 0
    assert ran.stdout == "digits: output 1 differs from what was recorded\nFAIL\n"


def test_firmware_says_that_the_processor_faulted(tmp_path: Path) -> None:
    need_tools()
    crtexport.build(package("digits"), tmp_path)
    main = tmp_path / "firmware" / "main.c"
    text = main.read_text()
    main.write_text(text.replace("int failed = 0;", "int failed = *(volatile int *)0xF0000000u;"))
    ran = again(tmp_path)
    assert ran.returncode != 0
    assert re.fullmatch(r"fault 0x[0-9a-f]+ at 0x[0-9a-f]+\nFAIL\n", ran.stdout)


def test_the_users_sample_is_run(tmp_path: Path) -> None:
    need_tools()
    path = package("digits")
    name = open_package(path).inputs[0].name
    given = np.random.default_rng(1).integers(-128, 128, (3, 1, 8, 8, 1), np.int8)
    crtexport.build(path, tmp_path, {name: given})
    text = (tmp_path / "firmware" / "crt_test.c").read_text()
    assert ", ".join(map(str, given[0].flat[:8])) in text
    assert again(tmp_path).returncode == 0


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_firmware_opens_devices(emit: Emit, tmp_path: Path) -> None:
    """Simulated ones, as where the outputs were recorded."""
    need_tools()
    path = export(load(write(tmp_path, document())), board=BOARD, emit=emit,
                  output=tmp_path / "p.tar").path
    assert not crtexport.build(path, tmp_path / "firmware").unrecorded
    ran = again(tmp_path / "firmware")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "PASS"), ran.stdout + ran.stderr
    assert "crt_simulated_device" in (tmp_path / "firmware/firmware/crt_test.c").read_text()


@pytest.mark.parametrize("options", [
    {"feed": True}, {"io": "workspace", "workspace": "caller"}, {"workspace": "shared"},
], ids=str)
def test_firmware_gives_what_the_model_wants(options: dict[str, Any], tmp_path: Path) -> None:
    need_tools()
    path = export(DIGITS, board=BOARD, emit="c", output=tmp_path / "p.tar", **options).path
    ran = made(path, tmp_path / "firmware")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "PASS"), ran.stdout + ran.stderr


def test_a_package_of_others_is_built_but_its_code_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_tools()
    monkeypatch.setattr(recordings, "exported_here", lambda _: False)
    built = crtexport.build(package("digits", emit="llvm"), tmp_path)
    assert "wasn't exported on this computer" in built.unrecorded
    ran = again(tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "digits: it ran\nPASS\n")
    trusted = crtexport.build(package("digits", emit="llvm"), tmp_path, trust_package=True)
    assert not trusted.unrecorded


@pytest.mark.parametrize("board", ["nrf52840dk", "rpi_pico2"])
def test_objects_are_recorded_in_a_machine_of_the_same_processor(
    board: str, tmp_path: Path
) -> None:
    """The other code of the same network gives the same outputs."""
    need_tools()
    built = crtexport.build(package("digits", emit="llvm", board=board), tmp_path / "llvm")
    crtexport.build(package("digits", board=board), tmp_path / "c")
    assert not built.unrecorded
    texts = [(tmp_path / emit / "firmware" / "crt_test.c").read_text() for emit in ("llvm", "c")]
    assert texts[0] == texts[1]


def test_machines_that_stand_in_for_boards_run_their_code() -> None:
    found = {board.name: emulated(board) for board in list_boards()}
    assert all(one is None or one.runner.kind == "qemu" for one in found.values())
    assert all(one is None or one.cpu.name == load_board(name).cpu.name
               for name, one in found.items())
    assert found["qemu_riscv32"] == load_board("qemu_riscv32")
    assert found["nrf52840dk"] == load_board(BOARD)
    assert found["rpi_pico"] is None  # QEMU has no Cortex-M0+
    assert emulated(load_board("nrf52840dk"), {"ram"}) == load_board(BOARD)
    assert emulated(load_board("nrf52840dk"), {"ram", "tcm"}) is None


@pytest.mark.parametrize(("kind", "emit"), EVERY)
def test_cmake(kind: str, emit: Emit, tmp_path: Path) -> None:
    """A project adds the library, with the toolchain file of the library's board."""
    need_tools()
    for tool in ("cmake", "ninja"):
        require(tool)
    write_library(package(kind, emit=emit), tmp_path / "library", "cmake")
    start, link = surroundings(tmp_path)
    name = re.findall(r"crtexport::(\w+) ", (tmp_path / "library/CMakeLists.txt").read_text())[0]
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(user LANGUAGES C)\n"
        "add_subdirectory(library)\n"
        f"add_executable(user {start} library/example/main.c library/example/crt_test.c)\n"
        f"target_link_libraries(user PRIVATE crtexport::{name} m)\n"
        f"target_link_options(user PRIVATE {' '.join(link)})\n"
    )
    done(("cmake", "-G", "Ninja", "-B", "build",
          f"-DCMAKE_TOOLCHAIN_FILE={tmp_path / 'library/cmake/toolchain.cmake'}"), tmp_path)
    done(("cmake", "--build", "build"), tmp_path)
    status, said = in_qemu(tmp_path / "build" / "user")
    assert (status, said.splitlines()[-1]) == (0, "PASS"), said


@pytest.mark.parametrize(("kind", "emit"), EVERY)
def test_cmsis_pack(kind: str, emit: Emit, tmp_path: Path) -> None:
    """The files that the pack's description names, and the example."""
    need_tools()
    library = tmp_path / "library"
    write_library(package(kind, emit=emit), library, "cmsis-pack")
    (described,) = library.glob("*.pdsc")
    named = [library / one.attrib["name"] for one in ElementTree.parse(described).iter("file")]  # noqa: S314  (ours)
    files = [one for one in named if one.parent.name in ("src", "lib")]
    assert sorted(files) == sorted(
        one for one in library.rglob("*") if one.parent.name in ("src", "lib")
    )
    include = [f"-I{library / place}" for place in ("include", "example")]
    elf = linked([*files, *sources_in(library / "example")],
                 ["-ffp-contract=off", *include], tmp_path)
    status, said = in_qemu(elf)
    assert (status, said.splitlines()[-1]) == (0, "PASS"), said


@pytest.mark.parametrize("kind", KINDS)
def test_arduino(kind: str, tmp_path: Path) -> None:
    """The sketch is C++, and its core is made of functions in the place of Arduino's."""
    need_tools()
    library, path = tmp_path / "library", package(kind)
    write_library(path, library, "arduino")
    sketch = library / "examples" / "run"
    files = [*sources_in(library / "src"), *sources_in(sketch), main_of(sketch, tmp_path)]
    elf = linked(files, [f"-I{library / 'src'}", f"-I{sketch}"], tmp_path)
    status, said = in_qemu(elf)
    assert status == 0
    assert len(said.splitlines()) == len(open_package(path).modules)
    assert all("PASS" in line for line in said.splitlines()), said
