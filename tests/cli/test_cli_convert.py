"""``crtexport convert``"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crtexport.cli.main import main
from crtexport.ir import text
from crtexport.pipeline import driver
from tests.cli.support import DIGITS


def test_a_converted_model_is_the_same_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.json"
    assert main(["convert", str(DIGITS), "-o", str(copy)]) == 0
    assert capsys.readouterr().out.startswith(f"{copy}: ")
    one, two = driver.load(DIGITS), driver.load(copy)
    assert one.nodes == two.nodes
    assert [t.type for t in one.tensors] == [t.type for t in two.tensors]
    assert text.dump(one).splitlines()[2:] == text.dump(two).splitlines()[2:]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(DIGITS), "--output", str(tmp_path / "m.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] > 0


def test_a_missing_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(DIGITS), "-o", str(tmp_path / "no" / "m.json")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_neither_of_two_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.json").mkdir()
    # Of the second, only the constants' file has too long a name.
    for name, problem in (("folder.json", "this is a folder"), ("m" * 250 + ".json", "too long")):
        assert main(["convert", str(DIGITS), "-o", str(tmp_path / name)]) == 2
        assert problem in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["folder.json"]


@pytest.mark.parametrize("how", ["foreign", "changed", "link", "cut"])
def test_constants_never_replace_a_file_of_the_users(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, constants = tmp_path / "m.json", tmp_path / "m.safetensors"
    words = ["convert", str(DIGITS), "-o", str(model), "-q"]
    assert main(words) == 0
    assert main(words) == 0  # ours, and unchanged
    content = constants.read_bytes()
    if how == "changed":
        constants.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "cut":
        constants.write_bytes(content[:-1])
    elif how == "foreign":
        constants.write_bytes(b"precious")
    else:
        constants.rename(tmp_path / "precious")
        constants.symlink_to("precious")
    before = [(path.lstat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()]
    assert main(words) == 2
    assert "the constants would replace this file" in capsys.readouterr().err
    assert [(p.lstat().st_mtime_ns, p.read_bytes()) for p in tmp_path.iterdir()] == before
    assert main([*words, "--force"]) == 0
    assert not constants.is_symlink()
    assert constants.read_bytes() == content
    if how == "link":
        assert (tmp_path / "precious").read_bytes() == content
