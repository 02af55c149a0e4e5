"""``crtexport boards``"""

from __future__ import annotations

import json

import pytest

from crtexport.cli.main import main
from crtexport.firmware.board import list_boards


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
