"""Weights that are stored smaller than they count: int8 and float16 under float32 activations."""

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
from tests.tflite_builder import run_reference

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
