"""``--llvm-option`` and the other options for objects"""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.cli.main import main
from crtexport.firmware.board import load_board
from crtexport.mlf.reader import open_package
from tests.cli.support import DIGITS

BOARD = "extends: mps2_an386\nname: {name}\ndescription: options\nllvm_options: [{options}]\n"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "option",
    [
        "---unroll-threshold=0",
        "-unroll-threshold:",
        "-unroll-threshold:=",
        "-unroll-allow-partial:bool",
        "-unroll-allow-partial:bool=",
        "-unroll-threshold:invalidtype=xyz",
        "-unroll-allow-partial=2",
        "-unroll-allow-partial=fred",
        "-unroll-allow-partial:bool=2",
        "-unroll-threshold:int=haha",
        "-unroll-threshold=haha",
        "-not-an-option=123",
        "-unroll-threshold",
        "unroll-threshold=1",
        "",
    ],
)
def test_bad_options_are_named_and_leave_no_file(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(DIGITS), f"--llvm-option={option}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --llvm-option")
    assert option[: min(option.find(end) % 99 for end in ":=")] in said
    assert "Traceback" not in said
    assert list(Path().iterdir()) == []


def test_options_reach_the_code_and_the_metadata() -> None:
    arguments = [str(DIGITS), "--board", "mps2_an386", "--optimize", "speed", "--emit", "llvm"]
    assert main([*arguments, "-o", "plain.tar"]) == 0
    option = "--llvm-option=--unroll-threshold=4000"
    assert main([*arguments, "-o", "more.tar", option, option, "-j", "2"]) == 0
    plain, more = open_package(Path("plain.tar")), open_package(Path("more.tar"))
    assert plain.module_section is not None
    assert more.module_section is not None
    of_board = load_board("mps2_an386").llvm_options
    assert plain.module_section.llvm_options == of_board
    assert more.module_section.llvm_options == (*of_board, "-unroll-threshold=4000")
    assert plain.objects["digits_lib0.o"] != more.objects["digits_lib0.o"]


def test_a_boards_options_are_used_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.yaml").write_text(BOARD.format(name="good", options='"-unroll-threshold=4000"'))
    Path("bad.yaml").write_text(BOARD.format(name="bad", options='"-unrol-threshold=4000"'))
    assert main([str(DIGITS), "--board", "good.yaml", "-o", "good.tar", "-q"]) == 0
    section = open_package(Path("good.tar")).module_section
    assert section is not None
    assert section.llvm_options == ("-unroll-threshold=4000",)
    assert main([str(DIGITS), "--board", "bad.yaml"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: board bad: llvm_options: this LLVM has no option -unrol-threshold\n"
        "  hint: did you mean -unroll-threshold"
    )
    assert main([
        str(DIGITS), "--board", "good.yaml", "--llvm-option=-unroll-threshold=1"
    ]) == 2
    assert "contradicts -unroll-threshold=4000 of board good: llvm_options" in (
        capsys.readouterr().err
    )
    # What is only for objects is nothing to C sources.
    assert main([str(DIGITS), "--board", "bad.yaml", "--emit", "c", "-o", "c.tar"]) == 0
    assert sorted(path.name for path in Path().glob("*.tar")) == ["c.tar", "good.tar"]


def test_options_for_llvm_do_not_go_with_c_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "--emit", "c", "--llvm-option=-disable-lsr"]) == 2
    assert "C sources are exported; this is for objects" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_split_kernels_are_listed_with_their_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "--split", "operator", "-o", "split.tar", "-q", "-j", "8"]) == 0
    assert main([str(DIGITS), "--split", "operator", "-o", "again.tar", "-q", "-j", "1"]) == 0
    assert Path("split.tar").read_bytes() == Path("again.tar").read_bytes()
    package = open_package(Path("split.tar"))
    assert package.section is not None
    objects = package.section.objects
    assert objects.keys() == package.objects.keys()
    roles = [made.role for made in objects.values() if made.role != "kernels"]
    assert sorted(roles) == ["constants", "metadata", "model", "registry"]
    kernels = [made for made in objects.values() if made.role == "kernels"]
    assert len(kernels) == len(objects) - 4 > 1
    for made in kernels:
        (kernel,) = made.kernels
        assert (made.defined, made.hidden) == ((), (kernel.symbol,))
        assert kernel.layers
        assert made.sections[".text"] > 0
    assert main(["simulate", "split.tar", "--json"]) == 0
    split = capsys.readouterr().out
    assert main([str(DIGITS), "-o", "whole.tar", "-q"]) == 0
    assert main(["simulate", "whole.tar", "--json"]) == 0
    assert capsys.readouterr().out.replace("whole", "split") == split


def test_split_does_not_go_with_c_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "--emit", "c", "--split", "auto"]) == 2
    assert "--split: C sources are exported; this is for objects" in capsys.readouterr().err
