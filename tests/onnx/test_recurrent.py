"""Recurrent networks give what ONNX Runtime gives: float32, within 1e-5 of full scale."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.ops import Gru, Lstm
from tests.differential.network import interpret
from tests.helpers import require_environment

DRAWN = 30
_WORKER = Path(__file__).with_name("recurrent_networks.py")


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    found = require_environment("onnx", "onnx", "onnxruntime")
    folder = tmp_path_factory.mktemp("recurrent")
    subprocess.run(
        (found, "-W", "ignore", str(_WORKER), str(folder), str(DRAWN)), check=True,
        capture_output=True,
    )
    return sorted(folder.glob("*.onnx"))


def test_results_are_those_of_onnx_runtime(networks: list[Path]) -> None:
    wrong = []
    for path in networks:
        graph = load(path)
        arrays = np.load(path.with_suffix(".npz"))
        names = [graph.tensors[tensor].name for tensor in graph.outputs]
        found = interpret(graph, [arrays[graph.tensors[tensor].name] for tensor in graph.inputs])
        for name, ours in zip(names, found, strict=True):
            theirs = arrays[f"out:{name}"]
            limit = 1e-5 * max(float(np.abs(theirs).max()), 1e-6)
            if ours.shape != theirs.shape or not np.abs(ours - theirs).max() <= limit:
                wrong.append(f"{path.stem} {name}: {np.abs(ours - theirs).max()}")
    assert not wrong


def test_steps_that_nobody_reads_are_not_kept(networks: list[Path]) -> None:
    by_name = {path.stem: load(path) for path in networks}
    (gru,) = (n.op for n in by_name["gru_and_its_last_step"].nodes if isinstance(n.op, Gru))
    assert gru.each_step
    layers = [n.op for n in by_name["lstm_of_two_layers"].nodes if isinstance(n.op, Lstm)]
    assert [layer.each_step for layer in layers] == [True, True]
    (last,) = (n.op for n in by_name["last_state"].nodes if isinstance(n.op, Gru))
    assert not last.each_step
