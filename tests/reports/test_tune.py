"""Tuning: every variant is measured once, nothing is lost, and exports follow what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.cli.main import main
from crtexport.ir.ops import FullyConnected
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.reports import measure as measure_module
from crtexport.reports.measure import MeasuredExport, MeasureSetting
from crtexport.reports.tune import tune
from crtexport.schedules.select import tuning_records
from crtexport.support.errors import CrtExportError, RunFailedError
from tests.control.networks import layers
from tests.helpers import require
from tests.schedules.scalar.test_words import dense

BOARD = "mps2_an385"


def network(folder: Path) -> Path:
    """A layer whose kernel has a few variants on Cortex-M3."""
    dense(folder, np.arange(5 * 40).reshape(5, 40) % 127)
    return folder / "m.tflite"


def section(cache: Path) -> dict[str, tuning_records.Measured]:
    (found,) = tuning_records.read(cache).sections
    return dict(found[1])


@pytest.mark.qemu
def test_what_was_measured_decides_about_exports(tmp_path: Path) -> None:
    require("qemu-system-arm")
    model, cache = network(tmp_path), tmp_path / "t.json"
    told: list[str] = []
    counts: list[tuple[int, int]] = []
    result = tune(MeasureSetting(model, BOARD), cache, progress=told.append,
                  counted=lambda *each: counts.append(each))
    assert [total for _, total in counts] == [counts[-1][0]] * result.rounds
    assert result.measured == len(section(cache)) > 1
    assert any(text.startswith("round 1") for text in told)
    (layer,) = result.layers
    assert layer.after.cycles == min(m.cycles or 0 for m in section(cache).values())
    assert 0 < result.after.time <= result.before.time
    assert result.after.time == result.after.cycles != result.after.instructions
    # Nothing is measured twice, and the file stays as it is.
    content = cache.read_bytes()
    again = tune(MeasureSetting(model, BOARD), cache)
    assert (again.measured, again.rounds, cache.read_bytes()) == (0, 0, content)
    packages = [
        driver.export(model, board=BOARD, tuning=cache, output=tmp_path / f"{name}.tar").path
        for name in "ab"
    ]
    assert packages[0].read_bytes() == packages[1].read_bytes()
    (module,) = open_package(packages[0]).metadata.crtexport.modules.values()
    assert module.tuning is not None
    assert (module.tuning.sha256, module.tuning.layers) == (tuning_records.read(cache).sha256, 1)
    # Were the best variant a slow one, another would be taken.
    known = tuning_records.read(cache)
    ((configuration, kernels),) = known.sections
    best = min(kernels, key=lambda kernel: kernels[kernel].cycles or 0)
    slow = replace(kernels[best], cycles=10**9)
    known.added(configuration, {best: slow}).write()
    other = driver.export(model, board=BOARD, tuning=cache, output=tmp_path / "other.tar")
    assert other.artifact.functions != driver.export(
        model, board=BOARD, output=tmp_path / "usual.tar"
    ).artifact.functions
    with pytest.raises(CrtExportError, match="nothing was measured for cortex-m3, c, balanced"):
        driver.export(model, board=BOARD, emit="c", tuning=cache, output=tmp_path / "c.tar")


@pytest.mark.qemu
@pytest.mark.parametrize("wrong", [False, True], ids=["interrupted", "other outputs"])
def test_what_was_measured_before_it_ended_is_kept(
    wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("qemu-system-arm")
    model, cache = network(tmp_path), tmp_path / "t.json"
    runs: list[MeasuredExport] = []
    real = measure_module.measure

    def measure(*args: Any, **kwargs: Any) -> MeasuredExport:
        if runs and not wrong:
            raise KeyboardInterrupt
        runs.append(real(*args, **kwargs))
        if len(runs) > 1:
            runs[-1].result.outputs[0][0][:] += 1
        return runs[-1]

    monkeypatch.setattr(measure_module, "measure", measure)
    with pytest.raises(
        RunFailedError if wrong else KeyboardInterrupt,
        match="different outputs" if wrong else None,
    ):
        tune(MeasureSetting(model, BOARD), cache)
    assert len(section(cache)) == 1


@pytest.mark.qemu
def test_layers_in_loops_are_tuned(tmp_path: Path) -> None:
    require("qemu-system-arm")
    net, cache = layers(), tmp_path / "t.json"
    inputs = {
        net.graph.tensors[t].name: value[None]
        for t, value in zip(net.graph.inputs, net.runs[2], strict=True)
    }
    result = tune(MeasureSetting(net.graph, BOARD, inputs=inputs), cache)
    assert {m.layer for m in section(cache).values()} >= {
        str(node) for node in net.graph.nodes[0].graphs[1].nodes
        if isinstance(node.op, FullyConnected)
    }
    assert any(", body: " in layer.name for layer in result.layers)
    assert result.after.instructions <= result.before.instructions


def test_boards_without_qemu_are_not_tuned_for(tmp_path: Path) -> None:
    model = network(tmp_path)
    for board in ("host", "nrf52840dk"):
        with pytest.raises(CrtExportError, match="tuning counts instructions in QEMU"):
            tune(MeasureSetting(model, board), tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


def test_other_files_are_not_written_over(tmp_path: Path) -> None:
    model = network(tmp_path)
    with pytest.raises(CrtExportError, match="isn't a file of measurements"):
        tune(MeasureSetting(model, BOARD), model)


@pytest.mark.qemu
def test_the_command_line_tunes_beside_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("qemu-system-arm")
    model = network(tmp_path)
    package, depfile = tmp_path / "p.tar", tmp_path / "p.d"
    options = ["--tune", "-o", str(package), "--json", "--depfile", str(depfile)]
    assert main([str(model), "--board", BOARD, *options]) == 0
    cache = tmp_path / "m.tflite.tune.json"
    (data,) = json.loads(capsys.readouterr().out)["tuned"]
    assert data["file"] == str(cache)
    assert data["after"]["instructions"] <= data["before"]["instructions"]
    assert str(cache) in depfile.read_text(encoding="utf-8")
    assert main(["bench", str(model), "--board", BOARD, "--tuning", str(cache), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["benches"]
    assert result["second"] == data["after"]["instructions"]
    words = ["inspect", str(model), "--stage", "lowered", "--board", BOARD]
    assert main([*words, "--tuning", str(cache)]) == 0


def test_the_command_line_says_where_tuning_is_possible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = network(tmp_path)
    assert main(["bench", str(model), "--board", "host", "--tune"]) == 2
    assert "boards in QEMU" in capsys.readouterr().err
