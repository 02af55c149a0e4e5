"""A batch normalization behind a layer costs nothing: it is in the layer's weights and bias."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.importers.formats import NO_CHOICES
from crtexport.ir.ops import Activation, Add, Mul, Reshape, Transpose
from crtexport.passes import simplify
from crtexport.simulation.onnx_reference import OnnxReference
from tests.differential.network import interpret
from tests.helpers import require_environment
from tests.importers.onnx.writer import Array, block, graph, model, node, value


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRTEXPORT_ONNX_PYTHON", require_environment("onnx", "onnxruntime"))


LAYERS: dict[str, tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "images": ("Conv", ((2, 3, 6, 7), (5, 3, 2, 3), (5,)), {"pads": [1, 0, 2, 1]}),
    "lines": ("Conv", ((2, 3, 8), (4, 3, 3)), {"dilations": [2]}),
    "one channel each": ("Conv", ((1, 3, 6, 7), (6, 1, 2, 3), (6,)), {"group": 3}),
    "transposed": ("ConvTranspose", ((1, 3, 4, 5), (3, 2, 2, 3), (2,)), {"strides": [2, 3]}),
    "matrix": ("Gemm", ((4, 6), (6, 5), (5,)), {}),
    "matrix without a bias": ("MatMul", ((4, 6), (6, 5)), {}),
}


def written(path: Path, layer: str, *, normalized: bool) -> tuple[Path, Array]:
    """A layer with a Relu, and a batch normalization between them; returns the input, too."""
    operator, shapes, attributes = LAYERS[layer]
    rng = np.random.default_rng(0)
    x, *constants = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    given = {f"w{i}": array for i, array in enumerate(constants)}
    channels = constants[0].shape[0 if operator == "Conv" else 1]
    numbers = {
        name: rng.uniform(0.5, 2, channels).astype(np.float32)
        for name in ("scale", "shift", "mean", "variance")
    }
    nodes = [node(operator, ["x", *given], ["a"], **attributes)]
    if normalized:
        nodes.append(node("BatchNormalization", ["a", *numbers], ["b"], epsilon=0.01))
        given |= numbers
    nodes.append(node("Relu", ["b" if normalized else "a"], ["y"]))
    body = graph(nodes, [value("x", x.shape)], [], given)
    path.write_bytes(model(body + block(12, value("y", None))))
    return path, x


@pytest.mark.parametrize("layer", [*LAYERS])
def test_layer_takes_the_normalization_and_the_clamp_in(layer: str, tmp_path: Path) -> None:
    path, x = written(tmp_path / "m.onnx", layer, normalized=True)
    loaded = load(path)
    network = simplify(loaded).graph
    (op,) = (n.op for n in network.nodes if not isinstance(n.op, Transpose | Reshape))
    assert op.activation is Activation.RELU  # type: ignore[attr-defined]
    (ours,) = interpret(network, [x])
    with OnnxReference(path, loaded, NO_CHOICES) as runtime:
        (theirs,) = runtime.run([x])
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()


def test_statements_are_those_of_the_layer_alone(tmp_path: Path) -> None:
    both = [
        simplify(load(written(tmp_path / f"m{i}.onnx", "images", normalized=bool(i))[0])).graph
        for i in range(2)
    ]
    alone, normalized = ([node.op for node in network.nodes] for network in both)
    assert normalized == alone


def test_nothing_is_added_where_the_addends_are_zeros(tmp_path: Path) -> None:
    """Before training, means and shifts are zeros; a Tanh keeps the factors out of the layer."""
    ones, zeros = np.ones(5, np.float32), np.zeros(5, np.float32)
    body = graph(
        [node("Tanh", ["x"], ["a"]),
         node("BatchNormalization", ["a", "one", "zero", "zero", "one"], ["y"])],
        [value("x", (2, 5, 3))], ["y"], {"one": ones, "zero": zeros},
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model(body))
    kinds = [type(node.op) for node in simplify(load(path)).graph.nodes]
    assert Mul in kinds
    assert Add not in kinds
