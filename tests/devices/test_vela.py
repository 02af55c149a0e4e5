"""Vela on behalf of the user: what it compiles, what it is told, and what is refused."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crtexport
from crtexport.cli.main import main
from crtexport.firmware import vela
from crtexport.firmware.board import Board, list_boards, load_board
from crtexport.firmware.board_reader import board_from_keys
from crtexport.firmware.board_rules import ETHOS_U, board_from_data
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError, ToolMissingError
from tests.devices.vela_support import compiled, stand_in, vela_program
from tests.helpers import require, require_module, shared_model
from tests.tflite_builder import ModelBuilder


def _pooling(dtype: str = "int8") -> bytes:
    """A network without a weight."""
    model = ModelBuilder()
    scale: dict[str, Any] = {"scale": 0.5, "zero_point": 0} if dtype == "int8" else {}
    x = model.tensor("x", (1, 8, 8, 8), dtype, **scale)
    y = model.tensor("y", (1, 4, 4, 8), dtype, **scale)
    model.op("MAX_POOL_2D", [x], [y], window=2, stride=2, padding="VALID")
    return model.build([x], [y])


@pytest.fixture
def pooling(tmp_path: Path) -> Path:
    path = tmp_path / "pooling.tflite"
    path.write_bytes(_pooling())
    return path


def test_vela_runs_for_the_user_and_gives_what_it_gives_by_hand(tmp_path: Path) -> None:
    vela_program()
    model = shared_model("kws_int8")
    by_hand = compiled(
        model, "ethos-u55-128", "--config", vela.ARMS_CONFIG, "--system-config",
        "Ethos_U55_High_End_Embedded", "--memory-mode", "Shared_Sram",
    )
    ours = crtexport.export(
        model, board="mps3_an547", accelerators=["ethos-u"], output=tmp_path / "ours.tar"
    )
    theirs = crtexport.export(
        by_hand, board="mps3_an547", module_name="kws_int8", output=tmp_path / "theirs.tar"
    )
    assert ours.artifact.module == "kws_int8"
    assert "Model: kws_int8.tflite" in ours.artifact.header_comment[1]
    for found, wanted in zip(ours.artifact.constants, theirs.artifact.constants, strict=True):
        assert (found.symbol, found.align) == (wanted.symbol, wanted.align)
        assert found.data.read() == wanted.data.read()
    assert ours.artifact.calls == theirs.artifact.calls
    again = crtexport.export(
        model, board="mps3_an547", accelerators=["ethos-u"], output=tmp_path / "again.tar"
    )
    assert again.path.read_bytes() == ours.path.read_bytes()


def test_workspaces_lie_where_the_npu_reaches_them(pooling: Path, tmp_path: Path) -> None:
    vela_program()
    board = load_board("mps3_an547")
    assert board.placement.workspaces == ("dtcm", "ram")
    package = crtexport.export(
        pooling, board=board, accelerators=["ethos-u"], output=tmp_path / "p.tar"
    ).path
    embedded = open_package(package).board_data
    assert embedded is not None
    placed = board_from_data(embedded).placement
    assert placed.workspaces == ("ram",)
    with pytest.raises(CrtExportError, match="doesn't reach the memory 'dtcm'"):
        crtexport.export(
            pooling, board=board, accelerators=["ethos-u"], pools=[("dtcm", 1 << 16)],
            output=tmp_path / "q.tar",
        )
    assert not (tmp_path / "q.tar").exists()


def test_commands_are_for_the_ethos_u_that_is_there(pooling: Path, tmp_path: Path) -> None:
    model = compiled(pooling, "ethos-u55-128")
    where = {"output": tmp_path / "p.tar"}
    crtexport.export(model, board="mps3_an547", **where)
    crtexport.export(model, board="mps2_an386", accelerators=["ethos-u55-128"], **where)
    (tmp_path / "p.tar").unlink()
    for board, accelerators, problem in (
        ("mps2_an386", None, "commands for an ethos-u55-128, but the board has no Ethos-U"),
        ("host", None, "the board has no Ethos-U"),
        ("alif_e7_hp", None, r"not for an ethos-u55-256[^\0]*export the original file"),
        ("mps3_an547", ["ethos-u55-64"], "for an ethos-u55-128, not for an ethos-u55-64"),
        ("mps2_an386", ["ethos-u"], "the board has no Ethos-U"),
        ("mps3_an547", ["ethos-u55-100"], "there is no such Ethos-U"),
        ("mps3_an547", ["ethos-u55-128", "ethos-u55-64"], "for one Ethos-U, not for"),
    ):
        with pytest.raises(CrtExportError, match=problem):
            crtexport.export(model, board=board, accelerators=accelerators, **where)
    assert not (tmp_path / "p.tar").exists()


def test_models_that_vela_leaves_alone_are_refused(tmp_path: Path) -> None:
    vela_program()
    path = tmp_path / "float.tflite"
    path.write_bytes(_pooling("float32"))
    with pytest.raises(CrtExportError, match="finds nothing in the model") as caught:
        crtexport.export(path, accelerators=["ethos-u55-64"], output=tmp_path / "p.tar")
    assert "quantize the model to int8" in str(caught.value)
    path.write_text('{"format": "crtexport-model"}')
    with pytest.raises(CrtExportError, match=r"Vela compiles \.tflite files, which this is not"):
        crtexport.export(path, accelerators=["ethos-u55-64"], output=tmp_path / "p.tar")
    graph = crtexport.load(shared_model("kws_int8"))
    with pytest.raises(CrtExportError, match="the network has no commands for an Ethos-U"):
        crtexport.export(graph, accelerators=["ethos-u55-64"], output=tmp_path / "p.tar")


def _program(folder: Path, text: str) -> Path:
    path = folder / "vela"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_velas_own_words_are_quoted(
    pooling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "import sys\nprint('Error: the network is odd', file=sys.stderr)\nsys.exit(3)"
    monkeypatch.setenv(vela.PROGRAM, str(_program(tmp_path, text)))
    given = [str(pooling), "--accelerator", "ethos-u55-64", "-o", str(tmp_path / "p.tar")]
    assert main(given) == 2
    said = capsys.readouterr().err
    assert "Vela fails with the exit code 3" in said
    assert "Error: the network is odd" in said


def test_a_missing_vela_is_named(
    pooling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ToolMissingError, match="not installed") as caught:
        crtexport.export(pooling, accelerators=["ethos-u55-64"], output=tmp_path / "p.tar")
    assert "pip install 'crtexport[ethos-u]'" in str(caught.value)
    monkeypatch.setenv(vela.PROGRAM, str(tmp_path / "nothing"))
    with pytest.raises(ToolMissingError, match="can't be started"):
        crtexport.export(pooling, accelerators=["ethos-u55-64"], output=tmp_path / "p.tar")


def test_inspect_shows_what_the_npu_runs(
    pooling: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = compiled(pooling, "ethos-u55-128")
    package = crtexport.export(model, board="mps3_an547", output=tmp_path / "p.tar").path
    section = open_package(package).module_section
    assert section is not None
    (external,) = section.externals
    (commands,) = external.commands
    assert commands.arena == 640, "the input and the output"
    assert main(["inspect", str(package)]) == 0
    said = capsys.readouterr().out
    assert "Commands for TVMEthosULaunch" in said
    assert "ethos-u55-128" in said


BOARDS = [board for board in list_boards() if board.npu is not None]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_vela_knows_what_boards_say(board: Board, pooling: Path, tmp_path: Path) -> None:
    vela_program()
    assert board.npu is not None
    assert board.npu.accelerator in ETHOS_U
    made = crtexport.export(
        pooling, board=board, accelerators=["ethos-u"], output=tmp_path / "p.tar"
    )
    assert made.sizes["workspace"] == 640


def test_the_configurations_are_velas() -> None:
    require_module("ethosu.vela")
    from ethosu.vela.architecture_features import Accelerator  # type: ignore[import-not-found]

    known = {member.value.lower() for member in Accelerator}
    assert known <= set(ETHOS_U)


KEYS: dict[str, Any] = {
    "name": "b", "description": "b", "extends": "mps3_an547",
    "runner": {"kind": "none", "reason": "none"},
}


@pytest.mark.parametrize(
    ("npu", "problem"),
    [
        ({"accelerator": "u55"}, "accelerator"),
        ({"memories": ["flash", "psram"]}, "npu reaches memory 'psram', which is not under memory"),
        ({"memories": ["ram"]}, "npu doesn't reach the constants in flash"),
        ({"memories": ["flash", "itcm"]}, "npu reaches no memory of the workspace"),
        ({"speed": 3}, "unknown key"),
    ],
)
def test_flaws_of_boards_are_named(npu: dict[str, Any], problem: str) -> None:
    with pytest.raises(CrtExportError, match=problem):
        board_from_keys({**KEYS, "npu": npu}, "b.yaml")


def test_networks_without_weights_run(pooling: Path, tmp_path: Path) -> None:
    """Vela writes them with constant data that isn't there."""
    require("gcc")
    model = compiled(pooling, "ethos-u55-128")
    package = crtexport.export(
        model, emit="c", accelerators=["ethos-u55-128"], output=tmp_path / "p.tar"
    ).path
    image = np.random.default_rng(2).integers(-128, 128, (1, 8, 8, 8), np.int8)
    (outputs,) = crtexport.simulate(
        package, {"x": image}, device_code=stand_in(model, [pooling], tmp_path)
    )
    wanted = image.reshape(1, 4, 2, 4, 2, 8).max(axis=(2, 4))
    np.testing.assert_array_equal(outputs["y"], wanted)
