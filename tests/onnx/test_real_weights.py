"""Layers with real weights between quantized tensors give what ONNX Runtime gives, whose optimizer
quantizes these weights."""

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
from crtexport.ir.graph import Tensor
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.pipeline import driver
from tests.helpers import require, require_environment
from tests.importers.onnx import writer
from tests.onnx import exactness

COUNT = 40
_WORKER = Path(__file__).with_name("real_weights.py")


def test_real_weights_become_the_integers_of_onnx_runtime(tmp_path: Path) -> None:
    require("gcc")
    exactness.require_whole_products()
    python = require_environment("onnx", "onnx", "onnxruntime")
    subprocess.run(
        (python, "-W", "ignore", str(_WORKER), str(tmp_path), "1", str(COUNT)), check=True,
        capture_output=True,
    )
    fused, wrong = 0, {}
    for number in range(COUNT):
        path, known = tmp_path / f"{number}.onnx", np.load(tmp_path / f"{number}.npz")
        package = tmp_path / "package.tar"
        driver.export(load(path), output=package, board="host", emit="c")
        found = package_actions.simulate(package, {"x": known["x"]}, trust_package=True)
        (y,) = found.outputs.values()
        fused += bool({"QLinearConv", "QGemm"} & set(known["operators"]))
        differing = int((np.asarray(y).reshape(known["y"].shape) != known["y"]).sum())
        if differing:
            wrong[number] = differing
    assert wrong == {}
    assert fused > COUNT // 4


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50))
def test_quantized_weights_are_half_a_step_off_at_most(values: list[float]) -> None:
    array = np.array(values, np.float32)
    type_ = TensorType(DType.FLOAT32, array.shape)
    made = as_int8(Tensor("w", type_, ConstantRef.of(array)))
    assert made.constant is not None
    assert made.type.quant is not None
    back = real_numbers(made.type, made.constant).array(type_)
    (scale,), ends = made.type.quant.scale, (min(0.0, array.min()), max(0.0, array.max()))
    # Both ends may be rounded outwards or inwards, by half a step.
    assert np.abs(back - array).max() <= scale * 1.001 + 1e-30
    assert scale == 1 if ends[0] == ends[1] else scale == np.float32(ends[1] - ends[0]) / (
        np.float32(255)
    )
    assert (back[array == 0] == 0).all()


@pytest.mark.parametrize(
    ("attributes", "bias", "integers"),
    [
        ({}, (4,), True), ({"transB": 1}, (4,), True), ({"alpha": 2.0}, (4,), False),
        ({"beta": 0.5}, (4,), False), ({}, (1, 4), False), ({"alpha": 2.0}, None, False),
        ({}, None, True),
    ],
)
def test_scaled_products_keep_their_real_weights(
    tmp_path: Path, attributes: dict[str, Any], bias: tuple[int, ...] | None, integers: bool
) -> None:
    rng = np.random.default_rng(4)
    weights = rng.normal(size=(4, 6) if attributes.get("transB") else (6, 4)).astype(np.float32)
    constants: dict[str, writer.Array] = {
        "s": np.array(0.05, np.float32), "z": np.array(3, np.int8), "w": weights,
    }
    if bias is not None:
        constants["b"] = rng.normal(size=bias).astype(np.float32)
    nodes = [
        writer.node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        writer.node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        writer.node("Gemm", ["xd", "w", *(["b"] if bias else [])], ["t"], **attributes),
        writer.node("QuantizeLinear", ["t", "s", "z"], ["y"]),
    ]
    path = tmp_path / "m.onnx"
    content = writer.graph(nodes, [writer.value("x", (1, 6))], ["y"], constants)
    path.write_bytes(writer.model(content))
    graph = load(path)
    (last,) = (node for node in graph.nodes if node.outputs[0] in graph.outputs)
    assert isinstance(last.op, ops.FullyConnected) == integers
