"""Files may say the same in several ways: initializers, functions, outer names, open sizes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.importers.formats import InputChoices
from crtexport.importers.onnx.wire import Span
from tests.differential.network import interpret
from tests.importers.onnx.writer import (
    block,
    external,
    function,
    graph,
    model,
    node,
    tensor,
    value,
    varint,
)

Array = npt.NDArray[Any]
W = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
X = np.array([[1, -1, 2], [-2, 3, -3]], np.float32)


def run(tmp_path: Path, content: bytes, *inputs: Array, **choices: Any) -> Array:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    network = load(path, choices=InputChoices(**choices))
    (found,) = interpret(network, inputs)
    result: Array = found
    return result


@given(st.lists(st.integers(0, (1 << 64) - 1)))
def test_packed_numbers_are_read_as_they_were_written(numbers: list[int]) -> None:
    data = b"".join(map(varint, numbers))
    assert Span(data, 0, len(data)).varints().tolist() == numbers


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int8", "uint8", "int16", "int32", "bool"])
def test_elements_are_raw_or_numbers(dtype: str, raw: bool, tmp_path: Path) -> None:
    array = np.array([0, 1, 100, -3 if dtype[0] in "if" else 7]).astype(dtype)
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("Identity", ["w"], ["y"])], [], ["y"], more=[tensor("w", array, raw=raw)]
    )))
    network = load(path)
    (output,) = network.outputs
    (source,) = network.nodes[-1].inputs if network.nodes else (output,)
    assert source is not None
    held = network.tensors[source]
    assert held.constant is not None
    np.testing.assert_array_equal(held.constant.array(held.type), array)


def test_raw_elements_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("Add", ["x", "w"], ["y"])], [value("x", [2, 3])], ["y"], {"w": W}
    )))
    constants = [t.constant for t in load(path).tensors if t.constant]
    assert [c.path for c in constants] == [path]


def test_initializers_that_are_also_inputs_are_constants(tmp_path: Path) -> None:
    content = model(graph(
        [node("Add", ["x", "w"], ["y"])], [value("x", [2, 3]), value("w", [2, 3])], ["y"], {"w": W}
    ), ir_version=3, version=9)
    np.testing.assert_array_equal(run(tmp_path, content, X), X + W)


def test_external_data_is_read_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(bytes(8) + W.tobytes())
    content = model(graph([node("Add", ["x", "w"], ["y"])], [value("x", [2, 3])], ["y"], more=[
        external("w", W.shape, {"location": "data/w.bin", "offset": "8", "length": "24"})
    ]))
    np.testing.assert_array_equal(run(tmp_path, content, X), X + W)


def test_functions_are_read_in_the_place_of_their_calls(tmp_path: Path) -> None:
    """With attributes of the call, inputs that it leaves out, and names of their own."""
    inner = function("F", ["a", "b"], ["c"], [
        node("LeakyRelu", ["a"], ["y"], references={"alpha": "slope"}),
        node("Clip", ["y", "", "b"], ["c"]),
    ])
    content = model(
        graph([node("F", ["x"], ["y"], domain="mine", slope=0.5),
               node("F", ["y", "top"], ["z"], domain="mine", slope=2.0)],
              [value("x", [2, 3])], ["z"], {"top": np.array(1, np.float32)}),
        functions=[inner], domains=["mine", "com.unused"],
    )
    once = np.where(X < 0, X * 0.5, X)
    np.testing.assert_allclose(
        run(tmp_path, content, X), np.minimum(np.where(once < 0, once * 2, once), 1)
    )


def test_shape_arithmetic_is_done_while_reading(tmp_path: Path) -> None:
    """As older PyTorch writes a flatten: Shape, Gather, Unsqueeze, Concat, Reshape."""
    content = model(graph(
        [
            node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0),
            node("Unsqueeze", ["n", "axes"], ["n1"]),
            node("Concat", ["n1", "rest"], ["shape"], axis=0),
            node("Reshape", ["x", "shape"], ["y"]),
        ],
        [value("x", [2, 3, 5])], ["y"],
        {"zero": np.array(0, np.int64), "axes": np.array([0], np.int64),
         "rest": np.array([-1], np.int64)},
    ))
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    network = load(path)
    assert [type(n.op).__name__ for n in network.nodes] == ["Reshape"]
    assert network.type(network.outputs[0]).shape == (2, 15)


def test_open_sizes_are_fixed_by_name_by_input_or_as_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("Relu", ["x"], ["y"])], [value("x", ["batch", 3, "time"])], ["y"]
    )))
    with caplog.at_level(logging.WARNING):
        network = load(path, choices=InputChoices(dims={"time": 7}))
    assert network.type(network.inputs[0]).shape == (1, 3, 7)
    assert "'batch' of 'x' is taken as 1" in caplog.text
    network = load(path, choices=InputChoices(shapes={"x": [4, 3, 5]}))
    assert network.type(network.inputs[0]).shape == (4, 3, 5)


def test_inputs_with_values_are_constants(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", W)
    content = model(graph(
        [node("Add", ["x", "w"], ["y"])], [value("x", [2, 3]), value("w", ["n", "m"])], ["y"]
    ))
    found = run(tmp_path, content, X, values={"w": tmp_path / "w.npy"})
    np.testing.assert_array_equal(found, X + W)


def test_an_input_may_be_an_output_and_outputs_may_be_one_tensor(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("Identity", ["x"], ["y"]), node("Identity", ["x"], ["z"])],
        [value("x", [2, 3])], ["x", "y", "z"],
    )))
    network = load(path)
    names = [network.tensors[t].name for t in (*network.inputs, *network.outputs)]
    assert names == ["x", "x", "y", "z"]
    for found in interpret(network, [X]):
        np.testing.assert_array_equal(found, X)


def test_unknown_fields_are_skipped(tmp_path: Path) -> None:
    content = model(graph([node("Relu", ["x"], ["y"])], [value("x", [2, 3])], ["y"]))
    content += block(14, block(1, "key") + block(2, "value")) + block(99, "new")
    np.testing.assert_array_equal(run(tmp_path, content, X), np.maximum(X, 0))
