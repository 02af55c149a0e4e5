"""Quantized networks give the integers of ONNX Runtime, bit for bit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtexport import package_actions
from crtexport.importers import load
from crtexport.ir.numerics import Numerics
from crtexport.pipeline import driver
from tests.helpers import require, require_environment

INPUTS = 30
_WORKER = Path(__file__).with_name("quantized_networks.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("gcc")
    flags = Path("/proc/cpuinfo")
    if not flags.is_file() or "vnni" not in flags.read_text():
        pytest.skip("without VNNI, ONNX Runtime's products of uint8 and int8 saturate in 16 bits")
    found = require_environment("onnx", "onnx", "onnxruntime")
    folder = tmp_path_factory.mktemp("quantized")
    subprocess.run(
        (found, "-W", "ignore", str(_WORKER), str(folder), str(INPUTS)), check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_integers_are_those_of_onnx_runtime(folder: Path, emit: driver.Emit) -> None:
    graphs = {path.stem: load(path) for path in sorted(folder.glob("*.onnx"))}
    assert all(graph.numerics is Numerics.ORT for graph in graphs.values())
    package = folder / f"{emit}.tar"
    driver.export(
        list(graphs.values()), board="host", output=package, emit=emit, module_name=list(graphs)
    )
    arrays = {name: np.load(folder / f"{name}.npz") for name in graphs}
    found = package_actions.simulate_all(
        package, {f"{name}/x": arrays[name]["x"] for name in graphs}, trust_package=True
    )
    wrong = {}
    for name, expected in arrays.items():
        ours = np.stack([row["y"] for row in found[name]])
        differing = int((ours != expected["y"]).sum())
        if differing:
            wrong[name] = f"{differing} of {ours.size}"
    assert not wrong
