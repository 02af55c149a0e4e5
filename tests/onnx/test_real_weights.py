"""Layers with real weights between quantized tensors have the integers that ONNX Runtime's
optimizer gives them, and give its results."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport import package_actions
from crtexport.importers import load
from crtexport.importers.onnx.quantized_constants import as_int8, real_numbers
from crtexport.ir import ops
from crtexport.ir.graph import Graph, Tensor
from crtexport.ir.numerics import Numerics
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.passes.drop_dead import drop_dead
from crtexport.passes.float_layers import float_layers
from crtexport.pipeline import driver
from tests.differential.network import interpret
from tests.helpers import require, require_environment
from tests.onnx import exactness

Array = np.ndarray[Any, Any]
COUNT, INPUTS = 45, 6
_WORKER = Path(__file__).with_name("real_weights.py")
_WEIGHTED = (ops.Conv2D, ops.DepthwiseConv2D, ops.TransposeConv2D, ops.FullyConnected)
FLOATS = {"added_later", "scaled", "words"}
"""Those with weights of integers that ONNX Runtime computes in floats, and so does crtexport."""
_OTHERS = {"exact", "weights", "x", "zero"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("gcc")
    exactness.require_whole_products()
    found = require_environment("onnx", "onnx", "onnxruntime")
    folder = tmp_path_factory.mktemp("real_weights")
    subprocess.run(
        (found, "-W", "ignore", str(_WORKER), str(folder), str(COUNT), str(INPUTS)), check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def graphs(folder: Path) -> dict[str, Graph]:
    return {path.stem: load(path) for path in sorted(folder.glob("*.onnx"))}


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_results_are_those_of_onnx_runtime(
    folder: Path, graphs: dict[str, Graph], emit: driver.Emit
) -> None:
    package = folder / f"{emit}.tar"
    driver.export(
        list(graphs.values()), board="host", output=package, emit=emit, module_name=list(graphs)
    )
    inputs = {f"{name}/x": expected(folder, name)["x"] for name in graphs}
    found = package_actions.simulate_all(package, inputs, trust_package=True)
    wrong = [different(folder, name, found[name]) for name in graphs]
    assert not "\n".join(filter(None, wrong))


def test_so_are_those_of_portable_kernels(folder: Path, graphs: dict[str, Graph]) -> None:
    wrong = []
    for name, graph in graphs.items():
        outputs = interpret(graph, [expected(folder, name)["x"][0]])
        names = [graph.tensors[tensor].name for tensor in graph.outputs]
        row = dict(zip(names, outputs, strict=True))
        wrong.append(different(folder, name, [row]))
    assert not "\n".join(filter(None, wrong))


def expected(folder: Path, name: str) -> dict[str, Array]:
    with np.load(folder / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}


def different(folder: Path, name: str, rows: list[dict[str, Array]]) -> str | None:
    """Returns what differs. Where ONNX Runtime computes in floats, 1 in 1000 results may be on the
    other side of a half."""
    wanted = expected(folder, name)
    for key in wanted.keys() - _OTHERS:
        ours = np.stack([row[key] for row in rows])
        theirs = wanted[key][: len(rows)]
        off, full = np.abs(ours.astype(np.float64) - theirs), np.abs(wanted[key]).max()
        if wanted["exact"]:
            bad = off.max() > 0
        else:
            # The float result of a layer, or a step of its integers.
            bad = off.max() > full / 50 or (off > 1e-6 * full).sum() > off.size / 1000
        if bad:
            return f"{name}, {key}: {(off > 0).sum()} of {off.size} differ, up to {off.max()}"
    return None


def test_weights_are_the_integers_of_the_optimizer(
    folder: Path, graphs: dict[str, Graph]
) -> None:
    exact = 0
    for name, graph in graphs.items():
        wanted, network = expected(folder, name), drop_dead(graph)
        quantized = wanted["weights"].dtype == np.int8
        exact += bool(wanted["exact"])
        layers = [node for node in network.nodes if isinstance(node.op, _WEIGHTED)]
        assert layers, name
        assert bool(float_layers(network)) == (not quantized or name in FLOATS), name
        if not quantized or name in FLOATS:
            continue
        for layer in layers:
            weights = network.tensors[network.required(layer, 1)]
            assert weights.type.dtype is DType.INT8, name
            assert weights.constant is not None
            assert weights.type.quant is not None
            steps = weights.constant.array(weights.type).astype(int)
            ours = np.sort(steps.reshape(-1) - weights.type.quant.zero_point[0])
            theirs = np.sort(wanted["weights"].reshape(-1).astype(int) - wanted["zero"])
            np.testing.assert_array_equal(ours, theirs, name)
    assert exact > len(graphs) // 3


def test_weights_stay_floats_with_other_numerics(folder: Path) -> None:
    path = folder / "positive.onnx"
    assert not float_layers(load(path))
    graph = load(path, numerics=Numerics.TFLITE)
    assert len(float_layers(graph)) == 1


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50))
def test_quantized_weights_are_half_a_step_off_at_most(values: list[float]) -> None:
    array = np.array(values, np.float32)
    type_ = TensorType(DType.FLOAT32, array.shape)
    made = as_int8(Tensor("w", type_, ConstantRef.of(array)))
    if made is None:
        assert np.ptp([0, *array]) < 256 * np.finfo(np.float32).smallest_subnormal
        return
    assert made.constant is not None
    assert made.type.quant is not None
    back: Array = real_numbers(made.type, made.constant).array(type_)
    (scale,), ends = made.type.quant.scale, (min(0.0, array.min()), max(0.0, array.max()))
    # Both ends may be rounded outwards or inwards, by half a step.
    assert np.abs(back - array).max() <= scale * 1.001 + 1e-30
    assert scale == 1 if ends[0] == ends[1] else scale == np.float32(ends[1] - ends[0]) / (
        np.float32(255)
    )
    assert (back[array == 0] == 0).all()


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_weights_without_a_range_stay_real(wrong: float) -> None:
    array = np.array([0.5, wrong, -0.25], np.float32)
    type_ = TensorType(DType.FLOAT32, array.shape)
    assert as_int8(Tensor("w", type_, ConstantRef.of(array))) is None
