"""Benchmarks: counts by layer add up, shares are counted once, and others' figures are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.reports import bench as bench_module
from crtexport.reports import chart
from crtexport.reports.bench import bench
from crtexport.reports.measure import MeasureSetting
from crtexport.reports.peers import PeerFigure, figures_for, provenance
from crtexport.support.errors import CrtExportError
from tests.cli.support import DIGITS
from tests.control.networks import collatz
from tests.helpers import INT8_NETWORKS, require, require_module, shared_model
from tests.reports.benches import layer, result

BOARDS = [
    ("mps2_an386", ("arm-none-eabi-gcc", "qemu-system-arm")),
    ("qemu_x86", ("gcc", "qemu-system-i386")),
    ("qemu_riscv32", ("riscv64-unknown-elf-gcc", "qemu-system-riscv32")),
]


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "tools"), BOARDS)
def test_layers_add_up_to_the_inference(board: str, tools: tuple[str, ...]) -> None:
    for tool in tools:
        require(tool)
    result = bench(MeasureSetting(DIGITS, board))
    counts = [layer.instructions for layer in result.layers]
    assert result.exact
    assert result.startup == 0
    assert result.second is not None
    # What is left is the entry function up to the first kernel.
    assert 0 < result.second - sum(count or 0 for count in counts) < 100
    assert all(layer.instructions for layer in result.layers)
    assert result.macs > 1000
    assert sum(layer.code for layer in result.layers) <= result.flash[".model_text"]
    assert sum(layer.constants for layer in result.layers) <= result.flash[".model_rodata"]


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "tools"), BOARDS)
def test_layers_in_branches_and_loops_add_up_to_the_inference(
    board: str, tools: tuple[str, ...]
) -> None:
    for tool in tools:
        require(tool)
    result = bench(MeasureSetting(
        collatz().graph, board, inputs={"t0": np.array([[7]], np.int32)}
    ))
    # 7 22 11 34 17 52 26 13 40 20 10 5 16 8 4 2 1
    runs = {layer.operator: layer.runs for layer in result.layers if layer.operator != "Add"}
    assert runs == {
        "While": 16, "NotEqual": 17, "FloorMod": 16, "Equal": 16, "FloorDiv": 11, "Mul": 5,
    }
    assert any("While), body: " in x.name and "If), else: " in x.name for x in result.layers)
    assert result.second is not None
    assert 0 < result.second - sum(layer.instructions or 0 for layer in result.layers) < 100
    assert all(layer.instructions for layer in result.layers)


def test_what_layers_share_counts_for_the_first() -> None:
    uses = [("k", "w0"), ("k", "w1"), ("k", "w0")]
    assert bench_module._first_uses(uses, {"k": 100, "w0": 7, "w1": 5}) == [107, 5, 0]


def test_flash_is_without_the_input_that_is_tested_with() -> None:
    assert result(layer("a", 100)).flash_size == 10


def test_per_mac_needs_macs_and_a_count() -> None:
    assert layer("a", 100).per_mac == 2.0
    assert layer("a", None).per_mac is None


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_chart_is_the_same_each_time_and_takes_any_name(suffix: str, tmp_path: Path) -> None:
    require_module("matplotlib")
    peer = PeerFigure(model="m", board="b", peer="<other> $x$", instructions=5, source="s")
    benches = [result(layer("a $\\frac$ & <b>", 100), layer("b", None), peers=(peer,)), result()]
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    chart.draw(benches, first)
    chart.draw(benches, second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(("name", "match"), [
    ("chart.txt", r"\.svg or \.png"), ("missing/chart.svg", "no such folder"),
])
def test_a_chart_that_can_not_be_written_is_refused_before_measuring(
    name: str, match: str, tmp_path: Path
) -> None:
    with pytest.raises(CrtExportError, match=match):
        chart.check(tmp_path / name)


@pytest.mark.parametrize("network", INT8_NETWORKS)
def test_figures_of_other_tools_belong_to_the_file(network: str) -> None:
    graph_hash = bench_module.driver.load(shared_model(network)).sha256
    figures = figures_for(graph_hash, "mps2_an386")
    assert figures[0].peer == "TFLM + CMSIS-NN"
    assert [f.instructions for f in figures] == sorted(f.instructions for f in figures)
    assert all(len(provenance(f)) > 100 for f in figures)
    assert figures_for("0" * 64, "mps2_an386") == ()
