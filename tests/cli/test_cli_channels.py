"""``export`` and ``inspect`` say which channels were removed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from crtexport.cli.main import main
from crtexport.ir.ops import FullyConnected
from crtexport.ir.types import DType, Quantization
from crtexport.mlf.reader import open_package
from crtexport.simulation.tflite_writer import to_tflite
from tests.cli.support import DIGITS
from tests.plan.graphs import GraphBuilder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Four hidden units: one without weights, one always 127, one that nobody reads, one of use."""
    b, one = GraphBuilder(), Quantization((1.0,), (0,))
    x = b.input(1, 2, dtype=DType.INT8, quant=one)
    hidden = b.node(
        FullyConnected(), x, b.constant(np.array([[0, 0], [1, 1], [2, 1], [1, 3]], np.int8), one),
        b.constant(np.array([5, 1000, 0, 0], np.int32), one), quant=one,
    )
    last = b.constant(np.array([[1, 2, 0, 3]], np.int8), one)
    graph = b.finish(b.node(FullyConnected(), hidden, last, quant=one))
    path = tmp_path / "model.tflite"
    path.write_bytes(to_tflite(graph))
    return path


FIRST = {
    "inputs": [2, 2], "outputs": [4, 1], "macs": [8, 2], "weight_bytes": [8, 2],
    "zero_weights": 1, "one_value": 1, "unread": 1,
}
SECOND = {
    "inputs": [4, 1], "outputs": [1, 1], "macs": [4, 1], "weight_bytes": [4, 1],
    "zero_weights": 0, "one_value": 0, "unread": 0,
}


def test_json_has_every_layer_before_and_after(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "p.tar"
    assert main([str(model), "-o", str(package), "--emit", "c", "--json"]) == 0
    layers = json.loads(capsys.readouterr().out)["channels"]
    assert [{k: v for k, v in layer.items() if k != "layer"} for layer in layers] == [FIRST, SECOND]
    assert "FULLY_CONNECTED" in layers[0]["layer"]
    section = open_package(package).module_section
    assert section is not None
    assert json.loads(msgspec.json.encode(section.channels)) == layers


@pytest.mark.parametrize("verbose", [False, True])
def test_export_sums_up_and_tells_each_layer_when_asked(
    verbose: bool, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(model), "-o", str(tmp_path / "p.tar"), "--emit", "c"]
    assert main([*arguments, "-v"] if verbose else arguments) == 0
    text = capsys.readouterr().out
    assert "removed 3 of 5 channels" in text
    assert "12 → 3 multiply-accumulates" in text
    assert ("zero weights" in text) == verbose


def test_inspect_tells_each_layer(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "p.tar"
    assert main([str(model), "-o", str(package), "--emit", "c", "-q"]) == 0
    assert main(["inspect", str(package)]) == 0
    text = capsys.readouterr().out
    assert "Channels removed" in text
    assert "4 → 1" in text


def test_nothing_is_said_where_nothing_was_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "p.tar"
    assert main([str(DIGITS), "-o", str(package), "--emit", "c", "-v"]) == 0
    assert main(["inspect", str(package)]) == 0
    assert "removed" not in capsys.readouterr().out
