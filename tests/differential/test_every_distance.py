"""Rows of 8-bit numbers in which each distance from the largest occurs: all that the tables and
limits of softmax and its logarithm are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.lowering.operator_table import lower
from crtexport.lowering.registry import Context
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder, run_reference

SCALES = (0.001, 0.004, 0.02, 0.05, 0.1, 0.17, 0.4, 1.0, 3.7)
OUTPUTS = {
    ("SOFTMAX", "int8"): (1 / 256, -128), ("SOFTMAX", "uint8"): (1 / 256, 0),
    ("LOG_SOFTMAX", "int8"): (16 / 256, 127), ("LOG_SOFTMAX", "uint8"): (16 / 256, 255),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("operator", "dtype"), OUTPUTS)
def test_every_distance_gives_what_the_reference_does(
    operator: str, dtype: str, scale: float, tmp_path: Path
) -> None:
    values = np.arange(256) - (128 if dtype == "int8" else 0)
    rng = np.random.default_rng(1)
    low = values[0]
    rows = np.stack([
        values, rng.permutation(values), np.where(values > low + 9, low, values),
        np.full(256, low + 200), rng.choice(values, 256), np.where(values < low + 250, low, values),
    ]).astype(dtype)
    m = ModelBuilder()
    x = m.tensor("x", rows.shape, dtype, scale=scale, zero_point=3)
    out, zero = OUTPUTS[operator, dtype]
    y = m.tensor("y", rows.shape, dtype, scale=out, zero_point=zero)
    m.op(operator, [x], [y], **({"beta": 1.0} if operator == "SOFTMAX" else {}))
    content = m.build([x], [y])
    (tmp_path / "net.tflite").write_bytes(content)
    (found,) = interpret(load(tmp_path / "net.tflite"), [rows])
    np.testing.assert_array_equal(found, run_reference(content, rows)[0])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("operator", "dtype"), OUTPUTS)
def test_tables_end_behind_what_is_a_millionth_of_the_largest(
    operator: str, dtype: str, scale: float, tmp_path: Path
) -> None:
    """Less is 0 when it is added up, and 0 of 256 or 65,536 parts."""
    m = ModelBuilder()
    out, zero = OUTPUTS[operator, dtype]
    x = m.tensor("x", (1, 8), dtype, scale=scale)
    y = m.tensor("y", (1, 8), dtype, scale=out, zero_point=zero)
    m.op(operator, [x], [y], **({"beta": 1.0} if operator == "SOFTMAX" else {}))
    (tmp_path / "net.tflite").write_bytes(m.build([x], [y]))
    graph = load(tmp_path / "net.tflite")
    (node,) = graph.nodes
    kernel = lower(Context(graph, node)).kernel
    (table,) = (buffer for buffer in kernel.buffers if buffer.name == "exps")
    counting = int(np.sum(np.exp(-scale * np.arange(256)) >= 2.0**-20))
    assert table.size == min(counting + 1, 256)
