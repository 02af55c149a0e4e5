"""``crtexport run``"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crtexport import package_actions
from crtexport.cli.main import main
from crtexport.firmware.run import RunResult
from crtexport.support.errors import RunFailedError
from tests.cli.support import DIGITS_IMAGES, exported, hits
from tests.helpers import require


@pytest.mark.qemu
@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_the_example_runs_in_qemu(
    emit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("gcc")
    require("qemu-system-i386")
    package = exported(tmp_path, board="qemu_x86", emit="c" if emit == "c" else "llvm")
    saved = tmp_path / "y.npz"
    arguments = ["run", str(package), "--input", str(DIGITS_IMAGES), "--output", str(saved)]
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert hits(data["outputs"]) >= 11
    assert data["instructions"]["first"] == data["instructions"]["second"] > 10_000
    assert data["stack"] > 0
    with np.load(saved) as kept:
        ((name, array),) = kept.items()
    assert array.tolist() == [row[name] for row in data["outputs"]]


def answer(first: int | None, *, exact: bool = True) -> RunResult:
    scores = np.array([[-128, 5, 127, 0, 0, 0, 0, 0, 0, 0]], np.int8)
    return RunResult(
        outputs=((scores,),), instructions_first=first, instructions_second=first, exact=exact,
        flash={".text": 1000, ".rodata": 5000, ".data": 0}, ram={".bss": 2345},
        stack=None if first is None else 64,
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return exported(tmp_path, board="qemu_x86")


def test_the_table_for_people(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(package_actions, "run_all", lambda *_, **__: {"digits": answer(123456)})
    assert main(["run", str(package)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "inputs: a fixed pattern (1 sample)" in lines
    assert "instructions of the first inference 123,456" in lines
    assert "bytes of stack 64" in lines
    assert ".text 1,000" in lines
    assert ".data 0" not in lines
    assert "total 6,000" in lines
    assert any("2 (score " in line for line in lines)


def test_what_was_not_counted_is_not_invented(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(package_actions, "run_all", lambda *_, **__: {"digits": answer(None)})
    assert main(["run", str(package)]) == 0
    text = capsys.readouterr().out
    assert "not counted" in text
    assert "not measured" in text
    estimated = {"digits": answer(5, exact=False)}
    monkeypatch.setattr(package_actions, "run_all", lambda *_, **__: estimated)
    assert main(["run", str(package)]) == 0
    assert "estimated by a timer" in capsys.readouterr().out


def test_deadline_and_runner_are_passed_on(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def run(*_: object, timeout: float, runner: str, **__: object) -> dict[str, RunResult]:
        seen.append((timeout, runner))
        return {"digits": answer(1)}

    monkeypatch.setattr(package_actions, "run_all", run)
    assert main(["run", str(package), "-q", "--timeout", "2.5"]) == 0
    assert main(["run", str(package), "-q", "--timeout", "3", "--runner", "zephyr"]) == 0
    assert seen == [(2.5, "bare-metal"), (3, "zephyr")]


def test_a_failed_run_is_exit_code_1(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> dict[str, RunResult]:
        raise RunFailedError("the firmware gave no answer within 1 s", location="qemu_x86")

    monkeypatch.setattr(package_actions, "run_all", run)
    assert main(["run", str(package), "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"error": {
        "exit_code": 1, "location": ["qemu_x86"], "hint": None,
        "problem": "the firmware gave no answer within 1 s",
    }}
    assert captured.err == "error: qemu_x86: the firmware gave no answer within 1 s\n"


def test_a_board_without_a_runner_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = exported(tmp_path, board="nrf52840dk")
    assert main(["run", str(package)]) == 2
    assert "there is no emulator for this board" in capsys.readouterr().err
