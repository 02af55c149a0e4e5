"""Networks of images compute with channels last: what is moved, and that it is the right thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport import passes
from crtexport.importers import load
from crtexport.importers.formats import InputChoices
from crtexport.ir.graph import Graph
from tests.differential.network import interpret
from tests.importers.onnx.writer import graph, model, node, value

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def convolved(x: Array, w: Array, b: Array, pad: int = 1, stride: int = 1) -> Array:
    """A convolution of (N, C, H, W) by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    rows = (x.shape[2] - w.shape[2]) // stride + 1
    columns = (x.shape[3] - w.shape[3]) // stride + 1
    y = np.zeros((x.shape[0], w.shape[0], rows, columns), np.float32)
    for i in range(rows):
        for j in range(columns):
            top, left = i * stride, j * stride
            window = x[:, :, top : top + w.shape[2], left : left + w.shape[3]]
            y[:, :, i, j] = np.einsum("nchw,ochw->no", window, w) + b
    return y


def pooled(x: Array) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


X = floats(1, 3, 6, 10)
W1, B1, W2, B2 = floats(8, 3, 3, 3), floats(8), floats(4, 8, 3, 3), floats(4)
DENSE, BIAS = floats(5, 4 * 3 * 5), floats(5)

CLASSIFIER = model(graph(
    [
        node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c", "w2", "b2"], ["d"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("Flatten", ["d"], ["e"]), node("Gemm", ["e", "dense", "bias"], ["y"], transB=1),
    ],
    [value("x", [1, 3, 6, 10])], ["y"],
    {"w1": W1, "b1": B1, "w2": W2, "b2": B2, "dense": DENSE, "bias": BIAS},
))


def classified(x: Array) -> Array:
    hidden = convolved(pooled(np.maximum(convolved(x, W1, B1), 0)), W2, B2)
    result: Array = hidden.reshape(1, -1) @ DENSE.T + BIAS
    return result


def read(path: Path, content: bytes, layout: Any = "nchw") -> Graph:
    path.write_bytes(content)
    return load(path, choices=InputChoices(layout=layout))


def moves(network: Graph) -> int:
    names = [type(n.op).__name__ for n in passes.run(network).nodes]
    return names.count("Transpose")


@pytest.mark.parametrize(("layout", "count"), [("nchw", 1), ("nhwc", 0)])
def test_only_the_boundary_of_a_classifier_moves_elements(
    layout: str, count: int, tmp_path: Path
) -> None:
    """Flatten and Gemm read the image as it lies: the matrix is put into its order instead."""
    network = read(tmp_path / "m.onnx", CLASSIFIER, layout)
    assert moves(network) == count
    x = X if layout == "nchw" else X.transpose(0, 2, 3, 1)
    (found,) = interpret(network, [np.ascontiguousarray(x)])
    np.testing.assert_allclose(found, classified(X), rtol=1e-4, atol=1e-4)


def test_images_with_one_dimension_are_images_of_one_row(tmp_path: Path) -> None:
    x, w, b = floats(1, 3, 9), floats(5, 3, 4), floats(5)
    content = model(graph(
        [node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1], strides=[2]),
         node("AveragePool", ["a"], ["y"], kernel_shape=[2], strides=[2])],
        [value("x", [1, 3, 9])], ["y"], {"w": w, "b": b},
    ))
    (found,) = interpret(read(tmp_path / "m.onnx", content), [x])
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    windows = np.stack([padded[:, :, 2 * i : 2 * i + 4] for i in range(4)], -1)
    hidden = np.einsum("nclp,ocl->nop", windows, w) + b[:, None]
    np.testing.assert_allclose(found, hidden.reshape(1, 5, 2, 2).mean(-1), rtol=1e-4, atol=1e-5)


def test_shuffled_channels_are_moved_once(tmp_path: Path) -> None:
    w, b = floats(12, 3, 1, 1), floats(12)
    order = np.array([0, 3, 4, 6, 10], np.int64)
    content = model(graph(
        [node("Conv", ["x", "w", "b"], ["a"]), node("Reshape", ["a", "split"], ["c"]),
         node("Transpose", ["c"], ["d"], perm=[0, 2, 1, 3, 4]),
         node("Reshape", ["d", "whole"], ["e"]), node("Conv", ["e", "w2", "b2"], ["y"])],
        [value("x", [1, 3, 6, 10])], ["y"],
        {"w": w, "b": b, "split": order, "whole": np.array([0, 12, 6, 10], np.int64),
         "w2": floats(5, 12, 1, 1), "b2": floats(5)},
    ))
    network = read(tmp_path / "m.onnx", content, "nhwc")
    assert moves(network) == 1


def test_outputs_that_are_images_follow_the_layout(tmp_path: Path) -> None:
    content = model(graph(
        [node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])], [value("x", [1, 3, 6, 10])],
        ["y"], {"w": W1, "b": B1},
    ))
    expected = convolved(X, W1, B1)
    (found,) = interpret(read(tmp_path / "m.onnx", content), [X])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    network = read(tmp_path / "m.onnx", content, "nhwc")
    (found,) = interpret(network, [np.ascontiguousarray(X.transpose(0, 2, 3, 1))])
    np.testing.assert_allclose(found, expected.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)


def test_pads_below_0_take_elements_away(tmp_path: Path) -> None:
    content = model(graph(
        [node("Pad", ["x", "pads"], ["y"])], [value("x", [4, 5, 6])], ["y"],
        {"pads": np.array([-1, 2, -2, 1, -3, -1], np.int64)},
    ))
    x = floats(4, 5, 6)
    (found,) = interpret(read(tmp_path / "m.onnx", content), [x])
    expected = np.pad(x[1:, :2, 2:5], ((0, 1), (2, 0), (0, 0)))
    np.testing.assert_array_equal(found, expected)
