"""``crtexport unpack``, ``--unpack`` and ``--depfile``"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crtexport.cli.depfile import depfile_text
from crtexport.cli.main import main
from crtexport.support import resources
from crtexport.support.errors import CrtExportError
from tests.cli.support import DIGITS, exported


def test_headers_and_sources_are_laid_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, folder = exported(tmp_path), tmp_path / "model"
    assert main(["unpack", str(package), str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    found = sorted(str(path) for path in folder.rglob("*")
                   if path.is_file() and path.parent != folder)
    assert said == {
        "package": str(package), "module": "digits", "modules": ["digits"], "files": found
    }
    assert (folder / "include" / "tvmgen_digits.h").is_file()
    assert (folder / "include" / "tvm" / "runtime" / "c_runtime_api.h").is_file()
    assert (folder / "src" / "digits_lib0.c").is_file()


def test_what_does_not_change_keeps_its_time(tmp_path: Path) -> None:
    package, folder = exported(tmp_path), tmp_path / "model"
    assert main(["unpack", str(package), str(folder), "-q"]) == 0
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert main(["unpack", str(package), str(folder), "-q"]) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("verb", ["unpack", "export"])
def test_the_users_files_stay(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, folder = exported(tmp_path), tmp_path / "mine"
    words = ["unpack", str(package), str(folder)] if verb == "unpack" else [
        str(DIGITS), "--emit", "c", "-o", str(tmp_path / "x.tar"), "--unpack", str(folder)
    ]
    (folder / "lib").mkdir(parents=True)
    (folder / "src").symlink_to("lib")
    (folder / "lib" / "digits_lib0.c").write_text("precious")
    assert main([*words, "-q"]) == 2
    assert "a symbolic link stands where a folder of ours belongs" in capsys.readouterr().err
    (folder / "src").unlink()
    (folder / "lib").rename(folder / "src")
    assert main([*words, "-q"]) == 2
    assert "would be replaced: src/digits_lib0.c" in capsys.readouterr().err
    assert [path.name for path in folder.rglob("*")] == ["src", "digits_lib0.c"]
    assert (folder / "src" / "digits_lib0.c").read_text() == "precious"
    (folder / "src" / "mine.c").write_text("precious")
    assert main([*words, "-q", "--force"]) == 0
    assert (folder / "src" / "digits_lib0.c").read_text() != "precious"
    assert (folder / "src" / "mine.c").read_text() == "precious"


def test_a_folder_that_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["unpack", str(exported(tmp_path)), str(tmp_path / "file")]) == 2
    assert "a file is where the folder should be" in capsys.readouterr().err


def test_an_export_says_what_it_was_made_from(tmp_path: Path) -> None:
    for file in DIGITS.parent.glob("model.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model, package = tmp_path / "model.json", tmp_path / "a b.tar"
    depfile = tmp_path / "a.d"
    assert main([
        str(model), "--emit", "c", "-o", str(package), "--depfile", str(depfile),
        "--unpack", str(tmp_path / "out"), "-q",
    ]) == 0
    rule = depfile.read_text()
    target, _, rest = rule.partition(": ")
    assert target == str(package).replace(" ", "\\ ")
    named = {word for word in rest.replace("\\\n", " ").split() if word}
    assert {str(model), str(model.with_suffix(".safetensors"))} <= named
    assert str(Path(resources.__file__).resolve()) in named
    assert str(resources.boards_dir() / "host.yaml") in named
    assert (tmp_path / "out" / "src" / "digits_lib0.c").is_file()


def test_an_export_depends_on_the_files_of_its_board(tmp_path: Path) -> None:
    family, board = tmp_path / "family.yaml", tmp_path / "mine.yaml"
    family.write_text("extends: host\nabstract: true\n")
    board.write_text("extends: family\nname: mine\ndescription: ours\n")
    rule = tmp_path / "a.d"
    options = ["--emit", "c", "-o", str(tmp_path / "a.tar"), "--depfile", str(rule), "-q"]
    assert main([str(DIGITS), "--board", str(board), *options]) == 0
    assert {str(family), str(board)} <= set(rule.read_text().split())


def test_names_are_escaped_for_make() -> None:
    assert depfile_text(Path("/a$b"), [Path("/c #d")]) == "/a$$b: \\\n  /c\\ \\#d\n"
    with pytest.raises(CrtExportError, match="can't name this path"):
        depfile_text(Path("/a\nb"), [])
