"""Boards that can be are read and export; each contradiction is refused with its key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.cli.main import main
from crtexport.firmware.board import load_board
from crtexport.firmware.board_rules import board_from_data
from crtexport.importers import load
from crtexport.mlf.reader import open_package
from crtexport.mlf.unpack import unpack_for_build
from crtexport.support.errors import CrtExportError
from tests.boards.drawn import Json, boards, contradictions, spoiled
from tests.cli.support import DIGITS
from tests.helpers import require

SETTINGS = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(boards())
def test_a_drawn_board_is_read_and_each_contradiction_is_told_with_its_key(data: Json) -> None:
    board = board_from_data(data, "file")
    assert board_from_data(board.to_data()) == board
    for key, how in contradictions(data):
        with pytest.raises(CrtExportError) as caught:
            board_from_data(spoiled(data, how), "file")
        assert caught.value.location == ("file", *key), (caught.value, key)
        assert "LLVM ERROR" not in str(caught.value)


@pytest.fixture(scope="module")
def network() -> object:
    return load(DIGITS)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(data=boards(), emit=st.sampled_from(["c", "llvm"]))
def test_drawn_boards_export(
    data: Json, emit: str, network: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    board = board_from_data(data)
    path = tmp_path_factory.mktemp("drawn") / "m.tar"
    if board.architecture == "other" and emit == "llvm":
        with pytest.raises(CrtExportError, match="C sources, no objects"):
            crtexport.export(network, board=board, emit="llvm", output=path)  # type: ignore[arg-type]
        assert not path.exists()
        return
    crtexport.export(network, board=board, emit=emit, output=path)  # type: ignore[arg-type]
    assert open_package(path).board_data == board.to_data()


CASES = {
    "cpu: {features: [+dsp, +dps]}": ("cpu → features", "did you mean 'dsp'"),
    "cpu: {features: [+mve]}": ("cpu → features", "no ARMv7E-M processor, as cortex-m4"),
    "cpu: {name: cortex-m99}": ("cpu → name", "did you mean 'cortex-m"),
    "cpu: {float_abi: soft}": ("cpu → float_abi", "that of the triple's eabihf is hard"),
    "cpu: {endian: big}": ("cpu → endian", "thumbv7em is little-endian"),
    "toolchain: {cflags: [-mcpu=cortex-m7]}": (
        "toolchain → cflags", "-mcpu=cortex-m7 says cortex-m7, but cpu has name: cortex-m4"
    ),
    "cpu: {cflags: [-mcpu=cortex-m3]}": ("cpu → cflags", "-mcpu=cortex-m3 says cortex-m3"),
    "cpu: {pointer_bits: 64}": ("cpu → pointer_bits", "pointers of 32 bits"),
    "stack_size: 3": ("stack_size", "no multiple"),
    "npu: {accelerator: ethos-u55-129}": ("npu → accelerator", "did you mean 'ethos-u55-128'"),
}


@pytest.mark.parametrize("text", CASES)
def test_what_is_wrong_is_said_in_words(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(f"name: b\ndescription: d\nextends: mps2_an386\n{text}\n")
    assert main([str(DIGITS), "--board", str(file), "-o", str(tmp_path / "m.tar")]) == 2
    said = capsys.readouterr().err
    where, what = CASES[text]
    assert f"b.yaml → {where}: " in said
    assert what in said
    assert not (tmp_path / "m.tar").exists()


def test_boards_are_checked_without_llvmlite(tmp_path: Path) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("name: b\ndescription: d\nextends: mps2_an386\nbackend: c\n")
    code = (
        "import sys; sys.modules['llvmlite'] = None\n"
        "import crtexport\n"
        f"crtexport.export({str(DIGITS)!r}, board={str(file)!r}, emit='c', output='m.tar')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_verbs_that_export_take_a_board_of_c_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "m.tar"
    assert main([str(DIGITS), "--board", "esp32", "-o", str(package)]) == 0
    opened = open_package(package)
    assert opened.sources
    assert not opened.objects
    assert opened.section is not None
    assert opened.section.abi.triple == ""
    for words in (
        ["simulate", str(package)], ["inspect", str(package)], ["boards", "esp32"],
        ["unpack", str(package), str(tmp_path / "out")],
        *(["inspect", str(DIGITS), "--board", "esp32", "--stage", stage]
          for stage in ("graph", "plan", "kernels", "c")),
    ):
        assert main(words) == 0, words
    capsys.readouterr()
    for words in (
        [str(DIGITS), "--board", "esp32", "--emit", "llvm", "-o", str(tmp_path / "l.tar")],
        ["inspect", str(DIGITS), "--board", "esp32", "--stage", "llvm"],
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "there are C sources, no objects" in said
        assert "--emit c" in said
    assert not (tmp_path / "l.tar").exists()
    assert main(["run", str(package)]) == 2
    assert "built by ESP-IDF" in capsys.readouterr().err
    with pytest.raises(CrtExportError, match="no start-up code"):
        crtexport.build(package, tmp_path / "firmware")


@pytest.mark.parametrize("flags", [["-m32"], ["-m32", "-mno-sse"]])
def test_sources_for_a_board_of_c_sources_compile(flags: list[str], tmp_path: Path) -> None:
    """Strictly, for another processor of its width."""
    compiler = require("gcc")
    package = crtexport.export(DIGITS, board="esp32", output=tmp_path / "m.tar").path
    unpack_for_build(open_package(package), tmp_path / "out")
    for source in (tmp_path / "out" / "src").glob("*.c"):
        subprocess.run(
            [compiler, *flags, "-std=c99", "-Wall", "-Wextra", "-Werror", "-ffreestanding",
             f"-I{tmp_path / 'out' / 'include'}", "-c", str(source), "-o", str(tmp_path / "x.o")],
            check=True,
        )
    assert load_board("esp32").backend == "c"
