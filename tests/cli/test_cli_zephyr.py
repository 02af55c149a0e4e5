"""``crtexport zephyr``"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from crtexport.cli.main import main
from crtexport.firmware.board import list_boards
from tests.cli.support import exported
from tests.helpers import require

CONFIG = """\
CONFIG_BOARD="my_board"
CONFIG_XIP=y
CONFIG_FLASH_BASE_ADDRESS=0x0
CONFIG_FLASH_SIZE=256
CONFIG_SRAM_BASE_ADDRESS=0x20000000
CONFIG_SRAM_SIZE=64
CONFIG_MAIN_STACK_SIZE=1024
"""
COMPILER = ["--compiler", "arm-none-eabi-gcc", "--flags", " -mcpu=cortex-m3 -mthumb -O2"]


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A folder as it is while Zephyr's build is configured."""
    require("arm-none-eabi-gcc")
    folder = tmp_path / "build"
    (folder / "zephyr").mkdir(parents=True)
    (folder / "zephyr" / ".config").write_text(CONFIG)
    return folder


def test_the_board_of_a_build_is_printed_and_written(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zephyr", "board", str(build), *COMPILER]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["cpu"]["name"] == "cortex-m3"
    assert printed["cpu"]["cflags"] == ["-mcpu=cortex-m3", "-mthumb"]
    file = tmp_path / "board.yaml"
    assert main(["zephyr", "board", str(build), *COMPILER, "-o", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["memory"]["flash"]["size"] == 256 << 10
    assert yaml.safe_load(file.read_text()) == printed
    assert main(["boards", str(file)]) == 0


def test_packages_are_checked_against_a_build(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitting = exported(tmp_path, board="mps2_an385", emit="llvm")
    assert main(["zephyr", "check", str(fitting), str(build), *COMPILER]) == 0
    other = exported(tmp_path, board="mps2_an386", emit="llvm")
    capsys.readouterr()
    assert main(["zephyr", "check", str(other), str(build), *COMPILER]) == 2
    assert "another float ABI: hard; this build has soft" in capsys.readouterr().err


def test_a_compiler_that_is_not_there_is_a_missing_tool(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zephyr", "board", str(build), "--compiler", "/no/such-gcc"]) == 3
    assert "compiler is not there" in capsys.readouterr().err


def test_boards_are_listed_by_both_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zephyr", "boards", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["boards"]
    assert {board["name"] for board in listed} == {b.name for b in list_boards() if b.zephyr}
    assert main(["zephyr", "boards"]) == 0
    assert "mps2/an385" in capsys.readouterr().out


def test_a_report_tells_models_by_layer_from_the_rest(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image is the bare-metal firmware of the same model: the report knows no board."""
    require("make")
    from crtexport import package_actions
    from crtexport.mlf.reader import open_package
    from crtexport.mlf.unpack import unpack_for_build

    package = exported(tmp_path, board="mps2_an385", emit="llvm")
    elf = package_actions.build(package, tmp_path / "firmware").elf
    shutil.copyfile(elf, build / "zephyr" / "zephyr.elf")
    unpack_for_build(open_package(package), build / "crtexport" / "digits")
    (build / "compile_commands.json").write_text(json.dumps([
        {"file": "k.c", "command": "arm-none-eabi-gcc -D__ZEPHYR__=1 -mcpu=cortex-m3 -mthumb k.c"}
    ]))
    assert main(["zephyr", "report", str(build), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    digits = said["models"]["digits"]
    section = open_package(package).module_section
    assert section is not None
    assert digits["ram"] == section.workspace.bytes
    assert digits["flash"] < said["flash"]
    assert digits["parts"]["fully_connected"]["constants"] >= 2560
    assert digits["parts"]["conv2d_2"]["code"] > 0
    assert said["memories"] == {"flash": 256 << 10, "ram": 64 << 10}
    assert main(["zephyr", "report", str(build)]) == 0
    assert "Model digits" in capsys.readouterr().out


def test_without_an_image_there_is_no_report(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zephyr", "report", str(build)]) == 2
    assert "nothing is built here yet" in capsys.readouterr().err
