"""Trained networks that are computed row by row."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import crtexport
from crtexport.pipeline import driver
from crtexport.pipeline.cascades.costs import time_of
from crtexport.schedules.select.lower import Lowerer
from crtexport.support.errors import CrtExportError
from tests.helpers import fnv1a, shared_model, standard_input, tflm_outputs

pytestmark = pytest.mark.models

BOARDS = "mps2_an386", "mps3_an547", "mps2_an385", "qemu_riscv32"
MOST = {"kws_int8": 6_500, "resnet8_int8": 14_000, "vww96_int8": 16_000}


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("name", MOST)
def test_networks_take_no_more_memory_than_their_rows(name: str, board: str) -> None:
    graph = driver.load(shared_model(name))
    prepared = driver.prepare(graph, driver.resolve_board(board), optimize="ram")
    assert prepared.plan.total <= MOST[name]


@pytest.mark.parametrize(("board", "resnet8", "vww96"), [
    ("mps2_an386", 11_136, 19_828), ("mps2_an385", 13_440, 23_312),
    ("qemu_riscv32", 11_008, 19_408), ("mps3_an547", 34_416, 26_896),
])
def test_balanced_networks_take_little_memory_where_that_costs_little(
    board: str, resnet8: int, vww96: int
) -> None:
    for name, most in (("resnet8_int8", resnet8), ("vww96_int8", vww96)):
        graph, target = driver.load(shared_model(name)), driver.resolve_board(board)
        made = driver.prepare(graph, target, optimize="balanced")
        assert made.plan.total <= most
        if made.whole is None:
            continue
        whole = driver.prepare(graph, target, ram=made.whole)
        assert (whole.plan.total, whole.whole) == (made.whole, None)
        lower = Lowerer(target.target, "balanced")
        assert time_of(made.lowered, lower) <= 1.01 * time_of(whole.lowered, lower)


@pytest.mark.parametrize("board", BOARDS)
def test_balanced_networks_run_whole_where_memory_costs_much_code(board: str) -> None:
    for name in ("kws_int8", "ad01_int8"):
        graph = driver.load(shared_model(name))
        assert driver.prepare(graph, driver.resolve_board(board)).whole is None


@pytest.mark.parametrize(("name", "most"), [
    ("kws_int8", 7_000), ("resnet8_int8", 17_000), ("vww96_int8", 38_212),
])
def test_inputs_and_outputs_in_the_workspace_take_hardly_more(name: str, most: int) -> None:
    graph = driver.load(shared_model(name))
    board = driver.resolve_board("mps2_an386")
    assert driver.prepare(graph, board, optimize="ram", io="workspace").plan.total <= most


def test_person_detection_fits_17_kb_where_the_camera_gives_rows() -> None:
    graph = driver.load(shared_model("vww96_int8"))
    artifact = driver.prepare(graph, driver.resolve_board("mps2_an386"), feed=True).artifact
    outputs = sum(tensor.type.nbytes for tensor in artifact.outputs)
    assert artifact.workspace_size + outputs <= 17_000


@pytest.mark.parametrize(("name", "emit"), [*zip(
    ("kws_int8", "resnet8_int8", "vww96_int8"), itertools.cycle(("c", "llvm")), strict=False,
)])
def test_rows_give_what_was_measured_on_devices(name: str, emit: str, tmp_path: Path) -> None:
    package = tmp_path / "rows.tar"
    exported = crtexport.export(
        shared_model(name), board="host", emit=emit, optimize="ram", output=package
    )
    assert any(step.rows for step in exported.plan.steps)
    (given,) = exported.artifact.inputs
    (row,) = crtexport.simulate(package, {given.name: standard_input(given.type.shape)[None]})
    (output,) = row.values()
    assert fnv1a(output.tobytes()) == tflm_outputs()[name]["fnv1a"]


@pytest.mark.qemu
@pytest.mark.parametrize(("emit", "feed"), [("llvm", False), ("llvm", True), ("c", True)])
def test_firmware_computes_rows(emit: str, feed: bool, tmp_path: Path) -> None:
    """Those of an image in flash, or as they are given."""
    package = tmp_path / "rows.tar"
    exported = crtexport.export(
        shared_model("kws_int8"), board="mps2_an386", optimize="ram", emit=emit, feed=feed,
        output=package,
    )
    (given,) = exported.artifact.inputs
    result = crtexport.run(package, {given.name: standard_input(given.type.shape)[None]})
    assert fnv1a(result.outputs[0][0].tobytes()) == tflm_outputs()["kws_int8"]["fnv1a"]
    assert result.instructions_first == result.instructions_second


def test_a_workspace_is_as_small_as_it_has_to_be() -> None:
    graph, board = driver.load(shared_model("vww96_int8")), driver.resolve_board("mps2_an386")

    def total(ram: int, optimize: str | None = None) -> int:
        return driver.prepare(graph, board, optimize=optimize, ram=ram).plan.total

    whole = driver.prepare(graph, board, optimize="speed").plan.total
    assert total(40_000, "speed") == whole
    assert total(40_000) <= whole  # kernels have less memory of their own
    assert 16_000 < total(24_576) <= 24_576
    assert total(15_000) <= 15_000
    with pytest.raises(CrtExportError, match=r"takes \d+ bytes at least, .* but 9000 were"):
        total(9_000)
