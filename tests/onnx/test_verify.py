"""``verify`` compares .onnx files with ONNX Runtime."""

from __future__ import annotations

import os
from io import BufferedReader
from pathlib import Path

import numpy as np
import pytest

from crtexport import verification
from crtexport.importers.formats import InputChoices
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError
from crtexport.verification import verify, verify_layers
from tests.helpers import require, require_environment
from tests.importers.onnx.test_layout import CLASSIFIER
from tests.importers.onnx.writer import block, external, graph, model, node, value
from tests.reference.breaking import clamp_convolution


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    require("gcc")
    monkeypatch.setenv("CRTEXPORT_ONNX_PYTHON", require_environment("onnx", "onnxruntime"))


def typed(content: bytes, outputs: dict[str, list[int]]) -> bytes:
    """A graph with the types of its outputs, which ONNX Runtime wants."""
    return content + b"".join(block(12, value(name, shape)) for name, shape in outputs.items())


def sum_with(bias: list[int | str]) -> bytes:
    body = graph(
        [node("Add", ["x", "b"], ["s"]), node("Tanh", ["s"], ["y"])],
        [value("x", ["n", 3]), value("b", bias)], [],
    )
    return model(typed(body, {"y": [2, 3]}))


def test_a_file_agrees_with_onnx_runtime(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    np.save(tmp_path / "b.npy", np.array([1, -2, 0.5], np.float32))
    path.write_bytes(sum_with(["m"]))
    choices = InputChoices(dims={"n": 2}, values={"b": tmp_path / "b.npy"})
    result = verify(path, samples=3, choices=choices)
    assert result.agrees
    assert result.reference.startswith("onnxruntime ")
    assert [output.name for output in result.outputs] == ["y"]


def bumps() -> bytes:
    """The logarithms of densities, a few hundreds, less the largest one, as exponents: float32 has
    those in steps of 1.5e-5 to 3e-5."""
    rng = np.random.default_rng(1)
    centers = rng.normal(0, 4, (3, 40)).astype(np.float32)
    centers[1:] = centers[0] + rng.normal(0, 0.02, (2, 40))
    nodes = [
        node("Sub", ["x", "centers"], ["d"]), node("Mul", ["d", "d"], ["s"]),
        node("ReduceSum", ["s", "axis"], ["t"], keepdims=0), node("Mul", ["t", "half"], ["l"]),
        node("ReduceLogSumExp", ["l"], ["z"], keepdims=1), node("Sub", ["l", "z"], ["e"]),
        node("Exp", ["e"], ["y"]),
    ]
    constants = {
        "centers": centers, "axis": np.array([1], np.int64), "half": np.array(-0.5, np.float32)
    }
    return model(typed(graph(nodes, [value("x", [1, 40])], [], constants), {"y": [3]}))


def test_float64_decides_where_both_are_off(tmp_path: Path) -> None:
    require_environment("onnx", "onnx", "onnxruntime")
    path = tmp_path / "m.onnx"
    path.write_bytes(bumps())
    result = verify(path, samples=40)
    assert result.agrees
    assert result.reference.endswith("and onnx in float64 where rounding makes the difference")
    (output,) = result.outputs
    assert 1e-5 < output.tolerance < 1e-4


@pytest.mark.parametrize(
    ("reference", "ours", "allowed"),
    [
        (1 - 8e-6, 1 + 1.5e-5, 1.6e-5), (1 - 8e-6, 1 + 1.7e-5, None),  # twice as far as it
        (1 + 1e-6, 1 - 1.05e-5, None),  # it is near enough itself
        (1 + 4e-5, 1 - 4e-5, 8e-5), (1 + 2e-4, 1 + 1e-4, None),  # no matter of rounding
    ],
)
def test_results_may_be_twice_as_far_off_as_the_reference(
    reference: float, ours: float, allowed: float | None
) -> None:
    type_ = TensorType(DType.FLOAT32, (2,))
    far, near = (np.array([1, x], np.float32) for x in (reference, ours))
    same = np.array([1, 0.5], np.float32)
    exact = {1: np.array([1.0, 1.0])}
    found = verification._judged("y", type_, [same, far], [same, near], exact)
    assert found.agrees == (allowed is not None)
    assert found.differing_samples == (allowed is None)
    if allowed is not None:
        assert found.tolerance == pytest.approx(allowed, rel=0.05)
    # Where nothing is known to be exact, the reference counts.
    assert not verification._judged("y", type_, [same, far], [same, near + 2e-5], {}).agrees


def test_halves_are_compared_as_such(tmp_path: Path) -> None:
    """ONNX Runtime rounds each result, crtexport those of the network."""
    rng = np.random.default_rng(2)
    weights = {name: rng.normal(0, 0.3, (16, 16)).astype(np.float16) for name in "uvw"}
    body = graph(
        [node("MatMul", ["x", "u"], ["a"]), node("Tanh", ["a"], ["b"]),
         node("MatMul", ["b", "v"], ["c"]), node("Sigmoid", ["c"], ["d"]),
         node("MatMul", ["d", "w"], ["y"])], [value("x", [5, 16], "float16")], [], weights,
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model(body + block(12, value("y", [5, 16], "float16"))))
    (output,) = verify(path, samples=3).outputs
    assert output.dtype == "float16"
    assert 0 < output.largest_difference <= output.tolerance


def test_another_result_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference gets another value of the constant than the export."""
    path = tmp_path / "m.onnx"
    values = tmp_path / "b.npy"
    np.save(values, np.array([1, -2, 0.5], np.float32))
    path.write_bytes(sum_with([3]))
    choices = InputChoices(dims={"n": 2}, values={"b": values})
    usual = np.load
    seen: list[int] = []

    def changed(file: object, *arguments: object, **options: object) -> object:
        array = usual(file, *arguments, **options)
        here = isinstance(file, BufferedReader) and os.path.samestat(
            os.fstat(file.fileno()), values.stat()
        )
        if not here and file != values:
            return array
        seen.append(1)
        return array + np.float32(len(seen) - 1)

    monkeypatch.setattr(np, "load", changed)
    assert not verify(path, samples=2, choices=choices).agrees
    assert len(seen) == 2


def test_images_are_compared_as_the_file_has_them(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(CLASSIFIER)
    with pytest.raises(CrtExportError, match="channels first, as the file says"):
        verify(path, samples=1, choices=InputChoices(layout="nhwc"))



def test_results_of_all_nodes_are_compared_under_their_names(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(CLASSIFIER)
    result = verify_layers(path, samples=2)
    assert result.agrees
    assert [layer.output.name for layer in result.layers] == ["a", "b", "c", "d", "e", "y"]
    assert [layer.shape for layer in result.layers[1:3]] == [(1, 8, 6, 10), (1, 8, 3, 5)]
    assert result.layers[0].operator == "node 0 (Conv)"
    # The first Conv takes its Relu in; Flatten only renames what the Gemm reads.
    assert [layer.output.name for layer in result.layers if not layer.kept] == ["a", "e"]


def test_a_broken_kernel_is_found_at_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clamp_convolution(monkeypatch, lambda node: node.origin == "node 3 (Conv)")
    path = tmp_path / "m.onnx"
    path.write_bytes(CLASSIFIER)
    layer = verify_layers(path, samples=2).first_difference
    assert layer is not None
    assert (layer.output.name, layer.operator) == ("d", "node 3 (Conv)")


def test_layers_are_compared_of_a_file_with_constants_beside_it(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(6, dtype="<f4").tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(model(typed(graph(
        [node("MatMul", ["x", "w"], ["h"]), node("Tanh", ["h"], ["y"])], [value("x", [4, 2])], [],
        more=[external("w", (2, 3), {"location": "w.bin", "length": "24"})],
    ), {"y": [4, 3]})))
    result = verify_layers(path, samples=2)
    assert result.agrees
    assert [layer.output.name for layer in result.layers] == ["h", "y"]
