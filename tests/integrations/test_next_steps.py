"""What comes after writing is said with the names that other tools have for the board."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crtexport import write_library
from crtexport.firmware.board import list_boards, load_board
from crtexport.firmware.board_schema import Board
from crtexport.integrations.formats import FORMATS
from crtexport.integrations.next_steps import missing_part, of_firmware, of_library
from tests.helpers import require
from tests.integrations.test_libraries import package

BOARDS = list_boards()


@pytest.mark.parametrize(("format_", "board", "command"), [
    ("arduino", "arduino_nano_33_ble",
     "arduino-cli compile --library . -b arduino:mbed_nano:nano33ble -u -p PORT examples/run"),
    ("arduino", "mps2_an386", "arduino-cli compile --library . -b FQBN -u -p PORT examples/run"),
    ("platformio", "teensy41", "pio run -d examples/run -e teensy41 -t upload -t monitor"),
    ("platformio", "mps2_an386", "pio run -d examples/run -t exec"),
    ("esp-idf", "esp32c6", "idf.py -C examples/run set-target esp32c6 build flash monitor"),
    ("esp-idf", "host", "idf.py -C examples/run set-target CHIP build flash monitor"),
    ("zephyr", "nrf52840dk", "west build -b nrf52840dk/nrf52840 samples/run"),
    ("zephyr", "esp32", "west build -b BOARD samples/run"),
])
def test_commands_name_the_board_as_their_tools_do(format_: str, board: str, command: str) -> None:
    steps = of_library(format_, "digits", load_board(board), runs_here=True)
    assert command in [one for one, _ in steps]


@pytest.mark.parametrize("format_", FORMATS)
def test_objects_for_another_processor_do_not_run_here(format_: str) -> None:
    for runs_here in (True, False):
        steps = of_library(format_, "digits", load_board("mps2_an386"), runs_here=runs_here)
        assert steps
        if format_ in ("cmake", "mlperf-tiny"):
            assert ("this computer" in str(steps)) == runs_here


def test_firmware_is_run_flashed_or_said_not_to_start() -> None:
    elf, tar = Path("a b/firmware.elf"), Path("p.tar")
    said = {board.name: of_firmware(tar, elf, board) for board in BOARDS}
    assert [one for one, _ in said["mps2_an386"]] == [
        "make -C 'a b' run", "crtexport run p.tar", "make -C 'a b'"
    ]
    assert said["nrf52840dk"][0][0] == "make -C 'a b' flash"
    assert said["nrf54l15dk"][0][0] == "pyocd load -t TARGET 'a b/firmware.elf'"
    assert said["rpi_pico"][0][0] == "make -C 'a b'"
    words = missing_part(load_board("rpi_pico"))
    assert words is not None
    assert "--format arduino, platformio, zephyr write libraries" in words
    assert missing_part(load_board("nrf52840dk")) is None


@pytest.mark.parametrize("board", [one for one in BOARDS if one.flashing is not None],
                         ids=lambda board: board.name)
def test_names_of_other_tools_have_their_form(board: Board) -> None:
    found = board.flashing
    assert found is not None
    assert found.arduino is None or re.fullmatch(
        r"\w+:\w+:\w+(:\w+=\w+)?", found.arduino
    )
    assert not found.openocd or board.console.kind == "semihosting"
    assert all(re.fullmatch(r"(board|interface|target)/[\w-]+\.cfg", one) for one in found.openocd)


@pytest.mark.parametrize("board", [
    one for one in BOARDS if one.flashing is not None and one.flashing.openocd
], ids=lambda board: board.name)
def test_the_makefile_flashes_with_files_that_openocd_has(board: Board, tmp_path: Path) -> None:
    require("make")
    require("arm-none-eabi-gcc")
    from crtexport import build

    build(package("digits", board=board.name), tmp_path)
    said = subprocess.run(("make", "-n", "flash"), cwd=tmp_path, capture_output=True, text=True,
                          check=True).stdout.strip()
    assert said.startswith("openocd -f ")
    assert '-c "program firmware.elf verify"' in said
    assert "make flash" in (tmp_path / "firmware" / "README.md").read_text()
    if shutil.which("openocd") is not None:  # it reads the files before it looks for the board
        files = said.split(" -c ", maxsplit=1)[0].split()
        subprocess.run((*files, "-c", "shutdown"), capture_output=True, check=True, timeout=60)


def test_other_boards_have_no_rule_to_flash(tmp_path: Path) -> None:
    require("arm-none-eabi-gcc")
    from crtexport import build

    build(package("digits"), tmp_path)
    assert "flash" not in (tmp_path / "Makefile").read_text()


@pytest.mark.parametrize("format_", ["esp-idf", "platformio", "zephyr"])
def test_readmes_have_the_same_commands(format_: str, tmp_path: Path) -> None:
    written = write_library(package("digits"), tmp_path, format_)
    text = (tmp_path / "README.md").read_text()
    assert all(f"`{command}" in text for command, _ in written.next_steps)
