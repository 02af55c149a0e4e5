"""``crtexport build``: a project of a build system, and firmware."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crtexport.cli.main import main
from tests.cli.support import exported
from tests.helpers import require, target_of


def test_the_verb_says_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = exported(tmp_path, board="mps2_an386")
    assert main(["build", str(path), "-o", str(tmp_path / "l"), "--format", "cmake"]) == 0
    said = capsys.readouterr().out
    assert "crtexport::digits" in said
    assert f"next, in {tmp_path / 'l'}:\n  # runs the example on this computer\n" in said
    assert "\n  cmake --preset example && " in said
    words = ["build", str(path), "-o", str(tmp_path / "l"), "--format", "arduino", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recorded"] is True
    assert str(tmp_path / "l" / "library.properties") in found["files"]


def test_the_verb_builds_firmware_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("arm-none-eabi-gcc")
    path = exported(tmp_path, board="mps2_an386")
    assert main(["build", str(path), "-o", str(tmp_path / "l"), "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["elf"]).read_bytes()[:4] == b"\x7fELF"
    assert (tmp_path / "l" / "Makefile").is_file()
    assert target_of("mps2_an386").cflags[0] in (tmp_path / "l" / "Makefile").read_text()
    assert main(["build", str(path), "-o", str(tmp_path / "l")]) == 0
    said = capsys.readouterr().out
    assert f"\n  # runs it in QEMU\n  make -C {tmp_path / 'l'} run\n" in said
    assert f"\n  # measures instructions, cycles and stack\n  crtexport run {path}\n" in said
    for words in (["--expected", str(path)], ["--format", "cmake", "--device-code", "a.c"]):
        assert main(["build", str(path), "-o", str(tmp_path / "m"), *words]) == 2
    assert not (tmp_path / "m").exists()
