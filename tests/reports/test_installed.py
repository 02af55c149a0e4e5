"""What ``crtexport doctor`` finds, and what it says of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.firmware.board import list_boards
from crtexport.reports.installed import Installed, installed

VARIABLES = ("CRTEXPORT_TFLITE_PYTHON", "CRTEXPORT_LITERT_PYTHON", "CRTEXPORT_TFLM_PYTHON",
             "CRTEXPORT_ONNX_PYTHON", "ZEPHYR_BASE")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs; empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return folder


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def found(name: str) -> Installed:
    return next(one for one in installed() if one.name == name)


def test_programs_are_found_where_the_shell_finds_them(programs: Path) -> None:
    assert not found("make").found
    program(programs / "make", "echo 'Make, version 7'; echo more")
    assert found("make").found == "Make, version 7"


@pytest.mark.parametrize("script", ["exit 1", "printf ''", "kill -9 $$"])
def test_a_program_that_tells_no_version_is_there_nevertheless(
    script: str, programs: Path
) -> None:
    program(programs / "cmake", script)
    assert found("cmake").found == str(programs / "cmake")


def test_versions_may_be_any_bytes(programs: Path) -> None:
    program(programs / "ninja", "printf '\\377 1.0\\n'")
    assert found("ninja").found == "\N{REPLACEMENT CHARACTER} 1.0"


def test_every_boards_compiler_and_emulator_is_looked_for(programs: Path) -> None:
    names = {one.name: one for one in installed()}
    for board in list_boards():
        assert board.toolchain.compiler[0] in names
        if board.runner.kind == "qemu":
            assert board.runner.command[0] in names
    assert not list(programs.iterdir())
    missing = {name for name, one in names.items() if not one.found}
    assert {"qemu-system-arm", "arm-none-eabi-gcc", "make", "Zephyr"} <= missing
    assert all(names[name].hint for name in missing)
    assert names["llvmlite"].found


def test_references_are_where_variables_say(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRTEXPORT_TFLM_PYTHON", "/somewhere/python")
    assert found("tflite-micro").found == "/somewhere/python"
    assert "CRTEXPORT_LITERT_PYTHON" in found("ai-edge-litert").hint


def test_zephyr_is_the_tree_that_is_named(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zephyr").mkdir()
    (tmp_path / "zephyr" / "VERSION").write_text("VERSION_MAJOR = 4\nVERSION_MINOR = 2\n")
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path / "zephyr"))
    assert found("Zephyr").found == str(tmp_path / "zephyr")
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path))
    assert not found("Zephyr").found
