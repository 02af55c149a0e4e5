"""The first operator that differs is found, whatever follows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.passes.all_outputs import with_all_outputs
from crtexport.verification import LayersResult
from tests.helpers import ROOT, require_reference
from tests.reference.breaking import clamp_convolution
from tests.tflite_builder import ModelBuilder

DIGITS = ROOT / "docs" / "examples" / "digits" / "model.json"


def compared(model: Path, emit: str) -> LayersResult:
    require_reference()
    return crtexport.verify_layers(model, emit=emit, samples=2)


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_a_broken_kernel_is_found_at_its_operator(
    emit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clamp_convolution(monkeypatch, lambda node: node.name == "conv2")
    result = compared(DIGITS, emit)
    assert [layer.output.name for layer in result.layers if layer.agrees][:2] == ["conv1", "pool"]
    layer = result.first_difference
    assert layer is not None
    assert layer.output.name == "conv2"
    assert "conv2" in layer.operator
    found = layer.first
    assert found is not None
    # The wrong clamp cuts off what is above 1.
    graph = crtexport.load(DIGITS)
    quant = next(t.type.quant for t in graph.tensors if t.name == "conv2")
    assert quant is not None
    assert found.exported == quant.zero_point[0] + round(1 / quant.scale[0])
    assert found.reference > found.exported
    assert len(found.position) == 4


def test_operators_that_an_export_would_fuse_are_compared_one_by_one(tmp_path: Path) -> None:
    model = ModelBuilder()
    x = model.tensor("x", (1, 4), "float32")
    added = model.tensor("", (1, 4), "float32")
    y = model.tensor("", (1, 4), "float32")
    dead = model.tensor("dead", (1, 4), "float32")
    model.op("ADD", [x, x], [added])
    model.op("RELU", [added], [y])
    model.op("TANH", [added], [dead])
    path = tmp_path / "m.tflite"
    path.write_bytes(model.build([x], [y]))
    result = compared(path, "c")
    assert [layer.operator for layer in result.layers] == [
        "operator 0 (ADD)", "operator 1 (RELU)", "operator 2 (TANH)"
    ]
    assert result.agrees


def test_weights_of_hybrid_operators_are_float32_for_the_reference(tmp_path: Path) -> None:
    model = ModelBuilder()
    x = model.tensor("x", (1, 4), "float32")
    w = model.tensor("w", (2, 4), "int8", scale=0.1, data=np.arange(8).reshape(2, 4) - 3)
    y = model.tensor("y", (1, 2), "float32")
    model.op("FULLY_CONNECTED", [x, w, None], [y])
    path = tmp_path / "m.tflite"
    path.write_bytes(model.build([x], [y]))
    result = compared(path, "c")
    assert result.agrees
    assert "float32" in result.rewritten


def test_the_variant_keeps_operators_and_gives_every_tensor_a_name_of_its_own() -> None:
    graph = crtexport.load(DIGITS)
    every = with_all_outputs(graph)
    assert every.nodes == graph.nodes
    assert every.outputs == tuple(node.outputs[0] for node in graph.nodes)
    names = [every.tensors[t].name for t in (*every.inputs, *every.outputs)]
    assert names == ["input0", *(f"layer{i}" for i in range(len(graph.nodes)))]
