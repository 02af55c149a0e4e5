"""Quantized files become operators of integers where ONNX Runtime computes such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.importers import load
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Dequantize, FullyConnected, Lookup, Quantize
from crtexport.passes.drop_dead import drop_dead
from crtexport.support.errors import CrtExportError
from tests.differential.network import interpret
from tests.importers.onnx.writer import graph, model, node, value

F32 = np.float32
X_SCALE, Y_SCALE = F32(0.021), F32(0.083)


def between(
    operator: str, inputs: list[str], constants: dict[str, npt.NDArray[Any]], axis: int = 0,
    **attributes: Any,
) -> bytes:
    """A file with one operator between a DequantizeLinear and a QuantizeLinear of uint8. ``axis``:
    that of the weights' and biases' scales, and of zero points where there are some."""
    scales = {
        "xs": X_SCALE, "ys": Y_SCALE, "xz": np.uint8(131), "yz": np.uint8(3), **constants,
    }
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("DequantizeLinear", ["q", "xs", "xz"], ["r"]),
        *(node("DequantizeLinear", [m for m in (n, f"{n}s", f"{n}z") if m in constants],
               [f"{n}r"], axis=axis) for n in ("w", "b") if n in constants),
        node(operator, inputs, ["t"], **attributes),
        node("QuantizeLinear", ["t", "ys", "yz"], ["y"]),
    ]
    arrays = {name: np.asarray(array) for name, array in scales.items()}
    return model(graph(nodes, [value("x", [7, 5])], ["y"], arrays))


def stored(x: npt.NDArray[Any], scale: Any, zero: int) -> npt.NDArray[Any]:
    return np.clip(np.rint(x / F32(scale)).astype(np.int64) + zero, 0, 255)


def test_a_layer_sums_integers(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    w = rng.integers(-127, 128, (6, 5)).astype(np.int8)
    ws = rng.uniform(0.002, 0.03, 6).astype(F32)
    b = rng.integers(-3000, 3000, 6).astype(np.int32)
    path = tmp_path / "m.onnx"
    path.write_bytes(between(
        "Gemm", ["r", "wr", "br"], {"w": w, "ws": ws, "b": b, "bs": X_SCALE * ws}, transB=1
    ))
    read = load(path)
    assert read.numerics is Numerics.ORT
    layer = next(n for n in read.nodes if isinstance(n.op, FullyConnected) and (
        n.outputs[0] != n.inputs[0] and read.type(n.inputs[0] or 0).dtype.is_integer
    ))
    assert read.type(layer.inputs[1] or 0).dtype.numpy == np.int8
    x = rng.normal(size=(7, 5)).astype(F32)
    (found,) = interpret(read, [x])
    sums = (stored(x, X_SCALE, 131) - 131) @ w.T.astype(np.int64) + b
    product = sums.astype(F32) * ((X_SCALE * ws) / Y_SCALE)
    np.testing.assert_array_equal(found, np.clip(np.rint(product) + 3, 0, 255))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_layer_whose_weights_no_sum_of_integers_scales_stays_in_floats(
    axis: int, tmp_path: Path
) -> None:
    """Zero points of rows, or scales of columns, of which each sum has all."""
    rng = np.random.default_rng(6)
    w = rng.integers(-127, 128, (6, 5)).astype(np.int8)
    ws = rng.uniform(0.002, 0.03, (6, 5)[axis]).astype(F32)
    constants = {"w": w, "ws": ws}
    zeros = np.zeros(5, np.int8)
    if axis == 0:
        zeros = constants["wz"] = rng.integers(-9, 10, 6).astype(np.int8)
    path = tmp_path / "m.onnx"
    path.write_bytes(between("Gemm", ["r", "wr"], constants, axis, transB=1))
    x = rng.normal(size=(7, 5)).astype(F32)
    (found,) = interpret(load(path), [x])
    across = (slice(None), None) if axis == 0 else (None, slice(None))
    real = (w.astype(float) - zeros[across]) * ws[across]
    sums = (stored(x, X_SCALE, 131) - 131) * float(X_SCALE) @ real.T
    np.testing.assert_allclose(found.astype(int), stored(sums, Y_SCALE, 3), atol=1)


def test_a_function_of_bytes_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(between("Elu", ["r"], {}))
    read = load(path)
    assert [type(n.op) for n in read.nodes].count(Lookup) == 1
    x = np.random.default_rng(5).normal(size=(7, 5)).astype(F32)
    (found,) = interpret(read, [x])
    real = (stored(x, X_SCALE, 131) - 131).astype(F32) * X_SCALE
    elu = np.where(real > 0, real, np.expm1(real.astype(np.float64))).astype(F32)
    np.testing.assert_array_equal(found, stored(elu, Y_SCALE, 3))


def test_what_is_left_in_floats_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(between("ReduceL2", ["r"], {}, axes=[1]))
    load(path)
    assert "computed in float32 between integers" in caplog.text


def test_tflite_files_have_no_numerics_of_onnx_runtime(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(bytes(4) + b"TFL3" + bytes(56))
    with pytest.raises(CrtExportError, match=r"doesn't run \.tflite files"):
        load(path, numerics=Numerics.ORT)


def test_integers_are_clipped_by_one_table(tmp_path: Path) -> None:
    """Of uint8, between QuantizeLinear and DequantizeLinear."""
    ends = {"s": F32(0.02), "z": np.uint8(7), "low": np.uint8(5), "high": np.uint8(20)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("Clip", ["q", "low", "high"], ["c"]),
        node("DequantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    path = tmp_path / "m.onnx"
    arrays = {name: np.asarray(array) for name, array in ends.items()}
    path.write_bytes(model(graph(nodes, [value("x", [7, 5])], ["y"], arrays)))
    read = drop_dead(load(path))
    assert [type(n.op) for n in read.nodes] == [Quantize, Lookup, Dequantize]
    x = np.random.default_rng(6).normal(size=(7, 5)).astype(F32)
    (found,) = interpret(read, [x])
    clipped = np.clip(stored(x, F32(0.02), 7), 5, 20)
    np.testing.assert_array_equal(found, (clipped - 7).astype(F32) * F32(0.02))


@pytest.mark.parametrize("scales", [1, 6])
def test_weights_that_the_graph_quantizes_are_constants(scales: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    w = rng.normal(size=(6, 5)).astype(F32)
    scale = rng.uniform(0.005, 0.02, scales).astype(F32)
    zeros = rng.integers(-3, 4, scales).astype(np.int8)
    nodes = [
        node("QuantizeLinear", ["w", "s", "z"], ["q"], axis=0),
        node("DequantizeLinear", ["q", "s", "z"], ["r"], axis=0),
        node("Gemm", ["x", "r"], ["y"], transB=1),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(nodes, [value("x", [3, 5])], ["y"], {
        "w": w, "s": scale if scales > 1 else scale[0], "z": zeros if scales > 1 else zeros[0],
    })))
    x = rng.normal(size=(3, 5)).astype(F32)
    (found,) = interpret(load(path), [x])
    steps = np.clip(np.rint(w / scale[:, None]) + zeros[:, None], -128, 127) - zeros[:, None]
    real = steps.astype(np.float64) * scale[:, None]
    np.testing.assert_allclose(found, x @ real.T, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"bits": 3}, "bits must be 2, 4 or 8"),
        ({"packed": np.full((3, 2, 4), 255, np.uint8), "zeros": np.zeros((3, 2), np.uint8),
          "bits": 8, "block_size": 4}, "don't fit int8"),
        ({"packed": np.zeros((3, 2, 2), np.int8)}, "must be a constant of uint8"),
    ],
)
def test_blocks_that_can_not_be_are_refused(
    change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    facts = {
        "packed": np.zeros((3, 2, 2), np.uint8), "zeros": None, "bits": 4, "block_size": 4, **change
    }
    arrays = {"b": facts["packed"], "s": np.ones(6, F32)}
    if facts["zeros"] is not None:
        arrays["z"] = facts["zeros"]
    layer = node(
        "MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", K=8, N=3,
        bits=facts["bits"], block_size=facts["block_size"],
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph([layer], [value("x", [2, 8])], ["y"], arrays)))
    with pytest.raises(CrtExportError, match=problem):
        load(path)
