"""``crtexport quantize`` makes integers of float .tflite files, and what it reports is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crtexport import package_actions
from crtexport.cli.main import main
from crtexport.importers import load
from crtexport.ir import ops
from crtexport.ir.types import DType
from crtexport.mlf.arrays import Array
from crtexport.pipeline import driver
from crtexport.quantization.quantize import QuantizeResult, quantize
from crtexport.support.errors import CrtExportError
from tests.helpers import reference, require, require_environment, shared_model

SAMPLES = 12
_FLOAT, _QUANTIZED = "resnet8_fp32", "resnet8_int8"


@pytest.fixture(scope="module")
def library() -> str:
    require("gcc")
    return require_environment("quantizer", "ai_edge_quantizer")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.npz"
    images = np.random.default_rng(3).uniform(0, 255, (SAMPLES, 32, 32, 3)).astype(np.float32)
    np.savez(path, input_1=images)
    return path


def decibels(exact: Array, found: Array) -> float:
    return float(10 * np.log10(np.square(exact).sum() / np.square(exact - found).sum()))


def predicted(path: Path, images: Array, folder: Path) -> Array:
    """Returns the real numbers that an export gives, with LiteRT's integers."""
    graph = load(path)
    package = driver.export(
        path, board="host", emit="c", numerics="litert", output=folder / "m.tar"
    )
    quant = graph.type(graph.inputs[0]).quant
    assert quant is not None
    stored = np.clip(np.rint(images / quant.scale[0]) + quant.zero_point[0], -128, 127)
    (name,) = (graph.tensors[tensor].name for tensor in graph.inputs)
    rows = package_actions.simulate(
        package.path, {name: stored.astype(np.int8)[:, None]}, trust_package=True
    )
    result = graph.type(graph.outputs[0]).quant
    assert result is not None
    found = np.stack([next(iter(row.values())) for row in rows]).astype(np.float64)
    return (found - result.zero_point[0]) * result.scale[0]


@pytest.fixture(scope="module")
def plain(
    library: str, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> QuantizeResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRTEXPORT_QUANTIZER_PYTHON", library)
        path = tmp_path_factory.mktemp("made") / "integers.tflite"
        return quantize(shared_model(_FLOAT), data, path)


def test_the_outputs_error_is_that_of_the_export(
    plain: QuantizeResult, data: Path, tmp_path: Path
) -> None:
    images = np.load(data)["input_1"]
    model = reference(shared_model(_FLOAT))
    exact = np.stack([model.run([image[None]])[0] for image in images])
    found = predicted(plain.path, images, tmp_path)
    (error,) = plain.outputs
    assert error.sqnr == pytest.approx(decibels(exact, found), abs=0.05)
    assert plain.library.startswith("ai-edge-quantizer ")
    assert plain.samples == SAMPLES


def test_layers_are_integers_with_a_scale_per_channel(plain: QuantizeResult) -> None:
    assert len(plain.layers) > 10
    assert {layer.type for layer in plain.layers} == {"int8"}
    graph = load(plain.path)
    for node in graph.nodes:
        if isinstance(node.op, ops.Conv2D):
            type_ = graph.type(graph.required(node, 1))
            assert type_.dtype is DType.INT8
            assert type_.quant is not None
            assert len(type_.quant.scale) == type_.shape[0]


def test_layers_are_kept_in_float_and_in_16_bits(
    plain: QuantizeResult, library: str, data: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRTEXPORT_QUANTIZER_PYTHON", library)
    wide, kept = (
        next(layer.layer for layer in plain.layers if layer.operator == operator)
        for operator in ("ADD", "CONV_2D")
    )
    made = quantize(
        shared_model(_FLOAT), data, tmp_path / "m.tflite", keep=[kept], keep16=[wide]
    )
    types = {layer.layer: layer.type for layer in made.layers}
    assert (types.pop(wide), types.pop(kept)) == ("int16", "float32")
    assert set(types.values()) == {"int8"}
    found = predicted(made.path, np.load(data)["input_1"], tmp_path)
    assert np.isfinite(found).all()
    with pytest.raises(CrtExportError, match="frist: no layer has this name"):
        quantize(shared_model(_FLOAT), data, tmp_path / "n.tflite", keep=["frist"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--activations", "uint8"], "--activations: .*no such choice"),
        (["--calibration", "entropy"], "--calibration: .*no such choice"),
        (["--format", "qoperator"], "--format: .*no such choice"),
    ],
)
def test_choices_that_there_are_not_are_refused(
    words: list[str], problem: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, place = str(shared_model(_FLOAT)), str(tmp_path / "m.tflite")
    assert main(["quantize", model, "--data", str(data), "-o", place, *words]) == 2
    assert re.search(problem, capsys.readouterr().err)


def test_a_quantized_file_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="quantized already"):
        quantize(shared_model(_QUANTIZED), data, tmp_path / "m.tflite")


def test_the_library_is_named_where_it_is_missing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = subprocess.run(
        (sys.executable, "-c", "import ai_edge_quantizer"), check=False, capture_output=True
    )
    if not bare.returncode:
        pytest.skip("this Python has it")
    monkeypatch.setenv("CRTEXPORT_QUANTIZER_PYTHON", sys.executable)
    model, place = str(shared_model(_FLOAT)), str(tmp_path / "m.tflite")
    assert main(["quantize", model, "--data", str(data), "-o", place]) == 3
    error = capsys.readouterr().err
    assert "crtexport[quantize-tflite]" in error
    assert "crtexport quantize --install-reference" in error
