"""Attention over keys of which each sample has a number of its own, known at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from tests.differential.network import interpret
from tests.importers.onnx.writer import graph, model, node, value

BATCHES, HEADS, STEPS, KEYS, DEPTH = 3, 2, 4, 7, 5


@pytest.mark.parametrize(("causal", "left", "right"), [
    (False, -1, -1), (True, -1, -1), (False, 1, -1), (False, -1, 1), (True, 2, 1), (False, 0, 2),
])
def test_queries_are_the_last_of_the_keys_that_count(
    causal: bool, left: int, right: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(left + 4 * right + 5)
    queries, keys, values = (
        rng.standard_normal((BATCHES, HEADS, count, DEPTH)).astype(np.float32)
        for count in (STEPS, KEYS, KEYS)
    )
    lengths = np.array([7, 4, 5], np.int64)
    mask = rng.standard_normal((STEPS, KEYS - 1)).astype(np.float32)
    content = model(graph(
        [node(
            "Attention", ["q", "k", "v", "m", "", "", "n"], ["y"], is_causal=int(causal),
            left_window_size=left, right_window_size=right,
        )],
        [value("q", queries.shape), value("k", keys.shape), value("v", keys.shape),
         value("n", lengths.shape, "int64")],
        ["y"], {"m": mask},
    ), version=27)
    (tmp_path / "m.onnx").write_bytes(content)
    (found,) = interpret(load(tmp_path / "m.onnx"), [queries, keys, values, lengths])
    scores = queries.astype(np.float64) @ keys.transpose(0, 1, 3, 2) / np.sqrt(DEPTH)
    scores += np.pad(mask, ((0, 0), (0, 1)), constant_values=-np.inf)
    for batch, length in enumerate(lengths):
        for step in range(STEPS):
            at = length - STEPS + step
            for key in range(KEYS):
                far = (
                    key >= length or (causal and key > at)
                    or (left >= 0 and key < at - left) or (right >= 0 and key > at + right)
                )
                if far:
                    scores[batch, :, step, key] = -np.inf
    # A query that sees no key gives zeros.
    chances = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e3))
    expected = chances / np.maximum(chances.sum(-1, keepdims=True), 1e-300) @ values
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
