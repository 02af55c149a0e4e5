"""Softmax of bytes as ONNX Runtime: halves of steps go to even numbers, whatever the row's sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Softmax
from crtexport.ir.types import DType, Quantization
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context
from tests.differential.backends import assert_backends_agree
from tests.differential.network import Values, steps
from tests.plan.graphs import GraphBuilder

Array = np.ndarray[Any, Any]
ROWS = 300


def wanted(x: Array, scale: float, result: Quantization) -> Array:
    """The formula in NumPy: a table and sums in float32, products and quotients in float64."""
    depth = x.shape[1]
    most = np.float32(np.finfo(np.float32).max / np.float32(depth))
    factor = float(np.float32(scale))
    shift = max(0.0, float(np.float32(np.log(np.float64(most)))) - 5) / factor
    table = np.exp((np.arange(256) - 255 + shift) * factor).astype(np.float32)
    grown = table[x.astype(int) + 255 - x.max(axis=1, keepdims=True)]
    total = np.zeros(len(x), np.float32)
    for column in grown.T:
        total = total + column
    steps_ = float(np.floor(np.float32(1) / np.float32(result.scale[0])))
    parts = grown.astype(np.float64) * steps_ / total.astype(np.float64)[:, None]
    return np.clip(np.rint(parts) + result.zero_point[0], -128, 127).astype(np.int8)


@pytest.mark.parametrize(("depth", "scale", "result"), [
    (1, 0.1, 1 / 255), (2, 0.05, 1 / 201), (2, 0.18, 1 / 183), (3, 2.0, 0.0031), (6, 0.01, 1 / 253),
    (40, 0.02, 1 / 1999), (5, 0.3, 1.7),
])
def test_it_is_the_formula(depth: int, scale: float, result: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, (ROWS, depth), np.int8)
    x[: ROWS // 2] = x[: ROWS // 2, :1]  # equal numbers, and so halves where steps are odd
    to = Quantization((float(np.float32(result)),), (-121,))
    b = GraphBuilder()
    source = b.input(*x.shape, dtype=DType.INT8, quant=Quantization((scale,), (9,)))
    graph = replace(b.finish(b.node(Softmax(), source, quant=to)), numerics=Numerics.ORT)
    values: Values = {graph.inputs[0]: x}
    found = list(steps(graph, values))
    np.testing.assert_array_equal(values[graph.outputs[0]], wanted(x, scale, to))
    assert_backends_agree(found, tmp_path)


@pytest.mark.parametrize(("numerics", "scale", "problem"), [
    (Numerics.TFLITE, 1 / 255, "(found 0.0039"), (Numerics.TFLITE, 1 / 256, None),
    (Numerics.ORT, 1 / 255, None),
])
def test_results_have_the_runtimes_scale(
    numerics: Numerics, scale: float, problem: str | None
) -> None:
    b = GraphBuilder()
    source = b.input(3, 4, dtype=DType.INT8, quant=Quantization((0.1,), (0,)))
    quant = Quantization((scale,), (-128,))
    graph = replace(b.finish(b.node(Softmax(), source, quant=quant)), numerics=numerics)
    found = check(Context(graph, graph.nodes[0]))
    assert found == [] if problem is None else problem in found[0]
