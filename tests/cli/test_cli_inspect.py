"""``crtexport inspect``"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crtexport.cli.main import main
from tests.cli.support import DIGITS, exported
from tests.importers.onnx.writer import graph, model, node, value
from tests.mlf.support import tar_of


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_a_package_is_summed_up(
    emit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = exported(tmp_path, board="mps2_an386", emit="c" if emit == "c" else "llvm")
    assert main(["inspect", str(package)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{package}: Model Library Format 7, written by crtexport ")
    for part in ("mps2_an386", "int8[1x8x8x1]", "metadata.json", "needs from the firmware"):
        assert part in text
    assert ("Objects" in text) == (emit == "llvm")


def test_a_package_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = exported(tmp_path)
    assert main(["inspect", str(package), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["metadata"]["version"] == 7
    assert data["files"]["metadata.json"] > 0


def test_a_package_of_another_exporter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = {
        "version": 5, "model_name": "default", "target": {"1": "c"}, "executors": ["aot"],
        "style": "full-model",
        "memory": {"functions": {"main": [{"device": 1, "workspace_size_bytes": 1234, "inputs": {
            "x\x1b[31m": {"size": 4, "dtype": "int8"}}}]}},
    }
    package = tar_of(tmp_path / "t.tar", {"./metadata.json": json.dumps(metadata).encode()})
    assert main(["inspect", str(package)]) == 0
    text = capsys.readouterr().out
    assert "Model Library Format 5, written by another exporter" in text
    assert "1,234" in text
    assert "\x1b" not in text
    assert "x\\x1b[31m" in text


@pytest.mark.parametrize(
    ("stage", "part"),
    [("graph", "Conv2D"), ("lowered", ": input 0, %"), ("plan", "workspace"), ("kernels", "for"),
     ("c", "int32_t"), ("llvm", "define"), ("picture", "<svg")],
)
def test_a_model_on_its_way_to_code(
    stage: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(DIGITS), "--stage", stage, "--board", "mps2_an386"]) == 0
    text = capsys.readouterr().out
    assert part.lower() in text.lower()
    assert main(["inspect", str(DIGITS), "--stage", stage, "--board", "mps2_an386", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].strip() == text.strip()


def test_a_model_without_a_stage_shows_functions_of_others(
    capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(DIGITS)]) == 0
    text = capsys.readouterr().out
    assert "no operator calls an external function" in text
    assert "int8[1x8x8x1]" in text


def test_open_dimensions_of_a_model_are_fixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("Relu", ["x"], ["y"])], [value("x", [2, "height", 3])], ["y"],
    )))
    assert main(["inspect", str(path), "--dim", "height=5", "--json"]) == 0
    tensors = json.loads(capsys.readouterr().out)["tensors"]
    assert tensors == [["input", "x", "float32[2x5x3]"], ["output", "y", "float32[2x5x3]"]]


def test_what_is_neither_package_nor_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_bytes(b"neither")
    assert main(["inspect", str(tmp_path / "x")]) == 2
    assert "x: " in capsys.readouterr().err


def test_what_a_quantized_model_computes_in_floats_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = {"s": np.float32(0.05), "z": np.int8(3)}
    ends = [node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["r"])]
    last = node("QuantizeLinear", ["n", "s", "z"], ["y"])
    path = tmp_path / "m.onnx"
    for operator, listed in (("LpNormalization", True), ("Tanh", False)):
        between = node(operator, ["r"], ["n"], name="between")
        arrays = {name: np.asarray(array) for name, array in scale.items()}
        content = graph([*ends, between, last], [value("x", [2, 5])], ["y"], arrays)
        path.write_bytes(model(content))
        assert main(["inspect", str(path)]) == 0
        assert ("Computed in float32" in capsys.readouterr().out) == listed
        assert main(["inspect", str(path), "--json"]) == 0
        floats = json.loads(capsys.readouterr().out)["floats"]
        assert [operator in layer for layer in floats] == [True] * listed
