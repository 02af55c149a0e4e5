"""Weights and tables that are stored smaller than they count: int8 and float16 for float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport import passes
from crtexport.importers import load
from crtexport.ir.ops import Dequantize
from crtexport.ir.types import DType
from crtexport.simulation.tflite_writer import is_hybrid, to_tflite
from tests.differential.cases_weighted import WEIGHTED_OPERATORS, stored_weights
from tests.differential.draw import SeededDraw
from tests.differential.network import interpret
from tests.differential.test_operators import FLOAT_TOLERANCE
from tests.tflite_builder import ModelBuilder, run_reference

SEEDS = range(12)


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    full_scale = max(float(np.abs(theirs).max(initial=0)), 1e-3)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=FLOAT_TOLERANCE * full_scale)


@pytest.mark.parametrize("code", WEIGHTED_OPERATORS)
@pytest.mark.parametrize("seed", SEEDS)
def test_hybrid_operators_compute_with_the_dequantized_weights(
    code: str, seed: int, tmp_path: Path
) -> None:
    case = stored_weights(SeededDraw(seed), code, "hybrid")
    path = tmp_path / "model.tflite"
    path.write_bytes(case.content)
    graph = load(path)
    assert is_hybrid(graph)
    (expected,) = run_reference(to_tflite(graph, dequantize_weights=True), *case.inputs)
    close(interpret(graph, case.inputs)[0], expected)


@pytest.mark.parametrize("code", WEIGHTED_OPERATORS)
@pytest.mark.parametrize("stored", ["int8", "float16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_dequantized_weights_are_folded(
    code: str, stored: str, seed: int, tmp_path: Path
) -> None:
    case = stored_weights(SeededDraw(seed), code, stored)
    path = tmp_path / "model.tflite"
    path.write_bytes(case.content)
    graph = passes.run(load(path))
    (node,) = graph.nodes
    assert not isinstance(node.op, Dequantize)
    kept = DType.INT8 if stored == "int8" else DType.FLOAT32
    assert graph.type(graph.required(node, 1)).dtype is kept
    (expected,) = run_reference(case.content, *case.inputs)
    close(interpret(graph, case.inputs)[0], expected)


def test_indices_of_no_row_take_the_nearest(tmp_path: Path) -> None:
    """The runtimes refuse them."""
    m = ModelBuilder()
    indices = m.tensor("indices", (5,), "int32")
    table = m.tensor("table", (3, 2), "int8", 0.5, data=[[1, 2], [3, 4], [5, 6]])
    y = m.tensor("y", (5, 2))
    m.op("EMBEDDING_LOOKUP", [indices, table], [y])
    path = tmp_path / "model.tflite"
    path.write_bytes(m.build([indices], [y]))
    graph = load(path)
    given = np.array([2, -1, 3, 1 << 30, -(1 << 31)], np.int32)
    (found,) = interpret(graph, [given])
    assert found.tolist() == [[2.5, 3], [0.5, 1], [2.5, 3], [2.5, 3], [0.5, 1]]
