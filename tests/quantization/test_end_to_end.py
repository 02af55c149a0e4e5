"""Networks that ``quantize`` wrote predict on a device what they predict in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport import package_actions
from crtexport.pipeline import driver
from crtexport.quantization.quantize import quantize
from crtexport.simulation.reference import ReferenceModel
from crtexport.simulation.runtimes import find_runtime
from tests.helpers import require, require_environment, unavailable
from tests.importers.onnx.writer import Array, block, graph, model, node, value

CALIBRATED, PREDICTED = 16, 60


class Drawn:
    """The nodes and weights of a network that is being drawn; each method returns a result."""

    def __init__(self, *shape: int) -> None:
        self.rng = np.random.default_rng(4)
        self.shape = shape
        self.nodes: list[bytes] = []
        self.weights: dict[str, Array] = {}

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(node(operator, inputs, [name], name=name, **attributes))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        deviation = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.2
        self.weights[name] = (self.rng.normal(size=shape) * deviation).astype(np.float32)
        return name

    def conv(self, x: str, depth: int, channels: int, *size: int, **attributes: Any) -> str:
        group = attributes.get("group", 1)
        inputs = x, self.weight(channels, depth // group, *size), self.weight(channels)
        return self.add("Conv", *inputs, pads=[n // 2 for n in size] * 2, **attributes)

    def classes(self, x: str, depth: int, count: int) -> bytes:
        """Ends with a mean over planes, as PyTorch writes it, and a layer of ``count`` classes."""
        self.weights["axes"] = np.array([-1, -2])
        mean = self.add("ReduceMean", x, "axes", keepdims=0)
        inputs = [mean, self.weight(count, depth), self.weight(count)]
        self.nodes.append(node("Gemm", inputs, ["y"], name="last", transB=1))
        body = graph(self.nodes, [value("x", self.shape)], [], self.weights)
        return model(body + block(12, value("y", [1, count])), version=18)


def audio() -> tuple[bytes, tuple[int, ...]]:
    """Spectra, through convolutions that are separable."""
    net = Drawn(1, 1, 25, 10)
    x = net.add("Relu", net.conv("x", 1, 16, 5, 3, strides=[2, 2]))
    for _ in range(2):
        x = net.add("Relu", net.conv(x, 16, 16, 3, 3, group=16))
        x = net.add("Relu", net.conv(x, 16, 16, 1, 1))
    return net.classes(x, 16, 12), net.shape


def image() -> tuple[bytes, tuple[int, ...]]:
    """Pictures, past convolutions and through them."""
    net = Drawn(1, 3, 12, 14)
    x = net.add("Relu", net.conv("x", 3, 8, 3, 3))
    y = net.conv(net.add("Relu", net.conv(x, 8, 8, 3, 3)), 8, 8, 3, 3)
    x = net.add("MaxPool", net.add("Relu", net.add("Add", x, y)), kernel_shape=[2, 2],
                strides=[2, 2])
    x = net.add("HardSwish", net.conv(x, 8, 18, 3, 3))
    return net.classes(x, 18, 10), net.shape


def rows() -> tuple[bytes, tuple[int, ...]]:
    """Rows, as scikit-learn writes its networks: products, and sums with biases that are rows."""
    net = Drawn(1, 20)
    x = net.add("Add", net.add("MatMul", "x", net.weight(20, 16)), net.weight(1, 16))
    x = net.add("MatMul", net.add("Relu", x), net.weight(16, 8))
    net.nodes.append(node("Add", [x, net.weight(1, 8)], ["y"], name="last"))
    body = graph(net.nodes, [value("x", net.shape)], [], net.weights)
    return model(body + block(12, value("y", [1, 8])), version=18), net.shape


@pytest.fixture(autouse=True)
def _reference(monkeypatch: pytest.MonkeyPatch) -> None:
    require("gcc")
    flags = Path("/proc/cpuinfo")
    if not flags.is_file() or "vnni" not in flags.read_text(encoding="ascii"):
        unavailable("vnni", "without VNNI, ONNX Runtime's products saturate in 16 bits")
    monkeypatch.setenv(
        "CRTEXPORT_ONNX_PYTHON", require_environment("onnx", "onnxruntime", "onnx")
    )


@pytest.mark.parametrize(
    ("draw", "options"),
    [
        (audio, {}),
        (audio, {"format": "qoperator", "activations": "int8"}),
        (image, {}),
        (rows, {}),
    ],
)
def test_predictions_are_those_of_onnx_runtime(
    draw: Callable[[], tuple[bytes, tuple[int, ...]]], options: dict[str, Any], tmp_path: Path
) -> None:
    content, shape = draw()
    (tmp_path / "float.onnx").write_bytes(content)
    samples = np.random.default_rng(6).normal(size=(PREDICTED, *shape)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=samples[:CALIBRATED])
    path = tmp_path / "integers.onnx"
    quantize(tmp_path / "float.onnx", tmp_path / "data.npz", path, **options)
    with ReferenceModel(path, runtime=find_runtime("onnxruntime")) as runtime:
        expected = np.stack([runtime.run([row])[0] for row in samples])
    exported = driver.export(path, board="host", emit="c", output=tmp_path / "m.tar")
    rows = package_actions.simulate(exported.path, {"x": samples}, trust_package=True)
    found = np.stack([row["y"] for row in rows])
    assert (found.argmax(-1) == expected.argmax(-1)).all()
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) > 20, "nothing is compared"
