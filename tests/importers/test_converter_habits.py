"""Files as converters write them: what is no mistake of the user's is read, as runtimes read it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flatbuffers import flexbuffers

import crtexport
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Abs, TransposeConv2D
from crtexport.support.errors import CrtExportError
from tests.differential import cases_detection
from tests.differential.draw import SeededDraw
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder, run_reference

Array = npt.NDArray[Any]


def read(folder: Path, content: bytes) -> Graph:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return load(path)


def equal(folder: Path, content: bytes, *inputs: Array) -> None:
    """Asserts that kernels give what the reference runtime gives."""
    expected = run_reference(content, *inputs)
    for ours, theirs in zip(interpret(read(folder, content), inputs), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)


@pytest.mark.parametrize("fields", [["old"], ["new"]])
def test_codes_of_operators_are_in_either_field(fields: list[str], tmp_path: Path) -> None:
    """TensorFlow's converters before 2.4 write the one, ai-edge-quantizer the other."""
    m = ModelBuilder()
    x, y = m.tensor("x", (1, 6)), m.tensor("y", (1, 6))
    m.op("ABS", [x], [y])
    graph = read(tmp_path, m.build([x], [y], code_fields=fields))
    assert [type(node.op) for node in graph.nodes] == [Abs]


def layer(
    code: str, *, bias: Array, bias_scale: float | list[float], bias_axis: int = 0,
    weight_scale: float | list[float] = 0.02,
) -> bytes:
    """A CONV_2D or FULLY_CONNECTED of 4 units over 6 values; sums have the scale 0.001."""
    m = ModelBuilder()
    middle = (1, 1) if code == "CONV_2D" else ()
    x = m.tensor("x", (1, *middle, 6), "int8", scale=0.05, zero_point=3)
    w = m.tensor("w", (4, *middle, 6), "int8", scale=weight_scale, data=drawn(1, 24))
    b = m.tensor("b", (4,), "int32", scale=bias_scale, axis=bias_axis, data=bias)
    y = m.tensor("y", (1, *middle, 4), "int8", scale=0.5, zero_point=-2)
    m.op(code, [x, w, b], [y])
    return m.build([x], [y])


BIAS = np.array([3000, -20000, 0, 500])


def test_scales_of_a_vector_have_one_axis_whatever_the_file_says(tmp_path: Path) -> None:
    """As TFLite Micro's person_detect, which tflite-runtime refuses for it."""
    scales, x = [0.02, 0.03, 0.01, 0.02], drawn(2, 1, 1, 1, 6)
    usual, odd = (
        layer(
            "CONV_2D", bias=BIAS, weight_scale=scales, bias_scale=[0.05 * s for s in scales],
            bias_axis=axis,
        ) for axis in (0, 3)
    )
    (expected,), (got,) = run_reference(usual, x), interpret(read(tmp_path, odd), [x])
    np.testing.assert_array_equal(got, expected)


def test_a_convolution_takes_the_integers_of_a_bias_of_any_scale(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "crtexport"):
        equal(tmp_path, layer("CONV_2D", bias=BIAS, bias_scale=0.5), drawn(3, 1, 1, 1, 6))
    (message,) = caplog.messages
    assert message.startswith("model.tflite: operator 0 (CONV_2D): the bias of unit 0 has scale")
    assert message.endswith("give 0.001; its integers count, as in TensorFlow Lite")


@pytest.mark.parametrize("code", ["CONV_2D", "FULLY_CONNECTED"])
def test_a_bias_of_zeros_may_have_any_scale(
    code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that layers share; FULLY_CONNECTED is compared with a bias of the scale that runtimes
    want."""
    zeros, x = np.zeros(4, int), drawn(4, 1, *([1, 1] if code == "CONV_2D" else []), 6)
    (expected,) = run_reference(layer(code, bias=zeros, bias_scale=0.001), x)
    (got,) = interpret(read(tmp_path, layer(code, bias=zeros, bias_scale=0.5)), [x])
    np.testing.assert_array_equal(got, expected)
    assert not caplog.messages


def test_a_bias_scale_that_runtimes_refuse_is_refused(tmp_path: Path) -> None:
    content = layer("FULLY_CONNECTED", bias=BIAS, bias_scale=0.5)
    with pytest.raises(CrtExportError, match=r"the bias of unit 0 has scale 0\.5"):
        read(tmp_path, content)
    with pytest.raises(CrtExportError, match="failed to prepare"):
        run_reference(content, drawn(5, 1, 6))


def test_outputs_of_detectors_without_shapes_get_the_operators(tmp_path: Path) -> None:
    """As TensorFlow's converter writes SSD networks."""
    boxes, scores, anchors = cases_detection.arrays(SeededDraw(6), "float32", 7, 3, 1)
    m = ModelBuilder()
    b, s = m.tensor("boxes", boxes.shape), m.tensor("scores", scores.shape)
    a = m.tensor("anchors", anchors.shape, data=anchors)
    outputs = [m.tensor(f"TFLite_Detection_PostProcess:{i}", ()) for i in range(4)]
    custom = bytes(flexbuffers.Dumps(cases_detection.options(max_detections=5)))
    m.op(f"custom:{cases_detection.NAME}", [b, s, a], outputs, custom=custom)
    content = m.build([b, s], outputs)
    graph = read(tmp_path, content)
    assert [graph.type(t).shape for t in graph.outputs] == [(1, 5, 4), (1, 5), (1, 5), (1,)]
    expected = run_reference(content, boxes, scores)
    for ours, theirs in zip(interpret(graph, (boxes, scores)), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_results_without_shapes_feed_others(tmp_path: Path) -> None:
    m = ModelBuilder()
    x = m.tensor("x", (2, 3, 4))
    shape = m.tensor("shape", (2,), "int32", data=[-1, 12])
    flat, total = m.tensor("flat", ()), m.tensor("total", ())
    m.op("RESHAPE", [x, shape], [flat])
    m.op("ADD", [flat, flat], [total])
    content = m.build([x], [total])
    given = np.random.default_rng(7).normal(size=(2, 3, 4)).astype(np.float32)
    equal(tmp_path, content, given)
    assert [t.type.shape for t in read(tmp_path, content).tensors] == [(2, 3, 4), (2, 12), (2, 12)]


def transposed(out: tuple[int, ...]) -> bytes:
    """A transposed convolution whose output's shape is an input of the network."""
    m = ModelBuilder()
    shape, x = m.tensor("shape", (4,), "int32"), m.tensor("x", (1, 2, 3, 5))
    w = m.tensor("w", (4, 3, 2, 5), data=np.arange(120) / 100)
    y = m.tensor("y", out)
    m.op("TRANSPOSE_CONV", [shape, w, x], [y], padding="VALID", stride=(2, 1))
    return m.build([shape, x], [y])


def test_the_files_own_shape_counts_where_an_output_shape_is_computed(tmp_path: Path) -> None:
    (node,) = read(tmp_path, transposed((1, 5, 4, 4))).nodes
    assert node.op == TransposeConv2D((5, 4), (2, 1))


@pytest.mark.parametrize("out", [(), (1, 1, 1, 4), (1, 7, 4, 4), (1, 5, 3, 4), (2, 5, 4, 4)])
def test_a_shape_that_gives_another_input_is_a_placeholder(
    out: tuple[int, ...], tmp_path: Path
) -> None:
    with pytest.raises(CrtExportError, match=r"the output's shape \(tensor 'shape'\)"):
        read(tmp_path, transposed(out))


def test_a_buffer_that_ends_nearly_all_runs_is_refused(tmp_path: Path) -> None:
    m = ModelBuilder()
    x = m.tensor("x", (1, 1, 1, 4), "int8", scale=0.5)
    kept = m.tensor("kept", (1, 3, 1, 4), "int8", scale=0.5, variable=True)
    options = bytes(flexbuffers.Dumps({"cycles_max": 5000}))
    m.op("custom:CIRCULAR_BUFFER", [x], [kept], custom=options)
    with pytest.raises(CrtExportError, match="goes on from here in one of 5000 runs only; at most"):
        read(tmp_path, m.build([x], [kept]))


def test_a_buffer_without_slots_is_refused(tmp_path: Path) -> None:
    m = ModelBuilder()
    x = m.tensor("x", (1, 2, 1, 4), "int8", scale=0.5)
    kept = m.tensor("kept", (1, 5, 1, 4), "int8", scale=0.5, variable=True)
    m.op("custom:CIRCULAR_BUFFER", [x], [kept])
    with pytest.raises(CrtExportError, match=r"int8\[1x5x1x4\] has no slots of int8"):
        read(tmp_path, m.build([x], [kept]))


@pytest.mark.parametrize(("code", "activation"), [
    ("ADD", "NONE"), ("ADD", "RELU"), ("SUB", "NONE"), ("MUL", "NONE"), ("DIV", "NONE"),
])
def test_arithmetic_on_infinities_ends_at_the_largest_numbers(
    code: str, activation: str, tmp_path: Path
) -> None:
    """As TensorFlow Lite's softplus of large numbers, which is not infinite."""
    values = np.array([100.0, -np.inf, np.nan, 88.0, 0.0, 3.0], np.float32)
    m = ModelBuilder()
    x, y = m.tensor("x", (6,)), m.tensor("y", (6,))
    grown, result = m.tensor("grown", (6,)), m.tensor("result", (6,))
    m.op("EXP", [x], [grown])
    m.op(code, [y, grown], [result], activation=activation)
    content = m.build([x, y], [result])
    for other in (np.float32(-1.0), np.float32(0.0)):
        inputs = [values, np.full(6, other)]
        (expected,) = run_reference(content, *inputs)
        (got,) = interpret(read(tmp_path, content), inputs)
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_a_tensor_may_be_several_outputs(emit: str, tmp_path: Path) -> None:
    """A further mention has a name and a buffer of its own."""
    m = ModelBuilder()
    x, y, other = m.tensor("x", (1, 4)), m.tensor("y", (1, 4)), m.tensor("y_2", (1, 4))
    m.op("NEG", [x], [y])
    m.op("ABS", [y], [other])
    path, package = tmp_path / "m.tflite", tmp_path / "m.tar"
    path.write_bytes(m.build([x], [y, y, other, y]))
    crtexport.export(path, emit=emit, output=package)
    values = np.array([[1.0, -2.0, 3.0, 0.5]], np.float32)
    outputs = crtexport.simulate(package, {"x": values}).outputs
    assert [*outputs] == ["y", "y_3", "y_2", "y_4"]
    for name, found in outputs.items():
        np.testing.assert_array_equal(found, np.abs(values) if name == "y_2" else -values)
