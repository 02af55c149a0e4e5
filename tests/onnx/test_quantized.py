"""Quantized networks give the integers of ONNX Runtime, bit for bit: a few inputs of what
:mod:`tests.onnx.exactness` compares."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from crtexport import package_actions
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.ir import ops
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.types import DType
from crtexport.pipeline import driver
from crtexport.simulation.tflite_writer import to_tflite
from crtexport.verification import verify, verify_layers
from tests.helpers import require_environment
from tests.onnx import exactness
from tests.reference.breaking import clamp_convolution

INPUTS = 12
FORMATS = ("u8s8", "s8s8", "qoperator", "u8u8", "symmetric")
STEMS = [
    f"{network}_{FORMATS[(number + turn) % len(FORMATS)]}"
    for number, network in enumerate(exactness.NETWORKS) for turn in (0, 1)
]
"""Each network in two of the formats."""
REAL = ["dscnn_real", "mixed_reals8", "inverted_real", "autoencoder_reals8", "segmenter_real"]
"""With real weights, which ONNX Runtime's optimizer quantizes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized")
    exactness.draw(folder, INPUTS, [*STEMS, *REAL, "upscaled_u8s8", "upscaled_real"])
    return folder


def differing(found: dict[str, exactness.Compared]) -> dict[str, dict[str, int]]:
    assert min(one.tensors for one in found.values()) > 7
    return {stem: one.wrong for stem, one in found.items() if one.wrong}


def test_c_gives_the_integers_of_onnx_runtime(folder: Path) -> None:
    assert differing(exactness.here(folder, STEMS, "c")) == {}


def test_objects_give_the_integers_of_onnx_runtime(folder: Path) -> None:
    assert differing(exactness.here(folder, STEMS[::2], "llvm")) == {}


def test_portable_kernels_give_the_integers_of_onnx_runtime(folder: Path) -> None:
    assert differing(exactness.interpreted(folder, STEMS[1::2], 1)) == {}


@pytest.mark.parametrize("stem", ["attention", "branches"])
def test_a_board_gives_the_integers_of_onnx_runtime(folder: Path, stem: str) -> None:
    stems = [one for one in STEMS if one.startswith(stem)]
    assert differing(exactness.on_board(folder, stems, "mps2_an386", 2)) == {}


def test_real_weights_become_those_of_onnx_runtimes_optimizer(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert differing(exactness.here(folder, REAL, "c")) == {}
    assert differing(exactness.here(folder, REAL[::2], "llvm")) == {}
    assert differing(exactness.interpreted(folder, REAL[1:2], 1)) == {}
    assert differing(exactness.on_board(folder, REAL[2:3], "mps2_an386", 1)) == {}
    assert "in float32" not in caplog.text


@pytest.mark.parametrize("stem", ["residual_s8s8", "branches_u8s8"])
def test_layers_are_compared_as_the_optimizer_leaves_them(
    folder: Path, stem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results in floats are no outputs, which would keep ONNX Runtime from computing integers."""
    monkeypatch.setenv("CRTEXPORT_ONNX_PYTHON", require_environment("onnx", "onnxruntime"))
    path = folder / f"{stem}.onnx"
    assert verify(path, samples=2).agrees
    result = verify_layers(path, samples=2)
    assert result.agrees
    assert result.unseen == ()
    layers = [layer for layer in result.layers if " to " in layer.operator]
    assert {layer.output.dtype for layer in layers} <= {"int8", "uint8"}
    assert len(layers) > 8
    conv = next(layer.operator for layer in layers[3:] if "(Conv) to " in layer.operator)
    place = conv.partition(" to ")[0]
    clamp_convolution(monkeypatch, lambda node: node.origin == place)
    first = verify_layers(path, samples=2).first_difference
    assert first is not None
    assert first.operator == conv


@pytest.mark.parametrize("stem", ["upscaled_u8s8", "upscaled_real"])
def test_transposed_convolutions_are_a_step_off_at_most(folder: Path, stem: str) -> None:
    """ONNX Runtime computes them in floats, and may come out on the other side of a half."""
    read = load(folder / f"{stem}.onnx")
    graph = driver.prepare(read, load_board("host")).lowered.graph
    inputs = [
        graph.type(node.inputs[0]).dtype for node in graph.nodes
        if isinstance(node.op, ops.TransposeConv2D) and node.inputs[0] is not None
    ]
    assert inputs == [DType.INT8] * 2
    (found,) = exactness.here(folder, [stem], "c").values()
    assert found.differing <= found.elements // 10_000


@pytest.mark.slow
def test_mobilenet_takes_the_memory_that_it_takes_from_tflite(tmp_path: Path) -> None:
    exactness.draw(tmp_path, 1, ["mobilenet_u8s8"])
    read = load(tmp_path / "mobilenet_u8s8.onnx")
    network = replace(read, outputs=read.outputs[:1])
    board = load_board("mps2_an386")
    whole = replace(network, numerics=Numerics.TFLITE)
    # For speed, nodes run one after the other, which TensorFlow Lite's file can say.
    written = driver.prepare(whole, board, optimize="speed").lowered.graph
    (tmp_path / "m.tflite").write_bytes(to_tflite(written))
    ours, usual = (memory(graph, tmp_path) for graph in (network, load(tmp_path / "m.tflite")))
    assert len(written.nodes) > 60
    for mine, other in zip(ours, usual, strict=True):
        assert 0.95 * other <= mine <= 1.05 * other


def memory(graph: Graph, folder: Path) -> tuple[int, int]:
    """Bytes of flash and of RAM that a network's code, constants and tensors take."""
    driver.export([graph], board="mps2_an386", output=folder / "m.tar")
    result = package_actions.run(folder / "m.tar")
    flash, ram = (
        sum(size for name, size in sections.items() if name.startswith(".model"))
        for sections in (result.flash, result.ram)
    )
    return flash, ram
