"""Command lines that newcomers get wrong are answered with what to write instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crtexport.cli.main import main
from tests.cli.support import DIGITS, exported

MISTAKES = [
    ("digits.json nrf52840dk", "it is a board: write --board nrf52840dk"),
    ("digts.json --board host", "did you mean 'digits.json'?"),
    ("digits.json -b nrf52840dk", "did you mean '--board'?"),
    ("digits.json --target nrf52840dk", "did you mean '--board'?"),
    ("digits.json --output-dir out", "did you mean '--output'?"),
    ("digits.json -O3", "did you mean '--optimize'?"),
    ("digits.json --model-name x", "did you mean '--module-name'?"),
    ("digits.json --optimise size", "did you mean '--optimize'?"),
    ("digits.json --format cmake", "there is a command `crtexport build`"),
    ("--list-boards", "there is a command `crtexport boards`"),
    ("digits.json --board stm32f4", "did you mean nucleo_f446re?"),
    ("digits.json --board nRF52840-DK", "did you mean nrf52840dk?"),
    ("digits.json --board arduino-nano-33", "did you mean arduino_nano_33_ble?"),
    ("digits.json --board zx81", "`crtexport boards` lists all boards"),
    ("digits.json --board cortex_m4f", "`crtexport boards new NAME --extends cortex_m4f`"),
    ("digits.json --board host -o out/", "name the file, as in out/NAME.tar"),
    ("digits.json --board host -o .", "name the file, as in NAME.tar"),
    ("digits.json --emit cpp", "'cpp' is not one of llvm, c"),
    ("report digits.json --optimize spede", "did you mean 'speed'?"),
    ("run digits.json", "this is a model, not a package"),
    ("build digits.json -o x", "`crtexport digits.json --board NAME -o digits.tar`"),
    ("unpack digits.json x", "`crtexport unpack digits.tar`"),
    ("verify digits.tar", "takes the model that the package was made from"),
    ("digits.tar", "`crtexport run`, `simulate`, `build` and `inspect` take packages"),
    ("run digit.tar", "did you mean 'digits.tar'?"),
    ("build digits.tar", "--output DIR: The folder to write"),
    ("build digits.tar -o x --format keil", "write cmsis-pack"),
    ("build digits.tar -o x --format idf", "write esp-idf"),
    ("build digits.tar -o x --format west", "write zephyr"),
    ("build digits.tar -o x --format esp", "did you mean 'esp-idf'?"),
    ("convert digits.json", "--output model.json: "),
    ("quantize digits.json", "--data "),
    ("export", "MODEL... is missing"),
    ("list", "`crtexport --help` lists the commands"),
    ("biuld digits.tar", "did you mean 'build'?"),
    ("report digits.json -o r.pdf", "name the file r.html or r.json"),
    ("diff digits.json digits.json", "this is not a report"),
    ("diff a.json b.json", "a.json: there is no such file"),
    ("unpack digits.tar", "FOLDER is missing"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and its package."""
    found = tmp_path_factory.mktemp("mistakes")
    shutil.copy(DIGITS, found / "digits.json")
    shutil.copy(DIGITS.with_name("model.safetensors"), found)
    exported(found).rename(found / "digits.tar")
    return found


@pytest.mark.parametrize(("words", "hint"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_answered(
    words: str, hint: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert main(words.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert hint in said.err
    assert len(said.err) < 500
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("words", ["help", "help build", "build --help"])
def test_help_is_a_word_and_an_option(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0
    assert capsys.readouterr().out.startswith("Usage: crtexport")


def test_words_are_known_in_any_case_and_with_either_dash(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = ["digits.json", "--emit", "C", "--optimize", "Size", "-q"]
    assert main([*words, "-o", str(tmp_path / "p.tar")]) == 0
    words = ["build", "digits.tar", "--format", "CMSIS_Pack", "-o", str(tmp_path / "x")]
    assert main(words) == 2  # the board is this computer
