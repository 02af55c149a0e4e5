"""``crtexport boards``"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from crtexport.cli import new_board
from crtexport.cli.main import cli, main
from crtexport.firmware.board import list_boards, load_board
from tests.cli.support import DIGITS
from tests.firmware.test_chips import PACK


def test_all_boards_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards"]) == 0
    text = capsys.readouterr().out
    for board in list_boards():
        assert f"{board.name} " in text


def test_all_boards_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["boards"]
    assert [board["name"] for board in listed] == [board.name for board in list_boards()]


@pytest.mark.parametrize("name", [board.name for board in list_boards()])
def test_every_board_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{name}: ")
    assert "triple" in text
    assert main(["boards", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == name


def test_memories_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards", "nrf52840dk"]) == 0
    text = capsys.readouterr().out
    assert "0x20000000" in text
    assert "256 KiB" in text or "256KiB" in text


def test_an_unknown_board_is_an_error_with_a_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards", "qemu_x68"]) == 2
    assert "qemu_x86" in capsys.readouterr().err


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


PLACES = ["--memory", "flash=0x08000000:512KiB", "--memory", "ram=0x20000000:128KiB"]


def test_a_new_board_is_written_once_and_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["boards", "new", "mine", "--extends", "cortex_m4f", *PLACES, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["file"], said["board"]["name"]) == ("mine.yaml", "mine")
    assert load_board(Path("mine.yaml")).memory["ram"].size == 128 << 10
    assert main([str(DIGITS), "--board", "./mine.yaml", "--emit", "c", "-q"]) == 0
    before = Path("mine.yaml").read_bytes()
    capsys.readouterr()
    assert main(["boards", "new", "mine", "--extends", "cortex_m3", *PLACES]) == 2
    assert "already" in capsys.readouterr().err
    assert Path("mine.yaml").read_bytes() == before


def test_a_new_board_takes_a_packs_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "V.F.pdsc").write_text(PACK)
    words = ["boards", "new", "b", "--from", str(tmp_path / "V.F.pdsc"),
             "-o", str(tmp_path / "b.yaml")]
    assert main(words) == 2
    assert "write --device with one of its 5" in capsys.readouterr().err
    assert main([*words, "--device", "F1A", "--memory", "ram=0x20000000:64KiB"]) == 0
    board = load_board(tmp_path / "b.yaml")
    assert (board.description, board.cpu.name) == ("F1A", "cortex-m4")
    assert (board.memory["flash"].size, board.memory["ram"].size) == (512 << 10, 64 << 10)
    assert main([*words, "--device", "G2", "--core", "big"]) == 2
    assert "--extends takes one" in capsys.readouterr().err


def test_a_terminal_is_asked_for_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new_board, "on_terminal", lambda: True)
    answers = "My Board\nmine\ncortex_m0plus\n2 MiB\n0x10000000:2MiB\n0x20000000:264KiB\n"
    done = CliRunner().invoke(cli, ["boards", "new"], input=answers)
    assert done.exit_code == 0, done.output
    assert load_board(Path("mine.yaml")).memory["ram"].size == 264 << 10
    monkeypatch.undo()


@pytest.mark.parametrize(("words", "problem"), [
    ([], "NAME is missing"), (["mine"], "--extends is missing"), (["a b"], "a-z, 0-9 and _"),
    (["mine", "--extends", "cortex_m3"], "--memory flash=ORIGIN:SIZE is missing"),
    (["mine", "--memory", "flash=12"], "address and size"), (["mine", "--device", "X"], "--from"),
    (["mine", "--from", "x.dts", "--core", "X"], "for packs"),
])
def test_what_a_new_board_lacks_is_said(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["boards", "new", *words]) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
