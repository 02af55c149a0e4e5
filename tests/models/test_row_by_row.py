"""Trained networks that are computed row by row."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import crtexport
from crtexport.pipeline import driver
from crtexport.support.errors import CrtExportError
from tests.helpers import fnv1a, shared_model, standard_input, tflm_outputs

pytestmark = pytest.mark.models

MOST = {
    ("kws_int8", "mps2_an386"): 6_500, ("resnet8_int8", "mps2_an386"): 14_000,
    ("vww96_int8", "mps2_an386"): 16_000, ("kws_int8", "mps3_an547"): 6_500,
    ("resnet8_int8", "mps3_an547"): 14_000, ("vww96_int8", "mps2_an385"): 16_000,
    ("resnet8_int8", "qemu_riscv32"): 14_000,
}


@pytest.mark.parametrize(("name", "board"), MOST)
def test_networks_take_no_more_memory_than_their_rows(name: str, board: str) -> None:
    graph = driver.load(shared_model(name))
    prepared = driver.prepare(graph, driver.resolve_board(board), optimize="ram")
    assert prepared.plan.total <= MOST[name, board]


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
def test_firmware_computes_rows(tmp_path: Path) -> None:
    package = tmp_path / "rows.tar"
    exported = crtexport.export(
        shared_model("kws_int8"), board="mps2_an386", optimize="ram", output=package
    )
    (given,) = exported.artifact.inputs
    result = crtexport.run(package, {given.name: standard_input(given.type.shape)[None]})
    assert fnv1a(result.outputs[0][0].tobytes()) == tflm_outputs()["kws_int8"]["fnv1a"]
    assert result.instructions_first == result.instructions_second


def test_a_workspace_is_as_small_as_it_has_to_be() -> None:
    graph, board = driver.load(shared_model("vww96_int8")), driver.resolve_board("mps2_an386")

    def total(ram: int) -> int:
        return driver.prepare(graph, board, ram=ram).plan.total

    assert total(40_000) == driver.prepare(graph, board).plan.total
    assert 20_000 < total(24_576) <= 24_576
    assert total(15_000) <= 15_000
    with pytest.raises(CrtExportError, match=r"takes \d+ bytes at least, .* but 9000 were"):
        total(9_000)
