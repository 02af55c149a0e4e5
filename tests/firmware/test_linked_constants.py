"""Constants in an object of their own beside C sources, on every board that something here runs."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import crtexport
from crtexport.firmware import run as firmware_run
from crtexport.firmware.board import Board
from crtexport.firmware.board_rules import board_from_data
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.mlf.arrays import Array
from crtexport.mlf.reader import open_package
from tests.cli.support import DIGITS, DIGITS_IMAGES
from tests.firmware.test_boards_in_qemu import BOARDS, each, tools_of
from tests.helpers import require


@functools.cache
def images() -> dict[str, Array]:
    with np.load(DIGITS_IMAGES) as arrays:
        return {name: array[:2] for name, array in arrays.items()}


@functools.cache
def computed_here() -> list[dict[str, Array]]:
    """The outputs for :func:`images` by this computer's objects, whatever the board is."""
    with tempfile.TemporaryDirectory() as folder:
        package = crtexport.export(DIGITS, emit="llvm", output=Path(folder) / "digits.tar").path
        return crtexport.simulate(package, images())


@pytest.mark.qemu
@each(BOARDS)
def test_code_of_compilers_reads_them(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools_of(board)
    monkeypatch.setattr("crtexport.backends.c.source.MAX_CONSTANTS", 0)
    package = crtexport.export(
        DIGITS, board=board, emit="c", output=tmp_path / "digits.tar"
    ).path
    assert "codegen/host/lib/digits_constants.o" in open_package(package).names
    result = crtexport.run(package, images())
    for row, outputs in zip(computed_here(), result.outputs, strict=True):
        for wanted, found in zip(row.values(), outputs, strict=True):
            np.testing.assert_array_equal(found, wanted)


@each(BOARDS)
def test_linkers_have_nothing_to_say(board: Board, tmp_path: Path) -> None:
    tools_of(board)
    data = board.to_data()
    data["toolchain"]["ldflags"] = [*board.toolchain.ldflags, "-Wl,--fatal-warnings"]
    strict = board_from_data(data)
    package = open_package(
        crtexport.export(DIGITS, board=strict, emit="llvm", output=tmp_path / "digits.tar").path
    )
    built = firmware_run.build(
        parts_from_package(package), board_from_package(package), tmp_path / "firmware"
    )
    assert built.elf.stat().st_size > 0


CLANG = {
    "mps2_an386": ("--target=thumbv7em-none-eabihf", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16"),
    "qemu_riscv32": ("--target=riscv32-none-elf", "-march=rv32imac", "-mabi=ilp32"),
    "qemu_x86": ("--target=i686-none-elf", "-march=i686", "-mno-sse", "-mno-mmx"),
}


@pytest.mark.qemu
@pytest.mark.parametrize("name", CLANG)
def test_mixed_with_objects_of_clang(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's sources compiled by clang, the firmware by gcc, and the constants by nobody."""
    (board,) = (b for b in BOARDS if b.name == name)
    tools_of(board)
    monkeypatch.setattr("crtexport.backends.c.source.MAX_CONSTANTS", 0)
    package = open_package(
        crtexport.export(DIGITS, board=board, emit="c", output=tmp_path / "digits.tar").path
    )
    folder = tmp_path / "package"
    package.extract(folder)
    objects: dict[str, bytes] = {n: blob.read() for n, blob in package.objects.items()}
    for source in package.sources:
        target = tmp_path / f"{Path(source).stem}.o"
        firmware_run.run_tool(
            [
                require("clang"), *CLANG[name], "-std=c99", "-O2", "-ffreestanding",
                "-ffunction-sections", "-fno-pic",
                f"-I{folder / 'codegen/host/include'}", f"-I{folder / 'runtime/include'}",
                "-c", str(folder / "codegen/host/src" / source), "-o", str(target),
            ],
            cwd=tmp_path, what="compiling with clang",
        )
        objects[target.name] = target.read_bytes()
    parts = replace(parts_from_package(package), sources={}, objects=objects)
    first = {key: array[0] for key, array in images().items()}
    (here,) = crtexport.simulate(package.path, first)
    result = firmware_run.run(parts, board, [first])
    for wanted, simulated, found in zip(
        computed_here()[0].values(), here.values(), result.outputs[0], strict=True
    ):
        np.testing.assert_array_equal(simulated, wanted)
        np.testing.assert_array_equal(found, wanted)
