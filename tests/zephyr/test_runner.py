"""Zephyr applications around packages: what is written, and what is said without Zephyr."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from crtexport.cli.main import main
from crtexport.firmware.board import load_board
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.zephyr.application import write_application
from crtexport.firmware.zephyr.runner import (
    ZephyrTree,
    check_emulator,
    find_tree,
    zephyr_board,
)
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError, ToolMissingError
from crtexport.support.outputs import manifest
from tests.cli.support import DIGITS, exported


def test_without_zephyr_the_runner_says_how_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = exported(tmp_path)
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    assert main(["run", str(package), "--runner", "zephyr"]) == 3
    assert "ZEPHYR_BASE is not set" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main([str(DIGITS), "--zephyr", "app"]) == 3
    assert not (tmp_path / "app").exists()
    assert not (tmp_path / "digits-host.tar").exists(), "nothing is written before that is known"


def test_a_folder_that_is_no_tree_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path))
    with pytest.raises(ToolMissingError, match="no tree of Zephyr"):
        find_tree()
    (tmp_path / "VERSION").write_text("VERSION_MAJOR = four\n")
    with pytest.raises(ToolMissingError, match="has no version"):
        find_tree()
    (tmp_path / "VERSION").write_text("VERSION_MAJOR = 4\nVERSION_MINOR = 1\nPATCHLEVEL = 0\n")
    assert find_tree() == ZephyrTree(tmp_path, (4, 1))


@pytest.mark.parametrize(("board", "version", "name"), [
    ("mps2_an385", (3, 4), "mps2_an385"), ("mps2_an385", (3, 7), "mps2/an385"),
    ("mps2_an386", (3, 4), "mps2_an386"), ("mps2_an386", (4, 1), "mps2/an386"),
    ("host", (3, 6), "native_sim_64"), ("host", (4, 0), "native_sim/native/64"),
])
def test_boards_are_called_as_the_version_calls_them(
    board: str, version: tuple[int, int], name: str
) -> None:
    assert zephyr_board(load_board(board), ZephyrTree(Path(), version)) == name


def test_a_board_that_zephyr_does_not_have_is_refused() -> None:
    own = replace(load_board("mps2_an386"), zephyr=None)
    with pytest.raises(CrtExportError, match="no name in Zephyr"):
        zephyr_board(own, ZephyrTree(Path(), (4, 1)))


def test_the_application_is_whole_and_stays_as_it_is(tmp_path: Path) -> None:
    package = open_package(exported(tmp_path, board="mps2_an386"))
    parts, board = parts_from_package(package), board_from_package(package)
    folder = tmp_path / "app"
    write_application(parts, board, package.path, folder)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "CMakeLists.txt", "Kconfig", "prj.conf", "model.tar", "src/main.c", "src/platform.c",
        "src/crt_frame.c", "src/crt_frame.h", "src/crt_platform.h", "src/inputs.S",
        "src/inputs.bin", manifest.NAME,
    }
    settings = (folder / "prj.conf").read_text()
    assert "CONFIG_FPU=y" in settings, "the package passes floats in registers"
    times = {name: (folder / name).stat().st_mtime_ns for name in names - {"src/inputs.bin"}}
    write_application(parts, board, package.path, folder)
    assert times == {name: (folder / name).stat().st_mtime_ns for name in times}


@pytest.mark.parametrize(("targets", "cache", "lacking"), [
    ("build zephyr/run_qemu: phony zephyr/CMakeFiles/run_qemu", "", ""),
    ("build zephyr/run_armfvp: phony x", "ARMFVP:FILEPATH=/opt/fvp/FVP_MPS2_Cortex-M4", ""),
    ("build zephyr/run_armfvp: phony x", "ARMFVP:FILEPATH=ARMFVP-NOTFOUND", "armfvp"),
    ("build all: phony", "", "hardware"),
])
def test_a_board_that_no_emulator_here_runs_is_named_with_those_that_qemu_does(
    tmp_path: Path, targets: str, cache: str, lacking: str
) -> None:
    (tmp_path / "build.ninja").write_text(f"# ninja\n{targets}\n")
    (tmp_path / "CMakeCache.txt").write_text(f"A:STRING=b\n{cache}\n")
    if not lacking:
        check_emulator(tmp_path, "mps2_an386")
        return
    with pytest.raises(ToolMissingError, match=f"it asks for {lacking}") as caught:
        check_emulator(tmp_path, "mps2_an386")
    assert "mps2_an385" in str(caught.value)
    assert caught.value.exit_code == 3
