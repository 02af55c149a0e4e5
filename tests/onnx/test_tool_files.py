"""Quantized graphs in the forms in which tools write them give what ONNX Runtime does: integers of
the same bits where both compute such, and weights of a byte in all of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtexport import package_actions
from crtexport.importers import load
from crtexport.ir import ops
from crtexport.ir.numerics import Numerics
from crtexport.ir.types import DType
from crtexport.passes.drop_dead import drop_dead
from crtexport.passes.float_layers import float_layers
from crtexport.pipeline import driver
from crtexport.verification import verify_layers
from tests.helpers import require, require_environment
from tests.importers.onnx.writer import graph, model, node, value

INPUTS = 20
_WORKER = Path(__file__).with_name("tool_files.py")
ONE_STEP = {"clamped": 1, "clamped_twice": 1, "added_bias": 1, "float_bias": 2, "float_weights": 1}
"""The percent of results that may be a step away, where ONNX Runtime computes in floats: clamps and
float biases of a layer."""
FLOATS = {
    "blocks", "dynamic", "dynamic_channels", "dynamic_channels_recurrent", "dynamic_images",
    "dynamic_recurrent", "dynamic_unsigned", "left", "no_end", "packed_blocks", "unsigned_words",
    "weights_only", "words",
}
"""Those that both compute in floats, at least in part."""
_WEIGHTED = (ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("gcc")
    flags = Path("/proc/cpuinfo")
    if not flags.is_file() or "vnni" not in flags.read_text(encoding="ascii"):
        pytest.skip("without VNNI, ONNX Runtime's products of uint8 and int8 saturate in 16 bits")
    found = require_environment("onnx", "onnx", "onnxruntime")
    folder = tmp_path_factory.mktemp("tools")
    subprocess.run(
        (found, "-W", "ignore", str(_WORKER), str(folder), str(INPUTS)), check=True,
        capture_output=True,
    )
    return folder


def test_results_are_those_of_onnx_runtime(folder: Path) -> None:
    graphs = {path.stem: load(path) for path in sorted(folder.glob("*.onnx"))}
    assert set(ONE_STEP) | FLOATS < set(graphs)
    package = folder / "all.tar"
    driver.export(
        list(graphs.values()), board="host", output=package, emit="c", module_name=list(graphs)
    )
    arrays = {name: np.load(folder / f"{name}.npz") for name in graphs}
    found = package_actions.simulate_all(
        package, {f"{name}/x": arrays[name]["x"] for name in graphs}, trust_package=True
    )
    wrong = {}
    for name, expected in arrays.items():
        ours, theirs = np.stack([row["y"] for row in found[name]]), expected["y"]
        off = np.abs(ours.astype(np.float64) - theirs)
        full, allowed = np.abs(theirs).max(), ONE_STEP.get(name, 0) / 100 * ours.size
        if name in FLOATS:
            # Numbers next to the middle of two 16-bit steps may be rounded to either.
            step = 2.1e-4 if name.endswith("words") else 1e-6 * full
            if name.endswith("recurrent"):  # whose input and state ONNX Runtime rounds to 8 bits
                step = 0.02 * full
            bad = (off > step).any()
        else:
            bad = (off > 0).sum() > allowed or off.max() > 0.03 * full
        if bad:
            wrong[name] = f"{(off > 0).sum()} of {off.size}, up to {off.max()} of {full}"
        assert len(np.unique(theirs)) > 10, name
    assert not wrong


def test_weights_have_a_byte_and_layers_integers(folder: Path) -> None:
    for path in sorted(folder.glob("*.onnx")):
        name, graph = path.stem, drop_dead(load(path))
        if name.endswith("recurrent"):  # an LSTM's are floats
            continue
        layers = [node for node in graph.nodes if isinstance(node.op, _WEIGHTED)]
        weights = {graph.type(graph.required(node, 1)).dtype for node in layers}
        if name != "dynamic_unsigned":
            assert graph.numerics is Numerics.ORT, name
            assert weights <= {DType.INT8}, name
        floats = FLOATS | {"embedding", "chosen", "chosen_by_operator"}
        assert bool(float_layers(graph)) == (name in floats), name


def test_a_clip_of_integers_is_one_table(folder: Path) -> None:
    graph = drop_dead(load(folder / "few_bits.onnx"))
    kinds = [type(node.op) for node in graph.nodes]
    assert kinds.count(ops.Lookup) == 3
    assert not {ops.Cast, ops.Maximum, ops.Minimum} & set(kinds)
    (weights,) = {graph.required(n, 1) for n in graph.nodes if isinstance(n.op, ops.Conv2D)}
    constant = graph.constant(weights)
    assert constant is not None
    assert np.abs(constant.array(graph.type(weights))).max() == 7


@pytest.mark.parametrize(
    ("name", "layers"),
    [("left", {"Conv", "HardSwish", "ReduceL2"}), ("words", {"Conv"}), ("moved", set())],
)
def test_what_is_computed_in_floats_is_listed(
    name: str, layers: set[str], folder: Path
) -> None:
    found = {node.origin for node in float_layers(load(folder / f"{name}.onnx"))}
    assert {origin.rpartition("(")[2].strip(")") for origin in found} == layers


def words_network(operator: str) -> bytes:
    """Of two tensors of uint16, without weights: nothing in it has a type with a scale."""
    scales = {name: np.array(value, np.float32) for name, value in (("s", 1e-4), ("t", 2e-4))}
    zero = {"z": np.array(32000, np.uint16)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["r"]), node(operator, ["r"], ["h"]),
        node("QuantizeLinear", ["h", "t", "z"], ["p"]),
        node("DequantizeLinear", ["p", "t", "z"], ["y"]),
    ]
    return model(graph(nodes, [value("x", [3, 5])], ["y"], scales | zero), version=21)


@pytest.mark.parametrize("operator", ["HardSwish", "Sin"])
def test_operators_of_unsigned_words_are_listed(
    operator: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(words_network(operator))
    found = {node.origin for node in float_layers(load(path))}
    assert f"node 2 ({operator})" in found
    assert "node 0 (QuantizeLinear)" in found
    assert f"for want of an exact way in integers: node 2 ({operator})" in caplog.text


def test_layers_that_the_reference_never_shows_are_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three nodes quantize the result of the Conv, and none of these alone shows it."""
    monkeypatch.setenv("CRTEXPORT_ONNX_PYTHON", require_environment("onnx", "onnxruntime"))
    result = verify_layers(folder / "twice.onnx", samples=2)
    assert result.agrees
    assert result.unseen == ("node 3 'n3' (Conv)",)
    assert not verify_layers(folder / "few_bits.onnx", samples=2).unseen
