"""``crtexport export``, and a model as the first argument"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from crtexport.cli.main import main
from crtexport.mlf.reader import open_package
from tests.cli.support import DIGITS, DIGITS_IMAGES
from tests.mlf.consumers import complaints
from tests.support import require


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_model_alone_is_exported_for_this_computer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS)]) == 0
    (package,) = Path().glob("*.tar")
    assert package.name.endswith("-host.tar")
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{package}: ")
    assert captured.err == ""
    assert complaints(package) == []


def test_every_option_reaches_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "export", str(DIGITS), "--board", "mps2_an386", "-o", "out.tar", "--emit", "c",
        "--optimize", "size", "--workspace", "caller", "--rounding", "single", "--module-name",
        "default", "--no-system-lib", "--json",
    ]
    assert main(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["package"], data["board"], data["module"], data["emit"]) == (
        "out.tar", "mps2_an386", "default", "c"
    )
    assert data["bytes"]["inputs"] == 64
    package = open_package(Path("out.tar"))
    assert package.module == "default"
    assert package.objects == {}
    assert package.section is not None
    assert not package.section.system_lib
    assert package.module_section is not None
    assert package.module_section.workspace.owner == "caller"
    assert (package.module_section.optimize, package.module_section.rounding) == ("size", "single")
    assert complaints(Path("out.tar")) == []


def test_verbose_tells_steps_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "-v"]) == 0
    assert "plan memory" in capsys.readouterr().err


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert list(Path().glob("*.tar"))


def test_a_failed_export_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.json").write_text("{}")
    assert main(["bad.json", "-o", "out.tar"]) == 2
    assert main([str(DIGITS), "-o", "missing/out.tar"]) == 2
    assert "create the folder missing first" in capsys.readouterr().err
    assert main([str(DIGITS), "--board", "qemu_x68", "-o", "out.tar"]) == 2
    assert "qemu_x86" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["bad.json"]


def test_two_exports_are_the_same_bytes() -> None:
    for name in ("a.tar", "b.tar"):
        assert main([str(DIGITS), "--board", "qemu_x86", "-o", name]) == 0
    assert Path("a.tar").read_bytes() == Path("b.tar").read_bytes()
    with tarfile.TarFile("a.tar") as tar:
        assert {member.mtime for member in tar} == {0}


def test_inputs_without_a_run_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "--input", "x.npz"]) == 2
    assert "--input goes with --run" in capsys.readouterr().err


@pytest.mark.qemu
def test_run_predicts_the_digits(capsys: pytest.CaptureFixture[str]) -> None:
    require("gcc")
    require("qemu-system-i386")
    arguments = [
        str(DIGITS), "--board", "qemu_x86", "--run", "--input", str(DIGITS_IMAGES), "--json"
    ]
    assert main(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    run = data["run"]
    assert len(run["outputs"]) == 12
    assert run["instructions"]["first"] == run["instructions"]["second"]
    assert run["instructions"]["exact"]
    assert run["ram"]
