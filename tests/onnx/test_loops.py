"""Loops and branches of ONNX files give what ONNX Runtime gives, and long loops stay loops."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import crtexport
from crtexport import package_actions
from crtexport.importers import load
from crtexport.ir.ops import If, While
from tests.helpers import require_environment

HERE = Path(__file__).parent
TEXTS = HERE / "loops"
NETWORKS = sorted(path.stem for path in TEXTS.glob("*.txt"))
RUNS = 4
UNROLLED = ("steps_that_differ",)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = require_environment("onnx", "onnx", "onnxruntime")
    folder = tmp_path_factory.mktemp("loops")
    subprocess.run(
        (found, "-W", "ignore", HERE / "described.py", TEXTS, folder, str(RUNS)), check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_each_run_gives_what_onnx_runtime_does(
    emit: Literal["c", "llvm"], networks: Path, tmp_path: Path
) -> None:
    models = [networks / f"{name}.onnx" for name in NETWORKS]
    exported = crtexport.export(models, emit=emit, output=tmp_path / "all.tar")
    inputs = {
        f"{model.stem}/{name}": array for model in models
        for name, array in _arrays(model, "in").items()
    }
    found = package_actions.simulate_all(exported.path, inputs)
    wrong = []
    for model in models:
        for run in range(RUNS):
            for name, expected in _arrays(model, "out").items():
                ours, theirs = found[model.stem][run][name], expected[run]
                limit = 1e-5 * max(float(np.abs(theirs).max()), 1e-6)
                if ours.shape != theirs.shape or not np.abs(ours - theirs).max() <= limit:
                    wrong.append((model.stem, run, name))
    assert not wrong


def _arrays(model: Path, side: str) -> dict[str, np.ndarray]:
    with np.load(model.with_suffix(f".{side}.npz")) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_loop_or_branch_is_there_once(name: str, networks: Path) -> None:
    graph = load(networks / f"{name}.onnx")
    kept = any(isinstance(node.op, While | If) for node in graph.nodes)
    assert kept != (name in UNROLLED)
    assert len(graph.nodes) < 10 or name in UNROLLED
